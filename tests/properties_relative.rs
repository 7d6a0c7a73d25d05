//! What holds for every resources-relative placement, and that it is the best
//! of all.

#![allow(clippy::unwrap_used)]

mod brute_force;

use brute_force::Fraction;
use num_rational::BigRational;
use numa_run::hint::kubelet::{Merged, Offer, TieBreak, merge};
use numa_run::hint::policy::Policy;
use numa_run::hint::relative::{Kind, Other, Preference, Problem, Resource, Score, score, solve, whole};
use numa_run::hint::{Amount, Capacity, Supply};
use numa_run::topology::NodeMask;
use proptest::prelude::*;

const POLICIES: [Policy; 3] = [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode];

/// Ids with gaps, so that nothing takes an id for a place.
fn ids(count: usize) -> Vec<u32> {
    [0, 1, 8, 64, 252][..count].to_vec()
}

fn resource(nodes: usize, name: usize) -> impl Strategy<Value = Resource> {
    let kinds = [Kind::Cpus, Kind::Devices, Kind::Devices, Kind::Pages, Kind::Memory];
    let kind = prop::sample::select(kinds.to_vec());
    (kind, 0u64..=6, 1u64..=14).prop_flat_map(move |(kind, counted, amount)| {
        let (units, free) = if kind == Kind::Pages || kind == Kind::Memory { (amount, 9u64) } else { (counted, 4) };
        let even = prop_oneof![Just(None), (1..=free, 1..=2u64).prop_map(Some)];
        let rows = prop::collection::vec((prop_oneof![1 => Just(0), 4 => 0..=free], 0u64..=3), nodes);
        (even, rows).prop_map(move |(even, rows)| {
            let rows: Vec<(u64, u64)> = even.map_or(rows, |even| vec![even; nodes]);
            Resource {
                name: format!("r{}", 9 - name),
                kind,
                units,
                unknown: 0,
                free: rows.iter().map(|row| row.0).collect(),
                total: rows.iter().map(|row| row.0 + row.1).collect(),
            }
        })
    })
}

fn problem(most_nodes: usize, most_resources: usize) -> impl Strategy<Value = Problem<'static>> {
    (1..=most_nodes, 1..=most_resources).prop_flat_map(|(nodes, count)| {
        let resources: Vec<_> = (0..count).map(|name| resource(nodes, name)).collect();
        let far = prop::collection::vec(
            prop::collection::vec(prop::sample::select(vec![10u32, 11, 12, 20, 21]), nodes),
            nodes,
        );
        let usual = (0..4u32).prop_map(move |near| {
            let d = |a: u32, b: u32| {
                if a == b {
                    10
                } else if near > 0 && a / near == b / near {
                    12
                } else {
                    21
                }
            };
            (0..nodes as u32).map(|a| (0..nodes as u32).map(|b| d(a, b)).collect()).collect::<Vec<Vec<u32>>>()
        });
        let distances = prop_oneof![1 => Just(Vec::new()), 3 => far, 3 => usual];
        let other = prop::collection::vec(0u64..3, nodes).prop_map(|free| Other { free, elsewhere: 1 });
        (resources, distances, prop::collection::vec(other, 0..=2), prop::sample::select(POLICIES.to_vec())).prop_map(
            move |(mut resources, distances, others, policy)| {
                let mut first = true;
                for resource in &mut resources {
                    // One kind of CPUs; others are devices.
                    if resource.kind == Kind::Cpus && !std::mem::take(&mut first) {
                        resource.kind = Kind::Devices;
                    }
                    let free = resource.free.iter().sum();
                    resource.units = resource.units.min(free);
                }
                Problem { nodes: ids(nodes), distances, resources, policy, others, preference: None }
            },
        )
    })
}

fn big(fraction: &Fraction) -> BigRational {
    BigRational::new((*fraction.numer()).into(), (*fraction.denom()).into())
}

