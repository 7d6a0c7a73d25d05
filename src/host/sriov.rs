//! Virtual functions: made all at once from none, waited for, and removed when nobody has one.

use super::undo::Outcome;
use super::{StepError, bind};
use crate::fault;
use crate::step::device::FUNCTIONS;
use crate::step::{MakeVfs, RemoveVfs, Undo};
use crate::topology::Bdf;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the functions may take to appear.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);

/// How long somebody else's may be at vfio-pci when its launch has ended.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(2);

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
        0 => write(&file, wanted).map_err(failed(format!("write {wanted} to {}", file.display())))?,
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

/// What the kernel's numbers mean here: `no space left on device` is no full disk.
fn write(file: &Path, count: u32) -> io::Result<()> {
    fs::write(file, count.to_string()).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSPC) => io::Error::other("out of interrupt vectors or bus numbers for virtual functions"),
        Some(libc::ENOMEM) => io::Error::other("no room for their memory (boot with pci=realloc)"),
        _ => error,
    })
}

fn folder(port: Bdf) -> PathBuf {
    Path::new(FUNCTIONS).join(port.to_string())
}

/// The virtual functions of a port. The file that counts them is not read: who
/// reads it waits for who changes it.
pub fn functions(port: Bdf) -> Vec<Bdf> {
    let entries = fs::read_dir(folder(port)).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("virtfn"));
    let mut found: Vec<Bdf> = links.filter_map(|entry| name(&entry.path())).collect();
    found.sort_unstable();
    found
}

/// The port of a virtual function.
pub fn port_of(device: Bdf) -> Option<Bdf> {
    name(&folder(device).join("physfn"))
}

fn name(link: &Path) -> Option<Bdf> {
    fs::read_link(link).ok()?.file_name()?.to_str()?.parse().ok()
}

fn autoprobe(port: Bdf) -> (PathBuf, Option<String>) {
    let file = folder(port).join("sriov_drivers_autoprobe");
    let text = fs::read_to_string(&file).ok();
    (file, text.map(|text| text.trim().to_owned()))
}

/// What removes them again; none where they are there already.
///
/// # Errors
/// The port is gone, or has others.
pub fn undo_of(make: &MakeVfs) -> Result<Option<Undo>, StepError> {
    let refused = |reason: String| {
        let call = format!("make {} virtual functions of {}", make.count, make.port);
        StepError::Refused { call, source: io::Error::other(reason) }
    };
    if !folder(make.port).exists() {
        return Err(refused(format!("{} is gone", make.port)));
    }
    let (port, wanted) = (make.port, make.count);
    match functions(port).len() as u32 {
        0 => {
            let autoprobe = autoprobe(port).1.filter(|text| !make.drivers && text != "0");
            Ok(Some(Undo::RemoveVfs(RemoveVfs { port, count: wanted, autoprobe })))
        }
        found if found == wanted => Ok(None),
        found => Err(refused(SriovError::Others { port, found, wanted }.to_string())),
    }
}

/// Makes them, and sees to it that those which are to be handed out are among them.
///
/// # Errors
/// Not all of them came.
pub fn make_all(change: &MakeVfs) -> Result<(), StepError> {
    let call = || format!("make {} virtual functions of {}", change.count, change.port);
    let refused = |source| StepError::Refused { call: call(), source };
    let (file, before) = autoprobe(change.port);
    let ours = before.filter(|text| !change.drivers && text != "0");
    if ours.is_some() {
        fs::write(&file, "0\n").map_err(refused)?;
        fault::point("vfs.without-drivers");
    }
    let made = make(Path::new("/"), change.port, change.count);
    fault::point("vfs.made");
    if let Some(before) = ours {
        fs::write(&file, format!("{before}\n")).map_err(refused)?;
    }
    made.map_err(|error| {
        let reason = crate::report::chain(&error);
        refused(io::Error::other(reason))
    })?;
    let there = functions(change.port);
    match change.wanted.iter().find(|device| !there.contains(device)) {
        None => Ok(()),
        Some(other) => Err(StepError::Changed { call: call(), found: format!("no function at {other}") }),
    }
}

/// Removes those that we made, if nobody has one.
///
/// # Errors
/// One of them is open, or the kernel refused.
pub fn remove_all(undo: &RemoveVfs) -> io::Result<Outcome> {
    if !folder(undo.port).exists() {
        return Ok(Outcome::Done);
    }
    let (file, now) = autoprobe(undo.port);
    if let Some(before) = undo.autoprobe.as_ref().filter(|_| now.as_deref() == Some("0")) {
        fs::write(file, format!("{before}\n"))?;
        fault::point("vfs.with-drivers");
    }
    let there = functions(undo.port);
    if there.is_empty() {
        return Ok(Outcome::Done);
    }
    if there.len() as u32 != undo.count {
        return Ok(Outcome::NotOurs(format!("{} virtual functions", there.len())));
    }
    let handed_out = || there.iter().copied().find(|device| bind::driver(*device).as_deref() == Some(bind::VFIO));
    // Whoever has given one back is about to give it to its driver.
    let end = Instant::now() + GIVEN_BACK_WITHIN;
    while let Some(device) = handed_out() {
        // The kernel would wait for who has it, and everybody else for the kernel.
        if is_open(device) {
            return Err(io::Error::other(format!("virtual function {device} is open in another process")));
        }
        if Instant::now() >= end {
            return Ok(Outcome::NotOurs(format!("{device} at {}", bind::VFIO)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    write(&folder(undo.port).join("sriov_numvfs"), 0)?;
    fault::point("vfs.removed");
    match functions(undo.port).len() {
        0 => Ok(Outcome::Done),
        left => Err(io::Error::other(format!("0 was written, and {left} virtual functions are left"))),
    }
}

/// A group at vfio-pci can be opened once.
fn is_open(device: Bdf) -> bool {
    let file = bind::group_file(device);
    let opened = file.map(|file| OpenOptions::new().read(true).write(true).open(file));
    opened.is_some_and(|opened| opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)))
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
