//! Shares as whole numbers: all are multiples of one part, so that adding,
//! multiplying and comparing them is exact.

use super::Problem;
use num_bigint::{BigInt, ToBigInt};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{FromPrimitive, NumAssignRef, NumRef, ToPrimitive};
use std::fmt::Debug;

/// Whole numbers that are wide enough: `i64` and `i128` where `parts` shows
/// that nothing can overflow, else numbers of any size.
pub(super) trait Number:
    Clone + Ord + Debug + NumRef + NumAssignRef + FromPrimitive + ToPrimitive + ToBigInt
{
    /// How much slower than the smallest it is, for budgets.
    const COST: u64;

    /// The number, which is known to fit.
    fn fit(number: u64) -> Self {
        Self::from_u64(number).expect("`parts` chose a type that holds it")
    }
}

impl Number for i64 {
    const COST: u64 = 1;
}

impl Number for i128 {
    const COST: u64 = 2;
}

impl Number for BigInt {
    const COST: u64 = 30;
}

/// A problem in such numbers. Resources are numbered by rank here.
pub(super) struct Scaled<'a, N> {
    pub problem: &'a Problem<'a>,
    /// Places of the resources that take part.
    pub ranked: Vec<usize>,
    /// The share that is all of a resource.
    pub whole: N,
    /// The share of each resource that each node has free, at most the whole.
    pub room: Vec<Vec<N>>,
    /// Distances there and back.
    pub distance: Vec<Vec<N>>,
}

/// Into how many parts a whole is divided, and the largest number that can come up.
pub(super) fn parts(problem: &Problem, ranked: &[usize]) -> (BigInt, BigInt) {
    let devices = ranked.iter().filter(|&&at| problem.resources[at].kind == super::Kind::Devices).count();
    let rows = ranked.iter().map(|&at| &problem.resources[at]);
    // An amount that every node has all of, or nothing, is nowhere divided by its own units.
    let divided = rows.filter(|row| !row.kind.is_amount() || row.free.iter().any(|&free| free > 0 && free < row.units));
    let units = divided.map(|row| BigInt::from(row.units));
    let whole = units.fold(BigInt::from(1), |whole, units| whole.lcm(&units)) * devices.max(1);
    let nodes = problem.nodes.len();
    let far = (0..nodes).flat_map(|n| (0..nodes).map(move |m| problem.both_ways(n, m))).max().unwrap_or(0);
    let terms = 4 * (ranked.len() + 1).pow(2);
    let largest = &whole * (&whole * far).max(nodes.into()) * terms;
    (whole, largest)
}

impl<'a, N: Number> Scaled<'a, N> {
    /// `whole` as counted by `parts`.
    pub fn new(problem: &'a Problem<'a>, ranked: Vec<usize>, whole: N) -> Self {
        let rows = || ranked.iter().map(|&at| &problem.resources[at]);
        let share = |free: u64, units: u64| match (free, free < units) {
            (0, _) => N::zero(),
            (_, true) => whole.clone() / &N::fit(units) * &N::fit(free),
            _ => whole.clone(),
        };
        let room = rows().map(|row| row.free.iter().map(|&free| share(free, row.units)).collect()).collect();
        let nodes = 0..problem.nodes.len();
        let distance = nodes.clone().map(|n| nodes.clone().map(|m| N::fit(problem.both_ways(n, m))).collect());
        Scaled { problem, distance: distance.collect(), ranked, whole, room }
    }

    pub fn resource(&self, rank: usize) -> &super::Resource {
        &self.problem.resources[self.ranked[rank]]
    }

    /// The share of one unit of something counted.
    pub fn unit(&self, rank: usize) -> N {
        self.whole.clone() / &N::fit(self.resource(rank).units)
    }

    /// Units of a share, which may be a fraction.
    pub fn units(&self, rank: usize, share: &N) -> BigRational {
        ratio(share, &self.whole) * BigInt::from(self.resource(rank).units)
    }
}

/// One number over another as an exact fraction.
pub(super) fn ratio<N: Number>(number: &N, of: &N) -> BigRational {
    let big = |number: &N| number.to_bigint().unwrap_or_default();
    BigRational::new(big(number), big(of))
}
