//! Why a launch may not go on, for the person who typed it.

use super::{Facts, Plan, Said, place, situation};
use crate::hint::policy::Policy;
use crate::hint::{Amount, Capacity};
use crate::request::{CpuChoice, NodeSpec, Request};
use crate::resource::{self, Offer, Shortage};
use crate::topology::{Machine, NodeMask};

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
    let stated = request.device_nodes.iter().find(|&(_, &node)| facts.machine.node(node).is_none());
    match stated {
        Some((bdf, node)) => Err(Refusal::usage(
            "device",
            format!("--device-node {bdf}={node}: {}", absent(facts, &NodeMask::one(*node))),
        )),
        None => Ok(()),
    }
}

fn named(facts: &Facts<'_>, resource: &str, flag: &str, spec: Option<&NodeSpec>) -> Result<NodeMask, Refusal> {
    let nodes = spec.map(|spec| spec.resolve(&facts.machine.node_ids())).unwrap_or_default();
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

/// The policy does not admit the merged hint: which resource is the reason.
pub fn by_policy(request: &Request, machine: &Machine, nodes: &NodeMask, plan: &Plan) -> Refusal {
    let policy = request.policy.name();
    let alone = plan.resources.iter().find_map(|said| Some((said, alone(request.policy, said)?)));
    let (resource, reason) = match alone {
        Some((said, reason)) => (Some(said.resource.clone()), reason),
        None => together(machine, nodes, plan),
    };
    Refusal { kind: RefusalKind::Policy, resource, message: format!("{policy}: {reason}") }
}

/// What keeps one resource from being served as the policy wants it, whatever the others say.
fn alone(policy: Policy, said: &Said) -> Option<String> {
    let capacity = match &said.offer {
        Offer::NoPreference => return None,
        Offer::CannotBeMet => {
            return Some(format!("{} {}: not as many of known locality are free", said.wanted, said.resource));
        }
        Offer::Capacity(capacity) => capacity,
    };
    let idle = capacity.min_width();
    let (free, total) = (widest(capacity, Amount::free), widest(capacity, Amount::total));
    let wanted = resource::spoken(&said.resource, said.wanted);
    let number = |units: u64| resource::number(&said.resource, units);
    let one = said.wanted == 1 || said.resource == "memory";
    let (fits, does) = if one { ("fits", "does") } else { ("fit", "do") };
    if policy == Policy::SingleNumaNode && idle > 1 {
        return Some(format!("{wanted} {does} not fit any single node (max {})", number(total)));
    }
    let narrowest = capacity.narrowest()?;
    if narrowest <= idle {
        return None;
    }
    Some(match idle {
        1 => format!(
            "{wanted} {fits} one node when empty ({}), but at most {} free on any node",
            number(total),
            number(free)
        ),
        _ => format!("{wanted} {fits} {idle} nodes when empty, but {narrowest} are needed now"),
    })
}

/// The most units that a single node of the domain has.
fn widest(capacity: &Capacity, units: fn(&Amount, &NodeMask) -> u64) -> u64 {
    let Some(amount) = capacity.amounts.first() else { return 0 };
    capacity.domain.iter().map(|node| units(amount, &NodeMask::one(node))).max().unwrap_or(0)
}

/// Each resource could be served by itself, but not all by the same nodes.
fn together(machine: &Machine, nodes: &NodeMask, plan: &Plan) -> (Option<String>, String) {
    let hinted: Vec<(&Said, &Capacity)> = plan.resources.iter().filter_map(hinted).collect();
    let widths: Vec<usize> = hinted.iter().map(|(_, capacity)| capacity.min_width()).collect();
    let widest = widths.iter().copied().max().unwrap_or(0);
    if let Some(at) = widths.iter().position(|&width| width < widest) {
        let wide = widths.iter().position(|&width| width == widest).unwrap_or(at);
        let (narrow, wide) = (&hinted[at].0.resource, &hinted[wide].0.resource);
        let reason =
            format!("{wide} needs {widest} nodes, {narrow} prefers {}: they are never on the same nodes", widths[at]);
        return (Some(wide.clone()), reason);
    }
    let lacks = |node: u32| {
        let missing = hinted.iter().filter_map(|(said, capacity)| lacking(said, capacity, node));
        format!("node {node} lacks {}", missing.collect::<Vec<_>>().join(" and "))
    };
    let lines: Vec<String> = nodes.iter().take(8).map(lacks).collect();
    let more = if nodes.len() > 8 { format!(", … ({} nodes)", nodes.len()) } else { String::new() };
    let resource =
        hinted.iter().min_by_key(|(_, capacity)| serving(capacity, machine)).map(|(said, _)| said.resource.clone());
    (resource, format!("no node has all of it: {}{more}", lines.join(", ")))
}

/// How many single nodes could serve it: the scarcest resource is named as the reason.
fn serving(capacity: &Capacity, machine: &Machine) -> usize {
    machine.nodes.iter().filter(|node| capacity.holds(&NodeMask::one(node.id))).count()
}

fn hinted(said: &Said) -> Option<(&Said, &Capacity)> {
    match &said.offer {
        Offer::Capacity(capacity) => Some((said, capacity)),
        _ => None,
    }
}

fn lacking(said: &Said, capacity: &Capacity, node: u32) -> Option<String> {
    let mask = NodeMask::one(node);
    if capacity.domain.contains(node) && capacity.holds(&mask) {
        return None;
    }
    let number = |units: u64| resource::number(&said.resource, units);
    let free = number(capacity.amounts.first().map_or(0, |amount| amount.free(&mask)));
    Some(format!("{} ({free} free of {} needed)", said.resource, number(said.wanted)))
}

/// A smaller request that would be admitted now, as the option to type.
pub fn smaller(request: &Request, facts: &Facts<'_>, refusal: &Refusal) -> Option<String> {
    if matches!(refusal.kind, RefusalKind::Usage | RefusalKind::Limit) {
        return None;
    }
    let situation = situation(request, facts).ok()?;
    let mut providers = resource::providers(request, &situation);
    providers.sort_by_key(|provider| refusal.resource.as_deref() != Some(provider.name()));
    providers.iter().find_map(|provider| {
        provider.smaller().into_iter().find_map(|units| {
            let less = resource::resized(request, provider.name(), units)?;
            place(&less, facts).admitted.then(|| provider.option(units))
        })
    })
}
