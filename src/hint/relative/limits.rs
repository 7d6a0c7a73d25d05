//! What a half-made placement can come to at best: the search leaves it when
//! that is not enough.

use super::coarse::Coarse;
use super::found::Frame;
use super::scaled::{Number, Scaled};
use super::span::{Row, Span};
use super::tail::Common;
use std::cell::OnceCell;

/// Limits of one span that do not depend on what is placed.
pub(super) struct Limits<N> {
    pub coarse: Coarse<N>,
    common: OnceCell<Common>,
    /// Rows, then followers.
    pub parts: Vec<Part<N>>,
    /// By pair of nodes of the span.
    pub distance: Vec<Vec<i64>>,
    /// The least distance of any two nodes, or of one to itself.
    pub nearest: i64,
    /// Units of each row and the coarse share of one, where that is exact.
    rows: Vec<(u64, i64)>,
    /// By pair of parts: the least mean distance between them.
    apart: Vec<Vec<i64>>,
    /// By part and node: the least mean distance of what is not certain to be on some node.
    pub rest_seen: Vec<Vec<i64>>,
}

/// A row or a follower.
pub(super) struct Part<N> {
    /// Units, where fewer than nodes.
    few: Option<usize>,
    low: Vec<N>,
    high: Vec<N>,
    /// The same, coarse.
    pub least: Vec<i64>,
    pub most: Vec<i64>,
}

/// How much can be aligned while one row is being placed, the rows before it being so.
pub(super) struct Level<N> {
    /// The largest share that can be aligned on each node.
    pub cap: Vec<N>,
    /// The sum of it, bounded by the row's own room, from each node on.
    pub cap_after: Vec<N>,
    /// No placement below is aligned more.
    pub ceiling: N,
}

impl<N: Number> Limits<N> {
    pub fn new(scaled: &Scaled<N>, span: &Span<N>) -> Self {
        let coarse = Coarse::new(scaled);
        let parts = parts(scaled, span, &coarse);
        let distance: Vec<Vec<i64>> =
            span.distance.iter().map(|row| row.iter().filter_map(N::to_i64).collect()).collect();
        let seen = |most: &[i64], all: i64| distance.iter().map(|row| cheapest(most, row, all)).collect();
        let all: Vec<Vec<i64>> = parts.iter().map(|part| seen(&part.most, coarse.whole)).collect();
        let least = |part: &Part<N>, seen: &Vec<i64>| cheapest(&part.most, seen, coarse.whole);
        let apart = parts.iter().map(|part| all.iter().map(|seen| least(part, seen)).collect()).collect();
        let rest_seen = parts.iter().map(|part| seen(&part.free(), part.rest(coarse.whole))).collect();
        let nearest = distance.iter().flatten().min().copied().unwrap_or(0);
        let rows = span.rows.iter().map(|row| (row.units, coarse.share(&row.unit))).collect();
        Limits { coarse, common: OnceCell::new(), rows, parts, distance, nearest, apart, rest_seen }
    }

    /// What placements on the span have in common in the last steps of the order.
    pub fn common(&self, scaled: &Scaled<N>, span: &Span<N>) -> &Common {
        self.common.get_or_init(|| Common::new(scaled, &span.nodes))
    }

    /// The share of so many units of a row.
    pub fn share(&self, row: usize, count: u64) -> i64 {
        let (units, unit) = self.rows[row];
        match (self.coarse.is_exact(), count.checked_mul(self.coarse.whole as u64)) {
            (true, _) => count as i64 * unit,
            (false, Some(product)) => (product / units) as i64,
            (false, None) => (u128::from(count) * self.coarse.whole as u128 / u128::from(units)) as i64,
        }
    }

    /// No placement on the span has resources less far apart.
    pub fn least_apart(&self) -> i64 {
        let parts = 0..self.parts.len();
        parts.clone().flat_map(|a| (a + 1..parts.end).map(move |b| self.apart[a][b])).sum()
    }

    /// No placement has a row less spread than this.
    pub fn least_within(&self, row: usize) -> i64 {
        self.apart[row][row]
    }

