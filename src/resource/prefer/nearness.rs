//! How near devices are to each other, whatever node they are on.

use crate::topology::{Bdf, Machine};
use std::collections::BTreeMap;

/// Closeness of two functions behind one bridge is this, less the bridges between them.
const CLOSE: i64 = 1000;

/// What is known of devices' places beside each other.
#[derive(Clone, Debug, Default)]
pub struct Nearness {
    links: BTreeMap<(Bdf, Bdf), i64>,
    above: BTreeMap<Bdf, Vec<Bdf>>,
    parents: BTreeMap<Bdf, Bdf>,
}

impl Nearness {
    /// What a machine says of it.
    pub fn of(machine: &Machine) -> Nearness {
        let links = machine.links.iter().flat_map(|link| {
            let weight = i64::from(link.weight);
            [((link.a, link.b), weight), ((link.b, link.a), weight)]
        });
        let above = machine.pci.iter().filter(|function| !function.above.is_empty());
        let parents = machine.pci.iter().filter_map(|function| Some((function.bdf, function.physical_function?)));
        Nearness {
            links: links.collect(),
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

    /// Bandwidth of the links between two devices.
    pub fn link(&self, a: Bdf, b: Bdf) -> i64 {
        if self.links.is_empty() { 0 } else { self.links.get(&(a, b)).copied().unwrap_or(0) }
    }

    /// How close two devices are below a bridge that they have in common; 0 without one.
    pub fn switch(&self, a: Bdf, b: Bdf) -> i64 {
        let (Some(a), Some(b)) = (self.above.get(&a), self.above.get(&b)) else { return 0 };
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let apart = a.len() + b.len() - 2 * common;
        if common == 0 { 0 } else { (CLOSE - apart as i64).max(1) }
    }

    /// True for virtual functions of one physical function.
    pub fn siblings(&self, a: Bdf, b: Bdf) -> bool {
        let parent = self.parents.get(&a);
        parent.is_some() && parent == self.parents.get(&b)
    }
}
