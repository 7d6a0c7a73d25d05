//! What holds for every merge, and that capacities and lists of hints agree.

#![allow(clippy::unwrap_used)]

use numa_run::hint::kubelet::{Merged, Offer, TieBreak, explain, merge};
use numa_run::hint::policy::Policy;
use numa_run::hint::{Amount, Capacity, Sockets, Supply, TopologyHint};
use numa_run::topology::NodeMask;
use proptest::prelude::*;
use std::collections::BTreeSet;

const POLICIES: [Policy; 3] = [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode];
const TIES: [TieBreak; 2] = [TieBreak::Lowest, TieBreak::Closest];

/// Ids with gaps, so that nothing takes an id for a column.
fn ids(count: usize) -> Vec<u32> {
    [0, 1, 3, 8, 64, 70, 252, 255, 300][..count].to_vec()
}

fn mask_of(nodes: &[u32], bits: usize) -> NodeMask {
    nodes.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, &id)| id).collect()
}

/// The hints of a capacity by their definition: every mask is looked at.
fn listed(capacity: &Capacity) -> Vec<TopologyHint> {
    let domain: Vec<u32> = capacity.domain.iter().collect();
    let masks = || (1..1 << domain.len()).map(|bits| mask_of(&domain, bits));
    let least = masks().filter(|mask| capacity.could_hold(mask)).map(|mask| mask.len()).min().unwrap_or(domain.len());
    let aligned = |mask: &NodeMask| capacity.sockets.as_ref().is_some_and(|sockets| sockets.spans_least(mask));
    masks()
        .filter(|mask| capacity.holds(mask))
        .map(|mask| TopologyHint { preferred: mask.len() == least || aligned(&mask), affinity: Some(mask) })
        .collect()
}

fn lists(offers: &[Offer]) -> Vec<Offer> {
    let list = |offer: &Offer| match offer {
        Offer::Capacity(capacity) => Offer::Hints(listed(capacity)),
        other => other.clone(),
    };
    offers.iter().map(list).collect()
}

/// The definition: every combination of one hint from each list.
fn by_combinations(offers: &[Offer], nodes: &[u32], distances: &[Vec<u32>], tie: TieBreak) -> (NodeMask, bool) {
    let all: NodeMask = nodes.iter().copied().collect();
    let lists: Vec<Vec<TopologyHint>> = offers
        .iter()
        .map(|offer| match offer {
            Offer::NoPreference => vec![TopologyHint { affinity: None, preferred: true }],
            Offer::Hints(hints) if !hints.is_empty() => hints.clone(),
            _ => vec![TopologyHint { affinity: None, preferred: false }],
        })
        .collect();
    let narrowest = |list: &Vec<TopologyHint>| list.iter().filter_map(|hint| Some(hint.affinity.as_ref()?.len())).min();
    let wanted = lists.iter().filter_map(narrowest).max().unwrap_or(0);
    let mut combinations: Vec<Vec<&TopologyHint>> = vec![Vec::new()];
    for list in &lists {
        combinations = combinations.iter().flat_map(|c| list.iter().map(|h| [&c[..], &[h]].concat())).collect();
    }
    let results = combinations.iter().map(|hints| {
        let masks: BTreeSet<&NodeMask> = hints.iter().filter_map(|hint| hint.affinity.as_ref()).collect();
        let mask = masks.iter().fold(all.clone(), |mask, other| mask.and(other));
        (mask, hints.iter().all(|hint| hint.preferred) && masks.len() <= 1)
    });
    let spread = |mask: &NodeMask| {
        let places = || (0..nodes.len()).filter(|&place| mask.contains(nodes[place]));
        let sum = places().flat_map(|a| places().map(move |b| (a, b))).map(|(a, b)| distances[a][b]).sum::<u32>();
        if tie == TieBreak::Closest { sum } else { 0 }
    };
    let best = results.filter(|(mask, _)| !mask.is_empty()).min_by_key(|(mask, preferred)| {
        let count = mask.len();
        let width = if *preferred { (false, count) } else { (count > wanted, count.abs_diff(wanted)) };
        (!preferred, width, spread(mask), mask.clone())
    });
    best.unwrap_or((all, false))
}

prop_compose! {
    /// How many nodes, a distance table that need not be symmetric.
    fn machine(most: usize)(count in 1..=most)(
        count in Just(count),
        distances in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![10u32, 11, 12, 20, 21]), count), count),
    ) -> (Vec<u32>, Vec<Vec<u32>>) {
        (ids(count), distances)
    }
}

