//! Placing by the kubelet's merge: a mask for all, then each resource by itself.

use super::{Plan, Refusal, Said, distribute, refusal, whole};
use crate::hint::Amount;
use crate::hint::kubelet::{self, Explanation, Merged, TieBreak};
use crate::hint::policy::Policy;
use crate::request::Request;
use crate::resource::{Allocation, HintProvider, Offer, Shortage, Situation, store};
use crate::topology::{Machine, NodeMask};

/// Merges the hints and takes what was asked for, from the merged mask first.
pub fn grant(
    request: &Request,
    situation: &Situation<'_>,
    providers: &[Box<dyn HintProvider>],
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let merged = merged(request, situation.machine, plan);
    plan.preferred = merged.preferred;
    plan.proven = merged.proven;
    // Nothing is asked for: all nodes, the kubelet's answer, would look like a wish.
    plan.affinity = merged.affinity.filter(|_| !plan.resources.is_empty());
    if !request.policy.admits(plan.preferred) {
        return Err(refusal::by_policy(request, situation.machine, plan));
    }
    let memory = memory_mask(providers, plan);
    let near = near(request, plan);
    plan.allocations = granted(request, situation.machine, providers, (near.as_ref(), memory.as_ref()))?;
    Ok(())
}

/// Takes everything from the nodes near, kinds of memory from nodes of their own.
fn granted(
    request: &Request,
    machine: &Machine,
    providers: &[Box<dyn HintProvider>],
    (near, memory): (Option<&NodeMask>, Option<&NodeMask>),
) -> Result<Vec<Allocation>, Shortage> {
    if let Some((members, mask)) = whole::members(request).zip(near)
        && let Some(granted) = whole::over(machine, providers, mask, members)
    {
        return Ok(granted);
    }
    let mask = |provider: &dyn HintProvider| if provider.together().is_some() { memory } else { near };
    let granted = providers.iter().map(|provider| provider.allocate(mask(provider.as_ref())));
    let granted = granted.collect::<Result<Vec<_>, _>>()?;
    Ok(if request.distribute { distribute::over(request, machine, providers, granted) } else { granted })
}

/// Gives each kind of memory the hints of all kinds that are asked for, its own amount first.
pub fn hinted_together(providers: &[Box<dyn HintProvider>], resources: &mut [Said]) {
    let amounts: Vec<(&str, Amount)> =
        providers.iter().filter_map(|provider| Some((provider.name(), provider.together()?))).collect();
    let domains = resources.iter().filter(|said| amounts.iter().any(|(name, _)| *name == said.resource));
    let domain = domains.fold(NodeMask::new(), |domain, said| match &said.offer {
        Offer::Capacity(capacity) => domain.or(&capacity.domain),
        _ => domain,
    });
    for said in resources {
        let (own, others): (Vec<_>, Vec<_>) = amounts.iter().partition(|(name, _)| *name == said.resource);
        if !own.is_empty() {
            let amounts = own.into_iter().chain(others).map(|(_, amount)| amount.clone()).collect();
            said.offer = Offer::Capacity(store::capacity(amounts, domain.clone()));
        }
    }
}

/// What the merge is asked.
struct Question {
    offers: Vec<kubelet::Offer>,
    nodes: Vec<u32>,
    distances: Vec<Vec<u32>>,
    tie: TieBreak,
}

impl Question {
    fn new(request: &Request, machine: &Machine, plan: &Plan) -> Question {
        let nodes: Vec<u32> = plan.candidates.iter().collect();
        let row = |from: &u32| nodes.iter().map(|to| machine.distance(*from, *to)).collect::<Option<Vec<u32>>>();
        Question {
            offers: plan.resources.iter().map(|said| (&said.offer).into()).collect(),
            distances: nodes.iter().map(row).collect::<Option<Vec<_>>>().unwrap_or_default(),
            tie: if request.prefer_closest { TieBreak::Closest } else { TieBreak::Lowest },
            nodes,
        }
    }
}

fn merged(request: &Request, machine: &Machine, plan: &Plan) -> Merged {
    let question = Question::new(request, machine, plan);
    let Question { offers, nodes, distances, tie } = &question;
    kubelet::merge(offers, nodes, distances, request.policy, *tie)
}

/// What led to the merge of a plan: widths, and what each node lacks.
pub fn explanation(request: &Request, machine: &Machine, plan: &Plan) -> Explanation {
    let Question { offers, nodes, distances, tie } = &Question::new(request, machine, plan);
    kubelet::explain(offers, nodes, distances, request.policy, *tie)
}

/// Where the kinds of memory are taken from: the merged mask, or the best of
/// their own hints that contains it where it holds too little.
fn memory_mask(providers: &[Box<dyn HintProvider>], plan: &Plan) -> Option<NodeMask> {
    let provider = providers.iter().find(|provider| provider.together().is_some())?;
    let said = plan.resources.iter().find(|said| said.resource == provider.name())?;
    match &said.offer {
        Offer::Capacity(capacity) => capacity.best_containing(plan.affinity.as_ref().unwrap_or(&NodeMask::new())),
        _ => None,
    }
}

/// The nodes to take from first. `single-numa-node` answers the only node that
/// there is with no mask, as the kubelet does; what is on it still goes before
/// what is of unknown locality.
fn near(request: &Request, plan: &Plan) -> Option<NodeMask> {
    let only = request.policy == Policy::SingleNumaNode && plan.candidates.len() == 1;
    plan.affinity.clone().or_else(|| only.then(|| plan.candidates.clone()))
}
