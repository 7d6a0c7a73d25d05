//! Virtual functions: made all at once from none, and waited for.

use crate::topology::Bdf;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the functions may take to appear.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);

/// Virtual functions that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SriovError {
    /// The kernel refused, or the port has none.
    #[error("{what}")]
    File {
        /// The file, and what was written to it.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// There are some, but not as many.
    #[error(
        "{port} has {found} virtual functions and {wanted} are wanted: the kernel changes their number only through none, which would take away those that are there"
    )]
    Others {
        /// The physical function.
        port: Bdf,
        /// How many there are.
        found: u32,
        /// How many are wanted.
        wanted: u32,
    },
    /// Some did not come.
    #[error("{found} of {wanted} virtual functions of {port} appeared within {} s", APPEARS_WITHIN.as_secs())]
    Late {
        /// The physical function.
        port: Bdf,
        /// How many there are.
        found: u32,
        /// How many are wanted.
        wanted: u32,
    },
}

/// Sees to it that a port has so many virtual functions. Where it has them already, nothing is done.
///
/// # Errors
/// They could not be made, or there are others.
pub fn make(root: &Path, port: Bdf, wanted: u32) -> Result<(), SriovError> {
    let folder = root.join(format!("sys/bus/pci/devices/{port}"));
    let file = folder.join("sriov_numvfs");
    let failed = |what: String| move |source| SriovError::File { what, source };
    let text = fs::read_to_string(&file).map_err(failed(format!("cannot read {}", file.display())))?;
    match text.trim().parse::<u32>().unwrap_or(0) {
        0 => fs::write(&file, wanted.to_string()).map_err(failed(format!("write {wanted} to {}", file.display())))?,
        found if found == wanted => {}
        found => return Err(SriovError::Others { port, found, wanted }),
    }
    wait(&folder, port, wanted)
}

fn wait(folder: &Path, port: Bdf, wanted: u32) -> Result<(), SriovError> {
    let end = Instant::now() + APPEARS_WITHIN;
    loop {
        let found = (0..wanted).filter(|number| appeared(folder.join(format!("virtfn{number}")))).count() as u32;
        if found == wanted {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(SriovError::Late { port, found, wanted });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The link is there before the function is.
fn appeared(link: PathBuf) -> bool {
    link.join("vendor").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_has_other_functions_is_left_alone_and_one_that_has_them_is_fine() {
        let root = tempfile::tempdir().unwrap();
        let port: Bdf = "0000:3b:00.0".parse().unwrap();
        let folder = root.path().join("sys/bus/pci/devices/0000:3b:00.0");
        fs::create_dir_all(folder.join("virtfn0")).unwrap();
        fs::create_dir_all(folder.join("virtfn1")).unwrap();
        let file = folder.join("sriov_numvfs");
        fs::write(&file, "2\n").unwrap();
        for number in 0..2 {
            fs::write(folder.join(format!("virtfn{number}/vendor")), "0x8086\n").unwrap();
        }
        make(root.path(), port, 2).unwrap();
        let error = make(root.path(), port, 3).unwrap_err();
        assert!(error.to_string().starts_with("0000:3b:00.0 has 2 virtual functions and 3 are wanted"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "2\n");
    }
}
