//! The right to undo what a dead launch did, outside of the ledger's lock: who
//! has the lease's own lock has it, so that it goes with the process.

use super::journal::{take_back, undone};
use super::ledger::new_lock;
use super::log::Log;
use super::record::Event;
use super::{Lease, Locked, life};
use crate::fault;
use crate::host::syscall::{self, Lock};
use crate::step::Undo;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A dead lease that this process has taken on itself to end.
#[derive(Debug)]
pub struct Claim {
    lease: Lease,
    lock: File,
    log: Log,
    file: PathBuf,
}

impl Claim {
    /// True where undoing may block in the kernel, which nobody shall wait for who wants the ledger.
    pub fn is_needed(lease: &Lease) -> bool {
        lease.journal.iter().any(|undo| undo.limit().is_some())
    }

    /// Takes the lock of a dead lease: to everybody else it is alive from here on.
    ///
    /// # Errors
    /// Somebody has it, or its file cannot be written.
    pub fn take(locked: &Locked<'_>, lease: Lease) -> io::Result<Claim> {
        let ledger = locked.ledger();
        let file = ledger.file(&lease.header.lease, "lease");
        let mut log = Log::open(&file)?;
        let lock = lock(&ledger.lock_path(&lease.header), &lease, &mut log)?;
        fault::point("claim.locked");
        if !lease.ending {
            log.note(&Event::Ending)?;
        }
        Ok(Claim { lease, lock, log, file })
    }

    /// Undoes what is to be undone, as far as the time reaches. The lease itself
    /// stays: it is dead again when this is over, with nothing left to undo.
    pub fn undo(mut self, end: Instant, tell: &mut dyn FnMut(String)) {
        let (lock, log, id) = (self.lock.as_fd(), &mut self.log, &self.lease.header.lease);
        let left = || Some(end.saturating_duration_since(Instant::now()));
        let mut one = |undo: &Undo| undone(undo, lock, (log, &self.file), left());
        let mut tell_of = |remark: String| tell(format!("lease {id}: {remark}"));
        let Err(error) = take_back(&self.lease.journal, &mut one, &mut tell_of) else { return };
        let reason = crate::report::chain(&error);
        if error.is_unfinished() && self.lease.stuck.as_ref() != Some(&reason) {
            let _ = self.log.note(&Event::Stuck(reason));
        }
    }

    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }
}

/// How often it is tried to get a lock that somebody asks about at this moment.
const TRIES: u32 = 100;

fn lock(path: &Path, lease: &Lease, log: &mut Log) -> io::Result<File> {
    let its = |about: fs::Metadata| about.is_file() && about.uid() == lease.user && about.ino() == lease.header.lock;
    if !fs::symlink_metadata(path).is_ok_and(its) {
        // Somebody has removed it by hand.
        let _ = fs::remove_file(path);
        let lock = new_lock(path)?;
        log.note(&Event::Lock(lock.metadata()?.ino()))?;
        return Ok(lock);
    }
    let file = life::open(path)?;
    for _ in 1..TRIES {
        match syscall::lock(&file, Lock::Alone) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            other => return other.map(|()| file),
        }
    }
    syscall::lock(&file, Lock::Alone).map(|()| file)
}
