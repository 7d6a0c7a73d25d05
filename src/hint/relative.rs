//! The resources-relative merge: all resources of a request are placed
//! together, so that what can be aligned is, even where not everything can.
//!
//! Reading order: `order` says which of two placements is better, for anybody
//! and slowly; `cover` finds the sets of nodes that can hold a request;
//! `scaled` makes whole numbers of shares, so that comparisons are exact, and
//! `coarse` smaller ones of them, for bounds; `span` is one such set prepared,
//! `follow` places amounts beside what is counted, `found` is what is placed,
//! `tail` compares it to the end. `limits`, `bound` and `trail`, with `certain`,
//! `followed` and `taking`, say what a half-made placement can come to,
//! `search` finds the best one on a span, `table` where the CPUs are placed
//! again and again, `seed` guesses a good one first; `solve` walks the spans;
//! `round` makes units of shares; `refusal` says why not;
//! `reshape` is for callers who lay down where on a span units are.
//!
//! Where the rules leave something open, this holds:
//! - Only sets of the least width that holds everything are looked at: width
//!   comes first in the order, and on such a set every placement spans all of it.
//! - Equal masks are *in reach* on a set of nodes when each resource has a unit
//!   free on each of them and wants at least that many. There, amounts follow;
//!   on other sets an amount that one node holds comes from one node, which
//!   node being chosen by the order. An amount of fewer units than nodes can't
//!   have a unit on each, so it never makes masks equal.
//! - What does not fit in proportion goes to those nodes of the set that have
//!   room and are nearest to what is followed, by mean distance; ties: lowest id.
//! - The mean of the devices is the mean, over classes, of their shares.
//! - With nothing counted, a common share is followed: as much as all amounts
//!   have room for, with each node in turn as the first and the others by
//!   distance, or with each in turn as the last and the lowest ids before it.
//! - Best fit is summed over kinds and nodes: (free - x)/allocatable on each.
//! - An unknown distance table is the kernel's own default: 10 and 20.
//! - Rounding takes the largest remainders, ties the lowest id; a node with any
//!   share keeps at least one unit where there are enough. Scores are of the
//!   shares before rounding.

mod bound;
mod certain;
mod coarse;
mod cover;
mod follow;
mod followed;
mod found;
mod limits;
mod order;
mod refusal;
mod reshape;
mod round;
mod scaled;
mod search;
mod seed;
mod solve;
mod span;
mod table;
mod tail;
mod taking;
mod trail;

pub use order::{Placed, Score, score, whole};
pub use refusal::{Refused, Why};
pub use reshape::{narrowest, reshaped};
pub use solve::solve;

use super::policy::Policy;
use num_rational::BigRational;
use std::fmt;

/// A request over the nodes that may serve it.
#[derive(Clone, Debug, Default)]
pub struct Problem<'a> {
    /// Candidate localities, ids ascending.
    pub nodes: Vec<u32>,
    /// From each node (row) to each (column), in their order; empty: unknown.
    pub distances: Vec<Vec<u32>>,
    /// What is asked for. What wants no units takes no part.
    pub resources: Vec<Resource>,
    /// Who is admitted.
    pub policy: Policy,
    /// Device classes that are not asked for.
    pub others: Vec<Other>,
    /// How good the per-node counts are for preferred allocation.
    pub preference: Option<Preference<'a>>,
}

/// Rates units by resource and node, in the problem's order. Amounts are zero
/// there. None: it is not worth the time to find out; the placement that is
/// found then is not proven to be the best.
#[derive(Clone, Copy)]
pub struct Preference<'a>(pub &'a dyn Fn(&[Vec<u64>]) -> Option<Rating>);

/// What makes one choice of devices better than another, the most important
/// first; more is better.
pub type Rating = Vec<i64>;

/// What kind of thing a resource is, in the order in which the lowest ids are given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// CPUs or whole cores: counted; amounts follow them.
    #[default]
    Cpus,
    /// Devices of a class: counted.
    Devices,
    /// Pages of a size: an amount.
    Pages,
    /// Memory: an amount.
    Memory,
}

/// Something asked for, and where there is some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Its name, which orders device classes and page sizes among themselves.
    pub name: String,
    /// Counted or an amount, and its place in the order.
    pub kind: Kind,
    /// Units to place.
    pub units: u64,
    /// Further units that only devices of unknown locality can give.
    pub unknown: u64,
    /// Units free now on each node, in the problem's order.
    pub free: Vec<u64>,
    /// Units on each node with everything allocatable free.
    pub total: Vec<u64>,
}

/// A device class that is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// Devices free on each node, in the problem's order.
    pub free: Vec<u64>,
    /// Devices free on other nodes of the machine.
    pub elsewhere: u64,
}

/// A placement and what can be said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// Units by resource and node, in the problem's order.
    pub x: Vec<Vec<u64>>,
    /// Nodes that anything is on.
    pub span: Vec<u32>,
    /// No placement on this machine could ever span fewer nodes, and masks are equal.
    pub preferred: bool,
    /// Every resource is on every node of the span.
    pub equal_masks: bool,
    /// The width that an idle machine of this shape could offer.
    pub least_width: usize,
    /// False when the search was cut short: there may be a better placement.
    pub proven: bool,
    /// Step 3 of the order: 1 when every node has its full part of everything.
    pub aligned_share: BigRational,
    /// Step 5: the mean distance, both ways, between units of different resources.
    pub mean_distance: BigRational,
    /// Shares before rounding, by resource and node.
    pub shares: Placed,
    /// Why the policy does not admit it.
    pub refused: Option<Refused>,
}

/// A resource of which fewer units are free than wanted, wherever they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough {name}: {wanted} wanted, {free} free")]
pub struct Lacking {
    /// Its place among the problem's resources.
    pub resource: usize,
    /// Its name.
    pub name: String,
    /// Units wanted.
    pub wanted: u64,
    /// Units free on all nodes together.
    pub free: u64,
}

impl Kind {
    /// True for what is divisible and follows the counted resources.
    pub const fn is_amount(self) -> bool {
        matches!(self, Kind::Pages | Kind::Memory)
    }
}

impl Solution {
    /// True when the policy lets it through.
    pub fn admitted(&self) -> bool {
        self.refused.is_none()
    }

    /// The number of localities that it spans.
    pub fn width(&self) -> usize {
        self.span.len()
    }
}

impl Problem<'_> {
    /// Resources that take part, in the order of the last step.
    fn ranked(&self) -> Vec<usize> {
        let mut ranked: Vec<usize> = (0..self.resources.len()).filter(|&at| self.resources[at].units > 0).collect();
        ranked.sort_by_key(|&at| (self.resources[at].kind, &self.resources[at].name, at));
        ranked
    }

    /// The distance there and back.
    fn both_ways(&self, from: usize, to: usize) -> u64 {
        let one_way = |from: usize, to: usize| {
            let unknown = if from == to { 10 } else { 20 };
            self.distances.get(from).and_then(|row| row.get(to)).copied().unwrap_or(unknown)
        };
        u64::from(one_way(from, to)) + u64::from(one_way(to, from))
    }
}

impl Resource {
    fn free_everywhere(&self) -> u64 {
        self.free.iter().fold(0, |sum, free| sum.saturating_add(*free))
    }

    /// What the node could ever give: nothing is free that does not exist.
    fn most(&self, node: usize) -> u64 {
        self.total[node].max(self.free[node])
    }
}

impl fmt::Debug for Preference<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Preference")
    }
}
