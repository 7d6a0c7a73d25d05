//! Why a launch may not go on, for the person who typed it.

use super::{Facts, Plan, Said, place, situation};
use crate::config::Config;
use crate::hint::kubelet::{Explanation, NodeVerdict, ResourceView};
use crate::hint::policy::Policy;
use crate::hint::{Amount, Capacity};
use crate::request::{CpuChoice, FunctionName, Members, NodeSpec, Request, Scope};
use crate::resource::{self, HintProvider, Offer, Shortage};
use crate::topology::{Bdf, Machine, MemoryKind, NodeMask};
use clap::ValueEnum;
use std::collections::BTreeMap;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What sort it is.
    pub kind: RefusalKind,
    /// The resource that is the reason, if it is one.
    pub resource: Option<String>,
    /// What was wanted, what was found, what to type.
    pub message: String,
}

/// Sorts of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request contradicts itself or the machine.
    Usage,
    /// No policy could admit it now.
    Impossible,
    /// This policy does not admit it.
    Policy,
    /// The machine has more nodes than the limit.
    Limit,
}

impl RefusalKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            RefusalKind::Usage => "usage",
            RefusalKind::Impossible => "impossible",
            RefusalKind::Policy => "policy",
            RefusalKind::Limit => "limit",
        }
    }
}

impl Refusal {
    /// A request that contradicts the machine.
    pub fn usage(resource: &str, message: String) -> Refusal {
        Refusal { kind: RefusalKind::Usage, resource: Some(resource.to_owned()), message }
    }
}

impl From<Shortage> for Refusal {
    fn from(shortage: Shortage) -> Refusal {
        Refusal { kind: RefusalKind::Impossible, resource: Some(shortage.resource), message: shortage.message }
    }
}

/// More candidate nodes than `--max-numa-nodes` allows.
pub fn too_many_nodes(request: &Request, nodes: &NodeMask) -> Option<Refusal> {
    let limit = request.max_numa_nodes.filter(|&limit| nodes.len() > limit)?;
    let message = format!("{} nodes found, limit {limit} (--max-numa-nodes)", nodes.len());
    Some(Refusal { kind: RefusalKind::Limit, resource: None, message })
}

/// A memory policy that takes nodes was asked for, and there are none for it:
/// what is asked for is never left out in silence.
pub fn no_nodes(request: &Request, plan: &Plan) -> Result<(), Refusal> {
    match request.mempolicy.filter(|mode| mode.takes_nodes() && plan.memory.is_none()) {
        Some(mode) => {
            let flag = format!("--mempolicy {}", mode.name());
            Err(Refusal::usage("memory", format!("{flag}: nothing here says over which nodes: add --mem-nodes NODES")))
        }
        None => Ok(()),
    }
}

/// Nodes that the request names and the machine lacks.
pub fn unknown_nodes(request: &Request, facts: &Facts<'_>) -> Result<(), Refusal> {
    let cpu_nodes = request.cpus.as_ref().and_then(|cpus| match &cpus.choice {
        CpuChoice::Count(_, nodes) => nodes.as_ref(),
        CpuChoice::Nodes(nodes) => Some(nodes),
        CpuChoice::List(_) => None,
    });
    named(facts, "cpu", "--cpu-nodes", cpu_nodes)?;
    let memory_nodes = request.memory.as_ref().and_then(|memory| memory.nodes.as_ref());
    let nodes = named(facts, "memory", "--mem-nodes", memory_nodes)?;
    with_memory(facts, &nodes)?;
    of_kind(facts, &nodes, request.memory.as_ref().and_then(|memory| memory.kind))
}

/// The nodes that the user states for devices, by address.
pub fn stated_nodes(request: &Request, facts: &Facts<'_>) -> Result<BTreeMap<Bdf, u32>, Refusal> {
    request.device_nodes.iter().map(|(function, node)| stated(facts, function, *node)).collect()
}

