//! Divisible amounts on nodes: what memory and hugepages have in common.

use super::{Situation, amounts_worth_trying};
use crate::hint::{Amount, Capacity, Supply};
use crate::request::NodeSpec;
use crate::topology::{MemoryKind, Node, NodeMask};
use std::collections::BTreeMap;

/// An amount of one kind of memory (ordinary, or pages of one size), and where there is some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// Units wanted: MiB, or pages.
    pub wanted: u64,
    /// What each node has. A node belongs to the locality of a node with CPUs.
    pub places: BTreeMap<u32, Place>,
}

/// What one node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The node with CPUs whose locality it belongs to.
    pub lead: u32,
    /// Units free.
    pub free: u64,
    /// Units with everything allocatable free.
    pub total: u64,
}

impl Store {
    /// Units free on all nodes.
    pub fn free(&self) -> u64 {
        self.places.values().map(|place| place.free).sum()
    }

    /// The amount as the merge takes it, by locality.
    pub fn amount(&self) -> Amount {
        let supply = |place: &Place| Supply { nodes: NodeMask::one(place.lead), free: place.free, total: place.total };
        Amount { wanted: self.wanted, supply: self.places.values().map(supply).collect() }
    }

    /// Takes from the nodes of a mask's localities, the lowest one first; less
    /// than wanted where they hold less.
    pub fn take(&self, mask: &NodeMask) -> BTreeMap<u32, u64> {
        let mut left = self.wanted;
        let mut taken = BTreeMap::new();
        for (&node, place) in self.places.iter().filter(|(_, place)| mask.contains(place.lead)) {
            let units = left.min(place.free);
            left -= units;
            if units > 0 {
                taken.insert(node, units);
            }
        }
        taken
    }

    /// Takes so much from each locality, from its nodes the lowest one first;
    /// less where they hold less.
    pub fn take_on(&self, units: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
        let mut left = units.clone();
        let mut taken = BTreeMap::new();
        for (&node, place) in &self.places {
            let Some(left) = left.get_mut(&place.lead) else { continue };
            let units = place.free.min(*left);
            *left -= units;
            if units > 0 {
                taken.insert(node, units);
            }
        }
        taken
    }

    /// Amounts below what was wanted that are worth trying.
    pub fn smaller(&self) -> Vec<u64> {
        let mut by_lead: BTreeMap<u32, u64> = BTreeMap::new();
        self.places.values().for_each(|place| *by_lead.entry(place.lead).or_default() += place.free);
        amounts_worth_trying(by_lead.into_values(), self.wanted)
    }
}

/// Which nodes could hold all of these amounts. Kinds of memory that are asked
/// for together are hinted together, as the kubelet does: one mask holds them all.
pub fn capacity(amounts: Vec<Amount>, domain: NodeMask) -> Capacity {
    Capacity { domain, amounts, ..Capacity::default() }
}

/// Nodes that memory may come from: the named ones, or those of the kind that is
/// asked for, or those with CPUs.
pub fn nodes<'a>(
    named: Option<&NodeSpec>,
    kind: Option<MemoryKind>,
    situation: &'a Situation<'_>,
) -> impl Iterator<Item = (&'a Node, u32)> {
    let named = named.map(|nodes| nodes.resolve(&situation.machine.node_ids()));
    let serves = move |node: &&Node| match (&named, kind) {
        (Some(nodes), _) => nodes.contains(node.id),
        (None, Some(kind)) => node.memory == kind,
        (None, None) => !node.cpus.is_empty(),
    };
    let allowed = |node: &&Node| situation.memory_nodes.as_ref().is_none_or(|nodes| nodes.contains(node.id));
    let nodes = situation.machine.nodes.iter().filter(serves).filter(allowed);
    nodes.filter_map(|node| Some((node, situation.machine.locality(node.id)?)))
}
