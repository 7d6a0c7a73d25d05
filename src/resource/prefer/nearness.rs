//! How near devices are to each other, whatever node they are on.

use crate::topology::{Bdf, Machine};
use std::collections::BTreeMap;

/// Closeness of two functions behind one bridge is this, less the bridges between them.
const CLOSE: i64 = 1000;

/// What is known of devices' places beside each other.
#[derive(Clone, Debug, Default)]
pub struct Nearness {
    links: BTreeMap<Bdf, Vec<(Bdf, i64)>>,
    above: BTreeMap<Bdf, Vec<Bdf>>,
    parents: BTreeMap<Bdf, Bdf>,
}

/// What is known of one device, looked up once for all that it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// Its address.
    pub bdf: Bdf,
    parent: Option<Bdf>,
    above: &'a [Bdf],
    links: &'a [(Bdf, i64)],
}

impl Nearness {
    /// What a machine says of it.
    pub fn of(machine: &Machine) -> Nearness {
        let both_ways = machine.links.iter().flat_map(|link| [(link.a, link.b, link), (link.b, link.a, link)]);
        let weights: BTreeMap<(Bdf, Bdf), i64> =
            both_ways.map(|(from, to, link)| ((from, to), i64::from(link.weight))).collect();
        let mut links: BTreeMap<Bdf, Vec<(Bdf, i64)>> = BTreeMap::new();
        weights.into_iter().for_each(|((from, to), weight)| links.entry(from).or_default().push((to, weight)));
        let above = machine.pci.iter().filter(|function| !function.above.is_empty());
        let parents = machine.pci.iter().filter_map(|function| Some((function.bdf, function.physical_function?)));
        Nearness {
            links,
            above: above.map(|function| (function.bdf, function.above.clone())).collect(),
            parents: parents.collect(),
        }
    }

    /// Adds a virtual function that is not there yet: it would be where its physical function is.
    pub fn add(&mut self, bdf: Bdf, parent: Bdf, machine: &Machine) {
        self.parents.insert(bdf, parent);
        let above = machine.pci(parent).map(|parent| parent.above.clone()).filter(|above| !above.is_empty());
        self.above.extend(above.map(|above| (bdf, above)));
    }

    /// True when no devices are linked.
    pub fn is_bare(&self) -> bool {
        self.links.is_empty()
    }

    /// What is known of a device.
    pub fn spot(&self, bdf: Bdf) -> Spot<'_> {
        Spot {
            bdf,
            parent: self.parents.get(&bdf).copied(),
            above: self.above.get(&bdf).map_or(&[], Vec::as_slice),
            links: if self.links.is_empty() { &[] } else { self.links.get(&bdf).map_or(&[], Vec::as_slice) },
        }
    }
}

impl Spot<'_> {
    /// Bandwidth of the links to another device.
    pub fn link(&self, other: &Spot<'_>) -> i64 {
        let at = self.links.binary_search_by_key(&other.bdf, |(to, _)| *to);
        at.map_or(0, |at| self.links[at].1)
    }

    /// How close two devices are below a bridge that they have in common; 0 without one.
    pub fn switch(&self, other: &Spot<'_>) -> i64 {
        let common = self.above.iter().zip(other.above).take_while(|(a, b)| a == b).count();
        let apart = self.above.len() + other.above.len() - 2 * common;
        if common == 0 { 0 } else { (CLOSE - apart as i64).max(1) }
    }

    /// True for virtual functions of one physical function.
    pub fn siblings(&self, other: &Spot<'_>) -> bool {
        self.parent.is_some() && self.parent == other.parent
    }

    /// The bridge or port that everything near to it is behind, and its physical function.
    pub fn places(&self) -> (Option<Bdf>, Option<Bdf>) {
        (self.above.first().copied(), self.parent)
    }

    /// True for a device with links.
    pub fn is_linked(&self) -> bool {
        !self.links.is_empty()
    }
}
