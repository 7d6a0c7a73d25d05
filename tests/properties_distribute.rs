//! What holds for every plan with `--distribute`, under both merges: it hands
//! out what was asked for, evenly as far as what is free allows, and refuses
//! nothing that would be admitted without.

#![allow(clippy::unwrap_used, reason = "a plan that lacks what it must have is a failed test")]

mod worlds;

use numa_run::plan::Plan;
use numa_run::request::Request;
use proptest::prelude::*;
use std::collections::BTreeMap;
use worlds::{World, world};

/// No node gives more than one unit more than another that has more free, and the lowest ids the one.
fn is_even(world: &World, plan: &Plan, resource: &str, per_node: &BTreeMap<u32, u64>) {
    let free = world.free_of(resource);
    let given = |node: u32| per_node.get(&node).copied().unwrap_or(0);
    for low in plan.span.iter().filter(|&node| given(node) < free[node as usize]) {
        for high in plan.span.iter() {
            assert!(given(high) <= given(low) + 1, "{resource} {plan:?}");
            assert!(given(high) <= given(low) || high < low, "{resource} {plan:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_distributed_is_all_of_it_and_as_even_as_can_be(world in world((24, 9000, 90, 3))) {
        let plan = world.plan(&Request { distribute: true, ..world.request.clone() });
        let without = world.plan(&world.request);
        prop_assert_eq!(plan.admitted, plan.refusal.is_none());
        prop_assert!(plan.admitted || !without.admitted, "{:?}", plan.refusal);
        if plan.admitted {
            for (said, granted) in plan.resources.iter().zip(&plan.allocations) {
                prop_assert_eq!(granted.per_node.values().sum::<u64>() + granted.unknown, said.wanted);
                let free = world.free_of(&granted.resource);
                if granted.resource != "gpu" {
                    prop_assert!(granted.per_node.iter().all(|(&node, &units)| units <= free[node as usize]));
                    is_even(&world, &plan, &granted.resource, &granted.per_node);
                }
            }
            prop_assert!(without.admitted && plan.span.len() <= without.span.len());
        }
    }
}
