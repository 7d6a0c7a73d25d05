//! `--distribute`: CPUs, memory and pages come evenly from all nodes of the span.
//!
//! - The span is as wide as without it. Of equally wide ones that one is taken
//!   from which the most even split can be had, for the CPUs first, then for
//!   pages and memory; the order of the merge decides among those. Where a
//!   policy would refuse that one, the span is the merge's own.
//! - On the span no node gives more than one unit more than another, unless the
//!   other has no more free; what does not divide comes from the lowest ids.
//! - Devices stay where the merge puts them, and so do CPUs that are named.

use super::Plan;
use crate::hint::relative::{self, Kind, Lacking, Problem, Solution};
use crate::request::{CpuChoice, Request};
use crate::resource::{self, Allocation, Counts, HintProvider, Units};
use crate::topology::{Machine, NodeMask};
use std::collections::BTreeMap;

/// Units from each place as evenly as what is free there allows: the least that
/// is given where more is free is at most one less than the most. What does not
/// divide comes from the first places.
pub fn split(units: u64, free: &[u64]) -> Vec<u64> {
    let given = |level: u64| free.iter().map(|&free| u128::from(free.min(level))).sum::<u128>();
    let (mut level, mut above) = (0, units.saturating_add(1));
    while above - level > 1 {
        let middle = level + (above - level) / 2;
        if given(middle) <= units.into() { level = middle } else { above = middle }
    }
    let mut rest = u128::from(units) - given(level);
    let place = |&free: &u64| {
        let more = u64::from(rest > 0 && free > level);
        rest -= u128::from(more);
        free.min(level) + more
    };
    free.iter().map(place).collect()
}

/// True for what the request wants from all nodes alike.
pub fn wanted(request: &Request, kind: Kind) -> bool {
    let counted = request.cpus.as_ref().is_some_and(|cpus| matches!(cpus.choice, CpuChoice::Count(..)));
    request.distribute && (kind.is_amount() || kind == Kind::Cpus && counted)
}

/// The best placement in which these resources are split evenly.
///
/// # Errors
/// A resource of which fewer units are free than wanted.
pub fn solve(problem: &Problem<'_>, evenly: &[usize]) -> Result<Solution, Lacking> {
    let own = || Ok(even(problem, &relative::solve(problem)?, evenly));
    if evenly.is_empty() {
        return relative::solve(problem);
    }
    match capped(problem, evenly).filter(|_| problem.policy.seeks_alignment()) {
        None => own(),
        Some(capped) => match even(problem, &relative::solve(&capped)?, evenly) {
            solution if solution.admitted() => Ok(solution),
            refused => Ok(own()?).map(|own| if own.admitted() { own } else { refused }),
        },
    }
}

fn even(problem: &Problem<'_>, solution: &Solution, evenly: &[usize]) -> Solution {
    let inside: Vec<usize> =
        (0..problem.nodes.len()).filter(|&at| solution.span.contains(&problem.nodes[at])).collect();
    let mut x = solution.x.clone();
    for &resource in evenly {
        let free: Vec<u64> = inside.iter().map(|&at| problem.resources[resource].free[at]).collect();
        let units = split(problem.resources[resource].units, &free);
        inside.iter().zip(units).for_each(|(&at, units)| x[resource][at] = units);
    }
    relative::reshaped(problem, solution, x)
}

/// The problem in which no node has more of these free than it has to give for
/// the most even split that the least width allows; none where nothing fits.
fn capped<'a>(problem: &Problem<'a>, evenly: &[usize]) -> Option<Problem<'a>> {
    let width = relative::narrowest(problem)?;
    let mut capped = problem.clone();
    for &resource in evenly {
        let with = |level: u64| {
            let mut next = capped.clone();
            next.resources[resource].free.iter_mut().for_each(|free| *free = level.min(*free));
            next
        };
        let fits = |level: u64| relative::narrowest(&with(level)).is_some_and(|least| least <= width);
        let units = capped.resources[resource].units;
        let fair = units.div_ceil(width.max(1) as u64);
        let level = if fits(fair) { fair } else { least(fair, units, fits) };
        capped = with(level);
    }
    Some(capped)
}

/// The least number above `low` that fits, where every larger one does; `high` at most.
fn least(mut low: u64, mut high: u64, fits: impl Fn(u64) -> bool) -> u64 {
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle }
    }
    high
}

