//! How long one resources-relative placement takes: machines of 2 to 64 nodes,
//! 1 to 8 resources, idle and busy, from a small part of the machine to most of it.
//!
//! `cargo bench --bench relative` prints the times and where the best placement
//! is not proven. Bounds to hold: 50 ms up to 8 nodes, 10 ms with 8 resources
//! on 36 and on 64 nodes.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use numa_run::hint::policy::Policy;
use numa_run::hint::relative::{Kind, Problem, Resource, solve};
use std::hint::black_box;

/// Kind, name and what each node has.
const KINDS: [(Kind, &str, u64); 8] = [
    (Kind::Cpus, "cpu", 32),
    (Kind::Memory, "memory", 256 << 10),
    (Kind::Devices, "gpu", 4),
    (Kind::Pages, "hugepages-2M", 4096),
    (Kind::Devices, "nic", 2),
    (Kind::Devices, "vf", 8),
    (Kind::Devices, "nvme", 4),
    (Kind::Pages, "hugepages-1G", 32),
];

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A request for about so many hundredths of what is free of each resource.
fn problem(nodes: usize, resources: usize, busy: bool, hundredths: u64) -> Problem<'static> {
    let mut numbers = Numbers(7);
    let mut resource = |&(kind, name, each): &(Kind, &str, u64)| {
        let free: Vec<u64> = (0..nodes).map(|_| if busy { numbers.below(each + 1) } else { each }).collect();
        let all: u64 = free.iter().sum();
        let units = (all * hundredths / 100).clamp(1, all.max(1));
        Resource { name: name.to_owned(), kind, units, free, total: vec![each; nodes], ..Resource::default() }
    };
    let far = |a: usize, b: usize| match (a == b, a / 4 == b / 4) {
        (true, _) => 10,
        (_, true) => 12,
        _ => 32,
    };
    Problem {
        nodes: (0..nodes as u32).collect(),
        distances: (0..nodes).map(|a| (0..nodes).map(|b| far(a, b)).collect()).collect(),
        resources: KINDS[..resources].iter().map(&mut resource).collect(),
        policy: Policy::Restricted,
        ..Problem::default()
    }
}

fn place(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("place");
    for (nodes, resources) in [(2, 2), (2, 8), (8, 2), (8, 4), (8, 8), (16, 8), (36, 8), (64, 8)] {
        for (state, busy) in [("idle", false), ("busy", true)] {
            for hundredths in [1, 20, 60, 95] {
                let problem = problem(nodes, resources, busy, hundredths);
                let Ok(solution) = solve(&problem) else { continue };
                let proven = if solution.proven { "" } else { ", not proven" };
                let name = format!("{state}, {hundredths} hundredths on {} nodes{proven}", solution.width());
                group.bench_function(BenchmarkId::new(name, format!("{nodes}x{resources}")), |bencher| {
                    bencher.iter(|| solve(black_box(&problem)));
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(std::time::Duration::from_millis(50)).measurement_time(std::time::Duration::from_millis(200));
    targets = place
}
criterion_main!(benches);
