//! What holds for every resources-relative placement, and that it is the best
//! of all.

#![allow(clippy::unwrap_used)]

mod brute_force;

use brute_force::Fraction;
use num_rational::BigRational;
use numa_run::hint::policy::Policy;
use numa_run::hint::relative::{Kind, Other, Preference, Problem, Resource, solve};
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

/// Thousands of cases a property, or as many as `PROPTEST_CASES` says.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(3000),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_placement_is_better_and_none_is_as_good(problem in problem(5, 4)) {
        assert_best(&problem);
    }

    #[test]
    fn the_preference_of_devices_comes_before_stranding(problem in problem(4, 3), seed in 0u64..1000) {
        let rate = |counts: &[Vec<u64>]| {
            let all = counts.iter().flatten().fold(seed, |sum, count| (sum * 31 + count) % 1009);
            (all % 4) as i64
        };
        assert_best(&Problem { preference: Some(Preference(&rate)), ..problem });
    }
}
