//! Staying as the parent (`--supervise`): signals are passed on, and what the
//! launch held is free when this process ends.
//!
//! The child does the whole launch, so that nothing of it depends on us: where
//! we are killed, its lease lives on with the workload as without us.

use super::signals::{Received, Signals};
use crate::cli::lease::OnDaemonize;
use crate::fault;
use crate::host::syscall::{self, Fork};
use crate::lease::recover::{self, Effort};
use crate::lease::{Entry, Identity, Ledger};
use crate::report;
use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp, pipe2};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Has a child launch, and comes back with the workload's status when nobody of
/// it lives any more.
///
/// # Errors
/// There could be no child. What the launch itself says has been said.
pub fn supervise(
    ledger: &Ledger,
    orphans: OnDaemonize,
    line: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let others = children();
    let signals = Signals::take().context("cannot take care of signals")?;
    let (answer, question) = pipe2(OFlag::O_CLOEXEC).context("pipe")?;
    // Who loses its parent becomes our child, and none of them is missed.
    prctl::set_child_subreaper(true).context("prctl(PR_SET_CHILD_SUBREAPER)")?;
    let Fork::Parent(child) = syscall::fork().context("fork")? else {
        signals.give_back();
        let Err(error) = line() else { syscall::end(0) };
        let told = (super::exit_code(&error), format!("{error:#}"));
        let _ = serde_json::to_vec(&told).map(|bytes| File::from(question).write_all(&bytes));
        syscall::end(told.0.into())
    };
    fault::role("supervisor");
    drop(question);
    let identity = Identity::even_if_ended(Path::new("/"), child.as_raw().unsigned_abs());
    let status = Family { child, others, orphans, status: None }.end(&signals)?;
    if let Some((code, said)) = told(answer) {
        report::say(format!("numa-run: {said}\n"));
        return Ok(code);
    }
    identity.into_iter().for_each(|identity| release(ledger, &identity));
    Ok(status)
}

/// Why the launch failed; nothing where it came to its workload, or was killed before.
fn told(answer: OwnedFd) -> Option<(u8, String)> {
    let mut bytes = Vec::new();
    File::from(answer).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// What the child's launch held is put right now. Where that fails the next launch does it.
fn release(ledger: &Ledger, owner: &Identity) {
    if !ledger.leases().exists() {
        return;
    }
    let its = |entry: &Entry| entry.lease.as_ref().is_ok_and(|lease| lease.header.owner == *owner);
    match recover::these(ledger, Effort::Once, None, &its) {
        Ok((_, recovered)) => {
            recovered.remarks.iter().for_each(|remark| report::say(format!("numa-run: {remark}\n")));
            for lease in recovered.live {
                report::say(format!("numa-run: lease {} lives on with a process elsewhere\n", lease.header.lease));
            }
        }
        Err(error) => report::say(format!("numa-run: not put right yet: {error:#}\n")),
    }
}

/// The workload, and what it has left behind.
struct Family {
    child: Pid,
    /// Children that this process had when it became numa-run.
    others: BTreeSet<Pid>,
    /// What becomes of those whom the child leaves behind.
    orphans: OnDaemonize,
    /// The child's, once it has ended.
    status: Option<u8>,
}

impl Family {
    /// Waits for all of them; the status is the child's.
    fn end(mut self, signals: &Signals) -> io::Result<u8> {
        loop {
            self.bury();
            if let Some(status) = self.status {
                let left = self.left();
                if left.is_empty() {
                    return Ok(status);
                }
                // Their own children become ours when they are gone, and their turn comes then.
                if self.orphans == OnDaemonize::Kill {
                    left.into_iter().for_each(|pid| _ = kill(pid, Signal::SIGKILL));
                }
            }
            let received = signals.wait()?;
            if !received.is_of_a_child() {
                self.pass_on(&received);
            }
        }
    }

    /// Takes leave of all who have ended. Where the workload was stopped, so are
    /// we: the shell that has started us shall see it.
    fn bury(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.child => self.status = Some(code as u8),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.child => {
                    self.status = Some(128 + signal as u8);
                }
                Ok(WaitStatus::Stopped(pid, _)) if pid == self.child => _ = raise(Signal::SIGSTOP),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Who is to be waited for: the child, then what it has left behind.
    fn left(&self) -> Vec<Pid> {
        match self.status {
            None => vec![self.child],
            Some(_) => children().difference(&self.others).copied().collect(),
        }
    }

    fn pass_on(&self, received: &Received) {
        if received.sender == Some(self.child) {
            return;
        }
        for pid in self.left() {
            // What the terminal sends, it sends to all of its foreground group.
            let has_it = received.is_the_kernels && getpgid(Some(pid)) == Ok(getpgrp());
            if !has_it {
                let _ = syscall::send(pid, received.signal);
            }
        }
    }
}

/// Children of this process, as the kernel lists them.
fn children() -> BTreeSet<Pid> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}