fn assert_best(problem: &Problem) {
    let solution = solve(problem).unwrap();
    let best = brute_force::best(problem).unwrap();
    let exact: Vec<Vec<BigRational>> = best.x.iter().map(|row| row.iter().map(big).collect()).collect();
    assert_eq!(solution.shares, exact, "{:?}", brute_force::key(problem, &from_big(&solution.shares)) < best.key);
    assert_eq!(solution.x, best.rounded);
    assert!(solution.proven);
    assert_eq!(solution.span, best.key.10);
    assert_eq!(solution.aligned_share, -big(&best.key.2));
    assert_eq!(solution.mean_distance, big(&best.key.4));
    let idle = brute_force::width(problem, |resource, n| resource.total[n]).unwrap();
    assert_eq!(solution.preferred, best.key.0 == idle && !best.key.3);
    let admitted = match problem.policy {
        Policy::Restricted => solution.preferred,
        Policy::SingleNumaNode => best.key.0 <= 1,
        _ => true,
    };
    assert_eq!(solution.admitted(), admitted);
}

fn from_big(shares: &[Vec<BigRational>]) -> Vec<Vec<Fraction>> {
    let small =
        |number: &BigRational| Fraction::new(number.numer().try_into().unwrap(), number.denom().try_into().unwrap());
    shares.iter().map(|row| row.iter().map(small).collect()).collect()
}

/// The same with amounts of many units that have nothing in common.
fn awkward(mut problem: Problem<'static>, mut seed: u64) -> Problem<'static> {
    let mut odd = |units: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        units * 99_991 + (seed >> 33) % 1000
    };
    for resource in problem.resources.iter_mut().filter(|resource| resource.kind.is_amount()) {
        resource.free.iter_mut().filter(|free| **free > 0).for_each(|free| *free = odd(*free));
        resource.total.iter_mut().for_each(|total| *total = (*total + 1) * 99_991);
        resource.units = odd(resource.units).min(total(&resource.free));
    }
    problem
}

/// So many cases a property, or as many as `PROPTEST_CASES` says.
fn cases(usually: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usually),
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn no_placement_is_better_and_none_is_as_good(problem in problem(5, 4)) {
        assert_best(&problem);
    }

    #[test]
    fn the_preference_of_devices_comes_before_stranding(problem in problem(4, 3), seed in 0u64..1000) {
        let rate = |counts: &[Vec<u64>]| {
            let all = counts.iter().flatten().fold(seed, |sum, count| (sum * 31 + count) % 1009);
            Some(vec![(all % 2) as i64, (all % 3) as i64 - 1])
        };
        assert_best(&Problem { preference: Some(Preference(&rate)), ..problem });
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Numbers that do not fit the coarse ones that limits are in.
    #[test]
    fn no_placement_of_awkward_numbers_is_better(problem in problem(5, 4), seed in any::<u64>()) {
        let problem = awkward(problem, seed);
        assert_best(&problem);
    }
}

/// The same question for the kubelet's merge, each kind asked by itself.
fn offers(problem: &Problem) -> Vec<Offer> {
    let supply = |resource: &Resource, n: usize| Supply {
        nodes: NodeMask::one(problem.nodes[n]),
        free: resource.free[n],
        total: resource.total[n],
    };
    let amount = |resource: &Resource| Amount {
        wanted: resource.units,
        supply: (0..problem.nodes.len()).map(|n| supply(resource, n)).collect(),
    };
    let wanted = problem.resources.iter().filter(|resource| resource.units > 0);
    let offer = |resource: &Resource| Capacity {
        domain: problem.nodes.iter().copied().collect(),
        amounts: vec![amount(resource)],
        ..Capacity::default()
    };
    wanted.map(|resource| Offer::Capacity(offer(resource))).collect()
}

fn merged(problem: &Problem) -> Merged {
    merge(&offers(problem), &problem.nodes, &problem.distances, problem.policy, TieBreak::Lowest)
}

/// Takes from the nodes of the mask first, each time from the lowest.
fn filled(problem: &Problem, mask: &NodeMask) -> Vec<Vec<u64>> {
    let mut order: Vec<usize> = (0..problem.nodes.len()).collect();
    order.sort_by_key(|&n| (!mask.contains(problem.nodes[n]), n));
    let fill = |resource: &Resource| {
        let mut x = vec![0; problem.nodes.len()];
        let mut rest = resource.units;
        for &n in &order {
            x[n] = rest.min(resource.free[n]);
            rest -= x[n];
        }
        x
    };
    problem.resources.iter().map(fill).collect()
}

