//! What we do. The only room that changes anything.
//!
//! Every change is read back: the kernel accepts masks and policies and does
//! less than it was told.
#![allow(clippy::disallowed_methods)] // This is where the effects live.

pub mod affinities;
pub mod audit;
pub mod bind;
pub mod cgroup;
pub mod child;
pub mod exec;
pub mod file;
pub mod nodes;
pub mod pages;
pub mod plugin;
pub mod rights;
pub mod snapshot;
pub mod sriov;
#[allow(unsafe_code)]
pub mod syscall;
pub mod systemd;
pub mod undo;
pub mod units;

use crate::plan::Need;
use crate::request::MemPolicy;
use crate::step::{Change, Group, Step, Undo};
use crate::topology::{CpuSet, NodeMask};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A step that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The kernel refused a call.
    #[error("{call}")]
    Refused {
        /// The call with what it was given.
        call: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel accepted a call and did something else.
    #[error("{call}: the kernel kept {found} instead")]
    Changed {
        /// The call with what it was given.
        call: String,
        /// What was read back.
        found: String,
    },
    /// The child that was to make a call did not come to its end.
    #[error("{call}")]
    Unfinished {
        /// The call with what it was given.
        call: String,
        /// What became of the child.
        source: child::ChildError,
    },
    /// What was done of a step that may be left out could not be undone.
    #[error(transparent)]
    NotUndone(#[from] undo::UndoError),
    /// What undoes a step could not be written down, so that it was not done.
    #[error("cannot record the launch")]
    Journal(#[source] io::Error),
    /// The workload cannot be started.
    #[error(transparent)]
    Exec(#[from] exec::ExecError),
}

impl StepError {
    fn refused(call: String, source: io::Error) -> StepError {
        StepError::Refused { call, source }
    }

    /// True when a call is not to be had here: seccomp of containers refuses
    /// those of memory policies, kernels without NUMA lack them.
    fn is_forbidden(&self) -> bool {
        let errno = match self {
            StepError::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        };
        matches!(errno, Some(libc::EPERM | libc::ENOSYS))
    }

    /// True while the kernel does not come back from a call: what it changes in the end is not known.
    pub fn hangs(&self) -> bool {
        matches!(self, StepError::Unfinished { source: child::ChildError::Hangs { .. }, .. })
    }

    /// The exit code that a launcher ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            StepError::Exec(error) => error.exit_code(),
            _ => 125,
        }
    }
}

/// What undoes a change that is about to be made; none where there is nothing
/// to change. A change that may block is looked at by a child, which keeps the
/// lease's lock: to read a file may block as well.
///
/// # Errors
/// What is there now cannot be read: the change must not be made.
pub fn undo_of(change: &Change, lock: BorrowedFd<'_>) -> Result<Option<Undo>, StepError> {
    let look = || match change {
        Change::Write { file, value } => file::undo_of(file, value),
        Change::MakeVfs(make) => sriov::undo_of(make),
        Change::Bind(bind) => bind::undo_of(bind),
        Change::Open(open) => nodes::undo_of(open),
    };
    change.limit().map_or_else(look, |limit| in_child(limit, lock, change, look))
}

/// Does a step that may come before exec. What undoes a change was written down
/// before; what undoes a part of a group goes to `journal` before that part.
/// `left_out` hears of what was not asked for and cannot be had here, and why.
///
/// # Errors
/// It was not done, or not wholly: what was written down is to be undone.
pub fn apply(
    step: &Step,
    journal: &mut dyn FnMut(Undo) -> io::Result<()>,
    left_out: &mut dyn FnMut(LeftOut, &StepError),
) -> Result<(), StepError> {
    match step {
        Step::Host(change) => make(change),
        Step::Group(group) => enter(group, journal, left_out),
        Step::Affinity(cpus) => affinity(cpus),
        Step::MemoryPolicy { mode, nodes, need } => match memory_policy(*mode, nodes) {
            Err(error) if *need == Need::May && error.is_forbidden() => {
                left_out(LeftOut::MemoryPolicy, &error);
                Ok(())
            }
            other => other,
        },
        Step::Rights(rights) => rights::give_up(rights),
        Step::Exec(exec) => Err(exec::exec(exec).into()),
    }
}

/// Makes a change, in a child where it may block; the child keeps the lease's lock.
///
/// # Errors
/// As [`apply`], and where the child did not come to its end.
pub fn change(change: &Change, lock: BorrowedFd<'_>) -> Result<(), StepError> {
    change.limit().map_or_else(|| make(change), |limit| in_child(limit, lock, change, || make(change)))
}

fn in_child<T: Serialize + DeserializeOwned>(
    limit: Duration,
    lock: BorrowedFd<'_>,
    change: &Change,
    work: impl FnOnce() -> Result<T, StepError>,
) -> Result<T, StepError> {
    let unfinished = |source| StepError::Unfinished { call: change.shell(), source };
    let told = child::within(limit, lock, || work().map_err(child::Failure::from));
    told.map_err(unfinished)?.map_err(|failure| {
        let (call, source) = failure.parts();
        StepError::Refused { call, source }
    })
}

fn make(change: &Change) -> Result<(), StepError> {
    match change {
        Change::Write { file, value } => file::write(file, value),
        Change::MakeVfs(make) => sriov::make_all(make),
        Change::Bind(bind) => bind::bind(bind),
        Change::Open(open) => nodes::open(open),
    }
}

/// What a launch goes on without where it has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The cgroup.
    Group,
    /// The memory policy.
    MemoryPolicy,
}