fn stated(facts: &Facts<'_>, function: &FunctionName, node: u32) -> Result<(Bdf, u32), Refusal> {
    let wrong = |problem: &str| Refusal::usage("device", format!("--device-node {function}={node}: {problem}"));
    if facts.machine.node(node).is_none() {
        return Err(wrong(&absent(facts, &NodeMask::one(node))));
    }
    let assumed = |bdf: &Bdf| facts.assume.device.iter().any(|device| device.pci == *bdf);
    let known = |bdf: &Bdf| facts.machine.pci(*bdf).is_some() || assumed(bdf);
    let bdf = function.address(facts.machine).filter(known);
    Ok((bdf.ok_or_else(|| wrong("this machine has no such device"))?, node))
}

/// Classes of devices that the request names and that there are not.
pub fn unknown_classes(request: &Request, config: &Config) -> Result<(), Refusal> {
    match resource::pci::unknown_class(request, config) {
        Some((label, message)) => Err(Refusal::usage(&label, message)),
        None => Ok(()),
    }
}

fn named(facts: &Facts<'_>, resource: &str, flag: &str, spec: Option<&NodeSpec>) -> Result<NodeMask, Refusal> {
    let Some(spec) = spec else { return Ok(NodeMask::new()) };
    let nodes = spec.resolve(&facts.machine.node_ids());
    if nodes.is_empty() {
        let message = format!("{flag}: no node is left of the list (this machine has {})", facts.machine.node_ids());
        return Err(Refusal::usage(resource, message));
    }
    let missing = nodes.minus(&facts.machine.node_ids());
    if missing.is_empty() {
        return Ok(nodes);
    }
    Err(Refusal::usage(resource, format!("{flag}: {}", absent(facts, &missing))))
}

fn absent(facts: &Facts<'_>, nodes: &NodeMask) -> String {
    let verb = if nodes.len() == 1 { "does not exist" } else { "do not exist" };
    let word = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{word} {nodes} {verb} (this machine has {})", facts.machine.node_ids())
}

fn with_memory(facts: &Facts<'_>, nodes: &NodeMask) -> Result<(), Refusal> {
    let without = |id: &u32| facts.machine.node(*id).is_some_and(|node| node.memory_kib == 0);
    if let Some(node) = nodes.iter().find(without) {
        let message = format!("--mem-nodes: node {node} has no memory");
        return Err(Refusal { kind: RefusalKind::Impossible, resource: Some("memory".into()), message });
    }
    let Some(allowed) = &facts.surroundings.memory_nodes else { return Ok(()) };
    let outside = nodes.minus(allowed);
    if outside.is_empty() {
        return Ok(());
    }
    let message =
        format!("--mem-nodes: node {outside} is outside the nodes that memory may come from here ({allowed})");
    Err(Refusal { kind: RefusalKind::Impossible, resource: Some("memory".into()), message })
}

/// Nodes that are named and a kind that is asked for have to agree.
fn of_kind(facts: &Facts<'_>, nodes: &NodeMask, kind: Option<MemoryKind>) -> Result<(), Refusal> {
    let Some(kind) = kind else { return Ok(()) };
    let other = nodes.iter().filter_map(|id| facts.machine.node(id)).find(|node| node.memory != kind);
    let name = |kind: MemoryKind| kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    other.map_or(Ok(()), |node| {
        let message =
            format!("--mem-nodes: the memory of node {} is {}, not {}", node.id, name(node.memory), name(kind));
        Err(Refusal::usage("memory", message))
    })
}

/// The policy does not admit the merged hint: which resource is the reason.
pub fn by_policy(request: &Request, machine: &Machine, plan: &Plan) -> Refusal {
    let policy = request.policy.name();
    let explanation = super::explanation(request, machine, plan);
    let views = plan.resources.iter().zip(&explanation.resources);
    let alone = views.clone().find_map(|(said, view)| Some((said, alone(request.policy, said, view)?)));
    let (resource, reason) = match alone {
        Some((said, reason)) => (Some(said.resource.clone()), reason),
        None => together(plan, &explanation),
    };
    Refusal { kind: RefusalKind::Policy, resource, message: format!("{policy}: {reason}") }
}