fn amount(nodes: Vec<u32>, near_several: bool) -> impl Strategy<Value = Amount> {
    let count = nodes.len();
    let single = prop::collection::vec((0u64..5, 0u64..4), count);
    let several = prop::collection::vec((1..1usize << count, 0u64..3, 0u64..2), 0..=if near_several { 3 } else { 0 });
    (single, several, 0u64..12).prop_map(move |(single, several, wanted)| {
        let single = single.into_iter().zip(&nodes).map(|((free, more), &id)| (NodeMask::one(id), free, more));
        let several = several.into_iter().map(|(bits, free, more)| (mask_of(&nodes, bits), free, more));
        let supply = |(nodes, free, more)| Supply { nodes, free, total: free + more };
        Amount { wanted, supply: single.chain(several).map(supply).collect() }
    })
}

fn capacity(nodes: Vec<u32>, near_several: bool) -> impl Strategy<Value = Capacity> {
    let all = (1usize << nodes.len()) - 1;
    let domain = prop_oneof![3 => Just(all), 2 => 1..=all];
    let must = prop_oneof![8 => Just(0), 1 => 0..=all];
    let amounts = prop::collection::vec(amount(nodes.clone(), near_several), 1..=3);
    let sockets = prop_oneof![4 => Just(None), 1 => (1usize..=2, 1usize..=3).prop_map(Some)];
    (domain, must, amounts, sockets).prop_map(move |(domain, must, amounts, sockets)| Capacity {
        domain: mask_of(&nodes, domain),
        must_hold: mask_of(&nodes, domain & must),
        amounts,
        sockets: sockets.map(|(least, per)| Sockets {
            of_node: nodes.iter().zip(0..).map(|(&id, at)| (id, vec![at / per as u32])).collect(),
            least,
        }),
    })
}

fn capacities(most: usize, near_several: bool) -> impl Strategy<Value = (Vec<u32>, Vec<Vec<u32>>, Vec<Offer>)> {
    machine(most).prop_flat_map(move |(nodes, distances)| {
        let offer = prop_oneof![
            16 => capacity(nodes.clone(), near_several).prop_map(Offer::Capacity),
            1 => Just(Offer::NoPreference),
            1 => Just(Offer::CannotBeMet),
        ];
        (Just(nodes), Just(distances), prop::collection::vec(offer, 1..=4))
    })
}

/// One amount with the same units on every node.
fn even(nodes: u32, free: u64, total: u64, wanted: u64) -> Offer {
    let supply = (0..nodes).map(|id| Supply { nodes: NodeMask::one(id), free, total });
    let amounts = vec![Amount { wanted, supply: supply.collect() }];
    Offer::Capacity(Capacity { domain: (0..nodes).collect(), amounts, ..Capacity::default() })
}

/// Any lists, with nodes that the machine lacks, empty masks and empty lists.
fn any_lists() -> impl Strategy<Value = (Vec<u32>, Vec<Vec<u32>>, Vec<Offer>)> {
    machine(5).prop_flat_map(|(nodes, distances)| {
        let mut named = nodes.clone();
        named.extend([9, 500]);
        let hint = (prop::option::weighted(0.9, 0..1usize << named.len()), any::<bool>()).prop_map(
            move |(bits, preferred)| TopologyHint { affinity: bits.map(|bits| mask_of(&named, bits)), preferred },
        );
        let offer = prop_oneof![
            8 => prop::collection::vec(hint, 0..6).prop_map(Offer::Hints),
            1 => Just(Offer::NoPreference),
            1 => Just(Offer::CannotBeMet),
        ];
        (Just(nodes), Just(distances), prop::collection::vec(offer, 0..=4))
    })
}

/// A thousand cases a property, or as many as `PROPTEST_CASES` says.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(1000),
    }
}

