//! Request and machine in, placement out. Pure: the same facts give the same plan.

pub mod alignment;
pub mod binding;
pub mod distribute;
pub mod divide;
pub mod fence;
mod kubelet;
mod members;
pub mod pool;
mod rated;
pub mod refusal;
mod relative;
mod whole;

pub use binding::{MemoryBinding, Need};
pub use fence::Fence;
pub use kubelet::explanation;
pub use refusal::{Refusal, RefusalKind};

use crate::assume::{Assume, Holdings};
use crate::config::Config;
use crate::request::{Cgroup, Merge, Request};
use crate::resource::pci::creation::{self, Creation};
use crate::resource::prefer::{Answers, Question};
use crate::resource::{self, Allocation, Grant, Granted, Offer, Situation};
use crate::topology::cgroup::Cgroups;
use crate::topology::{Bdf, CpuSet, Machine, NodeMask};
use std::collections::BTreeMap;

/// Everything that a plan depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The configuration.
    pub config: &'a Config,
    /// What is taken for granted.
    pub assume: &'a Assume,
    /// What other launches hold.
    pub holdings: &'a Holdings,
    /// What this process inherited.
    pub surroundings: &'a Surroundings,
    /// What plugins have answered to the questions of an earlier plan.
    pub answers: &'a Answers,
}

/// What the launching process inherited; nothing of it for another machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// CPUs of the cgroup's effective cpuset.
    pub cgroup_cpus: Option<CpuSet>,
    /// CPUs of the inherited affinity.
    pub affinity: Option<CpuSet>,
    /// Nodes that memory may come from.
    pub memory_nodes: Option<NodeMask>,
    /// True for root.
    pub root: bool,
    /// Devices that cannot be had, and why.
    pub in_use: BTreeMap<Bdf, String>,
    /// Its cgroups; none where no group is wanted.
    pub cgroups: Option<Cgroups>,
    /// The lease that is divided, or taken again: nothing outside of it is there.
    pub inside: Option<Holdings>,
    /// Functions on which no virtual functions are to be made, and why.
    pub no_vfs: BTreeMap<Bdf, String>,
}

/// What was decided.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// True when the launch may go on.
    pub admitted: bool,
    /// True when the merged hint is preferred.
    pub preferred: bool,
    /// False when a better answer was not ruled out within the budget.
    pub proven: bool,
    /// The merged mask; none: no nodes are preferred to others.
    pub affinity: Option<NodeMask>,
    /// Of the resources-relative merge: how much of everything is where its part
    /// of all the others is, and the mean distance between different resources.
    pub score: Option<Score>,
    /// Nodes that an answer may name.
    pub candidates: NodeMask,
    /// Nodes that something was taken from.
    pub span: NodeMask,
    /// True when all of it lies in one locality and nothing is unknown.
    pub aligned: bool,
    /// CPUs that could be given out: the pool less what is held.
    pub pool: CpuSet,
    /// What each resource said.
    pub resources: Vec<Said>,
    /// What each resource gives.
    pub allocations: Vec<Allocation>,
    /// What each member gets of it, where there are members.
    pub members: Vec<Plan>,
    /// How many members found their place before one of them was refused.
    pub members_before: u32,
    /// CPUs of the shared pool that the workload may use besides its own.
    pub shared_cpus: CpuSet,
    /// Where the workload's memory comes from.
    pub memory: Option<MemoryBinding>,
    /// Virtual functions that have to be made first.
    pub creations: Vec<Creation>,
    /// The cgroup that keeps the workload where it is.
    pub fence: Option<Fence>,
    /// Why there is none where one would keep it in.
    pub unfenced: Option<String>,
    /// What is to be said: what is not aligned, and why.
    pub remarks: Vec<String>,
    /// Devices that would have served but cannot be had, one sentence each.
    pub left_out: Vec<String>,
    /// What plugins are to be asked: planned again with the answers, the launch
    /// may get other devices, as many from the same nodes.
    pub questions: Vec<Question>,
    /// Why the launch may not go on.
    pub refusal: Option<Refusal>,
}