/// The placement is wider than the policy, or an idle machine, allows: which resource is the reason.
pub fn by_width(request: &Request, machine: &Machine, plan: &Plan, idle: usize, now: usize) -> Refusal {
    let refusal = by_policy(request, machine, plan);
    let explanation = super::explanation(request, machine, plan);
    let views = plan.resources.iter().zip(&explanation.resources);
    if request.policy == Policy::SingleNumaNode
        || views.into_iter().any(|(said, view)| alone(request.policy, said, view).is_some())
    {
        return refusal;
    }
    let lines = nodes_lacking(plan, &explanation);
    let nodes = if idle == 1 { "one node".to_owned() } else { format!("{idle} nodes") };
    let policy = request.policy.name();
    let message = format!("{policy}: all of it fits {nodes} when empty, but {now} are needed now: {lines}");
    Refusal { message, ..refusal }
}

/// What keeps one resource from being served as the policy wants it, whatever the others say.
fn alone(policy: Policy, said: &Said, view: &ResourceView) -> Option<String> {
    let wanted = resource::spoken(&said.resource, said.wanted);
    let capacity = match &said.offer {
        Offer::NoPreference => return None,
        Offer::CannotBeMet => return Some(format!("{wanted}: not as many of known locality are free")),
        Offer::Capacity(capacity) => capacity,
    };
    let number = |units: u64| resource::number(&said.resource, units);
    let (free, total) = (number(widest(capacity, Amount::free)), number(widest(capacity, Amount::total)));
    let one = said.wanted == 1 || said.resource == "memory";
    let (fits, does) = if one { ("fits", "does") } else { ("fit", "do") };
    let (idle, narrowest) = (view.preferred_width?, view.narrowest?);
    if policy == Policy::SingleNumaNode && idle > 1 {
        return Some(format!("{wanted} {does} not fit any single node (max {total})"));
    }
    match idle {
        _ if narrowest <= idle => None,
        1 => Some(format!("{wanted} {fits} one node when empty ({total}), but at most {free} free on any node")),
        _ => Some(format!("{wanted} {fits} {idle} nodes when empty, but {narrowest} are needed now")),
    }
}

/// The most units that a single node of the domain has.
fn widest(capacity: &Capacity, units: fn(&Amount, &NodeMask) -> u64) -> u64 {
    let Some(amount) = capacity.amounts.first() else { return 0 };
    capacity.domain.iter().map(|node| units(amount, &NodeMask::one(node))).max().unwrap_or(0)
}

/// Nodes that a refusal speaks of one by one.
const LISTED: usize = 8;

/// Each resource could be served by itself, but not all by the same nodes.
fn together(plan: &Plan, explanation: &Explanation) -> (Option<String>, String) {
    let name = |index: usize| plan.resources[index].resource.clone();
    let widths = || explanation.resources.iter().enumerate().filter_map(|(at, view)| Some((view.preferred_width?, at)));
    if let (Some((least, narrow)), Some((most, wide))) =
        (widths().min_by_key(|pair| pair.0), widths().max_by_key(|pair| pair.0))
        && least < most
    {
        let (narrow, wide) = (name(narrow), name(wide));
        let reason = format!("{wide} needs {most} nodes, {narrow} prefers {least}: they are never on the same nodes");
        return (Some(wide), reason);
    }
    let (scarcest, reason) = scattered(plan, explanation);
    (scarcest.map(name), reason)
}

/// No single node has all of it: what each lacks, and which resource the fewest nodes have.
pub fn scattered(plan: &Plan, explanation: &Explanation) -> (Option<usize>, String) {
    let views = explanation.resources.iter().enumerate().filter(|(_, view)| !view.any_node);
    let scarcest = views.min_by_key(|(_, view)| view.alone.len()).map(|(at, _)| at);
    let lines = nodes_lacking(plan, explanation);
    match lines.is_empty() {
        true => (scarcest, "no node is known to have any of it".into()),
        false => (scarcest, format!("no node has all of it: {lines}")),
    }
}

fn nodes_lacking(plan: &Plan, explanation: &Explanation) -> String {
    let lacking = explanation.nodes.iter().filter(|verdict| !verdict.lacking.is_empty() || !verdict.outside.is_empty());
    let lines: Vec<String> = lacking.clone().take(LISTED).map(|verdict| lacks(plan, verdict)).collect();
    let count = lacking.count();
    let more = if count > LISTED { format!(", … ({count} nodes)") } else { String::new() };
    lines.join(", ") + &more
}

fn lacks(plan: &Plan, verdict: &NodeVerdict) -> String {
    format!("node {} lacks {}", verdict.node, missing(plan, verdict).join(" and "))
}

