//! From the lease to exec: written down before it is done, undone if it fails.

use super::UNFENCED;
use super::placing::Place;
use super::standby::Standby;
use crate::fault;
use crate::host::{self, LeftOut, StepError};
use crate::lease::journal::Journal;
use crate::lease::{Header, Locked};
use crate::report;
use crate::step::Step;
use anyhow::Context;
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
pub fn run(steps: &[Step], place: Place<'_>, header: Header, request: &str, quiet: bool) -> anyhow::Result<Infallible> {
    let needed =
        !header.held.is_empty() || header.name.is_some() || steps.iter().any(|step| matches!(step, Step::Host(_)));
    let Place { mut locked, before, .. } = place;
    let own = locked.as_ref().filter(|_| needed).map(|locked| locked.publish(header, request)).transpose()?;
    let mut journal = own.map(Journal::new);
    if let (Some(locked), Some(journal), Some(before)) = (&locked, &mut journal, before) {
        journal
            .take_over(locked, &before)
            .with_context(|| format!("cannot take lease {} over", before.header.lease))?;
    }
    let mut standby = None;
    let started = stand_by(steps, journal.as_ref(), &mut standby);
    let error = match started.and_then(|()| all(steps, &mut locked, &mut journal, quiet)) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    if let Some(standby) = standby {
        standby.take_back();
    } else if let Some(journal) = journal {
        journal.roll_back(&mut |remark| report::say(format!("numa-run: {remark}\n")));
    }
    Err(told(error))
}

/// Leaves somebody behind who can take the launch back when it has given up its rights.
fn stand_by(steps: &[Step], journal: Option<&Journal>, standby: &mut Option<Standby>) -> Result<(), StepError> {
    let gives_up = steps.iter().any(|step| matches!(step, Step::Rights(rights) if rights.held().is_some()));
    if let Some(journal) = journal.filter(|_| gives_up) {
        let call = "fork, to be able to take the launch back".to_owned();
        let started = Standby::start(journal.own().written());
        *standby = Some(started.map_err(|source| StepError::Refused { call, source })?);
    }
    Ok(())
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
            fault::point("ledger.unlocked");
        }
        let mut before = |undo| match &mut *journal {
            Some(journal) => journal.before(undo),
            None => Err(io::Error::other("no lease was taken")),
        };
        host::apply(step, &mut before, &mut left_out)?;
        fault::point("step.done");
    }
    Err(host::exec::ExecError::nothing().into())
}

/// Leaves the lease's lock to the workload, which holds it as long as it or a child of it lives.
fn inherited(journal: &Journal) -> io::Result<()> {
    let lock = journal.own().lock.as_fd();
    // Without close-on-exec, unlike the descriptor that it is made from.
    fcntl(lock, FcntlArg::F_DUPFD(LOCK_FROM)).or_else(|_| fcntl(lock, FcntlArg::F_DUPFD(3)))?;
    fault::point("lease.inherited");
    Ok(())
}

fn told(error: StepError) -> anyhow::Error {
    let forbidden = matches!(&error, StepError::Refused { source, .. } if source.raw_os_error() == Some(libc::EPERM));
    let error = anyhow::Error::from(error);
    if forbidden { error.context("forbidden here (seccomp or a missing right)") } else { error }
}
