//! A value in a file of the kernel's: what is written is read back, and the old
//! value comes back while ours still stands.

use super::StepError;
use super::undo::Outcome;
use crate::fault;
use crate::step::Undo;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What gives the file its present value back; none where it is the wanted one.
///
/// # Errors
/// It cannot be read.
pub fn undo_of(file: &Path, value: &str) -> Result<Option<Undo>, StepError> {
    let old = now(file).map_err(|source| StepError::Refused { call: format!("read {}", file.display()), source })?;
    let undo = Undo::Restore { file: file.to_owned(), old: old.clone(), ours: value.to_owned() };
    Ok((old != value).then_some(undo))
}

/// Writes a value that the kernel keeps. One that it keeps in part is taken back.
///
/// # Errors
/// The kernel refused, or kept something else.
pub fn write(file: &Path, value: &str) -> Result<(), StepError> {
    let call = || format!("write {value} to {}", file.display());
    let refused = |source| StepError::Refused { call: call(), source };
    let old = now(file).map_err(refused)?;
    set(file, value).map_err(refused)?;
    fault::point("file.written");
    let kept = now(file).map_err(refused)?;
    if kept == value {
        return Ok(());
    }
    // Later nobody could tell that it is ours.
    set(file, &old).map_err(refused)?;
    Err(StepError::Changed { call: call(), found: format!("`{kept}`") })
}

/// Gives the file its old value back if it has ours.
///
/// # Errors
/// The kernel refused, or kept something else.
pub fn restore(file: &Path, old: &str, ours: &str) -> io::Result<Outcome> {
    let found = now(file)?;
    if found == old {
        return Ok(Outcome::Done);
    }
    if found != ours {
        return Ok(Outcome::NotOurs(found));
    }
    set(file, old)?;
    fault::point("file.restored");
    let kept = now(file)?;
    match kept == old {
        true => Ok(Outcome::Done),
        false => Err(io::Error::other(format!("`{old}` was written, and the kernel kept `{kept}`"))),
    }
}

fn now(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)?.read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// The kernel takes a value in one write, and reads an empty line as none.
fn set(file: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(file)?.write_all(format!("{value}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_its_old_text_back_only_while_it_has_ours() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("driver_override");
        for (found, outcome, after) in [
            ("vfio-pci\n", Outcome::Done, "igb\n"),
            ("igb\n", Outcome::Done, "igb\n"),
            ("uio\n", Outcome::NotOurs("uio".into()), "uio\n"),
        ] {
            std::fs::write(&file, found).unwrap();
            assert_eq!(restore(&file, "igb", "vfio-pci").unwrap(), outcome);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
        }
    }

    #[test]
    fn a_value_that_stands_already_is_not_ours_to_undo() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("value");
        std::fs::write(&file, "1\n").unwrap();
        assert_eq!(undo_of(&file, "1").unwrap(), None);
        let undo = undo_of(&file, "2").unwrap().unwrap();
        write(&file, "2").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "2\n");
        assert_eq!(undo, Undo::Restore { file, old: "1".into(), ours: "2".into() });
    }
}