fn assert_agreement((nodes, distances, offers): &(Vec<u32>, Vec<Vec<u32>>, Vec<Offer>)) {
    let lists = lists(offers);
    for (policy, tie) in POLICIES.into_iter().flat_map(|policy| TIES.map(|tie| (policy, tie))) {
        let merged = merge(offers, nodes, distances, policy, tie);
        let by_lists = merge(&lists, nodes, distances, policy, tie);
        assert_eq!(merged, by_lists, "{policy} {tie:?}");
        assert!(merged.proven);
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn capacities_give_the_answer_of_their_lists(case in capacities(7, false)) {
        assert_agreement(&case);
    }

    #[test]
    fn units_near_to_several_nodes_give_the_answer_of_their_lists(case in capacities(6, true)) {
        assert_agreement(&case);
    }

    #[test]
    fn lists_give_the_best_of_all_combinations((nodes, distances, offers) in any_lists()) {
        for tie in TIES {
            let merged = merge(&offers, &nodes, &distances, Policy::BestEffort, tie);
            let (mask, preferred) = by_combinations(&offers, &nodes, &distances, tie);
            prop_assert_eq!(merged, Merged { affinity: Some(mask), preferred, proven: true });
        }
    }

    #[test]
    fn the_order_of_resources_does_not_matter(
        (nodes, distances, offers) in prop_oneof![capacities(6, true), any_lists()],
        turn in 0usize..4,
    ) {
        let mut turned = offers.clone();
        turned.rotate_left(turn.min(offers.len()));
        let mut backwards = offers.clone();
        backwards.reverse();
        for (policy, tie) in POLICIES.into_iter().flat_map(|policy| TIES.map(|tie| (policy, tie))) {
            let merged = merge(&offers, &nodes, &distances, policy, tie);
            prop_assert_eq!(&merge(&turned, &nodes, &distances, policy, tie), &merged);
            prop_assert_eq!(&merge(&backwards, &nodes, &distances, policy, tie), &merged);
        }
    }

    #[test]
    fn the_order_of_nodes_does_not_matter((mut nodes, mut distances, offers) in capacities(6, true)) {
        let before = merge(&offers, &nodes, &distances, Policy::BestEffort, TieBreak::Closest);
        nodes.reverse();
        distances.reverse();
        distances.iter_mut().for_each(|row| row.reverse());
        prop_assert_eq!(merge(&offers, &nodes, &distances, Policy::BestEffort, TieBreak::Closest), before);
    }

    #[test]
    fn a_merged_mask_is_never_empty_and_always_of_the_machine((nodes, distances, offers) in prop_oneof![capacities(6, true), any_lists()]) {
        let all: NodeMask = nodes.iter().copied().collect();
        for (policy, tie) in POLICIES.into_iter().flat_map(|policy| TIES.map(|tie| (policy, tie))) {
            let merged = merge(&offers, &nodes, &distances, policy, tie);
            prop_assert!(merged.affinity.is_none_or(|mask| !mask.is_empty() && mask.is_subset(&all)));
        }
    }

    #[test]
    fn what_a_preferred_mask_promises_every_resource_can_keep((nodes, distances, offers) in capacities(7, true)) {
        let merged = merge(&offers, &nodes, &distances, Policy::Restricted, TieBreak::Lowest);
        if merged.preferred {
            let mask = merged.affinity.unwrap();
            for offer in &offers {
                prop_assert!(offer != &Offer::CannotBeMet);
                if let Offer::Capacity(capacity) = offer {
                    prop_assert!(capacity.holds(&mask) && mask.is_subset(&capacity.domain));
                }
            }
        }
    }

    #[test]
    fn an_explanation_counts_what_the_lists_hold((nodes, distances, offers) in capacities(6, true)) {
        let explained = explain(&offers, &nodes, &distances, Policy::BestEffort, TieBreak::Lowest);
        for (view, offer) in explained.resources.iter().zip(lists(&offers)) {
            let Offer::Hints(hints) = offer else { continue };
            let masks = || hints.iter().filter_map(|hint| hint.affinity.as_ref());
            prop_assert_eq!(view.narrowest, masks().map(NodeMask::len).min());
            let alone: NodeMask = masks().filter(|mask| mask.len() == 1).flat_map(NodeMask::iter).collect();
            prop_assert_eq!(&view.alone, &alone);
        }
        for verdict in &explained.nodes {
            let alone = |offer: &Offer| match offer {
                Offer::Capacity(capacity) => capacity.domain.contains(verdict.node) && capacity.holds(&NodeMask::one(verdict.node)),
                _ => true,
            };
            prop_assert_eq!(verdict.lacking.is_empty() && verdict.outside.is_empty(), offers.iter().all(alone));
        }
    }
}

#[test]
fn big_machines_are_merged_without_listing_masks() {
    for count in [17, 64, 200] {
        let nodes: Vec<u32> = (0..count).collect();
        let flat = vec![vec![10; nodes.len()]; nodes.len()];
        for tie in TIES {
            // On an idle machine of this shape each would need fewer nodes than now.
            let busy: Vec<Offer> = (1..=10).map(|resource| even(count, 8, 16, 8 * resource)).collect();
            let merged = merge(&busy, &nodes, &flat, Policy::BestEffort, tie);
            assert_eq!(merged, Merged { affinity: Some((0..10).collect()), preferred: false, proven: true });
            let idle: Vec<Offer> = (1..=10).map(|units| even(count, units, units, 3 * units)).collect();
            let merged = merge(&idle, &nodes, &flat, Policy::Restricted, tie);
            assert_eq!(merged, Merged { affinity: Some((0..3).collect()), preferred: true, proven: true });
        }
    }
}
