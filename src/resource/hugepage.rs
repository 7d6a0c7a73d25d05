//! Hugepages of one size, in pages.

use super::store::{self, Place, Store};
use super::{Allocation, Counts, Granted, HintProvider, Offer, Shortage, Situation, Units, per_node_text};
use crate::hint::Amount;
use crate::hint::relative::Kind;
use crate::request::{HugepageRequest, MemoryRequest, PageSize};
use crate::topology::{Machine, NodeMask};
use std::collections::{BTreeMap, BTreeSet};

/// No node has more; a description that says so must not overflow a sum over nodes.
const MOST: u64 = u64::MAX >> 16;

/// Pages of one size, and how many are wanted.
#[derive(Debug)]
pub struct HugepageProvider {
    name: String,
    size: PageSize,
    store: Store,
    /// Sizes that the machine has.
    sizes: BTreeSet<u64>,
}

impl HugepageProvider {
    /// The pages that the request may use. Only the system knows how many free
    /// ones are promised to mappings, not on which node: each node may be theirs.
    pub fn new(request: &HugepageRequest, memory: Option<&MemoryRequest>, situation: &Situation<'_>) -> Self {
        let (named, kind) = memory.map_or((None, None), |memory| (memory.nodes.as_ref(), memory.kind));
        let kib = request.size.kib();
        let promised = situation.machine.promised_pages.get(&kib).copied().unwrap_or(0);
        let place = |(node, lead): (&crate::topology::Node, u32)| {
            let pool = node.pages.iter().find(|pool| pool.size_kib == kib)?;
            let held = situation.holdings.pages.get(&(kib, node.id)).copied().unwrap_or(0);
            let cut = |pages: u64| situation.cut(pages, |inside| inside.pages.get(&(kib, node.id)).copied());
            // Inside a lease, what it was granted and has not touched yet is free.
            let free = cut(pool.free.unwrap_or(pool.total).saturating_sub(promised)).saturating_sub(held);
            Some((node.id, Place { lead, free: free.min(MOST), total: cut(pool.total.min(MOST)) }))
        };
        let places = store::nodes(named, kind, situation).filter_map(place).collect();
        let store = Store { wanted: request.pages(), places };
        let name = format!("hugepages-{}", request.size);
        HugepageProvider { name, size: request.size, store, sizes: sizes(situation.machine) }
    }

    fn granted(&self, per_node: BTreeMap<u32, u64>) -> Result<Allocation, Shortage> {
        if per_node.values().sum::<u64>() < self.store.wanted {
            return Err(self.shortage().unwrap_or_else(|| Shortage::of(&self.name, self.store.wanted, 0)));
        }
        Ok(Allocation {
            resource: self.name.clone(),
            per_node,
            unknown: 0,
            granted: Granted::Pages { size: self.size, count: self.store.wanted },
        })
    }

    fn shortage(&self) -> Option<Shortage> {
        let (wanted, free) = (self.store.wanted, self.store.free());
        let short = |message: String| Some(Shortage { resource: self.name.clone(), wanted, free, message });
        if !self.sizes.contains(&self.size.kib()) {
            let sizes: Vec<String> = self.sizes.iter().map(|&kib| PageSize::from_kib(kib).to_string()).collect();
            let found = if sizes.is_empty() { "no hugepages".to_owned() } else { sizes.join(", ") };
            return short(format!("page size {} is not supported here ({found})", self.size));
        }
        if free >= wanted {
            return None;
        }
        let places = self.store.places.iter().map(|(&node, place)| (Some(node), place.free)).collect();
        short(format!("not enough {}: {wanted} pages wanted, {free} free{}", self.name, per_node_text(&places)))
    }
}

fn sizes(machine: &Machine) -> BTreeSet<u64> {
    machine.nodes.iter().flat_map(|node| &node.pages).map(|pool| pool.size_kib).collect()
}

impl HintProvider for HugepageProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn wanted(&self) -> u64 {
        self.store.wanted
    }

    fn offer(&self) -> Result<Offer, Shortage> {
        let domain = self.store.places.values().map(|place| place.lead).collect();
        self.shortage().map_or_else(|| Ok(Offer::Capacity(store::capacity(vec![self.store.amount()], domain))), Err)
    }

    fn together(&self) -> Option<Amount> {
        Some(self.store.amount())
    }

    fn allocate(&self, affinity: Option<&NodeMask>) -> Result<Allocation, Shortage> {
        let all = self.store.places.values().map(|place| place.lead).collect();
        self.granted(self.store.take(affinity.unwrap_or(&all)))
    }

    fn counts(&self) -> Counts {
        Counts::of(Kind::Pages, &self.store.amount())
    }

    fn allocate_on(&self, units: &Units) -> Result<Allocation, Shortage> {
        let own = units.get(&self.name).cloned().unwrap_or_default();
        self.granted(self.store.take_on(&own))
    }

    fn smaller(&self) -> Vec<u64> {
        self.store.smaller()
    }

    fn option(&self, units: u64) -> String {
        format!("--hugepages {}=x{units}", self.size)
    }
}