/// What was granted by the kubelet's merge, taken evenly from the nodes that it came from.
pub fn over(
    request: &Request,
    machine: &Machine,
    providers: &[Box<dyn HintProvider>],
    granted: Vec<Allocation>,
) -> Vec<Allocation> {
    let span = granted.iter().fold(NodeMask::new(), |nodes, allocation| nodes.or(&leads(machine, allocation)));
    let again = |(provider, granted): (&dyn HintProvider, Allocation)| {
        let counts = provider.counts();
        if !wanted(request, counts.kind) {
            return granted;
        }
        let free: Vec<u64> = span.iter().map(|node| counts.free.get(&node).copied().unwrap_or(0)).collect();
        let units = span.iter().zip(split(counts.units, &free)).filter(|(_, units)| *units > 0);
        let units = Units::from([(provider.name().to_owned(), units.collect())]);
        // Where whole cores of different widths do not add up to the numbers, what was granted stands.
        provider.allocate_on(&units).unwrap_or(granted)
    };
    providers.iter().map(AsRef::as_ref).zip(granted).map(again).collect()
}

/// What could not be split evenly over the span, one sentence each.
pub fn remarks(request: &Request, machine: &Machine, providers: &[Box<dyn HintProvider>], plan: &Plan) -> Vec<String> {
    let span = plan.allocations.iter().fold(NodeMask::new(), |span, allocation| span.or(&leads(machine, allocation)));
    let pairs = providers.iter().zip(&plan.allocations);
    pairs.filter_map(|(provider, granted)| uneven(request, machine, &provider.counts(), granted, &span)).collect()
}

fn uneven(
    request: &Request,
    machine: &Machine,
    counts: &Counts,
    granted: &Allocation,
    span: &NodeMask,
) -> Option<String> {
    let mut by_lead: BTreeMap<u32, u64> = span.iter().map(|node| (node, 0)).collect();
    for (&node, units) in &granted.per_node {
        *by_lead.entry(machine.locality(node).unwrap_or(node)).or_default() += units;
    }
    let all: u64 = by_lead.values().sum();
    // Where whole cores are handed out a core is the unit.
    let unit = all.checked_div(counts.units).unwrap_or(1).max(1);
    let (least, most) = (*by_lead.values().min()?, *by_lead.values().max()?);
    if !wanted(request, counts.kind) || most - least <= unit {
        return None;
    }
    let name = &granted.resource;
    let free = |node: &u32| counts.free.get(node).copied().unwrap_or(0) * unit;
    let used_up = |&(node, &units): &(&u32, &u64)| units < most && units == free(node);
    let short: NodeMask = by_lead.iter().filter(used_up).map(|(&node, _)| node).collect();
    let places: Vec<String> =
        by_lead.iter().map(|(node, &units)| format!("node {node}: {}", resource::number(name, units))).collect();
    let why = if short.is_empty() { String::new() } else { format!("; no more is free on {}", nodes(&short)) };
    Some(format!("not distributed evenly: {} ({}){why}", resource::spoken(name, all), places.join(", ")))
}

fn nodes(nodes: &NodeMask) -> String {
    if nodes.len() == 1 { format!("node {nodes}") } else { format!("nodes {nodes}") }
}

/// The localities that something was taken from.
fn leads(machine: &Machine, allocation: &Allocation) -> NodeMask {
    allocation.nodes().iter().map(|node| machine.locality(node).unwrap_or(node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_divide_comes_from_the_first_places() {
        assert_eq!(split(24, &[16, 16]), [12, 12]);
        assert_eq!(split(7, &[9, 9, 9]), [3, 2, 2]);
        assert_eq!(split(24, &[20, 4]), [20, 4]);
        assert_eq!(split(10, &[1, 9, 9]), [1, 5, 4]);
        assert_eq!(split(u64::MAX, &[u64::MAX, u64::MAX]), [1 << 63, (1 << 63) - 1]);
        assert_eq!(split(3, &[1, 1]), [1, 1], "no more than there is");
    }

    proptest! {
        #[test]
        fn a_split_gives_all_and_is_even_where_there_is_room(
            free in prop::collection::vec(0u64..20, 1..7), part in 0u64..=100,
        ) {
            let units = free.iter().sum::<u64>() * part / 100;
            let split = split(units, &free);
            prop_assert_eq!(split.iter().sum::<u64>(), units);
            prop_assert!(split.iter().zip(&free).all(|(units, free)| units <= free));
            for (low, &less) in split.iter().enumerate().filter(|(at, less)| **less < free[*at]) {
                for (high, &more) in split.iter().enumerate() {
                    prop_assert!(more <= less + 1, "{:?}", split);
                    prop_assert!(more <= less || high < low, "the lowest come first: {:?}", split);
                }
            }
        }
    }
}
