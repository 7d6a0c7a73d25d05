//! How long one merge takes: lists of every mask, which the kubelet's own code
//! does not finish from 8 nodes and 4 resources on, and capacities.
//!
//! `cargo bench --bench merge` prints the times. Bounds to hold: lists of 8
//! nodes x 6 resources 1 ms, of 12 x 6 50 ms; capacities of 64 x 10 about 10 ms.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use numa_run::hint::kubelet::{Offer, TieBreak, merge};
use numa_run::hint::policy::Policy;
use numa_run::hint::{Amount, Capacity, Supply, TopologyHint};
use numa_run::topology::NodeMask;
use std::hint::black_box;

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Every mask, preferred or not at random by width: no two resources agree, so
/// the whole fold is needed.
fn every_mask(nodes: u32, resources: u32) -> Vec<Offer> {
    let hint = |bits: u64, width: u32| TopologyHint {
        affinity: Some(NodeMask::from_bits(bits)),
        preferred: bits.count_ones() == width,
    };
    let list = |width: u32| (1..1u64 << nodes).map(|bits| hint(bits, width)).collect();
    (0..resources).map(|resource| Offer::Hints(list(1 + resource % 2))).collect()
}

/// Every mask preferred by all: the answer is preferred.
fn every_mask_preferred(nodes: u32, resources: u32) -> Vec<Offer> {
    let hint = |bits: u64| TopologyHint { affinity: Some(NodeMask::from_bits(bits)), preferred: true };
    (0..resources).map(|_| Offer::Hints((1..1u64 << nodes).map(hint).collect())).collect()
}

/// Resources that are partly taken, the first of which needs about `share` of
/// the nodes in ten.
fn capacities(nodes: u32, resources: u32, share: u64, seed: u64) -> Vec<Offer> {
    let mut numbers = Numbers(seed);
    let mut capacity = |resource: u64| {
        let total = 16 + 16 * (resource % 3);
        let mut supply = |id: u32| Supply { nodes: NodeMask::one(id), free: numbers.below(total + 1), total };
        let supply: Vec<Supply> = (0..nodes).map(&mut supply).collect();
        let free: u64 = supply.iter().map(|supply| supply.free).sum();
        let wanted = (free * share / (10 + resource)).max(1);
        Offer::Capacity(Capacity {
            domain: (0..nodes).collect(),
            amounts: vec![Amount { wanted, supply }],
            ..Capacity::default()
        })
    };
    (0..u64::from(resources)).map(&mut capacity).collect()
}

/// Resources of three amounts each, which have to fit together: much harder.
fn of_three_amounts(nodes: u32, share: u64) -> Vec<Offer> {
    let amounts = |seed: u64| {
        capacities(nodes, 3, share, seed).into_iter().flat_map(|offer| match offer {
            Offer::Capacity(capacity) => capacity.amounts,
            _ => Vec::new(),
        })
    };
    let capacity =
        |seed| Capacity { domain: (0..nodes).collect(), amounts: amounts(seed).collect(), ..Capacity::default() };
    (0..10).map(|seed| Offer::Capacity(capacity(seed))).collect()
}

fn distances(nodes: u32) -> Vec<Vec<u32>> {
    let distance = |a: u32, b: u32| {
        if a == b {
            10
        } else if a / 4 == b / 4 {
            12
        } else {
            20 + a.abs_diff(b) / 16
        }
    };
    (0..nodes).map(|a| (0..nodes).map(|b| distance(a, b)).collect()).collect()
}

fn lists(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lists");
    for (nodes, resources) in [(8, 6), (12, 6), (16, 6)] {
        let ids: Vec<u32> = (0..nodes).collect();
        let near = distances(nodes);
        for (name, offers) in
            [("not preferred", every_mask(nodes, resources)), ("preferred", every_mask_preferred(nodes, resources))]
        {
            for tie in [TieBreak::Lowest, TieBreak::Closest] {
                let id = BenchmarkId::new(format!("{name}, {tie:?}"), format!("{nodes}x{resources}"));
                group.bench_function(id, |bencher| {
                    bencher.iter(|| merge(black_box(&offers), &ids, &near, Policy::BestEffort, tie));
                });
            }
        }
    }
}

fn capacity(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("capacities");
    for nodes in [8, 16, 36, 64] {
        let ids: Vec<u32> = (0..nodes).collect();
        let near = distances(nodes);
        let one = [1, 5, 9].map(|share| (format!("{share} tenths"), capacities(nodes, 10, share, 7)));
        let three = [2, 5].map(|share| (format!("{share} tenths of three amounts"), of_three_amounts(nodes, share)));
        for (kind, offers) in one.into_iter().chain(three) {
            for tie in [TieBreak::Lowest, TieBreak::Closest] {
                let proven = merge(&offers, &ids, &near, Policy::BestEffort, tie).proven;
                let name = format!("{kind}, {tie:?}{}", if proven { "" } else { ", not proven" });
                group.bench_function(BenchmarkId::new(name, format!("{nodes}x10")), |bencher| {
                    bencher.iter(|| merge(black_box(&offers), &ids, &near, Policy::BestEffort, tie));
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(std::time::Duration::from_millis(100)).measurement_time(std::time::Duration::from_millis(400));
    targets = lists, capacity
}
criterion_main!(benches);
