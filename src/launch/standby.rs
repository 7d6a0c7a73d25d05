//! Taking a launch back with rights that it has given up by then.
//!
//! Whether exec works is known only when the process is another user already,
//! who may not undo anything. So a process that stays what it was stands by
//! until exec, outside of the launch's cgroup.

use crate::fault;
use crate::host::syscall::{self, Fork};
use crate::lease::ledger::Written;
use crate::report;
use nix::sys::wait::waitpid;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The process that stands by. It ends with the launch, at exec at the latest.
#[derive(Debug)]
pub struct Standby(UnixStream);

impl Standby {
    /// Starts it, and comes back when it holds nothing of the launch's any more.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(lease: Written) -> io::Result<Standby> {
        let (mut ours, theirs) = UnixStream::pair()?;
        if let Fork::Parent(child) = syscall::fork()? {
            drop(theirs);
            // Where the caller ignores SIGCHLD there is nothing to wait for.
            let _ = waitpid(child, None);
            return ours.read_exact(&mut [0]).map(|()| Standby(ours));
        }
        // As the child of a child that is gone, it is never one of the workload's.
        match syscall::fork() {
            Ok(Fork::Child) => stand_by(theirs, &lease),
            Ok(Fork::Parent(_)) | Err(_) => syscall::end(0),
        }
    }

    /// Has the launch taken back, and waits for that.
    pub fn take_back(mut self) {
        // Where nobody answers any more, the next launch puts it right.
        let _ = self.0.write_all(&[0]).and_then(|()| self.0.read_exact(&mut [0]));
    }
}

fn stand_by(mut launch: UnixStream, lease: &Written) -> ! {
    let mut byte = [0];
    // The lease lives as long as somebody has its lock: nobody must wait for this process.
    syscall::close_all_but(&[launch.as_raw_fd()]);
    fault::role("standby");
    let told = launch.write_all(&byte).and_then(|()| launch.read_exact(&mut byte));
    if told.is_ok() {
        lease.take_back(&mut |remark| report::say(format!("numa-run: {remark}\n")));
        let _ = launch.write_all(&byte);
    }
    syscall::end(0)
}
