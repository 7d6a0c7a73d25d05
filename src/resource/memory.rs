//! Memory of nodes, accounted in MiB.

use super::{Allocation, Granted, HintProvider, Offer, Shortage, Situation, amounts_worth_trying, per_node_text};
use crate::hint::{Amount, Capacity, Supply};
use crate::request::{MemoryRequest, Mib};
use crate::topology::{Node, NodeMask};
use std::collections::BTreeMap;

/// A kind of memory, ordinary or pages of one size, and what is wanted of it.
/// Kinds that are asked for together are hinted together: one mask holds all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// MiB wanted.
    pub wanted: u64,
    /// MiB by node: free, and with everything allocatable free.
    pub nodes: BTreeMap<u32, (u64, u64)>,
}

/// Which nodes could hold all of these kinds.
pub fn capacity(kinds: &[Kind], domain: NodeMask) -> Capacity {
    let supply = |(&node, &(free, total)): (&u32, &(u64, u64))| Supply { nodes: NodeMask::one(node), free, total };
    let amount = |kind: &Kind| Amount { wanted: kind.wanted, supply: kind.nodes.iter().map(supply).collect() };
    Capacity { domain, amounts: kinds.iter().map(amount).collect(), ..Capacity::default() }
}

/// What a node may give away: its memory less what is reserved and what its
/// hugepage pools have taken out of it.
pub fn allocatable(memory_mib: u64, pages_mib: u64, reserved_mib: u64) -> u64 {
    memory_mib.saturating_sub(pages_mib).saturating_sub(reserved_mib)
}

/// Memory, and how much of it is wanted.
#[derive(Debug)]
pub struct MemoryProvider {
    wanted: u64,
    /// Nodes that serve it, with the locality each belongs to, and MiB free and in all.
    places: BTreeMap<u32, Place>,
}

#[derive(Debug)]
struct Place {
    lead: u32,
    free: u64,
    total: u64,
}

impl MemoryProvider {
    /// The memory that the request may use; `wanted` in MiB.
    pub fn new(wanted: u64, request: &MemoryRequest, situation: &Situation<'_>) -> MemoryProvider {
        let named = request.nodes.as_ref().map(|nodes| nodes.resolve(&situation.machine.node_ids()));
        let serves = |node: &&Node| match (&named, request.kind) {
            (Some(nodes), _) => nodes.contains(node.id),
            (None, Some(kind)) => node.memory == kind,
            (None, None) => !node.cpus.is_empty(),
        };
        let allowed = |node: &&Node| situation.memory_nodes.as_ref().is_none_or(|nodes| nodes.contains(node.id));
        let nodes = situation.machine.nodes.iter().filter(serves).filter(allowed);
        let place = |node: &Node| Some((node.id, situation.place(node)?));
        MemoryProvider { wanted, places: nodes.filter_map(place).collect() }
    }

    /// Nodes that the localities of a mask stand for.
    fn within(&self, mask: &NodeMask) -> impl Iterator<Item = (&u32, &Place)> {
        self.places.iter().filter(|(_, place)| mask.contains(place.lead))
    }

    fn free(&self, mask: &NodeMask) -> u64 {
        self.within(mask).map(|(_, place)| place.free).sum()
    }

    fn capacity(&self) -> Capacity {
        let supply = |place: &Place| Supply { nodes: NodeMask::one(place.lead), free: place.free, total: place.total };
        let amount = Amount { wanted: self.wanted, supply: self.places.values().map(supply).collect() };
        let domain = self.places.values().map(|place| place.lead).collect();
        Capacity { domain, amounts: vec![amount], ..Capacity::default() }
    }

    /// The narrowest mask that contains `mask` and holds enough; of equals the
    /// smallest number.
    fn best_containing(&self, mask: &NodeMask) -> Option<NodeMask> {
        let mut others: BTreeMap<u32, u64> = BTreeMap::new();
        for place in self.places.values().filter(|place| !mask.contains(place.lead)) {
            *others.entry(place.lead).or_default() += place.free;
        }
        let missing = self.wanted.saturating_sub(self.free(mask));
        let width = (0..=others.len()).find(|&count| most(others.values(), count) >= missing)?;
        Some(smallest(others, width, missing).or(mask))
    }