    /// Limits for placing a row after those of the frame.
    pub fn level(
        &self,
        row: usize,
        open: impl Iterator<Item = usize> + Clone,
        frame: &Frame<N>,
        whole: &N,
    ) -> Level<N> {
        let nodes = frame.least.len();
        let own = &self.parts[row];
        let mut cap = frame.least.clone();
        let mut ceiling = whole.clone();
        for other in open.clone().map(|part| &self.parts[part]) {
            ceiling = ceiling.min(other.alignable(&frame.least, whole));
            for (cap, high) in cap.iter_mut().zip(&other.high).filter(|(cap, high)| *high < &**cap) {
                cap.clone_from(high);
            }
        }
        ceiling = open.fold(ceiling, |ceiling, part| ceiling.min(self.parts[part].of_few(&cap, whole)));
        ceiling = ceiling.min(own.alignable(&cap, whole)).min(own.of_few(&cap, whole));
        let mut cap_after = vec![N::zero(); nodes + 1];
        for node in (0..nodes).rev() {
            cap_after[node] = cap_after[node + 1].clone() + cap[node].clone().min(own.high[node].clone());
        }
        ceiling = ceiling.min(cap_after[0].clone());
        Level { cap, cap_after, ceiling }
    }
}

impl<N: Number> Part<N> {
    fn new(few: Option<usize>, low: Vec<N>, high: Vec<N>, coarse: &Coarse<N>) -> Part<N> {
        let rough = |shares: &[N]| shares.iter().map(|share| coarse.share(share)).collect();
        Part { few, least: rough(&low), most: rough(&high), low, high }
    }

    /// Room for what is not certain to be on some node, and how much that is.
    pub fn free(&self) -> Vec<i64> {
        self.most.iter().zip(&self.least).map(|(most, least)| most - least).collect()
    }

    pub fn rest(&self, whole: i64) -> i64 {
        (whole - self.least.iter().sum::<i64>()).max(0)
    }

    /// No more of this part than that can lie beside what is aligned so far:
    /// what it must have elsewhere is lost.
    fn alignable(&self, least: &[N], whole: &N) -> N {
        let mut most = whole.clone();
        for (low, least) in self.low.iter().zip(least) {
            if low > least {
                most += least;
                most -= low;
            }
        }
        most
    }

    /// No more than on as many nodes as it has units.
    fn of_few(&self, cap: &[N], whole: &N) -> N {
        let Some(few) = self.few else { return whole.clone() };
        let mut here: Vec<N> = cap.iter().zip(&self.high).map(|(cap, high)| cap.min(high).clone()).collect();
        here.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = N::zero();
        here.iter().take(few).for_each(|share| sum += share);
        sum
    }
}

fn parts<N: Number>(scaled: &Scaled<N>, span: &Span<N>, coarse: &Coarse<N>) -> Vec<Part<N>> {
    let nodes = span.nodes.len();
    let row = |row: &Row<N>| {
        let few = usize::try_from(row.units).ok().filter(|&units| units < nodes);
        let shares = |units: &[u64]| units.iter().map(|&units| row.share(units)).collect();
        Part::new(few, shares(&row.low), shares(&row.high), coarse)
    };
    let followers = span
        .followers
        .iter()
        .map(|follower| Part::new(None, needed(&follower.room, &scaled.whole), follower.room.clone(), coarse));
    span.rows.iter().map(row).chain(followers).collect()
}

/// What must be on each node because the others have no more room.
fn needed<N: Number>(room: &[N], whole: &N) -> Vec<N> {
    let mut all = N::zero();
    room.iter().for_each(|room| all += room);
    let low = |room: &N| {
        let mut low = whole.clone();
        low -= &all;
        low += room;
        low.max(N::zero())
    };
    room.iter().map(low).collect()
}

/// The least cost of so much where each node takes so much at most.
fn cheapest(most: &[i64], cost: &[i64], share: i64) -> i64 {
    let mut order: Vec<usize> = (0..cost.len()).collect();
    order.sort_unstable_by_key(|&node| cost[node]);
    let (mut sum, mut left) = (0, share);
    for node in order {
        let here = left.min(most[node]);
        left -= here;
        sum += here * cost[node];
    }
    sum
}
