//! What undoes a step is on disk before the step is done.

use super::heir;
use super::ledger::Own;
use super::log::Log;
use super::record::Event;
use super::{Lease, Locked};
use crate::fault;
use crate::host::audit::TARGET;
use crate::host::undo::{self, Outcome, UndoError};
use crate::step::Undo;
use std::error::Error;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// What a launch has done to the host so far.
#[derive(Debug)]
pub struct Journal {
    own: Own,
    done: Vec<Undo>,
}

impl Journal {
    /// Of a launch that has done nothing yet.
    pub fn new(own: Own) -> Journal {
        Journal { own, done: Vec::new() }
    }

    /// Writes down what undoes the next step.
    ///
    /// # Errors
    /// It could not be written: the step must not be done.
    pub fn before(&mut self, undo: Undo) -> io::Result<()> {
        self.own.note(&Event::Undo(undo.clone()))?;
        undo.announce(&self.own.id);
        self.done.push(undo);
        Ok(())
    }

    /// What a dead launch of the same name did to the host is this one's to
    /// undo. Its cgroup goes now; the rest stays in place.
    ///
    /// # Errors
    /// It could not be written down, or the old lease is still there.
    pub fn take_over(&mut self, locked: &Locked<'_>, before: &Lease) -> io::Result<()> {
        for undo in &before.journal {
            // Cpusets that were passed on for it are passed on for the next one too.
            let of_the_group = matches!(undo, Undo::RemoveGroup(_) | Undo::Return { .. });
            let gone = of_the_group && undo::undo(undo).is_ok();
            if !gone {
                self.before(undo.clone())?;
            }
        }
        locked.remove(before)
    }

    /// Everything is in place: what was done is undone when the workload ends.
    ///
    /// # Errors
    /// It could not be written.
    pub fn running(&mut self) -> io::Result<()> {
        self.own.note(&Event::Running)?;
        tracing::info!(target: TARGET, lease = %self.own.id, "granted: {}", self.own.held);
        Ok(())
    }

    /// Undoes everything, the last step first, and ends the lease. What cannot
    /// be undone is told, and its lease stays for the next launch to try again.
    pub fn roll_back(mut self, tell: &mut dyn FnMut(String)) {
        let (lock, log, file) = self.own.parts();
        match take_back(&self.done, &mut |undo| undone(undo, lock, (log, file), None), tell) {
            Ok(()) => {
                if let Err(error) = self.own.release() {
                    tell(format!("the lease could not be removed: {error}"));
                }
            }
            Err(error) if error.is_unfinished() => self.quarantine(&error, tell),
            Err(_) => {}
        }
    }

    /// Leaves the lease with all that it holds where the kernel does not come
    /// back from something of it.
    pub fn quarantine(mut self, error: &dyn Error, tell: &mut dyn FnMut(String)) {
        let reason = crate::report::chain(error);
        let _ = self.own.note(&Event::Stuck(reason));
        tell(format!("lease {} keeps what it holds: `numa-run gc` tries again to undo it", self.own.id));
    }

    /// The lease.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// True where something is to be undone at once when the workload ends.
    pub fn is_host_wide(&self) -> bool {
        self.done.iter().any(Undo::is_host_wide)
    }
}

/// Undoes one of a lease's changes, in a child where it may block, and writes
/// down that it has been undone.
///
/// # Errors
/// It was not undone.
pub fn undone(
    undo: &Undo,
    lock: BorrowedFd<'_>,
    (log, file): (&mut Log, &Path),
    left: Option<Duration>,
) -> Result<Outcome, UndoError> {
    let outcome = match (heir::of(undo, file), undo.limit()) {
        (Some(heir), _) => {
            tracing::info!(target: TARGET, "handed on to lease {heir}: {undo}");
            Outcome::Done
        }
        (None, None) => undo::undo(undo)?,
        (None, Some(limit)) => undo::undo_within(undo, left.map_or(limit, |left| limit.min(left)), lock)?,
    };
    fault::point("undo.done");
    // Where it cannot be written down it is undone once more, which changes nothing.
    let _ = log.note(&Event::Undone(undo.clone()));
    Ok(outcome)
}

/// Undoes these, the last one first, and tells what somebody else has changed since.
///
/// # Errors
/// One of them failed. The others were undone.
pub fn take_back(
    done: &[Undo],
    undo_one: &mut dyn FnMut(&Undo) -> Result<Outcome, UndoError>,
    tell: &mut dyn FnMut(String),
) -> Result<(), UndoError> {
    let mut failed = Ok(());
    // What was handed on to a lease came last, and what it holds of it goes before it.
    let is_last = |undo: &&Undo| matches!(undo, Undo::RemoveVfs(_));
    let last = done.iter().rev().filter(is_last);
    for undo in done.iter().rev().filter(|undo| !is_last(undo)).chain(last) {
        fault::point("undo.begun");
        match undo_one(undo) {
            Ok(Outcome::Done) => tracing::info!(target: TARGET, "undone: {undo}"),
            Ok(Outcome::NotOurs(found)) => {
                tell(format!("left as it is, because it was changed since: {undo}: found {found}"));
            }
            Err(error) => {
                tell(format!("not undone: {}", crate::report::chain(&error)));
                failed = failed.and(Err(error));
            }
        }
        fault::point("undo.ended");
    }
    failed
}
