//! The last steps of the order for placements on one set of nodes: what is the
//! same for all of them is worked out once.

use super::order::{Tail, fraction, rating, stranded};
use super::scaled::{Number, Scaled};
use num_rational::BigRational;
use num_traits::Zero;
use std::cmp::Reverse;

/// What placements on a set of nodes have in common.
pub(super) struct Common {
    nodes: Vec<usize>,
    stranded: BigRational,
    /// What stays free, but for the resources below.
    left: BigRational,
    /// Resources of which nodes differ in what is allocatable: what stays free depends on where they are.
    differing: Vec<usize>,
    ids: Vec<u32>,
}

impl Common {
    pub fn new<N: Number>(scaled: &Scaled<N>, nodes: &[usize]) -> Common {
        let most = |rank: usize, node: usize| scaled.resource(rank).most(node);
        let (differing, alike): (Vec<usize>, Vec<usize>) =
            (0..scaled.ranked.len()).partition(|&rank| differs(scaled, nodes, rank));
        let part = |units: u64, of: u64| if of == 0 { BigRational::zero() } else { fraction(units, of) };
        let free =
            |rank: usize| nodes.iter().map(move |&node| part(scaled.resource(rank).free[node], most(rank, node)));
        let all: BigRational = (0..scaled.ranked.len()).flat_map(free).sum();
        let taken = alike.iter().map(|&rank| part(scaled.resource(rank).units, most(rank, nodes[0])));
        Common {
            nodes: nodes.to_vec(),
            stranded: stranded(scaled.problem, nodes),
            left: all - taken.sum::<BigRational>(),
            differing,
            ids: nodes.iter().map(|&node| scaled.problem.nodes[node]).collect(),
        }
    }

    /// True for placements on these nodes.
    pub fn is_of(&self, nodes: &[usize]) -> bool {
        self.nodes == nodes
    }

    /// Of these shares, by rank and node of the set.
    pub fn tail<N: Number>(&self, scaled: &Scaled<N>, shares: &[Vec<N>]) -> Tail {
        let units = |rank: usize, at: usize| scaled.units(rank, &shares[rank][at]);
        let mut left = self.left.clone();
        for &rank in &self.differing {
            for (at, &node) in self.nodes.iter().enumerate().filter(|(at, _)| !shares[rank][*at].is_zero()) {
                left -= units(rank, at) / fraction(scaled.resource(rank).most(node), 1);
            }
        }
        let rated = |rank: usize, at: usize| units(rank, at).to_integer();
        Tail {
            preference: Reverse(rating(scaled.problem, &scaled.ranked, &self.nodes, rated)),
            ..self.but_preference(left)
        }
    }

    /// Of any placement where only units differ, preferences left out.
    pub fn any(&self) -> Tail {
        self.but_preference(self.left.clone())
    }

    fn but_preference(&self, left: BigRational) -> Tail {
        Tail { preference: Reverse(None), stranded: self.stranded.clone(), left, span: self.ids.clone() }
    }
}

/// True when placements on these nodes differ only in their units, preferences left out.
pub(super) fn is_common<N: Number>(scaled: &Scaled<N>, nodes: &[usize]) -> bool {
    !(0..scaled.ranked.len()).any(|rank| differs(scaled, nodes, rank))
}

fn differs<N: Number>(scaled: &Scaled<N>, nodes: &[usize], rank: usize) -> bool {
    let most = |node: usize| scaled.resource(rank).most(node);
    nodes.iter().any(|&node| most(node) != most(nodes[0]))
}