/// A group that was not asked for is left out where it cannot be had, but not
/// where it cannot hold what was asked for: then nothing can.
fn enter(
    group: &Group,
    journal: &mut dyn FnMut(Undo) -> io::Result<()>,
    left_out: &mut dyn FnMut(LeftOut, &StepError),
) -> Result<(), StepError> {
    let mut done = Vec::new();
    let entered = cgroup::enter(group, &mut |undo| {
        journal(undo.clone())?;
        done.push(undo);
        Ok(())
    });
    match entered {
        Err(error @ StepError::Refused { .. }) if group.need == Need::May => {
            for undo in done.iter().rev() {
                undo::undo(undo)?;
            }
            left_out(LeftOut::Group, &error);
            Ok(())
        }
        other => other,
    }
}

fn affinity(cpus: &CpuSet) -> Result<(), StepError> {
    let call = || format!("sched_setaffinity({cpus})");
    let refused = |source| StepError::Refused { call: call(), source };
    syscall::set_affinity(cpus).map_err(refused)?;
    let found = syscall::affinity().map_err(refused)?;
    match found == *cpus {
        true => Ok(()),
        false => Err(StepError::Changed { call: call(), found: found.to_string() }),
    }
}

fn memory_policy(mode: MemPolicy, nodes: &NodeMask) -> Result<(), StepError> {
    let result = set_memory_policy(mode, nodes);
    match result {
        // Linux before 5.15 has no MPOL_PREFERRED_MANY.
        Err(StepError::Refused { ref source, .. })
            if mode == MemPolicy::PreferredMany && source.raw_os_error() == Some(libc::EINVAL) =>
        {
            let first: NodeMask = nodes.first().into_iter().collect();
            set_memory_policy(MemPolicy::Preferred, &first)
        }
        other => other,
    }
}

fn set_memory_policy(mode: MemPolicy, nodes: &NodeMask) -> Result<(), StepError> {
    // The kernel prefers the first node of a mask and forgets the others.
    let nodes = match mode {
        MemPolicy::Preferred => &nodes.first().into_iter().collect(),
        _ => nodes,
    };
    let call = || match mode.takes_nodes() {
        true => format!("set_mempolicy({}, nodes {nodes})", mode.name()),
        false => format!("set_mempolicy({})", mode.name()),
    };
    let refused = |source| StepError::Refused { call: call(), source };
    syscall::set_memory_policy(mode, nodes).map_err(refused)?;
    let found = syscall::memory_policy().map_err(refused)?;
    match found == (syscall::mode_number(mode), nodes.clone()) {
        true => Ok(()),
        false => Err(StepError::Changed { call: call(), found: format!("mode {} on nodes {}", found.0, found.1) }),
    }
}
