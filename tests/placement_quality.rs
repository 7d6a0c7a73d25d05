//! What `cargo bench --bench placement` measures is measured rightly, and a
//! little of it holds in every build.

#![allow(clippy::unwrap_used, reason = "tests fail where they cannot go on")]

mod quality;

use numa_run::assume::Holdings;
use numa_run::hint::policy::Policy;
use numa_run::request::Merge;
use numa_run::resource::Allocation;
use numa_run::topology::CpuSet;
use quality::compare::{HEAD, POLICIES, compare, in_full, in_short};
use quality::machines::{Model, models};
use quality::play::{Run, decide, give_back, take};
use quality::stock::stranded;
use quality::stream::Source;
use quality::yardstick::Quality;

/// A few of those that the bench plays.
const STREAMS: std::ops::Range<u64> = 0..2;

fn given(resource: &str, per_node: &[(u32, u64)], unknown: u64) -> Allocation {
    Allocation {
        resource: resource.into(),
        per_node: per_node.iter().copied().collect(),
        unknown,
        ..Allocation::default()
    }
}

#[test]
fn parts_that_lie_apart_are_measured_as_parts() {
    let [Model { machine, .. }, ..] = models();
    // The node of the GPU has a quarter of the CPUs; the others are 21 away in both directions.
    let split = Quality::of(&machine, &[given("cpu", &[(0, 3), (1, 1)], 0), given("gpu", &[(1, 1)], 0)]);
    assert_eq!(split, Quality { width: 2, aligned_share: 0.25, distance: Some(0.75 * 42.0 + 0.25 * 20.0) });
    let together = Quality::of(&machine, &[given("cpu", &[(0, 3)], 0), given("gpu", &[(0, 1)], 0)]);
    assert_eq!(together, Quality { width: 1, aligned_share: 1.0, distance: Some(20.0) });
}

#[test]
fn what_is_of_unknown_locality_is_aligned_with_nothing() {
    let [Model { machine, .. }, ..] = models();
    let half = Quality::of(&machine, &[given("cpu", &[(0, 4)], 0), given("gpu", &[(0, 1)], 1)]);
    assert_eq!(half, Quality { width: 1, aligned_share: 0.5, distance: Some(20.0) });
    let none = Quality::of(&machine, &[given("cpu", &[(0, 4)], 0), given("gpu", &[], 1)]);
    assert_eq!(none, Quality { width: 1, aligned_share: 0.0, distance: None });
}

#[test]
fn memory_of_a_gpu_is_of_the_locality_of_its_cpus() {
    let [.., Model { machine, .. }] = models();
    assert_eq!(machine.nodes.len(), 36);
    let beside = Quality::of(&machine, &[given("cpu", &[(1, 8)], 0), given("memory", &[(12, 4096)], 0)]);
    assert_eq!(beside, Quality { width: 1, aligned_share: 1.0, distance: Some(20.0) });
}

#[test]
fn a_free_device_is_stranded_where_no_launch_fits_beside_it() {
    let [model, ..] = models();
    assert_eq!(stranded(&model, &Holdings::default()), 0);
    // One thread of each core is enough to make the core useless to others.
    let threads = |cores: std::ops::Range<u32>| Holdings { cpus: cores.collect::<CpuSet>(), ..Holdings::default() };
    assert_eq!(stranded(&model, &threads(0..32)), 6, "all GPUs, NICs and disks of node 0");
    assert_eq!(stranded(&model, &threads(0..31)), 4, "two CPUs are enough for the smallest launch with a NIC");
    let gpus = model.machine.pci.iter().filter(|function| function.class == 0x030200).map(|gpu| gpu.bdf);
    let held = Holdings { devices: gpus.collect(), ..threads(0..32) };
    assert_eq!(stranded(&model, &held), 4, "what is held is not stranded");
}

#[test]
fn what_a_launch_was_given_is_free_again_when_it_ends() {
    for model in models() {
        let mut holdings = Holdings::default();
        for launch in Source::new(&model, Policy::BestEffort).stream(0).iter().take(4) {
            let before = holdings.clone();
            let plan = decide(&model.machine, &before, &launch.request, Merge::Relative);
            plan.allocations.iter().for_each(|allocation| take(&mut holdings, allocation));
            assert!(plan.admitted && holdings.cpus.len() > before.cpus.len());
            assert!(holdings.memory.values().sum::<u64>() > before.memory.values().sum());
            let mut after = holdings.clone();
            plan.allocations.iter().for_each(|allocation| give_back(&mut after, allocation));
            after.memory.retain(|node, _| before.memory.contains_key(node));
            after.pages.retain(|place, _| before.pages.contains_key(place));
            assert_eq!(after, before);
        }
    }
}

#[test]
fn the_relative_merge_refuses_nothing_that_the_kubelets_admits_in_its_place() {
    for (model, policy) in models().iter().flat_map(|model| POLICIES.map(|policy| (model, policy))) {
        let source = Source::new(model, policy);
        for seed in STREAMS {
            let launches = source.stream(seed);
            let run = Run::of(&model.machine, &launches, Merge::Relative);
            let refused = &launches[run.admitted.len()].request;
            let kubelet = decide(&model.machine, &run.holdings, refused, Merge::Kubelet);
            assert!(!kubelet.admitted, "{}, {}, stream {seed}: {refused:?}", model.name, policy.name());
        }
    }
}

#[test]
fn launches_are_no_wider_and_no_less_aligned_by_the_relative_merge() {
    let comparisons: Vec<_> =
        models().iter().flat_map(|model| POLICIES.map(|policy| compare(model, policy, STREAMS))).collect();
    for all in &comparisons {
        let (kubelet, relative) = (&all.kubelet, &all.relative);
        // How many are admitted differs too much from stream to stream for so few of them.
        assert!(kubelet.admitted >= 1.0 && relative.admitted >= 1.0, "{all:?}");
        assert!(relative.width <= kubelet.width && relative.aligned_share >= kubelet.aligned_share, "{all:?}");
        let one_node = (relative.width, relative.aligned_share, relative.distance) == (1.0, 1.0, 20.0);
        assert!(all.policy != Policy::SingleNumaNode || one_node, "{all:?}");
        assert_eq!((relative.unproven, kubelet.unproven), (0, 0));
    }
    assert_eq!(in_full(&comparisons).lines().count(), 1 + 2 * comparisons.len());
    assert_eq!(in_short(&comparisons).lines().count(), HEAD.lines().count() + models().len());
}

#[test]
fn the_readme_has_a_row_for_each_machine() {
    let readme = include_str!("../README.md");
    assert!(readme.contains(HEAD));
    assert!(models().iter().all(|model| readme.contains(&format!("\n| {} | ", model.name))));
}
