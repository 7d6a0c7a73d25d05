//! The whole search: the least width, then every set of that width.

use super::cover::{Budget, Cover};
use super::found::Found;
use super::limits::Limits;
use super::order::{Placed, score, whole};
use super::refusal::{Refused, Why, too_wide, uneven, unknown};
use super::round::round;
use super::scaled::{Number, Scaled, parts, ratio};
use super::search::Search;
use super::seed::plant;
use super::span::{Masks, Span, in_reach};
use super::table::Written;
use super::{Lacking, Problem, Solution};
use crate::hint::policy::Policy;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use std::cmp::Reverse;
use std::ops::ControlFlow;

/// Up to this many nodes the best placement is found, and is known to be it.
const PROVEN_NODES: usize = 8;
/// Operations for machines of up to that many nodes, about 50 ms, and of more.
const STEPS: [u64; 2] = [25_000_000, 1_000_000];
/// Spans with no more splits than that are searched without a guess first.
const FEW_SPLITS: u64 = 1000;
/// So many sets of nodes are put in order before they are looked at.
const SORTED_SETS: usize = 256;

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
    let score = score(problem, &shares);
    let Reverse(aligned_share) = score.aligned_share;
    let quality = Quality { aligned_share, equal_masks: !score.uneven, mean_distance: score.apart, proven: true };
    finish(problem, ranked, (x, shares), quality, least.0)
}

/// The width of an idle machine, and whether that is certain.
fn least_width(problem: &Problem, ranked: &[usize], budget: &Budget) -> (usize, bool) {
    let all = (0..problem.nodes.len()).collect();
    let most = |rank: usize, node: usize| problem.resources[ranked[rank]].most(node);
    let (set, proven) = Cover::new(&wanted(problem, ranked), most, all).narrowest(budget);
    (set.len(), proven)
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
    let (set, certain) = all.narrowest(&budget);
    let width = set.len();
    let mut walk = Walk { scaled: &scaled, best: None, budget: &budget };
    if problem.policy == Policy::Restricted && wanted.iter().all(|&wanted| wanted >= width as u64) {
        // Equal masks come before everything but the width.
        let everywhere = (0..problem.nodes.len()).filter(|&node| in_reach(&scaled, &[node])).collect();
        walk.sets(&cover(everywhere), width, Masks::Equal);
    }
    if walk.best.is_none() {
        walk.sets(&all, width, Masks::Any);
    }
    let proven = least.1 && certain && budget.is_proof();
    let found = walk.best.unwrap_or_else(|| any(&scaled, &set));
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
        let mut first = Vec::new();
        cover.sets(width, budget, &mut |nodes| {
            if first.len() < SORTED_SETS {
                first.push((Reverse(self.alignable(nodes)), nodes.to_vec()));
                return ControlFlow::Continue(());
            }
            // There are too many: the first ones come first.
            self.promising_first(std::mem::take(&mut first), masks);
            self.set(nodes, masks);
            ControlFlow::Continue(())
        });
        self.promising_first(first, masks);
    }

    fn promising_first(&mut self, mut sets: Vec<(Reverse<N>, Vec<usize>)>, masks: Masks) {
        sets.sort();
        sets.iter().for_each(|(_, nodes)| self.set(nodes, masks));
    }

    /// Guesses on sets of near nodes, one for each first node.
    fn near_sets(&mut self, cover: &Cover, width: usize, masks: Masks, budget: &Budget) {
        for start in 0..self.scaled.problem.nodes.len() {
            let mut order: Vec<usize> = (0..self.scaled.problem.nodes.len()).collect();
            order.sort_by_key(|&node| (node != start, self.scaled.distance[start][node].clone()));
            let Some(mut nodes) = budget.lend(8, |part| cover.first(width, &order, part)) else { continue };
            nodes.sort_unstable();
            for span in Span::all(self.scaled, &nodes, masks) {
                let limits = self.limits(&span);
                plant(&mut self.search(&span, &limits, budget));
            }
            if budget.is_spent() {
                return;
            }
        }
    }

    /// Looks at all placements on one set that may be better than the best so far.
    fn set(&mut self, nodes: &[usize], masks: Masks) {
        if self.budget.is_spent() || self.best.as_ref().is_some_and(|best| self.alignable(nodes) < best.head.aligned.0)
        {
            return;
        }
        for span in Span::all(self.scaled, nodes, masks) {
            let limits = self.limits(&span);
            let budget = self.budget;
            let mut search = self.search(&span, &limits, budget);
            if search.is_hopeless() {
                continue;
            }
            search.weigh_ties();
            if span.splits() > FEW_SPLITS {
                budget.lend(8, |part| plant(&mut Search { budget: part, ..search.again() }));
            }
            search.run();
        }
    }

    fn limits(&self, span: &Span<N>) -> Limits<N> {
        let parts = span.rows.len() + span.followers.len();
        let nodes = span.nodes.len();
        self.budget.spend((parts * nodes * (nodes + parts + 8) + 8 * nodes * nodes) as u64 * N::COST);
        Limits::new(self.scaled, span)
    }

    fn search<'b>(&'b mut self, span: &'b Span<N>, limits: &'b Limits<N>, budget: &'b Budget) -> Search<'b, N> {
        Search {
            apart: self.best.as_ref().map_or(0, |best| limits.coarse.apart(&best.head.apart)),
            scaled: self.scaled,
            span,
            limits,
            best: &mut self.best,
            budget,
            ties_lose: false,
            written: Written::Never,
            indifferent: false,
            shares: vec![Vec::new(); self.scaled.ranked.len()],
        }
    }

    /// No placement on the set is aligned more, even with room for everything else.
    fn alignable(&self, nodes: &[usize]) -> N {
        let mut most = N::zero();
        for &node in nodes {
            most += self.scaled.room.iter().map(|room| &room[node]).min().unwrap_or(&self.scaled.whole);
        }
        self.budget.spend((nodes.len() * (self.scaled.ranked.len() + 4)) as u64 * N::COST);
        most.min(self.scaled.whole.clone())
    }
}

