//! What callers need who lay down where on a span units are: how wide it is at
//! least, and what is to be said of other numbers on it.

use super::cover::{Budget, Cover};
use super::order::{score, whole};
use super::solve::{Quality, finish};
use super::{Problem, Solution};
use std::cmp::Reverse;

/// Operations for one look at the width, well below a millisecond.
const STEPS: u64 = 200_000;

/// The fewest nodes that hold everything now; none where all of them do not.
/// On many nodes it may be more than it has to be.
pub fn narrowest(problem: &Problem<'_>) -> Option<usize> {
    let ranked = problem.ranked();
    if ranked.iter().any(|&at| problem.resources[at].free_everywhere() < problem.resources[at].units) {
        return None;
    }
    let wanted: Vec<u64> = ranked.iter().map(|&at| problem.resources[at].units).collect();
    let free = |rank: usize, node: usize| problem.resources[ranked[rank]].free[node];
    let (nodes, _) = Cover::new(&wanted, free, (0..problem.nodes.len()).collect()).narrowest(&Budget::new(STEPS));
    Some(nodes.len())
}

/// The solution with other units on the nodes of its span, rated and judged anew.
pub fn reshaped(problem: &Problem<'_>, solution: &Solution, x: Vec<Vec<u64>>) -> Solution {
    let shares = whole(&x);
    let score = score(problem, &shares);
    let Reverse(aligned_share) = score.aligned_share;
    let quality =
        Quality { aligned_share, equal_masks: !score.uneven, mean_distance: score.apart, proven: solution.proven };
    finish(problem, &problem.ranked(), (x, shares), quality, solution.least_width)
}
