//! Which of two placements is better: the steps of the order, one by one, in
//! exact fractions. Slow and plain; the search uses it where its own whole
//! numbers leave a tie.

use super::{Kind, Problem, Rating};
use crate::hint::policy::Policy;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use std::cmp::Reverse;

/// Units by resource and node, in the problem's order, as fractions: amounts
/// are divisible until they are rounded.
pub type Placed = Vec<Vec<BigRational>>;

/// What the order looks at. The smaller of two scores of one problem is better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Nodes that anything is on.
    pub width: usize,
    /// Under restricted: whether some resource is not on all of them.
    pub uneven_first: bool,
    /// Sum over nodes of the least share that any resource has there.
    pub aligned_share: Reverse<BigRational>,
    /// Whether some resource is not on every node of the span.
    pub uneven: bool,
    /// Mean distance between units of different resources.
    pub apart: BigRational,
    /// Mean distance between the CPUs and the amounts.
    pub from_cpus: BigRational,
    /// Mean distance within the counted resources.
    pub within: BigRational,
    /// What is left to compare when all these are equal.
    pub tail: Tail,
    /// Units on lower ids come first.
    units: Vec<Vec<Reverse<BigRational>>>,
}

/// The steps that are rarely reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tail {
    /// Rating of the per-node counts for preferred allocation; none where there
    /// is none, or was no time for it.
    pub preference: Reverse<Option<Rating>>,
    /// Free devices of classes that nobody asked for, as parts of all there are.
    pub stranded: BigRational,
    /// What stays free of what is asked for, as parts of what is allocatable.
    pub left: BigRational,
    /// Ids of the nodes.
    pub span: Vec<u32>,
}

/// Whole units as fractions.
pub fn whole(x: &[Vec<u64>]) -> Placed {
    x.iter().map(|row| row.iter().map(|&units| fraction(units, 1)).collect()).collect()
}

/// Rates any placement of the problem's units.
pub fn score(problem: &Problem, placed: &Placed) -> Score {
    let span: Vec<usize> = (0..problem.nodes.len()).filter(|&n| placed.iter().any(|row| !row[n].is_zero())).collect();
    let ranked = problem.ranked();
    let shares = Shares::new(problem, placed, &ranked, &span);
    let uneven = !even(problem, placed, &ranked, &span);
    Score {
        width: span.len(),
        uneven_first: uneven && problem.policy == Policy::Restricted,
        aligned_share: Reverse(shares.aligned()),
        uneven,
        apart: shares.mean(|a, b| a.0 < b.0),
        from_cpus: shares.mean(|a, b| a.1 == Kind::Cpus && b.1.is_amount()),
        within: shares.mean(|a, b| a.0 == b.0 && !a.1.is_amount()),
        tail: Tail::new(problem, &ranked, &span, |resource, node| placed[resource][node].clone()),
        units: ranked.iter().map(|&r| placed[r].iter().cloned().map(Reverse).collect()).collect(),
    }
}

/// True when every resource is, and after rounding stays, on every node of the span.
fn even(problem: &Problem, placed: &Placed, ranked: &[usize], span: &[usize]) -> bool {
    ranked.iter().all(|&resource| {
        problem.resources[resource].units >= span.len() as u64 && span.iter().all(|&n| !placed[resource][n].is_zero())
    })
}

impl Tail {
    /// Rates a placement given by resource and node.
    fn new(problem: &Problem, ranked: &[usize], span: &[usize], units: impl Fn(usize, usize) -> BigRational) -> Self {
        let left = |resource: usize, node: usize| {
            let row = &problem.resources[resource];
            let total = row.most(node);
            let part = || (fraction(row.free[node], 1) - units(resource, node)) / fraction(total, 1);
            if total == 0 { BigRational::zero() } else { part() }
        };
        Tail {
            preference: Reverse(rating(problem, ranked, span, |rank, at| units(ranked[rank], span[at]).to_integer())),
            stranded: stranded(problem, span),
            left: ranked.iter().flat_map(|&r| span.iter().map(move |&n| (r, n))).map(|(r, n)| left(r, n)).sum(),
            span: span.iter().map(|&node| problem.nodes[node]).collect(),
        }
    }
}

/// How good counted units, by rank and node of the span, are for preferred allocation.
pub(super) fn rating(
    problem: &Problem,
    ranked: &[usize],
    span: &[usize],
    units: impl Fn(usize, usize) -> BigInt,
) -> Option<Rating> {
    let preference = problem.preference?;
    let mut counts = vec![vec![0; problem.nodes.len()]; problem.resources.len()];
    for (rank, &resource) in ranked.iter().enumerate().filter(|(_, at)| !problem.resources[**at].kind.is_amount()) {
        for (at, &node) in span.iter().enumerate() {
            counts[resource][node] = u64::try_from(units(rank, at)).unwrap_or(u64::MAX);
        }
    }
    (preference.0)(&counts)
}

/// Free devices that nobody asked for on a span, as parts of all there are.
pub(super) fn stranded(problem: &Problem, span: &[usize]) -> BigRational {
    let part = |other: &super::Other| {
        let all = other.free.iter().fold(u128::from(other.elsewhere), |sum, &free| sum + u128::from(free));
        let here: u128 = span.iter().map(|&node| u128::from(other.free[node])).sum();
        if all == 0 { BigRational::zero() } else { BigRational::new(here.into(), all.into()) }
    };
    problem.others.iter().map(part).sum()
}

/// The parts that each resource has on each node of a span.
struct Shares<'a> {
    problem: &'a Problem<'a>,
    span: &'a [usize],
    /// Rank, kind and shares.
    rows: Vec<(usize, Kind, Vec<BigRational>)>,
}

impl<'a> Shares<'a> {
    fn new(problem: &'a Problem, placed: &Placed, ranked: &[usize], span: &'a [usize]) -> Self {
        let row = |(rank, &at): (usize, &usize)| {
            let units = fraction(problem.resources[at].units, 1);
            (rank, problem.resources[at].kind, span.iter().map(|&node| &placed[at][node] / &units).collect())
        };
        Shares { problem, span, rows: ranked.iter().enumerate().map(row).collect() }
    }

    fn aligned(&self) -> BigRational {
        let least = |at: usize| self.rows.iter().map(|row| row.2[at].clone()).min().unwrap_or_else(BigRational::one);
        (0..self.span.len()).map(least).sum()
    }

    /// Mean distance over those pairs of resources; none: 0.
    fn mean(&self, pair: impl Fn((usize, Kind), (usize, Kind)) -> bool) -> BigRational {
        let rows = || self.rows.iter();
        let pairs: Vec<_> = rows()
            .flat_map(|a| rows().map(move |b| (a, b)))
            .filter(|(a, b)| pair((a.0, a.1), (b.0, b.1)))
            .map(|(a, b)| self.distance(&a.2, &b.2))
            .collect();
        let count = pairs.len().max(1) as u64;
        pairs.into_iter().sum::<BigRational>() / fraction(count, 1)
    }

    fn distance(&self, a: &[BigRational], b: &[BigRational]) -> BigRational {
        let places = || 0..self.span.len();
        let part =
            |(n, m): (usize, usize)| &a[n] * &b[m] * fraction(self.problem.both_ways(self.span[n], self.span[m]), 1);
        places().flat_map(|n| places().map(move |m| (n, m))).map(part).sum()
    }
}

/// An exact fraction.
pub(super) fn fraction(number: u64, of: u64) -> BigRational {
    BigRational::new(number.into(), of.into())
}
