//! What is placed: all of it, or the first rows.

use super::order::Tail;
use super::scaled::{Number, Scaled};
use super::tail::Common;
use std::cmp::{Ordering, Reverse};

/// The steps of the order that need no more than shares and distances.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head<N> {
    pub aligned: Reverse<N>,
    pub uneven: bool,
    pub apart: N,
    pub from_cpus: N,
    pub within: N,
}

/// A placement of everything.
#[derive(Clone, Debug)]
pub(super) struct Found<N> {
    pub head: Head<N>,
    pub nodes: Vec<usize>,
    /// Shares by rank and node of the span.
    pub shares: Vec<Vec<N>>,
    pub tail: Option<Tail>,
}

/// What follows from what is placed so far.
#[derive(Clone, Debug)]
pub(super) struct Frame<N> {
    /// The least share on each node.
    pub least: Vec<N>,
    /// Mean distance of a node from everything placed.
    pub cost: Vec<N>,
    /// Distance between the resources placed.
    pub apart: N,
    /// Distance within the counted ones.
    pub within: N,
    /// Something is not on every node.
    pub uneven: bool,
}

impl<N: Number> Frame<N> {
    /// And one more share.
    pub fn add(&mut self, share: &[N], distances: &[Vec<N>]) {
        for (node, part) in share.iter().enumerate() {
            if part.is_zero() {
                self.uneven = true;
                self.least[node] = N::zero();
                continue;
            }
            self.apart += part.clone() * &self.cost[node];
            if *part < self.least[node] {
                self.least[node] = part.clone();
            }
        }
        for (node, part) in share.iter().enumerate().filter(|(_, part)| !part.is_zero()) {
            self.cost.iter_mut().zip(&distances[node]).for_each(|(cost, distance)| *cost += part.clone() * distance);
        }
    }
}

/// Distance between the units of two shares.
pub(super) fn distance<N: Number>(a: &[N], b: &[N], distances: &[Vec<N>]) -> N {
    let mut sum = N::zero();
    for (a, row) in a.iter().zip(distances).filter(|(a, _)| !a.is_zero()) {
        let mut seen = N::zero();
        b.iter().zip(row).for_each(|(b, distance)| seen += b.clone() * distance);
        sum += seen * a;
    }
    sum
}

impl<N: Number> Found<N> {
    /// The rest of the order, which few placements need.
    pub fn tail(&mut self, scaled: &Scaled<N>, common: &Common) -> &Tail {
        self.tail.get_or_insert_with(|| match common.is_of(&self.nodes) {
            true => common.tail(scaled, &self.shares),
            false => Common::new(scaled, &self.nodes).tail(scaled, &self.shares),
        })
    }

    /// Less when better; `common` is what this placement's nodes have in common.
    pub fn compare<'a>(
        &mut self,
        other: &mut Found<N>,
        scaled: &Scaled<N>,
        common: impl Fn() -> &'a Common,
    ) -> Ordering {
        let head = self.head.cmp(&other.head);
        let tail = |found: &mut Found<N>, other: &mut Found<N>| {
            let common = common();
            found.tail(scaled, common).cmp(other.tail(scaled, common)).then_with(|| other.shares.cmp(&found.shares))
        };
        head.then_with(|| tail(self, other))
    }

    /// True when it was compared, and no preference of devices said how good it is.
    pub fn is_unrated(&self, scaled: &Scaled<N>) -> bool {
        scaled.problem.preference.is_some() && self.tail.as_ref().is_some_and(|tail| tail.preference.0.is_none())
    }
}