/// How good a placement of the resources-relative merge is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// 1 when every node of the span has its full part of everything.
    pub aligned_share: f64,
    /// Mean distance, there and back, between units of different resources.
    pub mean_distance: f64,
}

/// What one resource said before the merge.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its name.
    pub resource: String,
    /// Units wanted.
    pub wanted: u64,
    /// Its answer.
    pub offer: Offer,
}

impl Plan {
    /// The CPUs that the workload gets for itself; none where none were asked for.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.allocations.iter().find_map(|allocation| match &allocation.granted {
            Granted::Cpus(cpus) => Some(cpus),
            _ => None,
        })
    }

    /// The devices of each request for some.
    pub fn devices(&self) -> impl Iterator<Item = &Grant> {
        self.allocations.iter().filter_map(|allocation| match &allocation.granted {
            Granted::Devices(grant) => Some(grant),
            _ => None,
        })
    }

    fn refused(refusal: Refusal) -> Plan {
        Plan { proven: true, refusal: Some(refusal), ..Plan::default() }
    }
}

/// Decides. A refusal is part of the plan, and names a smaller request that
/// would be admitted now where there is one.
pub fn plan(request: &Request, facts: &Facts<'_>) -> Plan {
    let mut plan = place(request, facts);
    let smaller = match plan.members_before {
        0 => plan.refusal.as_ref().and_then(|refusal| refusal::smaller(request, facts, refusal)),
        members => Some(format!("--members {members}")),
    };
    if let (Some(refusal), Some(smaller)) = (&mut plan.refusal, smaller) {
        refusal.message = format!("{}; {smaller} would be admitted now", refusal.message);
    }
    if plan.admitted {
        plan.refusal = fenced(request, facts.surroundings, &mut plan).err();
        plan.admitted = plan.refusal.is_none();
    }
    plan
}

/// Decides, without looking for a smaller request.
fn place(request: &Request, facts: &Facts<'_>) -> Plan {
    match request.members {
        Some(members) => members::place(request, members, facts),
        None => place_one(request, facts),
    }
}

/// Decides for everything that the request names at once.
fn place_one(request: &Request, facts: &Facts<'_>) -> Plan {
    match situation(request, facts) {
        Ok(situation) => placed(request, facts, &situation),
        Err(refusal) => Plan::refused(refusal),
    }
}

fn situation<'a>(request: &'a Request, facts: &Facts<'a>) -> Result<Situation<'a>, Refusal> {
    let Facts { machine, config, assume, holdings, surroundings, answers } = *facts;
    refusal::unknown_nodes(request, facts)?;
    refusal::unknown_classes(request, config)?;
    let pool = pool::pool(request, machine, config, surroundings)?;
    Ok(Situation {
        machine,
        config,
        assume,
        holdings,
        pool: surroundings.inside.as_ref().map_or(pool.exclusive.clone(), |inside| pool.exclusive.and(&inside.cpus)),
        shared: pool.shared,
        inside: surroundings.inside.as_ref(),
        memory_nodes: surroundings.memory_nodes.clone(),
        stated: refusal::stated_nodes(request, facts)?,
        in_use: &surroundings.in_use,
        create_vfs: request.create_vfs,
        no_vfs: &surroundings.no_vfs,
        answers,
    })
}

