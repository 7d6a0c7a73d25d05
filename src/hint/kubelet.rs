//! The kubelet's merge: the answer that Kubernetes v1.36.2 gives to the same
//! hints, found without walking their combinations.
//!
//! Reading order: `columns` numbers the nodes; `lists` merges lists of hints
//! (`fold` finds what is not preferred, `listing` makes lists of capacities on
//! small machines); `capacity` gives the same answer straight from capacities
//! (`subset` chooses masks of one width; `room`, `share` and `assignment` say
//! whether the other nodes can be spared); `explain` says why.

mod assignment;
mod budget;
mod columns;
mod fold;
mod listing;
mod lists;
mod room;
mod share;
mod subset;
mod width;

mod capacity;
mod explain;

pub use explain::{Explanation, Lacking, NodeVerdict, ResourceView, explain};

use super::policy::Policy;
use super::{Capacity, TopologyHint};
use crate::topology::NodeMask;
use columns::Columns;
use std::borrow::Cow;

/// What one resource says to the merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Any nodes will do.
    NoPreference,
    /// No nodes will do; the others are merged without it, and the answer is not preferred.
    CannotBeMet,
    /// The masks that will do. An empty list cannot be met.
    Hints(Vec<TopologyHint>),
    /// Units by node, so that masks need not be listed.
    Capacity(Capacity),
}

/// Which of two equally wide masks is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreak {
    /// The smaller one as a number.
    #[default]
    Lowest,
    /// The one with the smaller mean distance, then the smaller number
    /// (prefer-closest-numa-nodes). Without a distance table all are equally close.
    Closest,
}

/// The hint that serves all resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Nodes to place on; none: no alignment.
    pub affinity: Option<NodeMask>,
    /// True when every resource prefers exactly these nodes.
    pub preferred: bool,
    /// False when the search was cut short: the mask can be used, but there may be a better one.
    pub proven: bool,
}

/// Masks are listed on machines of at most this many nodes.
const LISTED_NODES: usize = 16;

/// Merges what the resources offer. `distances` has a row and a column for each
/// of `nodes`, in their order.
pub fn merge(offers: &[Offer], nodes: &[u32], distances: &[Vec<u32>], policy: Policy, tie: TieBreak) -> Merged {
    let columns = Columns::new(nodes, distances);
    match policy {
        Policy::None => Merged { affinity: None, preferred: false, proven: true },
        Policy::SingleNumaNode => single(offers, &columns),
        Policy::BestEffort | Policy::Restricted => widest(offers, &columns, tie),
    }
}

/// Only preferred hints of one node count, and those without nodes. Two hints
/// that are left and differ have no node in common, so only a preferred answer
/// can come of them; all nodes are said as none.
fn single(offers: &[Offer], columns: &Columns) -> Merged {
    let one = |hint: &TopologyHint| hint.preferred && hint.affinity.as_ref().is_none_or(|mask| mask.len() == 1);
    let list = |offer: &Offer| match offer {
        Offer::NoPreference => vec![TopologyHint { affinity: None, preferred: true }],
        Offer::CannotBeMet => Vec::new(),
        Offer::Hints(hints) => hints.iter().filter(|hint| one(hint)).cloned().collect(),
        Offer::Capacity(capacity) => listing::single_nodes(capacity, columns).into_iter().filter(one).collect(),
    };
    let all = lists::preferred(&offers.iter().map(list).collect::<Vec<_>>(), columns, TieBreak::Lowest);
    let preferred = all.is_some();
    Merged { affinity: all.filter(|mask| mask != columns.all()), preferred, proven: true }
}

fn widest(offers: &[Offer], columns: &Columns, tie: TieBreak) -> Merged {
    if offers.iter().any(|offer| matches!(offer, Offer::Hints(_))) {
        return by_lists(offers, columns, tie);
    }
    let merged = capacity::merge(offers, columns, tie);
    match merged.proven || columns.len() > LISTED_NODES {
        true => merged,
        false => by_lists(offers, columns, tie),
    }
}

fn by_lists(offers: &[Offer], columns: &Columns, tie: TieBreak) -> Merged {
    let mut listed = true;
    let lists: Vec<_> = offers
        .iter()
        .map(|offer| match offer {
            Offer::NoPreference => Cow::from(listing::any(true)),
            Offer::CannotBeMet => Cow::from(listing::any(false)),
            Offer::Hints(hints) if hints.is_empty() => Cow::from(listing::any(false)),
            Offer::Hints(hints) => Cow::from(hints),
            Offer::Capacity(capacity) => {
                let hints = listing::masks(capacity, columns);
                listed &= hints.is_some();
                let hints = hints.unwrap_or_else(|| listing::outline(capacity, columns));
                Cow::from(listing::or_unmet(hints))
            }
        })
        .collect();
    let merged = lists::merge(&lists, columns, tie);
    Merged { proven: merged.proven && listed, ..merged }
}
