//! Links between devices: the matrices that libhwloc has of NVLink and xGMI.

use super::devices::address_of;
use crate::topology::{Bdf, Link, PciFunction};
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::distance::Distances;
use std::collections::{BTreeMap, BTreeSet};

/// Matrices of bandwidths in MB/s.
const TABLES: [&std::ffi::CStr; 2] = [c"NVLinkBandwidth", c"XGMIBandwidth"];

/// Class of a switch between links.
const SWITCH: u32 = 0x06;

/// Links between functions that are no switches. Two that hang on the same
/// switches are linked through them, each by the narrower of both ways.
pub(super) fn links(topology: &Topology, functions: &[PciFunction]) -> Vec<Link> {
    let tables = topology.distances(None).unwrap_or_default();
    let named = |table: &&Distances<'_>| table.name().is_some_and(|name| TABLES.contains(&name));
    let mut ways: BTreeMap<(Bdf, Bdf), u64> = BTreeMap::new();
    let mut switches: BTreeSet<Bdf> =
        functions.iter().filter(|function| function.class >> 16 == SWITCH).map(|function| function.bdf).collect();
    for table in tables.iter().filter(named) {
        ways.extend(ways_of(table));
        switches.extend(table.objects().flatten().filter(|object| is_switch(object)).filter_map(address_of));
    }
    joined(&ways, |bdf| switches.contains(bdf))
}

/// Links between what is no switch, from each direction of each link.
pub(super) fn joined(ways: &BTreeMap<(Bdf, Bdf), u64>, switch: impl Fn(&Bdf) -> bool) -> Vec<Link> {
    let mut direct: BTreeMap<(Bdf, Bdf), u64> = BTreeMap::new();
    let mut on_switch: BTreeMap<Bdf, Vec<(Bdf, u64)>> = BTreeMap::new();
    for (&(a, b), &weight) in ways {
        match (switch(&a), switch(&b)) {
            (false, false) if a < b => *direct.entry((a, b)).or_default() += weight,
            (false, true) => on_switch.entry(b).or_default().push((a, weight)),
            _ => {}
        }
    }
    for ends in on_switch.values() {
        for (at, &(a, first)) in ends.iter().enumerate() {
            for &(b, second) in &ends[at + 1..] {
                *direct.entry((a.min(b), a.max(b))).or_default() += first.min(second);
            }
        }
    }
    let weight = |weight: u64| u32::try_from(weight).unwrap_or(u32::MAX);
    direct.into_iter().map(|((a, b), bandwidth)| Link { a, b, weight: weight(bandwidth) }).collect()
}

/// An export may have lost the class of a function.
fn is_switch(object: &TopologyObject) -> bool {
    object.subtype().is_some_and(|subtype| subtype == c"NVSwitch")
}

/// Bandwidths between devices. Both directions are listed; processors that
/// are linked too are no devices.
fn ways_of(table: &Distances<'_>) -> Vec<((Bdf, Bdf), u64)> {
    let ends: Vec<Option<Bdf>> = table.objects().map(|object| address_of(object?)).collect();
    let cells = table.distances().iter().enumerate();
    let ways = cells.filter_map(|(at, &weight)| {
        let (a, b) = (ends[at / ends.len()]?, ends[at % ends.len()]?);
        (a != b && weight > 0).then_some(((a, b), weight))
    });
    ways.collect()
}