/// True when an amount is split though equal masks are out of reach on the
/// span and one node of it holds it all.
fn has_slivers(problem: &Problem, x: &[Vec<u64>]) -> bool {
    let nodes = problem.nodes.len();
    let span: Vec<usize> = (0..nodes).filter(|&n| x.iter().any(|row| row[n] > 0)).collect();
    let wanted = || problem.resources.iter().filter(|resource| resource.units > 0);
    let reach =
        wanted().all(|resource| resource.units >= span.len() as u64 && span.iter().all(|&n| resource.free[n] > 0));
    let one_holds = |resource: &Resource| span.iter().any(|&n| resource.free[n] >= resource.units);
    !reach && split_amounts(problem, x).any(one_holds)
}

fn split_amounts<'a>(problem: &'a Problem, x: &'a [Vec<u64>]) -> impl Iterator<Item = &'a Resource> {
    let rows = problem.resources.iter().zip(x);
    let split = rows.filter(|(_, row)| row.iter().filter(|units| **units > 0).count() > 1);
    split.map(|(resource, _)| resource).filter(|resource| resource.kind.is_amount())
}

fn total(row: &[u64]) -> u64 {
    row.iter().sum()
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn what_the_kubelet_admits_is_admitted(problem in problem(5, 4)) {
        if problem.policy != Policy::BestEffort && merged(&problem).preferred {
            prop_assert!(solve(&problem).unwrap().admitted());
        }
    }

    /// An amount that is split follows what is counted, by rule; where the
    /// kubelet's does not, it may happen to lie nearer to the rest, which is
    /// what the order asks after the alignment.
    #[test]
    fn no_placement_of_the_kubelet_is_better(problem in problem(5, 4)) {
        let mask = merged(&problem).affinity.unwrap_or_else(|| problem.nodes.iter().copied().collect());
        let x = filled(&problem, &mask);
        if !has_slivers(&problem, &x) {
            let ours = score(&problem, &solve(&problem).unwrap().shares);
            let theirs = score(&problem, &whole(&x));
            let aligned = |score: &Score| (score.width, score.uneven_first, score.aligned_share.clone(), score.uneven);
            prop_assert!(aligned(&ours) <= aligned(&theirs));
            prop_assert!(ours <= theirs || split_amounts(&problem, &x).count() > 0);
        }
    }

    #[test]
    fn units_handed_out_are_units_asked_and_free(problem in problem(5, 4), none in any::<bool>()) {
        let problem = if none { Problem { policy: Policy::None, ..problem } } else { problem };
        let solution = solve(&problem).unwrap();
        for (resource, row) in problem.resources.iter().zip(&solution.x) {
            prop_assert_eq!(total(row), resource.units);
            prop_assert!(row.iter().zip(&resource.free).all(|(units, free)| units <= free));
        }
    }

    #[test]
    fn the_order_of_nodes_and_resources_does_not_matter(problem in problem(5, 4)) {
        let before = solve(&problem).unwrap();
        let mut turned = problem.clone();
        turned.resources.reverse();
        let mut after = solve(&turned).unwrap();
        after.x.reverse();
        prop_assert_eq!(after.x, before.x);
    }

    #[test]
    fn wide_numbers_give_the_answer_of_narrow_ones(problem in problem(4, 3), prime in prop::sample::select(vec![1_000_003u64, 1_000_000_000_039])) {
        let mut wide = problem.clone();
        for resource in wide.resources.iter_mut().filter(|resource| resource.kind.is_amount()) {
            resource.units *= prime;
            resource.free.iter_mut().chain(&mut resource.total).for_each(|units| *units *= prime);
        }
        // A few units of amounts may be too few for all nodes; so many never are.
        let many = problem.resources.iter().all(|resource| !resource.kind.is_amount() || resource.units >= 4);
        if many {
            let (narrow, wide) = (solve(&problem).unwrap(), solve(&wide).unwrap());
            prop_assert_eq!(narrow.aligned_share, wide.aligned_share);
            prop_assert_eq!(narrow.mean_distance, wide.mean_distance);
            prop_assert_eq!(narrow.span, wide.span);
        }
    }
}
