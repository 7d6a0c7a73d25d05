//! Placing by the resources-relative merge: all resources together.

use super::rated::Rated;
use super::{Plan, Refusal, RefusalKind, Score, distribute, refusal, whole};
use crate::hint::kubelet::Explanation;
use crate::hint::policy::Policy;
use crate::hint::relative::{Kind, Lacking, Other, Preference, Problem, Refused, Resource, Solution, Why};
use crate::request::Request;
use crate::resource::{self, Allocation, Counts, HintProvider, Shortage, Situation, Units};
use crate::topology::NodeMask;
use num_traits::ToPrimitive;
use std::collections::BTreeMap;

/// Finds the best placement of all resources and takes it.
pub fn grant(
    request: &Request,
    situation: &Situation<'_>,
    providers: &[Box<dyn HintProvider>],
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let counts: Vec<Counts> = providers.iter().map(|provider| provider.counts()).collect();
    let kinds: Vec<Kind> = counts.iter().map(|counts| counts.kind).collect();
    let rated = if request.policy.seeks_alignment() { Rated::new(providers, &kinds, plan) } else { None };
    let rate = |counts: &[Vec<u64>]| rated.as_ref().and_then(|rated| rated.rating(counts));
    let preference = rated.as_ref().map(|_| Preference(&rate));
    let mut problem = Problem { preference, ..problem(request, situation, plan, &counts) };
    let evenly: Vec<usize> = (0..counts.len()).filter(|&at| distribute::wanted(request, counts[at].kind)).collect();
    let solve = |problem: &Problem<'_>| match whole::members(request) {
        Some(members) => whole::solve(problem, members),
        None => distribute::solve(problem, &evenly),
    };
    let (solution, allocations) = solved(situation, providers, plan, &mut problem, &solve)?;
    plan.preferred = solution.preferred;
    plan.proven = solution.proven;
    plan.affinity = span_of(&solution).filter(|_| request.policy.seeks_alignment());
    plan.score = plan.affinity.as_ref().map(|_| Score {
        aligned_share: solution.aligned_share.to_f64().unwrap_or(0.0),
        mean_distance: solution.mean_distance.to_f64().unwrap_or(0.0),
    });
    if let Some(refused) = &solution.refused {
        return Err(refusal(request, situation, plan, &problem, &solution, refused));
    }
    plan.allocations = allocations?;
    Ok(())
}

/// What was found, and what it gives.
type Solved = (Solution, Result<Vec<Allocation>, Shortage>);

