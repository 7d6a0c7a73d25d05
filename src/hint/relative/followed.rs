//! What amounts follow, as far as it is known while a row is being placed.

use super::limits::Limits;
use super::scaled::Number;
use super::span::{Base, Span};
use num_integer::Integer;

/// The shares of some rows, over so many.
pub(super) struct Followed {
    /// The row being placed is one of them.
    pub moves: bool,
    /// What is certain of the others on each node.
    pub known: Vec<i64>,
    /// The most of it on each node.
    pub highest: Vec<i64>,
    over: i64,
    /// How distances from it are compared.
    pub weights: Weights,
}

/// Parts of a whole that stand for shares where distances from what is
/// followed are compared: exact where coarse shares are not.
pub(super) struct Weights {
    /// Of one unit of the row.
    unit: i64,
    /// What is certain of other rows, and all of it.
    pub known: Vec<i64>,
    pub all: i64,
    /// Rows that are not placed yet have some of it.
    pub open: bool,
    /// Distances may be so much off.
    pub slack: i64,
}

impl Followed {
    /// None where nothing follows, or what does is placed.
    pub fn new<N: Number>(
        span: &Span<N>,
        limits: &Limits<N>,
        row: usize,
        placed: impl Fn(usize, usize, i64) -> i64,
    ) -> Option<Followed> {
        let rows = match &span.base {
            _ if span.followers.is_empty() || row >= span.known_after() => return None,
            Base::Cpus(cpus) => vec![*cpus],
            Base::Mean(rows) => rows.clone(),
            Base::Share(_) => return None,
        };
        let parts = &limits.parts;
        let placed_coarse = |other: usize, node: usize| placed(other, node, limits.coarse.whole);
        let least = |other: usize, node: usize| match other < row {
            true => placed_coarse(other, node),
            false => parts[other].least[node],
        };
        let most = |other: usize, node: usize| match other < row {
            true => placed_coarse(other, node),
            false => parts[other].most[node],
        };
        let others = || rows.iter().copied().filter(|&other| other != row);
        let (nodes, over) = (0..span.nodes.len(), rows.len() as i64);
        let moves = rows.contains(&row);
        Some(Followed {
            moves,
            known: nodes.clone().map(|node| others().map(|other| least(other, node)).sum()).collect(),
            // Rounded up.
            highest: nodes.map(|node| rows.iter().map(|&row| most(row, node)).sum::<i64>() / over + 1).collect(),
            over,
            weights: Weights::new(span, limits, &rows, row, placed),
        })
    }

    /// What is followed on a node where the row has a share.
    pub fn share(&self, node: usize, share: i64) -> i64 {
        (self.known[node] + if self.moves { share } else { 0 }) / self.over
    }
}

impl Weights {
    fn new<N: Number>(
        span: &Span<N>,
        limits: &Limits<N>,
        rows: &[usize],
        row: usize,
        placed: impl Fn(usize, usize, i64) -> i64,
    ) -> Weights {
        let nodes = span.nodes.len();
        let far = limits.distance.iter().flatten().max().copied().unwrap_or(0).max(1);
        let most = i64::MAX / 4 / far / rows.len() as i64;
        let exact = common_multiple(rows.iter().map(|&row| span.rows[row].units), most);
        // Coarse shares are a little too small.
        let (whole, slack) = match exact {
            Some(whole) => (whole, 0),
            None => (limits.coarse.whole, 2 * far * (rows.len() * nodes) as i64),
        };
        let unit = |other: usize| whole / i64::try_from(span.rows[other].units).unwrap_or(i64::MAX);
        let certain = |other: usize, node: usize| match other < row {
            true => placed(other, node, whole),
            false => span.rows[other].low[node] as i64 * unit(other),
        };
        let others = || rows.iter().copied().filter(|&other| other != row);
        Weights {
            unit: unit(row),
            known: (0..nodes).map(|node| others().map(|other| certain(other, node)).sum()).collect(),
            all: whole * rows.len() as i64,
            open: others().any(|other| other > row),
            slack,
        }
    }

    /// Of so many units of the row.
    pub fn of(&self, units: u64) -> i64 {
        units as i64 * self.unit
    }
}

/// The least number that all of these divide, if it is no more than `most`.
fn common_multiple(mut numbers: impl Iterator<Item = u64>, most: i64) -> Option<i64> {
    numbers.try_fold(1_i64, |all, number| {
        let number = i64::try_from(number).ok()?;
        (number / all.gcd(&number)).checked_mul(all).filter(|all| *all <= most)
    })
}