fn placed(request: &Request, facts: &Facts<'_>, situation: &Situation<'_>) -> Plan {
    let providers = resource::providers(request, situation);
    let mut plan = Plan { pool: situation.pool.clone(), proven: true, ..Plan::default() };
    for provider in &providers {
        let (resource, wanted) = (provider.name().to_owned(), provider.wanted());
        match provider.offer() {
            Ok(offer) => plan.resources.push(Said { resource, wanted, offer }),
            Err(shortage) => plan.refusal = plan.refusal.or(Some(shortage.into())),
        }
    }
    plan.left_out = providers.iter().flat_map(|provider| provider.left_out()).collect();
    plan.left_out.sort();
    plan.left_out.dedup();
    if request.merge == Merge::Kubelet {
        kubelet::hinted_together(&providers, &mut plan.resources);
    }
    plan.candidates = candidates(situation, &plan.resources);
    plan.refusal = plan.refusal.or_else(|| refusal::too_many_nodes(request, &plan.candidates));
    if plan.refusal.is_some() {
        return plan;
    }
    let granted = match request.merge {
        Merge::Relative => relative::grant(request, situation, &providers, &mut plan),
        Merge::Kubelet => kubelet::grant(request, situation, &providers, &mut plan),
    };
    if let Err(refusal) = granted.and_then(|()| follow_up(request, situation, &mut plan)) {
        plan.refusal = Some(refusal);
        return plan;
    }
    plan.admitted = true;
    alignment::look(facts.machine, &mut plan);
    plan.remarks.extend(distribute::remarks(request, facts.machine, &providers, &plan));
    plan.questions = plan.devices().filter_map(|grant| grant.question.as_deref().cloned()).collect();
    let warnings: Vec<String> = plan.devices().filter_map(|grant| grant.warning.clone()).collect();
    plan.remarks.extend(warnings);
    plan.remarks.extend(isolated(facts.machine, &plan));
    plan.remarks.extend(rounded(request));
    plan
}

/// Affinity and memory policy hold without a group, so that it may be missing
/// unless it was asked for. Inside of a lease, the lease's own holds too.
fn fenced(request: &Request, surroundings: &Surroundings, plan: &mut Plan) -> Result<(), Refusal> {
    match fence::fence(request, surroundings, plan) {
        Ok(fence) => plan.fence = fence,
        Err(reason) if request.cgroup == Cgroup::Required => {
            let message = format!("no cgroup can be had (--require-cgroup): {reason}");
            return Err(Refusal { kind: RefusalKind::Impossible, resource: None, message });
        }
        Err(_) if surroundings.inside.is_some() => {}
        Err(reason) => plan.unfenced = fence::would_hold(plan).then_some(reason),
    }
    Ok(())
}

/// Amounts of hugepages that are no whole number of pages.
fn rounded(request: &Request) -> impl Iterator<Item = String> {
    let rounded = request.hugepages.iter().filter(|pages| pages.rounded());
    rounded.map(|pages| format!("hugepages of {}: rounded up to {} pages", pages.size, pages.pages()))
}

/// The kernel balances no threads among isolated CPUs: they stay where they start.
fn isolated(machine: &Machine, plan: &Plan) -> Option<String> {
    let isolated: CpuSet = machine.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    let granted = isolated.and(plan.cpus()?);
    (granted.len() > 1).then(|| {
        format!("CPUs {granted} are isolated: the kernel spreads no threads over them, the command has to pin each one")
    })
}

/// Nodes that an answer may name: those with CPUs of the pool, and those that
/// hold what is asked for.
fn candidates(situation: &Situation<'_>, resources: &[Said]) -> NodeMask {
    let with_cpus = situation.machine.nodes.iter().filter(|node| !node.cpus.is_disjoint(&situation.pool));
    let with_cpus: NodeMask = with_cpus.map(|node| node.id).collect();
    resources.iter().fold(with_cpus, |nodes, said| match &said.offer {
        Offer::Capacity(capacity) => nodes.or(&capacity.domain),
        _ => nodes,
    })
}

/// What depends on what was granted: the span, the shared pool, the memory policy.
fn follow_up(request: &Request, situation: &Situation<'_>, plan: &mut Plan) -> Result<(), Refusal> {
    plan.span = plan.allocations.iter().fold(NodeMask::new(), |span, allocation| span.or(&allocation.nodes()));
    if request.shared_cpus > 0 {
        let none = CpuSet::new();
        let granted = plan.cpus().unwrap_or(&none);
        let (strict, smt) =
            request.cpus.as_ref().map_or_else(Default::default, |cpus| (cpus.options.strict_reservation, cpus.smt));
        plan.shared_cpus = resource::cpu::shared(strict, smt, situation, granted)?;
    }
    plan.pool = situation.pool.minus(&situation.holdings.cpus);
    plan.memory = binding::binding(request, situation, plan);
    plan.creations = creation::creations(plan.allocations.iter().map(|allocation| &allocation.granted), situation);
    refusal::no_nodes(request, plan)
}