/// Solves, and takes what was found. Requests that draw from the same devices
/// may have been promised the same one: what a node then cannot give comes off
/// what is free there, and the search begins anew.
fn solved(
    situation: &Situation<'_>,
    providers: &[Box<dyn HintProvider>],
    plan: &Plan,
    problem: &mut Problem<'_>,
    solve: &dyn Fn(&Problem<'_>) -> Result<Solution, Lacking>,
) -> Result<Solved, Refusal> {
    let mut before: Option<Solved> = None;
    loop {
        let solution = match (solve(problem), before) {
            (Ok(solution), before) => Solution { proven: solution.proven && before.is_none(), ..solution },
            // Less cannot be promised: what was had is what there is.
            (Err(_), Some((solution, allocations))) => return Ok((second_rate(solution, problem), allocations)),
            (Err(lacking), None) => {
                let message = lacking.to_string();
                return Err(Refusal { kind: RefusalKind::Impossible, resource: Some(lacking.name), message });
            }
        };
        let span = span_of(&solution);
        let names = plan.resources.iter().map(|said| said.resource.clone());
        let units: Units = names.zip(by_node(problem, &solution)).collect();
        // Where whole cores of different widths do not add up to the numbers, the span stands.
        let take = |provider: &dyn HintProvider, kind: Kind| match kind {
            // Without alignment no node is better than another, and a preference may take any device.
            Kind::Devices if !problem.policy.seeks_alignment() => provider.allocate(None),
            _ => provider.allocate_on(&units).or_else(|_| provider.allocate(span.as_ref())),
        };
        let kinds = providers.iter().zip(&problem.resources);
        let allocations: Result<Vec<Allocation>, Shortage> =
            kinds.map(|(provider, resource)| take(provider.as_ref(), resource.kind)).collect();
        let given = allocations.as_deref().unwrap_or_default();
        let broken = given
            .iter()
            .enumerate()
            .find_map(|(at, given)| Some((at, given.unknown, promised(situation, problem, &solution, at, given)?)));
        let Some((at, unknown, (column, got))) = broken else { return Ok((solution, allocations)) };
        let resource = &mut problem.resources[at];
        resource.free[column] = got;
        // What was had of unknown locality in its place stays so.
        resource.units = (resource.units + resource.unknown).saturating_sub(unknown);
        resource.unknown = unknown;
        before = Some((solution, allocations));
    }
}

/// A solution that could not be kept to: admitted only where anything is.
fn second_rate(solution: Solution, problem: &Problem<'_>) -> Solution {
    let strict = matches!(problem.policy, Policy::Restricted | Policy::SingleNumaNode);
    let refused = strict.then_some(Refused { why: Why::Wider, resource: None });
    Solution { preferred: false, proven: false, refused, ..solution }
}

/// A device class that got fewer on a node than it was promised: where, and how many.
fn promised(
    situation: &Situation<'_>,
    problem: &Problem<'_>,
    solution: &Solution,
    at: usize,
    given: &Allocation,
) -> Option<(usize, u64)> {
    if problem.resources[at].kind != Kind::Devices || !problem.policy.seeks_alignment() {
        return None;
    }
    let on = |lead: u32| -> u64 {
        let here = given.per_node.iter().filter(|(node, _)| situation.machine.locality(**node) == Some(lead));
        here.map(|(_, units)| units).sum()
    };
    let mut columns = problem.nodes.iter().enumerate().map(|(column, &node)| (column, on(node)));
    columns.find(|&(column, got)| got < solution.x[at][column])
}

fn span_of(solution: &Solution) -> Option<NodeMask> {
    let span: NodeMask = solution.span.iter().copied().collect();
    (!span.is_empty()).then_some(span)
}

fn by_node(problem: &Problem<'_>, solution: &Solution) -> impl Iterator<Item = BTreeMap<u32, u64>> {
    let pairs =
        |units: &Vec<u64>| problem.nodes.iter().copied().zip(units.iter().copied()).filter(|pair| pair.1 > 0).collect();
    solution.x.iter().map(pairs)
}

fn problem<'a>(request: &Request, situation: &Situation<'_>, plan: &Plan, counts: &[Counts]) -> Problem<'a> {
    let machine = situation.machine;
    let nodes: Vec<u32> = plan.candidates.iter().collect();
    let row = |from: &u32| nodes.iter().map(|to| machine.distance(*from, *to)).collect::<Option<Vec<u32>>>();
    let on = |units: &BTreeMap<u32, u64>| nodes.iter().map(|node| units.get(node).copied().unwrap_or(0)).collect();
    let resource = |(said, counts): (&super::Said, &Counts)| Resource {
        name: said.resource.clone(),
        kind: counts.kind,
        units: counts.units,
        unknown: counts.unknown,
        free: on(&counts.free),
        total: on(&counts.total),
    };
    let other = |free: BTreeMap<u32, u64>| {
        let elsewhere = free.iter().filter(|(node, _)| !plan.candidates.contains(**node)).map(|(_, units)| units).sum();
        Other { free: on(&free), elsewhere }
    };
    Problem {
        distances: nodes.iter().map(row).collect::<Option<Vec<_>>>().unwrap_or_default(),
        resources: plan.resources.iter().zip(counts).map(resource).collect(),
        policy: request.policy,
        others: resource::unasked(request, situation).into_iter().map(other).collect(),
        preference: None,
        nodes,
    }
}

fn refusal(
    request: &Request,
    situation: &Situation<'_>,
    plan: &Plan,
    problem: &Problem<'_>,
    solution: &Solution,
    refused: &Refused,
) -> Refusal {
    let (at, reason) = match (refused.why, refused.resource) {
        (Why::Unknown, Some(at)) => {
            let (unknown, name) = (problem.resources[at].unknown, &plan.resources[at].resource);
            (at, format!("the node of {} is unknown", resource::spoken(name, unknown)))
        }
        (Why::Uneven, Some(at)) => uneven(plan, &super::explanation(request, situation.machine, plan), solution, at),
        _ => return refusal::by_width(request, situation.machine, plan, solution.least_width, solution.width()),
    };
    let message = format!("{}: {reason}", request.policy.name());
    Refusal { kind: RefusalKind::Policy, resource: Some(plan.resources[at].resource.clone()), message }
}

/// Something is not on every node that the best placement spans. Where one
/// resource needs so many nodes, another is the reason; where none does, no
/// node has all of it.
fn uneven(plan: &Plan, explanation: &Explanation, solution: &Solution, at: usize) -> (usize, String) {
    let width = solution.span.len();
    let wide = explanation.resources.iter().position(|view| view.narrowest.is_some_and(|nodes| nodes >= width));
    let Some(wide) = wide.filter(|&wide| wide != at) else {
        let (resource, reason) = refusal::scattered(plan, explanation);
        return (resource.unwrap_or(at), reason);
    };
    let span: NodeMask = solution.span.iter().copied().collect();
    let (needs, other) = (&plan.resources[wide], &plan.resources[at]);
    let (needs, other) =
        (resource::spoken(&needs.resource, needs.wanted), resource::spoken(&other.resource, other.wanted));
    (at, format!("{needs} can be had on nodes {span} only together, and {other} cannot be on each of them"))
}
