//! What CPUs say about nodes: how many each has, without listing masks.

use super::{CpuLayout, CpuOptions};
use crate::hint::{Amount, Capacity, Sockets, Supply};
use crate::topology::{CpuSet, NodeMask};

/// The CPUs to count.
#[derive(Clone, Debug, Default)]
pub struct Stock {
    /// CPUs that could be handed out on an idle machine; they decide which
    /// masks are narrow enough to be preferred.
    pub allocatable: CpuSet,
    /// CPUs that nobody holds.
    pub free: CpuSet,
    /// CPUs held already by what the request takes the place of, apart from the
    /// free ones. Every mask must hold their nodes.
    pub reusable: CpuSet,
}

/// What CPUs say about nodes for a request of `wanted` CPUs. CPUs of unknown
/// node are in no mask.
pub fn capacity(layout: &CpuLayout, stock: &Stock, wanted: usize, options: &CpuOptions) -> Capacity {
    let domain = layout.nodes();
    let nodes_of = |cpus: &CpuSet| cpus.iter().filter_map(|cpu| layout.place(cpu)?.node).collect::<Vec<u32>>();
    let count = |cpus: &CpuSet| {
        let mut counts = vec![0; domain.last().map_or(0, |last| last as usize + 1)];
        nodes_of(cpus).into_iter().for_each(|node| counts[node as usize] += 1);
        counts
    };
    let [total, free, reusable] = [&stock.allocatable, &stock.free, &stock.reusable].map(count);
    let supply = |node: u32| {
        let at = node as usize;
        Supply { nodes: NodeMask::one(node), free: free[at] + reusable[at], total: total[at] }
    };
    let amount = Amount { wanted: wanted as u64, supply: domain.iter().map(supply).collect() };
    let must_hold = nodes_of(&stock.reusable).into_iter().collect();
    let mut capacity = Capacity { domain, must_hold, amounts: vec![amount], sockets: None };
    if options.align_socket {
        capacity.sockets = sockets(layout, capacity.min_width());
    }
    capacity
}

/// The rule of `align-socket`; none where sockets do not hold whole nodes.
fn sockets(layout: &CpuLayout, min_width: usize) -> Option<Sockets> {
    let nodes_per_socket = layout.node_count().checked_div(layout.socket_count()).filter(|&nodes| nodes > 0)?;
    let of_node = layout.nodes().iter().map(|node| (node, layout.sockets_of(&NodeMask::one(node)))).collect();
    Some(Sockets { of_node, least: min_width.div_ceil(nodes_per_socket) })
}
