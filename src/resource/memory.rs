//! Memory of nodes, accounted in MiB.

use super::store::{self, Place, Store};
use super::{Allocation, Counts, Granted, HintProvider, Offer, Shortage, Situation, Units, per_node_text};
use crate::hint::Amount;
use crate::hint::relative::Kind;
use crate::request::{MemoryRequest, Mib};
use crate::topology::{Node, NodeMask};
use std::collections::BTreeMap;

/// What a node may give away: its memory less what is reserved and what its
/// hugepage pools have taken out of it.
pub fn allocatable(memory_mib: u64, pages_mib: u64, reserved_mib: u64) -> u64 {
    memory_mib.saturating_sub(pages_mib).saturating_sub(reserved_mib)
}

/// Memory, and how much of it is wanted.
#[derive(Debug)]
pub struct MemoryProvider(Store);

impl MemoryProvider {
    /// The memory that the request may use; `wanted` in MiB.
    pub fn new(wanted: u64, request: &MemoryRequest, situation: &Situation<'_>) -> MemoryProvider {
        let nodes = store::nodes(request.nodes.as_ref(), request.kind, situation);
        let places = nodes.map(|(node, lead)| (node.id, place(node, lead, situation))).collect();
        MemoryProvider(Store { wanted, places })
    }

    fn granted(&self, per_node: BTreeMap<u32, u64>) -> Result<Allocation, Shortage> {
        if per_node.values().sum::<u64>() < self.0.wanted {
            return Err(self.shortage().unwrap_or_else(|| Shortage::of("memory", self.0.wanted, 0)));
        }
        Ok(Allocation { resource: "memory".into(), per_node, unknown: 0, granted: Granted::Mib(self.0.wanted) })
    }

    fn shortage(&self) -> Option<Shortage> {
        let (wanted, free) = (self.0.wanted, self.0.free());
        if free >= wanted {
            return None;
        }
        let places = self.0.places.iter().map(|(&node, place)| (Some(node), Mib(place.free))).collect();
        let message =
            format!("not enough memory: {} wanted, {} free{}", Mib(wanted), Mib(free), per_node_text(&places));
        Some(Shortage { resource: "memory".into(), wanted, free, message })
    }
}

fn place(node: &Node, lead: u32, situation: &Situation<'_>) -> Place {
    let pages = node.pages.iter().map(|pool| pool.total.saturating_mul(pool.size_kib)).fold(0, u64::saturating_add);
    let reserved = situation.config.reserved.memory.unwrap_or(0);
    let total = allocatable(node.memory_kib / 1024, pages.div_ceil(1024), reserved);
    let total = situation.cut(total, |inside| inside.memory.get(&node.id).copied());
    let held = situation.holdings.memory.get(&node.id).copied().unwrap_or(0);
    Place { lead, free: total.saturating_sub(held), total }
}

impl HintProvider for MemoryProvider {
    fn name(&self) -> &str {
        "memory"
    }

    fn wanted(&self) -> u64 {
        self.0.wanted
    }

    fn offer(&self) -> Result<Offer, Shortage> {
        let domain = self.0.places.values().map(|place| place.lead).collect();
        self.shortage().map_or_else(|| Ok(Offer::Capacity(store::capacity(vec![self.0.amount()], domain))), Err)
    }

    fn together(&self) -> Option<Amount> {
        Some(self.0.amount())
    }

    fn allocate(&self, affinity: Option<&NodeMask>) -> Result<Allocation, Shortage> {
        let all = self.0.places.values().map(|place| place.lead).collect();
        self.granted(self.0.take(affinity.unwrap_or(&all)))
    }

    fn counts(&self) -> Counts {
        Counts::of(Kind::Memory, &self.0.amount())
    }

    fn allocate_on(&self, units: &Units) -> Result<Allocation, Shortage> {
        let own = units.get("memory").cloned().unwrap_or_default();
        self.granted(self.0.take_on(&own))
    }

    fn smaller(&self) -> Vec<u64> {
        self.0.smaller()
    }

    fn option(&self, units: u64) -> String {
        format!("--memory {}", Mib(units))
    }
}