/// What a node lacks, in words: `gpu (0 free of 1 needed)`.
pub fn missing(plan: &Plan, verdict: &NodeVerdict) -> Vec<String> {
    // The first amount is the resource's own; the others are hinted with it.
    let own = verdict.lacking.iter().filter(|lacking| lacking.amount == 0);
    let short = own.map(|lacking| (lacking.resource, lacking.free));
    let said: Vec<usize> = verdict.lacking.iter().map(|lacking| lacking.resource).collect();
    let outside = verdict.outside.iter().filter(|at| !said.contains(at)).map(|&at| (at, 0));
    let words = |(at, free): (usize, u64)| {
        let Said { resource, wanted, .. } = &plan.resources[at];
        let number = |units: u64| resource::number(resource, units);
        format!("{resource} ({} free of {} needed)", number(free), number(*wanted))
    };
    short.chain(outside).map(words).collect()
}

/// A smaller request that would be admitted now, as options to type: less of
/// one resource, the one that is the reason first; else less of several.
pub fn smaller(request: &Request, facts: &Facts<'_>, refusal: &Refusal) -> Option<String> {
    if matches!(refusal.kind, RefusalKind::Usage | RefusalKind::Limit) {
        return None;
    }
    let situation = situation(request, facts).ok()?;
    let mut providers = resource::providers(request, &situation);
    providers.sort_by_key(|provider| refusal.resource.as_deref() != Some(provider.name()));
    let admitted = |less: &Request| place(less, facts).admitted;
    let large = facts.machine.nodes.len() > LISTED;
    if let Some(fewer) = fewer(request, admitted) {
        return Some(fewer);
    }
    let one = providers.iter().find_map(|provider| {
        let holds = |&units: &u64| resized(request, provider.as_ref(), units).is_some_and(|less| admitted(&less));
        let units = largest(provider.smaller(), large, holds)?;
        Some(provider.option(units))
    });
    one.or_else(|| several(request, &providers, admitted))
}

/// As many members of a group as would be admitted.
fn fewer(request: &Request, admitted: impl Fn(&Request) -> bool) -> Option<String> {
    let members = request.members.filter(|members| members.scope == Scope::Group)?;
    let some = |count: u64| {
        let members = Some(Members { count: u32::try_from(count).ok()?, ..members });
        Some(Request { members, ..request.clone() })
    };
    let counts = (1..u64::from(members.count)).rev().collect();
    let holds = |&count: &u64| some(count).is_some_and(|fewer| admitted(&fewer));
    largest(counts, members.count as usize > LISTED, holds).map(|count| format!("--members {count}"))
}

/// The first amount that is admitted. On large machines, where each try costs,
/// it is found by halving: less of one thing is hardly ever refused where more is not.
fn largest(amounts: Vec<u64>, halving: bool, admitted: impl Fn(&u64) -> bool) -> Option<u64> {
    if !halving {
        return amounts.into_iter().find(admitted);
    }
    let at = amounts.partition_point(|units| !admitted(units));
    amounts.get(at).copied().filter(admitted)
}

/// One unit of each, then of each in turn as much as is admitted beside the others.
fn several(
    request: &Request,
    providers: &[Box<dyn HintProvider>],
    admitted: impl Fn(&Request) -> bool,
) -> Option<String> {
    let least = |request: Request, provider: &dyn HintProvider| match provider.smaller().last() {
        Some(&units) => resized(&request, provider, units),
        None => Some(request),
    };
    let mut best = providers.iter().try_fold(request.clone(), |less, provider| least(less, provider.as_ref()))?;
    if providers.len() < 2 || !admitted(&best) {
        return None;
    }
    let mut options = Vec::new();
    for provider in providers {
        let amounts = std::iter::once(provider.wanted()).chain(provider.smaller());
        let more = amounts.filter_map(|units| Some((units, resized(&best, provider.as_ref(), units)?)));
        if let Some((units, more)) = more.into_iter().find(|(_, more)| admitted(more)) {
            options.push(provider.option(units));
            best = more;
        }
    }
    Some(options.join(" "))
}

fn resized(request: &Request, provider: &dyn HintProvider, units: u64) -> Option<Request> {
    resource::resized(request, provider.name(), units)
}
