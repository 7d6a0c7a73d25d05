//! Undoing one change, if it is still ours.

use super::child::{self, ChildError, Failure};
use super::{bind, cgroup, file, nodes, sriov};
use crate::step::Undo;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is as before.
    Done,
    /// Somebody has changed it since: it is left alone. What was found.
    NotOurs(String),
}

/// It could not be undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The kernel refused.
    #[error("{what}")]
    Refused {
        /// What was to be done.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The child that was to do it did not come to its end.
    #[error("{what}")]
    Unfinished {
        /// What was to be done.
        what: String,
        /// What became of the child.
        source: ChildError,
    },
}

/// Undoes a change; one that is undone already, or never came about, is fine.
///
/// # Errors
/// The kernel refused.
pub fn undo(undo: &Undo) -> Result<Outcome, UndoError> {
    let done = match undo {
        Undo::RemoveGroup(folder) => cgroup::remove(folder).map(|()| Outcome::Done),
        Undo::Return { group, home, process } => cgroup::go_back(group, home, *process).map(|()| Outcome::Done),
        Undo::KeepBack { group, child } => match cgroup::keep_back(group, child) {
            // The group is gone, and what it passed on with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Outcome::Done),
            other => other.map(|user| user.map_or(Outcome::Done, Outcome::NotOurs)),
        },
        Undo::Restore { file, old, ours } => file::restore(file, old, ours),
        Undo::RemoveVfs(remove) => sriov::remove_all(remove),
        Undo::Rebind(rebind) => bind::rebind(rebind),
        Undo::Close(close) => nodes::close(close),
    };
    done.map_err(|source| UndoError::Refused { what: undo.to_string(), source })
}

/// The same in a child that is given this long; the child keeps the lease's lock.
///
/// # Errors
/// As above, and where the child did not come to its end.
pub fn undo_within(change: &Undo, limit: Duration, lock: BorrowedFd<'_>) -> Result<Outcome, UndoError> {
    let told = child::within(limit, lock, || undo(change).map_err(Failure::from));
    let told = told.map_err(|source| UndoError::Unfinished { what: change.to_string(), source })?;
    told.map_err(|failure| {
        let (what, source) = failure.parts();
        UndoError::Refused { what, source }
    })
}

impl UndoError {
    /// True where the time did not reach, so that trying again would take as long.
    pub fn is_unfinished(&self) -> bool {
        let UndoError::Unfinished { source, .. } = self else { return false };
        matches!(source, ChildError::Late { .. } | ChildError::Hangs { .. })
    }
}

impl From<UndoError> for Failure {
    fn from(error: UndoError) -> Failure {
        match error {
            UndoError::Refused { what, source } => (what, source).into(),
            UndoError::Unfinished { what, source } => (what, io::Error::other(source)).into(),
        }
    }
}
