//! Placing by the resources-relative merge: all resources together.

use super::{Plan, Refusal, RefusalKind, Score, refusal};
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
    let named = refused.resource.map(|at| &plan.resources[at].resource);
    let reason = match (refused.why, refused.resource) {
        (Why::Unknown, Some(at)) => {
            let (unknown, name) = (problem.resources[at].unknown, &plan.resources[at].resource);
            format!("the node of {} is unknown", resource::spoken(name, unknown))
        }
        (Why::Uneven, Some(at)) => uneven(plan, problem, solution, at),
        _ => return refusal::by_width(request, situation.machine, plan, solution.least_width, solution.width()),
    };
    let message = format!("{}: {reason}", request.policy.name());
    Refusal { kind: RefusalKind::Policy, resource: named.cloned(), message }
}

/// A resource that is not on every node of the best span.
fn uneven(plan: &Plan, problem: &Problem<'_>, solution: &Solution, at: usize) -> String {
    let nodes: NodeMask =
        problem.nodes.iter().zip(&solution.x[at]).filter(|(_, units)| **units > 0).map(|(node, _)| *node).collect();
    let span: NodeMask = solution.span.iter().copied().collect();
    let without = span.minus(&nodes);
    let name = &plan.resources[at].resource;
    let free = |node: u32| {
        let column = problem.nodes.iter().position(|&other| other == node)?;
        Some(format!("node {node} has {} free", resource::number(name, problem.resources[at].free[column])))
    };
    let free: Vec<String> = without.iter().filter_map(free).collect();
    let wanted = resource::spoken(name, plan.resources[at].wanted);
    format!("this needs nodes {span}, and {wanted} cannot be on each of them: {}", free.join(", "))
}
