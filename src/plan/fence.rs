//! Where a launch's cgroup goes. It is the second fence: the kernel refuses the
//! workload's own attempts to leave its CPUs and nodes, which affinity and
//! memory policy do not.

mod place;

pub use place::Place;

use super::{MemoryBinding, Need, Plan, Surroundings};
use crate::request::{Cgroup, MemPolicy, Request};
use crate::resource::Granted;
use crate::topology::{CpuSet, NodeMask};
use std::path::PathBuf;

/// The cgroup of a launch whose lease has no name yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Where it goes.
    pub place: Place,
    /// The group that the process comes from.
    pub home: PathBuf,
    /// The CPUs that it is limited to, if there is a limit.
    pub cpus: Option<Limit<CpuSet>>,
    /// The nodes that its memory may come from.
    pub mems: Option<Limit<NodeMask>>,
    /// Whether the launch may go on without it.
    pub need: Need,
}

/// What a group is limited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit<T> {
    /// CPUs or nodes.
    pub to: T,
    /// Whether it was asked for, or only must not be lost on the way to another group.
    pub need: Need,
}

/// Decides where the group of an admitted plan goes; none where none is wanted.
///
/// # Errors
/// Why there cannot be one, in words.
pub fn fence(request: &Request, surroundings: &Surroundings, plan: &Plan) -> Result<Option<Fence>, String> {
    let Some(cgroups) = surroundings.cgroups.as_ref().filter(|_| request.holds()) else { return Ok(None) };
    let need = match request.cgroup {
        Cgroup::Never => return Ok(None),
        Cgroup::Auto => Need::May,
        Cgroup::Required => Need::Must,
    };
    let (place, home) = place::place(cgroups, surroundings.root, surroundings.memory_nodes.is_some())?;
    let given = cgroups.unified.as_ref().and_then(|unified| unified.given.clone());
    let (given, nodes) = match &place {
        Place::Tool { .. } | Place::Scope { .. } => (given, surroundings.memory_nodes.clone()),
        Place::Inside { .. } => (None, None),
        Place::Legacy { cpus, mems, .. } => (Some(cpus.clone()), Some(mems.clone())),
    };
    Ok(Some(Fence { place, home, cpus: limit(cpus(plan), given), mems: limit(mems(plan), nodes), need }))
}

fn limit<T>(asked: Option<T>, given: Option<T>) -> Option<Limit<T>> {
    let asked = asked.map(|to| Limit { to, need: Need::Must });
    asked.or(given.map(|to| Limit { to, need: Need::May }))
}

/// True when there is something that a group would keep the workload in.
pub fn would_hold(plan: &Plan) -> bool {
    cpus(plan).is_some() || mems(plan).is_some()
}

fn cpus(plan: &Plan) -> Option<CpuSet> {
    let own = plan.cpus().cloned().unwrap_or_default().or(&plan.shared_cpus);
    (!own.is_empty()).then_some(own)
}

/// The nodes that memory was granted on and bound to.
fn mems(plan: &Plan) -> Option<NodeMask> {
    let granted = plan.allocations.iter().any(|allocation| matches!(allocation.granted, Granted::Mib(_)));
    let bound = |binding: &&MemoryBinding| granted && binding.policy == MemPolicy::Bind;
    plan.memory.as_ref().filter(bound).map(|binding| binding.nodes.clone())
}