/// What is used where the budget was spent before anything was looked at.
fn any<N: Number>(scaled: &Scaled<N>, nodes: &[usize]) -> Found<N> {
    let budget = Budget::new(u64::MAX);
    let mut walk = Walk { scaled, best: None, budget: &budget };
    for span in Span::all(scaled, nodes, Masks::Any).iter().take(1) {
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
        let units = round(&found.shares[rank], &scaled.whole, problem.resources[at].units);
        for (place, &node) in found.nodes.iter().enumerate() {
            x[at][node] = units[place];
            shares[at][node] = scaled.units(rank, &found.shares[rank][place]);
        }
    }
    let ranks = scaled.ranked.len() as u64;
    let pairs = N::fit((ranks * (ranks - 1) / 2).max(1));
    let quality = Quality {
        aligned_share: ratio(&found.head.aligned.0, &scaled.whole),
        equal_masks: !found.head.uneven,
        mean_distance: ratio(&found.head.apart, &scaled.whole) / ratio(&(pairs * &scaled.whole), &N::one()),
        proven: least.1,
    };
    finish(problem, &scaled.ranked, (x, shares), quality, least.0)
}

/// How good a placement is.
pub(super) struct Quality {
    pub aligned_share: BigRational,
    pub equal_masks: bool,
    pub mean_distance: BigRational,
    pub proven: bool,
}

/// `least_width`: that of an idle machine.
pub(super) fn finish(
    problem: &Problem,
    ranked: &[usize],
    (x, shares): (Vec<Vec<u64>>, Placed),
    quality: Quality,
    least_width: usize,
) -> Solution {
    let some = |n: &usize| shares.iter().any(|row| !row[*n].is_zero());
    let span: Vec<u32> = (0..problem.nodes.len()).filter(some).map(|n| problem.nodes[n]).collect();
    let mut solution = Solution {
        preferred: span.len() <= least_width && quality.equal_masks && unknown(problem).is_none(),
        span,
        equal_masks: quality.equal_masks,
        least_width,
        proven: quality.proven,
        aligned_share: quality.aligned_share,
        mean_distance: quality.mean_distance,
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
