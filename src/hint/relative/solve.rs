//! The whole search: the least width, then every set of that width.

use super::cover::{Budget, Cover};
use super::limits::Limits;
use super::order::{Placed, score, whole};
use super::refusal::{Refused, Why, too_wide, uneven, unknown};
use super::round::round;
use super::scaled::{Number, Scaled, parts};
use super::search::{Found, Search};
use super::seed::plant;
use super::span::{Masks, Span, in_reach};
use super::{Lacking, Problem, Solution};
use crate::hint::policy::Policy;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use std::cmp::Reverse;
use std::ops::ControlFlow;

/// Up to this many nodes the best placement is found, and is known to be it.
const PROVEN_NODES: usize = 8;
/// Steps for machines of up to that many nodes, about 50 ms, and of more.
const STEPS: [u64; 2] = [400_000, 40_000];
/// Spans with no more splits than that are searched without a guess first.
const FEW_SPLITS: u64 = 64;

/// Places everything as well as it can be placed, and says whether the policy admits it.
///
/// # Errors
/// A resource of which fewer units are free than wanted.
pub fn solve(problem: &Problem) -> Result<Solution, Lacking> {
    let ranked = problem.ranked();
    if let Some(lacking) = ranked.iter().find_map(|&at| lacking(problem, at)) {
        return Err(lacking);
    }
    if problem.policy == Policy::None || ranked.is_empty() {
        return Ok(lowest(problem, &ranked));
    }
    let (whole, largest) = parts(problem, &ranked);
    Ok(match (largest.to_i64(), largest.to_i128()) {
        (Some(_), _) => best(problem, ranked, whole.to_i64().unwrap_or(1)),
        (_, Some(_)) => best(problem, ranked, whole.to_i128().unwrap_or(1)),
        _ => best::<BigInt>(problem, ranked, whole),
    })
}

fn lacking(problem: &Problem, at: usize) -> Option<Lacking> {
    let resource = &problem.resources[at];
    let (wanted, free) = (resource.units, resource.free_everywhere());
    (free < wanted).then(|| Lacking { resource: at, name: resource.name.clone(), wanted, free })
}

/// No alignment is sought: each resource from the lowest node on.
fn lowest(problem: &Problem, ranked: &[usize]) -> Solution {
    let mut x = vec![vec![0; problem.nodes.len()]; problem.resources.len()];
    for &at in ranked {
        let mut rest = problem.resources[at].units;
        for (units, free) in x[at].iter_mut().zip(&problem.resources[at].free) {
            *units = rest.min(*free);
            rest -= *units;
        }
    }
    let least = least_width(problem, ranked, &Budget::new(STEPS[0]));
    let shares = whole(&x);
    finish(problem, ranked, x, shares, (least.0, true))
}

/// The width of an idle machine, and whether that is certain.
fn least_width(problem: &Problem, ranked: &[usize], budget: &Budget) -> (usize, bool) {
    let all = (0..problem.nodes.len()).collect();
    let most = |rank: usize, node: usize| problem.resources[ranked[rank]].most(node);
    Cover::new(&wanted(problem, ranked), most, all).width(budget).unwrap_or((problem.nodes.len(), true))
}

fn wanted(problem: &Problem, ranked: &[usize]) -> Vec<u64> {
    ranked.iter().map(|&at| problem.resources[at].units).collect()
}

/// Everything but rounding, in numbers of one type.
fn best<N: Number>(problem: &Problem, ranked: Vec<usize>, whole: N) -> Solution {
    let budget = Budget::new(STEPS[usize::from(problem.nodes.len() > PROVEN_NODES)]);
    let least = least_width(problem, &ranked, &budget);
    let scaled = Scaled::new(problem, ranked, whole);
    let wanted = wanted(problem, &scaled.ranked);
    let free = |rank: usize, node: usize| scaled.resource(rank).free[node];
    let cover = |nodes: Vec<usize>| Cover::new(&wanted, free, nodes);
    let all = cover((0..problem.nodes.len()).collect());
    let (width, certain) = all.width(&budget).unwrap_or((problem.nodes.len(), true));
    let mut walk = Walk { scaled: &scaled, best: None, budget: &budget };
    if problem.policy == Policy::Restricted && wanted.iter().all(|&wanted| wanted >= width as u64) {
        // Equal masks come before everything but the width.
        let everywhere = (0..problem.nodes.len()).filter(|&node| in_reach(&scaled, &[node])).collect();
        walk.sets(&cover(everywhere), width, Masks::Equal);
    }
    if walk.best.is_none() {
        walk.sets(&all, width, Masks::Any);
    }
    let proven = least.1 && certain && !budget.is_spent();
    let found = walk.best.unwrap_or_else(|| any(&scaled, &all, width));
    placed(&scaled, &found, (least.0, proven))
}

/// The walk over the sets of one width.
struct Walk<'a, N> {
    scaled: &'a Scaled<'a, N>,
    best: Option<Found<N>>,
    budget: &'a Budget,
}

