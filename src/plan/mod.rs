//! Request and machine in, placement out. Pure: the same facts give the same plan.

pub mod alignment;
pub mod binding;
pub mod pool;
pub mod refusal;

pub use binding::{MemoryBinding, Need};
pub use refusal::{Refusal, RefusalKind};

use crate::assume::{Assume, Holdings};
use crate::config::Config;
use crate::hint::Amount;
use crate::hint::kubelet::{self, Explanation, Merged, TieBreak};
use crate::hint::policy::Policy;
use crate::request::{Merge, Request};
use crate::resource::{self, Allocation, Granted, HintProvider, Offer, Situation, store};
use crate::topology::{CpuSet, Machine, NodeMask};

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
    /// CPUs of the shared pool that the workload may use besides its own.
    pub shared_cpus: CpuSet,
    /// Where the workload's memory comes from.
    pub memory: Option<MemoryBinding>,
    /// What is to be said: what is not aligned, and why.
    pub remarks: Vec<String>,
    /// Why the launch may not go on.
    pub refusal: Option<Refusal>,
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

    fn refused(refusal: Refusal) -> Plan {
        Plan { proven: true, refusal: Some(refusal), ..Plan::default() }
    }
}

/// Decides. A refusal is part of the plan, and names a smaller request that
/// would be admitted now where there is one.
pub fn plan(request: &Request, facts: &Facts<'_>) -> Plan {
    let mut plan = place(request, facts);
    let smaller = plan.refusal.as_ref().and_then(|refusal| refusal::smaller(request, facts, refusal));
    if let (Some(refusal), Some(smaller)) = (&mut plan.refusal, smaller) {
        refusal.message = format!("{}; {smaller} would be admitted now", refusal.message);
    }
    plan
}

/// Decides, without looking for a smaller request.
fn place(request: &Request, facts: &Facts<'_>) -> Plan {
    match situation(request, facts) {
        Ok(situation) => placed(request, facts, &situation),
        Err(refusal) => Plan::refused(refusal),
    }
}

