//! Undoing one change, if it is still ours.

use super::cgroup;
use crate::fault;
use crate::step::Undo;
use std::io;
use std::path::Path;

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as before.
    Done,
    /// Somebody has changed it since: it is left alone. What was found.
    NotOurs(String),
}

/// It could not be undone.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct UndoError {
    what: String,
    source: io::Error,
}

/// Undoes a change; one that is undone already, or never came about, is fine.
///
/// # Errors
/// The kernel refused.
pub fn undo(undo: &Undo) -> Result<Outcome, UndoError> {
    let failed = |source| UndoError { what: undo.to_string(), source };
    match undo {
        Undo::RemoveGroup(folder) => cgroup::remove(folder).map(|()| Outcome::Done).map_err(failed),
        Undo::Return { group, home, process } => {
            cgroup::go_back(group, home, *process).map(|()| Outcome::Done).map_err(failed)
        }
        Undo::KeepBack { group, child } => match cgroup::keep_back(group, child) {
            // The group is gone, and what it passed on with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Outcome::Done),
            Err(error) => Err(failed(error)),
            Ok(user) => Ok(user.map_or(Outcome::Done, Outcome::NotOurs)),
        },
        Undo::Restore { file, old, ours } => restore(file, old, ours).map_err(failed),
    }
}

fn restore(file: &Path, old: &str, ours: &str) -> io::Result<Outcome> {
    let found = std::fs::read_to_string(file)?;
    let found = found.trim();
    if found == old {
        return Ok(Outcome::Done);
    }
    if found != ours {
        return Ok(Outcome::NotOurs(found.to_owned()));
    }
    std::fs::write(file, old)?;
    fault::point("file.restored");
    let kept = std::fs::read_to_string(file)?;
    match kept.trim() == old {
        true => Ok(Outcome::Done),
        false => Err(io::Error::other(format!("`{old}` was written, and the kernel kept `{}`", kept.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_its_old_text_back_only_while_it_has_ours() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("driver_override");
        let restore = Undo::Restore { file: file.clone(), old: "igb".into(), ours: "vfio-pci".into() };
        for (found, outcome, after) in [
            ("vfio-pci\n", Outcome::Done, "igb"),
            ("igb\n", Outcome::Done, "igb\n"),
            ("uio\n", Outcome::NotOurs("uio".into()), "uio\n"),
        ] {
            std::fs::write(&file, found).unwrap();
            assert_eq!(undo(&restore).unwrap(), outcome);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
        }
    }
}
