//! From the lease to exec: written down before it is done, undone if it fails.

use super::UNFENCED;
use crate::host::{self, LeftOut, StepError};
use crate::lease::journal::Journal;
use crate::lease::{Header, Locked};
use crate::report;
use crate::step::Step;
use nix::fcntl::{FcntlArg, fcntl};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::os::fd::AsFd;

/// Where the workload finds the lease's lock among its descriptors, if it may
/// have as many: programs expect the low numbers to be free.
const LOCK_FROM: i32 = 512;

/// Does the steps, the last of which becomes the workload.
///
/// # Errors
/// Nothing was started, and nothing is left of what was done.
pub fn run(steps: &[Step], mut locked: Option<Locked<'_>>, header: Header, quiet: bool) -> anyhow::Result<Infallible> {
    let needed = !header.held.is_empty() || steps.iter().any(|step| matches!(step, Step::Host(_)));
    let own = locked.as_ref().filter(|_| needed).map(|locked| locked.publish(header, "")).transpose()?;
    let mut journal = own.map(Journal::new);
    let error = match all(steps, &mut locked, &mut journal, quiet) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    if let Some(journal) = journal {
        journal.roll_back(&mut |remark| report::say(format!("numa-run: {remark}\n")));
    }
    Err(told(error))
}

fn all(
    steps: &[Step],
    locked: &mut Option<Locked<'_>>,
    journal: &mut Option<Journal>,
    quiet: bool,
) -> Result<Infallible, StepError> {
    let mut left_out = |what, error: &StepError| {
        let reason = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        let without = match what {
            LeftOut::Group => UNFENCED,
            LeftOut::MemoryPolicy => "memory is left unbound",
        };
        if !quiet {
            report::say(format!("numa-run: {without}: {error}{reason}\n"));
        }
    };
    for step in steps {
        if let (Step::Exec(_), Some(journal)) = (step, &mut *journal) {
            journal.running().and_then(|()| inherited(journal)).map_err(StepError::Journal)?;
        }
        if matches!(step, Step::Exec(_)) {
            // Loading the workload may take its time: others need not wait for it.
            locked.take();
        }
        let mut before = |undo| match &mut *journal {
            Some(journal) => journal.before(undo),
            None => Err(io::Error::other("no lease was taken")),
        };
        host::apply(step, &mut before, &mut left_out)?;
    }
    Err(host::exec::ExecError::nothing().into())
}

/// Leaves the lease's lock to the workload, which holds it as long as it or a child of it lives.
fn inherited(journal: &Journal) -> io::Result<()> {
    let lock = journal.own().lock.as_fd();
    // Without close-on-exec, unlike the descriptor that it is made from.
    fcntl(lock, FcntlArg::F_DUPFD(LOCK_FROM)).or_else(|_| fcntl(lock, FcntlArg::F_DUPFD(3)))?;
    Ok(())
}

fn told(error: StepError) -> anyhow::Error {
    let forbidden = matches!(&error, StepError::Refused { source, .. } if source.raw_os_error() == Some(libc::EPERM));
    let error = anyhow::Error::from(error);
    if forbidden { error.context("forbidden here (seccomp or a missing right)") } else { error }
}
