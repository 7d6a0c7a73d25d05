//! Why the merge came to its answer, as data. No masks are listed.

use super::columns::Columns;
use super::{Merged, Offer, TieBreak, capacity, merge, width};
use crate::hint::policy::Policy;
use crate::hint::{Capacity, TopologyHint};
use crate::topology::NodeMask;

/// The merge and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The answer.
    pub merged: Merged,
    /// For each offer what it asks for, in order.
    pub resources: Vec<ResourceView>,
    /// The number of nodes that an answer should have when it is not preferred:
    /// the narrowest mask of the resource that needs the most.
    pub wanted_count: usize,
    /// For each node of any domain why it does not do alone.
    pub nodes: Vec<NodeVerdict>,
}

/// What one offer comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceView {
    /// True when its hints leave the nodes open, or it has no preference.
    pub any_node: bool,
    /// Nodes of its narrowest mask; none when it cannot be met, or any nodes will do.
    pub narrowest: Option<usize>,
    /// Nodes that its preferred masks have; none likewise, or when no mask is preferred.
    pub preferred_width: Option<usize>,
    /// Nodes that serve it alone.
    pub alone: NodeMask,
}

/// What keeps a node from serving everything alone; nothing, where it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVerdict {
    /// The kernel's id.
    pub node: u32,
    /// Amounts that do not fit here.
    pub lacking: Vec<Lacking>,
    /// Offers, by index, that do not take this node alone for another reason:
    /// it is not in their domain, or what they must hold is elsewhere.
    pub outside: Vec<usize>,
}

/// An amount that does not fit on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// Index of the offer.
    pub resource: usize,
    /// Index of the amount in its capacity.
    pub amount: usize,
    /// Units free on the node.
    pub free: u64,
    /// Units wanted.
    pub wanted: u64,
}

/// Merges, and says what led to the answer. Verdicts on nodes are given for
/// capacities; lists say theirs by their masks.
pub fn explain(offers: &[Offer], nodes: &[u32], distances: &[Vec<u32>], policy: Policy, tie: TieBreak) -> Explanation {
    let columns = Columns::new(nodes, distances);
    let resources: Vec<ResourceView> = offers.iter().map(|offer| view(offer, &columns)).collect();
    let domains = capacities(offers).fold(NodeMask::new(), |nodes, (_, capacity)| nodes.or(&capacity.domain));
    Explanation {
        merged: merge(offers, nodes, distances, policy, tie),
        wanted_count: resources.iter().filter_map(|view| view.narrowest).max().unwrap_or(0),
        resources,
        nodes: domains.and(columns.all()).iter().map(|node| verdict(offers, node)).collect(),
    }
}

fn capacities(offers: &[Offer]) -> impl Iterator<Item = (usize, &Capacity)> {
    offers.iter().enumerate().filter_map(|(index, offer)| match offer {
        Offer::Capacity(capacity) => Some((index, capacity)),
        _ => None,
    })
}

fn view(offer: &Offer, columns: &Columns) -> ResourceView {
    match offer {
        Offer::NoPreference => ResourceView { any_node: true, ..ResourceView::default() },
        Offer::CannotBeMet => ResourceView::default(),
        Offer::Hints(hints) => view_of_hints(hints),
        Offer::Capacity(capacity) => view_of_capacity(capacity, columns),
    }
}

fn view_of_hints(hints: &[TopologyHint]) -> ResourceView {
    let masks = |preferred: bool| {
        let some = hints.iter().filter(move |hint| hint.preferred || !preferred);
        some.filter_map(|hint| hint.affinity.as_ref())
    };
    ResourceView {
        any_node: hints.iter().any(|hint| hint.affinity.is_none() && hint.preferred),
        narrowest: masks(false).map(NodeMask::len).min(),
        preferred_width: masks(true).map(NodeMask::len).min(),
        alone: masks(false).filter(|mask| mask.len() == 1).flat_map(NodeMask::iter).collect(),
    }
}

fn view_of_capacity(capacity: &Capacity, columns: &Columns) -> ResourceView {
    if !capacity::can_be_met(capacity, columns) {
        return ResourceView::default();
    }
    let domain = capacity.domain.and(columns.all());
    ResourceView {
        any_node: false,
        narrowest: Some(width::narrowest(capacity, columns, &mut width::budget()).width),
        preferred_width: Some(width::preferred(capacity, columns, &mut width::budget()).width),
        alone: domain.iter().filter(|&id| capacity.holds(&NodeMask::one(id))).collect(),
    }
}

fn verdict(offers: &[Offer], node: u32) -> NodeVerdict {
    let mask = NodeMask::one(node);
    let mut verdict = NodeVerdict { node, lacking: Vec::new(), outside: Vec::new() };
    for (resource, capacity) in capacities(offers) {
        if !capacity.domain.contains(node) || !capacity.must_hold.is_subset(&mask) {
            verdict.outside.push(resource);
        }
        let amounts = capacity.amounts.iter().enumerate();
        let amounts = amounts.map(|(at, amount)| (at, amount.free(&mask), amount.wanted));
        let short = amounts.filter(|&(_, free, wanted)| free < wanted);
        verdict.lacking.extend(short.map(|(amount, free, wanted)| Lacking { resource, amount, free, wanted }));
    }
    verdict
}