impl<N: Number> Walk<'_, N> {
    fn sets(&mut self, cover: &Cover, width: usize, masks: Masks) {
        let budget = self.budget;
        if self.scaled.problem.nodes.len() > PROVEN_NODES {
            budget.lend(2, |part| self.near_sets(cover, width, masks, part));
        }
        cover.sets(width, budget, &mut |nodes| {
            self.set(nodes, masks);
            ControlFlow::Continue(())
        });
    }

    /// Guesses on sets of near nodes, one for each first node.
    fn near_sets(&mut self, cover: &Cover, width: usize, masks: Masks, budget: &Budget) {
        for start in 0..self.scaled.problem.nodes.len() {
            let mut order: Vec<usize> = (0..self.scaled.problem.nodes.len()).collect();
            order.sort_by_key(|&node| (node != start, self.scaled.distance[start][node].clone()));
            let Some(mut nodes) = budget.lend(8, |part| cover.first(width, &order, part)) else { continue };
            nodes.sort_unstable();
            for span in Span::all(self.scaled, &nodes, masks) {
                let limits = Limits::new(self.scaled, &span);
                plant(&mut self.search(&span, &limits, budget));
            }
            if budget.is_spent() {
                return;
            }
        }
    }

    /// Looks at all placements on one set that may be better than the best so far.
    fn set(&mut self, nodes: &[usize], masks: Masks) {
        if !self.may_align(nodes) {
            return;
        }
        for span in Span::all(self.scaled, nodes, masks) {
            let limits = Limits::new(self.scaled, &span);
            let budget = self.budget;
            let mut search = self.search(&span, &limits, budget);
            if search.is_hopeless() {
                continue;
            }
            search.weigh_ties();
            if span.splits() > FEW_SPLITS {
                budget.lend(4, |part| plant(&mut Search { budget: part, ..search.again() }));
            }
            search.run();
        }
    }

    fn search<'b>(&'b mut self, span: &'b Span<N>, limits: &'b Limits<N>, budget: &'b Budget) -> Search<'b, N> {
        Search { scaled: self.scaled, span, limits, best: &mut self.best, budget, ties_lose: false, indifferent: false }
    }

    /// False when even with room for everything else no placement on the set is
    /// aligned as much as the best so far.
    fn may_align(&self, nodes: &[usize]) -> bool {
        let Some(best) = &self.best else { return true };
        let mut most = N::zero();
        for &node in nodes {
            most += self.scaled.room.iter().map(|room| &room[node]).min().unwrap_or(&self.scaled.whole);
        }
        most >= best.head.aligned.0
    }
}

/// What is used where the budget was spent before anything was looked at.
fn any<N: Number>(scaled: &Scaled<N>, cover: &Cover, width: usize) -> Found<N> {
    let budget = Budget::new(u64::MAX);
    let order: Vec<usize> = (0..scaled.problem.nodes.len()).collect();
    let nodes = cover.first(width, &order, &budget).unwrap_or(order);
    let mut walk = Walk { scaled, best: None, budget: &budget };
    for span in Span::all(scaled, &nodes, Masks::Any).iter().take(1) {
        walk.search(span, &Limits::new(scaled, span), &budget).offer_first();
    }
    walk.best.expect("what is offered first is the best so far")
}

/// Rounds the amounts and says what can be said of the placement.
fn placed<N: Number>(scaled: &Scaled<N>, found: &Found<N>, least: (usize, bool)) -> Solution {
    let problem = scaled.problem;
    let mut x = vec![vec![0; problem.nodes.len()]; problem.resources.len()];
    let mut shares: Placed = whole(&x);
    for (rank, &at) in scaled.ranked.iter().enumerate() {
        let units = round(&found.shares[rank], &scaled.unit[rank], problem.resources[at].units);
        for (place, &node) in found.nodes.iter().enumerate() {
            x[at][node] = units[place];
            shares[at][node] = scaled.units(rank, &found.shares[rank][place]);
        }
    }
    finish(problem, &scaled.ranked, x, shares, least)
}

/// `least`: the width of an idle machine, and whether the placement is the best.
fn finish(problem: &Problem, ranked: &[usize], x: Vec<Vec<u64>>, shares: Placed, least: (usize, bool)) -> Solution {
    let score = score(problem, &shares);
    let equal_masks = !score.uneven;
    let Reverse(aligned_share) = score.aligned_share;
    let mut solution = Solution {
        preferred: score.width <= least.0 && equal_masks && unknown(problem).is_none(),
        span: score.tail.span,
        equal_masks,
        least_width: least.0,
        proven: least.1,
        aligned_share,
        mean_distance: score.apart,
        x,
        shares,
        refused: None,
    };
    solution.refused = refused(problem, ranked, &solution);
    solution
}

fn refused(problem: &Problem, ranked: &[usize], solution: &Solution) -> Option<Refused> {
    match problem.policy {
        Policy::None | Policy::BestEffort => None,
        Policy::SingleNumaNode if solution.width() > 1 => Some(too_wide(problem, ranked, Why::SeveralNodes, 1)),
        Policy::Restricted if solution.width() > solution.least_width => {
            Some(too_wide(problem, ranked, Why::Wider, solution.least_width))
        }
        Policy::Restricted if !solution.equal_masks => Some(uneven(&solution.x, ranked)),
        Policy::Restricted | Policy::SingleNumaNode => unknown(problem),
    }
}