    fn shortage(&self) -> Option<Shortage> {
        let free: u64 = self.places.values().map(|place| place.free).sum();
        if free >= self.wanted {
            return None;
        }
        let places = self.places.iter().map(|(&node, place)| (Some(node), Mib(place.free))).collect();
        let message =
            format!("not enough memory: {} wanted, {} free{}", Mib(self.wanted), Mib(free), per_node_text(&places));
        Some(Shortage { resource: "memory".into(), wanted: self.wanted, free, message })
    }
}

/// The sum of the `count` largest.
fn most<'a>(free: impl Iterator<Item = &'a u64>, count: usize) -> u64 {
    let mut free: Vec<u64> = free.copied().collect();
    free.sort_by(|a, b| b.cmp(a));
    free.iter().take(count).sum()
}

/// Of all sets of `width` nodes that hold `missing`, the smallest number:
/// from the top, a node stays out as long as the others can do without it.
fn smallest(mut nodes: BTreeMap<u32, u64>, mut width: usize, mut missing: u64) -> NodeMask {
    let mut chosen = NodeMask::new();
    while let Some((node, free)) = nodes.pop_last() {
        if width > 0 && (nodes.len() < width || most(nodes.values(), width) < missing) {
            chosen.insert(node);
            width -= 1;
            missing = missing.saturating_sub(free);
        }
    }
    chosen
}

impl Situation<'_> {
    fn place(&self, node: &Node) -> Option<Place> {
        let pages: u64 = node.pages.iter().map(|pool| pool.total * pool.size_kib).sum();
        let reserved = self.config.reserved.memory.unwrap_or(0);
        let total = allocatable(node.memory_kib / 1024, pages.div_ceil(1024), reserved);
        let held = self.holdings.memory.get(&node.id).copied().unwrap_or(0);
        Some(Place { lead: self.machine.locality(node.id)?, free: total.saturating_sub(held), total })
    }
}

impl HintProvider for MemoryProvider {
    fn name(&self) -> &str {
        "memory"
    }

    fn wanted(&self) -> u64 {
        self.wanted
    }

    fn offer(&self) -> Result<Offer, Shortage> {
        self.shortage().map_or_else(|| Ok(Offer::Capacity(self.capacity())), Err)
    }

    /// Takes from the lowest node up; where the mask holds too little, the best
    /// hint of its own that contains the mask takes its place.
    fn allocate(&self, affinity: Option<&NodeMask>) -> Result<Allocation, Shortage> {
        let shortage = || self.shortage().unwrap_or_else(|| Shortage::of("memory", self.wanted, 0));
        let mask = match affinity {
            Some(mask) if self.free(mask) >= self.wanted => mask.clone(),
            Some(mask) => self.best_containing(mask).ok_or_else(shortage)?,
            None => self.best_containing(&NodeMask::new()).ok_or_else(shortage)?,
        };
        let mut left = self.wanted;
        let mut per_node = BTreeMap::new();
        for (&node, place) in self.within(&mask) {
            let taken = left.min(place.free);
            left -= taken;
            if taken > 0 {
                per_node.insert(node, taken);
            }
        }
        Ok(Allocation { resource: "memory".into(), per_node, unknown: 0, granted: Granted::Mib(self.wanted) })
    }

    fn smaller(&self) -> Vec<u64> {
        let mut by_lead: BTreeMap<u32, u64> = BTreeMap::new();
        self.places.values().for_each(|place| *by_lead.entry(place.lead).or_default() += place.free);
        amounts_worth_trying(by_lead.into_values(), self.wanted)
    }

    fn option(&self, units: u64) -> String {
        format!("--memory {}", Mib(units))
    }
}
