//! From the lease to exec: written down before it is done, undone if it fails.

use super::UNFENCED;
use super::placing::Place;
use super::standby::Standby;
use crate::fault;
use crate::host::audit::Audit;
use crate::host::{self, LeftOut, StepError};
use crate::lease::journal::Journal;
use crate::lease::{Header, Locked, guardian};
use crate::report;
use crate::step::{Change, Group, Step};
use anyhow::Context;
use nix::fcntl::{FcntlArg, fcntl};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::os::fd::AsFd;

/// Where the workload finds the lease's lock among its descriptors, if it may
/// have as many: programs expect the low numbers to be free.
const LOCK_FROM: i32 = 512;

/// Who undoes what is host-wide as soon as the workload has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// A process that is left behind for it.
    Guardian,
    /// Our parent.
    Supervisor,
}

/// What goes with the steps.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Who comes after the workload.
    pub aftermath: Aftermath,
    /// Where who comes after it writes down what he does.
    pub audit: Audit,
    /// Whether remarks are left out.
    pub quiet: bool,
}

impl Manner {
    /// Says what the launch goes on without.
    fn left_out(&self, what: LeftOut, error: &StepError) {
        let reason = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        let without = match what {
            LeftOut::Group => UNFENCED,
            LeftOut::MemoryPolicy => "memory is left unbound",
        };
        if !self.quiet {
            report::say(format!("numa-run: {without}: {error}{reason}\n"));
        }
    }
}

/// Does the steps, the last of which becomes the workload.
///
/// # Errors
/// Nothing was started, and nothing is left of what was done.
pub fn run(
    steps: &[Step],
    place: Place<'_>,
    header: Header,
    request: &str,
    manner: Manner,
) -> anyhow::Result<Infallible> {
    let needed = !header.held.is_empty()
        || header.name.is_some()
        || steps.iter().any(|step| matches!(step, Step::Host(_) | Step::Group(_)));
    let Place { locked, before, .. } = place;
    let own = locked.as_ref().filter(|_| needed).map(|locked| locked.publish(header, request)).transpose()?;
    let mut journal = own.map(Journal::new);
    if let (Some(locked), Some(journal), Some(before)) = (&locked, &mut journal, before) {
        journal
            .take_over(locked, &before)
            .with_context(|| format!("cannot take lease {} over", before.header.lease))?;
    }
    let mut transaction = Transaction { locked, journal, standby: None, manner, guarded: false, ready: false };
    let error = match transaction.all(steps) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let mut tell = |remark| report::say(format!("numa-run: {remark}\n"));
    match (transaction.journal, transaction.standby) {
        // What the kernel still does with it cannot be foreseen.
        (Some(journal), _) if error.hangs() => journal.quarantine(&error, &mut tell),
        (_, Some(standby)) => standby.take_back(),
        (Some(journal), None) => journal.roll_back(&mut tell),
        (None, None) => {}
    }
    Err(told(error))
}

struct Transaction<'a> {
    locked: Option<Locked<'a>>,
    journal: Option<Journal>,
    standby: Option<Standby>,
    manner: Manner,
    guarded: bool,
    /// The lease is marked as running, and its lock is the workload's to inherit.
    ready: bool,
}

impl Transaction<'_> {
    fn all(&mut self, steps: &[Step]) -> Result<Infallible, StepError> {
        let of_a_group = |step: &&Step| matches!(step, Step::Group(_));
        let follows = steps.iter().skip_while(|step| !of_a_group(step)).any(Step::is_host_wide);
        let guarded = follows || self.journal.as_ref().is_some_and(Journal::is_host_wide);
        if let Some(Step::Group(group)) = steps.iter().find(of_a_group)
            && (guarded || gives_up(steps) || steps.iter().any(Step::is_host_wide))
        {
            host::cgroup::step_aside(group);
        }
        self.stand_by(steps)?;
        // In the workload's group the guardian would be a part of it. What was
        // taken over from the last launch of this name is to be undone too.
        if guarded {
            self.guard();
        }
        for step in steps {
            match step {
                Step::Host(change) => self.change(change)?,
                Step::Group(group) => self.enter(step, group)?,
                Step::Rights(_) | Step::Exec(_) => {
                    self.running()?;
                    self.apply(step)?;
                }
                Step::Affinity(_) | Step::MemoryPolicy { .. } => self.apply(step)?,
            }
            fault::point("step.done");
        }
        Err(host::exec::ExecError::nothing().into())
    }

    /// Leaves somebody behind who can take the launch back when it has given up its rights.
    fn stand_by(&mut self, steps: &[Step]) -> Result<(), StepError> {
        if let Some(journal) = self.journal.as_ref().filter(|_| gives_up(steps)) {
            let call = "fork, to be able to take the launch back".to_owned();
            let started = Standby::start(journal.own().written());
            self.standby = Some(started.map_err(|source| StepError::Refused { call, source })?);
        }
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> Result<(), StepError> {
        let (journal, manner) = (&mut self.journal, &self.manner);
        let mut before = |undo| match journal {
            Some(journal) => journal.before(undo),
            None => Err(io::Error::other("no lease was taken")),
        };
        host::apply(step, &mut before, &mut |what, error| manner.left_out(what, error))
    }

    fn enter(&mut self, step: &Step, group: &Group) -> Result<(), StepError> {
        if group.waits() {
            self.unlock();
        }
        self.apply(step)
    }

    /// What undoes a change is on disk before it is made. Where it may block, the
    /// ledger is given back before.
    fn change(&mut self, change: &Change) -> Result<(), StepError> {
        let no_lease = || StepError::Journal(io::Error::other("no lease was taken"));
        if change.limit().is_some() {
            self.unlock();
        }
        let journal = self.journal.as_mut().ok_or_else(no_lease)?;
        let Some(undo) = host::undo_of(change, journal.own().lock.as_fd())? else { return Ok(()) };
        let host_wide = undo.is_host_wide();
        journal.before(undo).map_err(StepError::Journal)?;
        if host_wide {
            self.guard();
        }
        let journal = self.journal.as_ref().ok_or_else(no_lease)?;
        host::change(change, journal.own().lock.as_fd())
    }

    /// Leaves somebody behind who undoes what others on this host feel. Without
    /// him it stays until the next launch, or `numa-run gc`.
    fn guard(&mut self) {
        if self.guarded || self.manner.aftermath == Aftermath::Supervisor {
            return;
        }
        self.guarded = true;
        let started = self.journal.as_ref().map(|journal| guardian::start(journal.own(), &self.manner.audit));
        if let Some(Err(error)) = started {
            report::say(format!(
                "numa-run: nobody will undo what this launch changes when it ends, but the next launch or `numa-run gc`: {error}\n"
            ));
        }
        fault::point("guard.started");
    }

    fn running(&mut self) -> Result<(), StepError> {
        if std::mem::replace(&mut self.ready, true) {
            return Ok(());
        }
        if let Some(journal) = &mut self.journal {
            journal.running().and_then(|()| inherited(journal)).map_err(StepError::Journal)?;
        }
        // Loading the workload may take its time: others need not wait for it.
        // And its user could stop a process that is his, with the lock.
        self.unlock();
        Ok(())
    }

    fn unlock(&mut self) {
        self.locked.take();
        fault::point("ledger.unlocked");
    }
}

fn gives_up(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Rights(rights) if rights.held().is_some()))
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
