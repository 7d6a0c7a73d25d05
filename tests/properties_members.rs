//! What holds for every plan with members, in both scopes and under both
//! merges: each member gets what was asked for, nobody shares anything, and a
//! group is placed as one launch would be.

#![allow(clippy::unwrap_used, reason = "a plan that lacks what it must have is a failed test")]

mod worlds;

use numa_run::config::Config;
use numa_run::plan::Plan;
use numa_run::plan::divide::Whole;
use numa_run::request::{Members, Merge, Request, Scope};
use numa_run::resource::{Allocation, Granted};
use numa_run::topology::{Bdf, CpuSet};
use proptest::prelude::*;
use std::collections::BTreeMap;
use worlds::{World, world};

/// Units by resource.
fn units<'a>(granted: impl IntoIterator<Item = &'a Allocation>) -> BTreeMap<String, u64> {
    let mut units = BTreeMap::new();
    for allocation in granted {
        let all = allocation.per_node.values().sum::<u64>() + allocation.unknown;
        *units.entry(allocation.resource.clone()).or_default() += all;
    }
    units
}

fn per_node<'a>(granted: impl IntoIterator<Item = &'a Allocation>) -> BTreeMap<(String, u32), u64> {
    let mut units = BTreeMap::new();
    for allocation in granted {
        for (&node, &here) in allocation.per_node.iter().filter(|(_, units)| **units > 0) {
            *units.entry((allocation.resource.clone(), node)).or_default() += here;
        }
    }
    units
}

/// The things themselves: CPUs and devices, which no two members may have.
fn things<'a>(granted: impl IntoIterator<Item = &'a Allocation>) -> (Vec<u32>, Vec<Bdf>) {
    let (mut cpus, mut devices) = (Vec::new(), Vec::new());
    for allocation in granted {
        match &allocation.granted {
            Granted::Cpus(set) => cpus.extend(set.iter()),
            Granted::Devices(grant) => devices.extend(grant.devices.iter().map(|device| device.bdf)),
            Granted::Mib(mib) => assert_eq!(*mib, allocation.per_node.values().sum::<u64>()),
            Granted::Pages { count, .. } => assert_eq!(*count, allocation.per_node.values().sum::<u64>()),
        }
    }
    cpus.sort_unstable();
    devices.sort_unstable();
    (cpus, devices)
}

/// How many members the nodes could hold whole of what was granted.
fn whole(plan: &Plan, asked: &BTreeMap<String, u64>) -> u64 {
    let here = per_node(&plan.allocations);
    let on = |node: u32| {
        let rooms = asked.iter().map(|(resource, units)| here.get(&(resource.clone(), node)).unwrap_or(&0) / units);
        rooms.min().unwrap_or(0)
    };
    plan.span.iter().map(on).sum()
}

/// How many members the nodes of a placement could hold whole of what is free there.
fn could_be_whole(world: &World, plan: &Plan, asked: &BTreeMap<String, u64>) -> u64 {
    let rooms = |node: u32| asked.iter().map(move |(resource, units)| world.free_of(resource)[node as usize] / units);
    plan.span.iter().map(|node| rooms(node).min().unwrap_or(0)).sum()
}

fn holds_for(world: &World, members: Members, plan: &Plan) {
    let one = world.plan(&Request { policy: Default::default(), ..world.request.clone() });
    let asked = units(&one.allocations);
    assert_eq!(plan.members.len(), members.count as usize);
    for member in &plan.members {
        assert_eq!(units(&member.allocations), asked);
        assert!(member.span.is_subset(&plan.span));
    }
    let parts = || plan.members.iter().flat_map(|member| &member.allocations);
    assert_eq!(things(parts()), things(&plan.allocations));
    let (cpus, devices) = things(parts());
    assert_eq!(cpus.iter().copied().collect::<CpuSet>().len(), cpus.len());
    assert!(devices.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(per_node(parts()), per_node(&plan.allocations));
    for ((resource, node), units) in per_node(parts()) {
        assert!(units <= world.free_of(&resource)[node as usize]);
    }
}

prop_compose! {
    fn small()(world in world((6, 2000, 25, 2)), count in 1..5u32) -> (World, u32) {
        (world, count)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_member_gets_all_of_it_and_shares_nothing((world, count) in small(), group in any::<bool>()) {
        prop_assume!(!world.request.is_bare());
        let members = Members { count, scope: if group { Scope::Group } else { Scope::Member } };
        let plan = world.plan(&Request { members: Some(members), ..world.request.clone() });
        prop_assert_eq!(plan.admitted, plan.refusal.is_none());
        match plan.admitted {
            true => holds_for(&world, members, &plan),
            false => prop_assert!(plan.members.is_empty() && plan.allocations.is_empty()),
        }
    }

    #[test]
    fn a_group_is_admitted_as_one_launch_is_and_divided_so_that_most_are_whole((world, count) in small()) {
        prop_assume!(!world.request.is_bare());
        let group = Some(Members { count, scope: Scope::Group });
        let plan = world.plan(&Request { members: group, ..world.request.clone() });
        let sum = world.plan(&world.request.times(count));
        prop_assert!(plan.admitted || !sum.admitted, "{:?}", plan.refusal);
        if plan.admitted {
            let asked = units(&plan.members[0].allocations);
            let aligned = plan.members.iter().filter(|member| member.aligned).count() as u64;
            prop_assert!(aligned >= whole(&plan, &asked) && aligned >= whole(&sum, &asked), "{:?}", plan.remarks);
            prop_assert!(plan.span.len() <= sum.span.len());
            let all = could_be_whole(&world, &sum, &asked) >= u64::from(count);
            let sought = world.request.merge == Merge::Relative && world.request.policy.seeks_alignment();
            prop_assert!(!all || !sought || aligned == u64::from(count), "{:?}", plan.remarks);
        }
    }

    #[test]
    fn a_rank_finds_its_part_by_itself((world, count) in small(), ranks in 1..6u32) {
        let plan = world.plan(&world.request.times(count));
        let machine = world.machine();
        let whole = Whole { machine: &machine, config: &Config::default(), options: Default::default(), granted: &plan.allocations };
        let parts = whole.parts(ranks);
        for (rank, part) in (0..).zip(&parts) {
            prop_assert_eq!(&whole.part(rank, ranks), part);
            let sizes = units(part);
            for (resource, all) in units(&plan.allocations) {
                let size = sizes[&resource];
                prop_assert!(size == all / u64::from(ranks) || size == all / u64::from(ranks) + 1, "{}", resource);
            }
        }
        prop_assert_eq!(things(parts.iter().flatten()), things(&plan.allocations));
        prop_assert_eq!(per_node(parts.iter().flatten()), per_node(&plan.allocations));
    }
}