fn situation<'a>(request: &'a Request, facts: &Facts<'a>) -> Result<Situation<'a>, Refusal> {
    let Facts { machine, config, assume, holdings, surroundings } = *facts;
    refusal::unknown_nodes(request, facts)?;
    let pool = pool::pool(request, machine, config, surroundings)?;
    Ok(Situation {
        machine,
        config,
        assume,
        holdings,
        pool: pool.exclusive,
        shared: pool.shared,
        memory_nodes: surroundings.memory_nodes.clone(),
        stated: &request.device_nodes,
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
    hinted_together(&providers, &mut plan.resources);
    plan.candidates = candidates(situation, &plan.resources);
    plan.refusal = plan.refusal.or_else(|| refusal::too_many_nodes(request, &plan.candidates));
    if plan.refusal.is_some() {
        return plan;
    }
    let merged = merged(request, facts.machine, &plan);
    plan.preferred = merged.preferred;
    plan.proven = merged.proven;
    // Nothing is asked for: all nodes, the kubelet's answer, would look like a wish.
    plan.affinity = merged.affinity.filter(|_| !plan.resources.is_empty());
    if !request.policy.admits(plan.preferred) {
        plan.refusal = Some(refusal::by_policy(request, facts.machine, &plan));
        return plan;
    }
    if let Err(refusal) = allocate(request, &providers, situation, &mut plan) {
        plan.refusal = Some(refusal);
        return plan;
    }
    plan.admitted = true;
    alignment::look(facts.machine, &mut plan);
    plan.remarks.extend(isolated(facts.machine, &plan));
    plan.remarks.extend(
        request
            .hugepages
            .iter()
            .filter(|pages| pages.rounded())
            .map(|pages| format!("hugepages of {}: rounded up to {} pages", pages.size, pages.pages())),
    );
    plan
}

/// The kernel balances no threads among isolated CPUs: they stay where they start.
fn isolated(machine: &Machine, plan: &Plan) -> Option<String> {
    let isolated: CpuSet = machine.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    let granted = isolated.and(plan.cpus()?);
    (granted.len() > 1).then(|| {
        format!("CPUs {granted} are isolated: the kernel spreads no threads over them, the command has to pin each one")
    })
}

/// Gives each kind of memory the hints of all kinds that are asked for, its own amount first.
fn hinted_together(providers: &[Box<dyn HintProvider>], resources: &mut [Said]) {
    let amounts: Vec<(&str, Amount)> =
        providers.iter().filter_map(|provider| Some((provider.name(), provider.together()?))).collect();
    let domains = resources.iter().filter(|said| amounts.iter().any(|(name, _)| *name == said.resource));
    let domain = domains.fold(NodeMask::new(), |domain, said| match &said.offer {
        Offer::Capacity(capacity) => domain.or(&capacity.domain),
        _ => domain,
    });
    for said in resources {
        let (own, others): (Vec<_>, Vec<_>) = amounts.iter().partition(|(name, _)| *name == said.resource);
        if !own.is_empty() {
            let amounts = own.into_iter().chain(others).map(|(_, amount)| amount.clone()).collect();
            said.offer = Offer::Capacity(store::capacity(amounts, domain.clone()));
        }
    }
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

/// What the merge is asked.
struct Question {
    offers: Vec<kubelet::Offer>,
    nodes: Vec<u32>,
    distances: Vec<Vec<u32>>,
    tie: TieBreak,
}

impl Question {
    fn new(request: &Request, machine: &Machine, plan: &Plan) -> Question {
        let nodes: Vec<u32> = plan.candidates.iter().collect();
        let row = |from: &u32| nodes.iter().map(|to| machine.distance(*from, *to)).collect::<Option<Vec<u32>>>();
        Question {
            offers: plan.resources.iter().map(|said| (&said.offer).into()).collect(),
            distances: nodes.iter().map(row).collect::<Option<Vec<_>>>().unwrap_or_default(),
            tie: if request.prefer_closest { TieBreak::Closest } else { TieBreak::Lowest },
            nodes,
        }
    }
}

fn merged(request: &Request, machine: &Machine, plan: &Plan) -> Merged {
    let question = Question::new(request, machine, plan);
    match request.merge {
        Merge::Kubelet => {
            let Question { offers, nodes, distances, tie } = &question;
            kubelet::merge(offers, nodes, distances, request.policy, *tie)
        }
    }
}

/// What led to the merge of a plan: widths, and what each node lacks.
pub fn explanation(request: &Request, machine: &Machine, plan: &Plan) -> Explanation {
    let Question { offers, nodes, distances, tie } = &Question::new(request, machine, plan);
    kubelet::explain(offers, nodes, distances, request.policy, *tie)
}

/// Where the kinds of memory are taken from: the merged mask, or the best of
/// their own hints that contains it where it holds too little.
fn memory_mask(providers: &[Box<dyn HintProvider>], plan: &Plan) -> Option<NodeMask> {
    let provider = providers.iter().find(|provider| provider.together().is_some())?;
    let said = plan.resources.iter().find(|said| said.resource == provider.name())?;
    match &said.offer {
        Offer::Capacity(capacity) => capacity.best_containing(plan.affinity.as_ref().unwrap_or(&NodeMask::new())),
        _ => None,
    }
}

/// The nodes to take from first. `single-numa-node` answers the only node that
/// there is with no mask, as the kubelet does; what is on it still goes before
/// what is of unknown locality.
fn near(request: &Request, plan: &Plan) -> Option<NodeMask> {
    let only = request.policy == Policy::SingleNumaNode && plan.candidates.len() == 1;
    plan.affinity.clone().or_else(|| only.then(|| plan.candidates.clone()))
}

fn allocate(
    request: &Request,
    providers: &[Box<dyn HintProvider>],
    situation: &Situation<'_>,
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let memory = memory_mask(providers, plan);
    let near = near(request, plan);
    for provider in providers {
        let mask = if provider.together().is_some() { memory.as_ref() } else { near.as_ref() };
        plan.allocations.push(provider.allocate(mask)?);
    }
    plan.span = plan.allocations.iter().fold(NodeMask::new(), |span, allocation| span.or(&allocation.nodes()));
    let free = situation.pool.minus(&situation.holdings.cpus);
    if request.shared_cpus > 0 {
        let none = CpuSet::new();
        let granted = plan.cpus().unwrap_or(&none);
        let (strict, smt) =
            request.cpus.as_ref().map_or_else(Default::default, |cpus| (cpus.options.strict_reservation, cpus.smt));
        plan.shared_cpus = resource::cpu::shared(strict, smt, situation, granted)?;
    }
    plan.pool = free;
    plan.memory = binding::binding(request, situation, plan);
    refusal::no_nodes(request, plan)
}
