//! Placing by the resources-relative merge: all resources together.

use super::{Plan, Refusal, RefusalKind, Score, refusal};
use crate::hint::kubelet::Explanation;
use crate::hint::relative::{Other, Problem, Refused, Resource, Solution, Why, solve};
use crate::request::Request;
use crate::resource::{self, Counts, HintProvider, Situation};
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
    let problem = problem(request, situation, plan, &counts);
    let solution = solve(&problem).map_err(|lacking| Refusal {
        kind: RefusalKind::Impossible,
        resource: Some(lacking.name.clone()),
        message: lacking.to_string(),
    })?;
    plan.preferred = solution.preferred;
    plan.proven = solution.proven;
    let span: NodeMask = solution.span.iter().copied().collect();
    plan.affinity = Some(span).filter(|span| !span.is_empty() && request.policy.seeks_alignment());
    plan.score = plan.affinity.as_ref().map(|_| Score {
        aligned_share: solution.aligned_share.to_f64().unwrap_or(0.0),
        mean_distance: solution.mean_distance.to_f64().unwrap_or(0.0),
    });
    if let Some(refused) = &solution.refused {
        return Err(refusal(request, situation, plan, &problem, &solution, refused));
    }
    for (provider, units) in providers.iter().zip(&solution.x) {
        let pairs = problem.nodes.iter().copied().zip(units.iter().copied());
        let by_node: BTreeMap<u32, u64> = pairs.filter(|&(_, units)| units > 0).collect();
        // Where whole cores of different widths do not add up to the numbers, the span stands.
        let allocation = provider.allocate_on(&by_node).or_else(|_| provider.allocate(plan.affinity.as_ref()))?;
        plan.allocations.push(allocation);
    }
    Ok(())
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
