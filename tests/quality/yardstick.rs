//! How good one launch's placement is: one measure for both merges, taken from
//! what was handed out and not from what the search says of itself.

use numa_run::resource::Allocation;
use numa_run::topology::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Localities that something was taken from.
    pub width: usize,
    /// Sum over localities of the least part that any resource has there: 1
    /// where all of it is together. What is of unknown locality is nowhere.
    pub aligned_share: f64,
    /// Mean distance, there and back, between units of different resources;
    /// none where no two of them have a known place.
    pub distance: Option<f64>,
}

/// The parts of one resource, by locality.
type Parts = BTreeMap<u32, f64>;

impl Quality {
    /// Measures what was handed out to one launch.
    pub fn of(machine: &Machine, allocations: &[Allocation]) -> Quality {
        let rows: Vec<Parts> = allocations.iter().map(|allocation| parts(machine, allocation)).collect();
        let localities: BTreeSet<u32> = rows.iter().flat_map(|row| row.keys().copied()).collect();
        let least = |lead: &u32| rows.iter().map(|row| row.get(lead).copied().unwrap_or(0.0)).fold(1.0, f64::min);
        let pairs = rows.iter().enumerate().flat_map(|(at, a)| rows[at + 1..].iter().map(move |b| (a, b)));
        Quality {
            width: localities.len(),
            aligned_share: localities.iter().map(least).sum(),
            distance: mean(pairs.filter_map(|(a, b)| apart(machine, a, b))),
        }
    }
}

/// The mean of some numbers, if there are any.
pub fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = numbers.fold((0, 0.0), |(count, sum), number| (count + 1, sum + number));
    (count > 0).then(|| sum / f64::from(count))
}

/// Parts of what was asked for, units of unknown locality included.
fn parts(machine: &Machine, allocation: &Allocation) -> Parts {
    let asked = allocation.per_node.values().sum::<u64>() + allocation.unknown;
    let mut parts = Parts::new();
    for (&node, &units) in allocation.per_node.iter().filter(|(_, units)| **units > 0) {
        *parts.entry(machine.locality(node).unwrap_or(node)).or_default() += units as f64 / asked as f64;
    }
    parts
}

/// The mean over all pairs of units whose places are known.
fn apart(machine: &Machine, a: &Parts, b: &Parts) -> Option<f64> {
    let one_way = |from: u32, to: u32| f64::from(machine.distance(from, to).unwrap_or(20));
    let pairs = || a.iter().flat_map(|(n, p)| b.iter().map(move |(m, q)| (*n, *m, p * q)));
    let known: f64 = pairs().map(|(_, _, part)| part).sum();
    let sum: f64 = pairs().map(|(n, m, part)| part * (one_way(n, m) + one_way(m, n))).sum();
    (known > 0.0).then(|| sum / known)
}
