//! Waiting for the end of a lease's workload, without keeping it alive.

use super::ledger::Ledger;
use super::life::{self, Life};
use super::{Lease, identity};
use crate::fault;
use crate::host::syscall::{self, Lock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;

/// How often it is looked where the kernel does not wake anybody.
const PAUSE: u16 = 500;

/// Comes back when the workload has ended and nobody undoes what it did; false
/// where the lease is gone.
///
/// # Errors
/// The lease's lock cannot be waited for.
pub fn until_dead(ledger: &Ledger, id: &str) -> io::Result<bool> {
    loop {
        let Some(entry) = ledger.look_up(id) else { return Ok(false) };
        let Ok(lease) = entry.lease else { return Ok(false) };
        // Another user may have put one of his own in the place of one that is gone.
        if lease.user != nix::unistd::geteuid().as_raw() {
            return Ok(false);
        }
        if entry.life == Life::Dead {
            return Ok(true);
        }
        // First the lock: as long as somebody has it, nothing else counts.
        until_unlocked(&ledger.lock_path(&lease.header))?;
        fault::point("watch.unlocked");
        until_empty(&lease)?;
        until_gone(&lease)?;
    }
}

/// Asking beside others is in nobody's way who looks whether the lease lives.
fn until_unlocked(lock: &Path) -> io::Result<()> {
    match life::open(lock) {
        Ok(file) => syscall::lock(&file, Lock::Asking),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The kernel wakes who waits for a change of `cgroup.events`.
fn until_empty(lease: &Lease) -> io::Result<()> {
    let Some(group) = &lease.header.group else { return Ok(()) };
    let mut events = File::open(group.join("cgroup.events")).ok();
    while life::populated(Path::new("/"), group) {
        match &mut events {
            None => wait(&mut [], PAUSE.into())?,
            Some(events) => {
                wait(&mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)], PollTimeout::NONE)?;
                // Read again, so that the next change wakes us too.
                events.rewind()?;
                events.read_to_string(&mut String::new())?;
            }
        }
    }
    Ok(())
}

/// A workload that has closed the lock and has no group is still there.
fn until_gone(lease: &Lease) -> io::Result<()> {
    let owner = &lease.header.owner;
    while owner.runs(Path::new("/")) {
        match syscall::process_descriptor(owner.pid) {
            Ok(process) => wait(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?,
            // Linux before 5.3.
            Err(_) if identity::Identity::of(Path::new("/"), owner.pid).is_some() => wait(&mut [], PAUSE.into())?,
            Err(_) => {}
        }
    }
    Ok(())
}

fn wait(what: &mut [PollFd<'_>], limit: PollTimeout) -> io::Result<()> {
    match poll(what, limit) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
