//! Which nodes the workload's memory comes from.

use super::Plan;
use crate::request::{MemPolicy, Request};
use crate::resource::{Granted, Situation};
use crate::topology::{Machine, Node, NodeMask};

/// A memory policy for the workload. It is the process's own, so it survives
/// exec; what the workload maps and binds itself is its own business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBinding {
    /// How pages are spread.
    pub policy: MemPolicy,
    /// Over which nodes; empty where the policy takes none.
    pub nodes: NodeMask,
    /// Whether the launch may go on without it.
    pub need: Need,
}

/// Whether something must be in place before the workload starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It was asked for.
    Must,
    /// It was not asked for: where it is forbidden, that is said and no more.
    May,
}

/// `bind` over the nodes that memory (and pages beside it) was granted on, or that were named; without
/// either `preferred-many` over the span, where it has memory.
pub fn binding(request: &Request, situation: &Situation<'_>, plan: &Plan) -> Option<MemoryBinding> {
    let memory = plan.allocations.iter().any(|allocation| matches!(allocation.granted, Granted::Mib(_)));
    // A mapping of hugepages obeys the policy too, unless the workload binds it itself.
    let kinds = plan
        .allocations
        .iter()
        .filter(|allocation| matches!(allocation.granted, Granted::Mib(_) | Granted::Pages { .. }));
    let granted = memory.then(|| kinds.fold(NodeMask::new(), |nodes, allocation| nodes.or(&allocation.nodes())));
    let named = request.memory.as_ref().and_then(|memory| memory.nodes.as_ref());
    let named = named.map(|nodes| nodes.resolve(&situation.machine.node_ids()));
    let asked = granted.or(named);
    let usual = if asked.is_some() { MemPolicy::Bind } else { MemPolicy::PreferredMany };
    let policy = request.mempolicy.unwrap_or(usual);
    let need = if asked.is_some() || request.mempolicy.is_some() { Need::Must } else { Need::May };
    if !policy.takes_nodes() {
        return Some(MemoryBinding { policy, nodes: NodeMask::new(), need });
    }
    let nodes = asked.unwrap_or_else(|| with_memory(situation, &plan.span));
    (!nodes.is_empty()).then_some(MemoryBinding { policy, nodes, need })
}

/// The nodes of the span that have memory, else the nearest ones that have some.
fn with_memory(situation: &Situation<'_>, span: &NodeMask) -> NodeMask {
    let machine = situation.machine;
    let allowed = |node: &&Node| situation.memory_nodes.as_ref().is_none_or(|nodes| nodes.contains(node.id));
    let has = machine.nodes.iter().filter(|node| node.memory_kib > 0).filter(allowed);
    let has: NodeMask = has.map(|node| node.id).collect();
    let own = has.and(span);
    if !own.is_empty() || span.is_empty() {
        return own;
    }
    nearest(machine, span, &has.and(&machine.cpu_nodes()))
}

fn nearest(machine: &Machine, span: &NodeMask, nodes: &NodeMask) -> NodeMask {
    let away = |node: u32| span.iter().filter_map(|from| machine.distance(from, node)).min();
    let least = nodes.iter().filter_map(away).min();
    nodes.iter().filter(|&node| away(node) == least).collect()
}
