//! What undoes a step is on disk before the step is done.

use super::ledger::Own;
use super::record::Event;
use super::{Lease, Locked};
use crate::fault;
use crate::host::audit::TARGET;
use crate::host::undo;
use crate::step::Undo;
use std::io;

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
            let gone = !undo.is_host_wide() && undo::undo(undo).is_ok();
            if !gone {
                self.before(undo.clone())?;
            }
        }
        locked.remove(&before.header.lease)
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
    pub fn roll_back(self, tell: &mut dyn FnMut(String)) {
        if take_back(&self.done, tell).is_ok()
            && let Err(error) = self.own.release()
        {
            tell(format!("the lease could not be removed: {error}"));
        }
    }

    /// The lease.
    pub fn own(&self) -> &Own {
        &self.own
    }
}

/// Undoes these, the last one first, and tells what somebody else has changed since.
///
/// # Errors
/// One of them failed. The others were undone.
pub fn take_back(done: &[Undo], tell: &mut dyn FnMut(String)) -> Result<(), undo::UndoError> {
    let mut failed = Ok(());
    for undo in done.iter().rev() {
        fault::point("undo.begun");
        match undo::undo(undo) {
            Ok(undo::Outcome::Done) => tracing::info!(target: TARGET, "undone: {undo}"),
            Ok(undo::Outcome::NotOurs(found)) => {
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
