//! What a half-made placement can come to at best: the search leaves it when
//! that is not enough.

use super::scaled::{Number, Scaled};
use super::search::Frame;
use super::span::Span;

/// Limits of one span that do not depend on what is placed.
pub(super) struct Limits<N> {
    /// Rows, then followers.
    parts: Vec<Part<N>>,
    /// For each row, what is not placed yet while that row is.
    open: Vec<Vec<usize>>,
    /// By part and node: the least mean distance of the part from the node.
    seen: Vec<Vec<N>>,
    /// By pair of parts: the least mean distance between them.
    apart: Vec<Vec<N>>,
    /// The least distance of any two nodes, or of one to itself.
    pub nearest: N,
}

struct Part<N> {
    /// Units, where fewer than nodes.
    few: Option<usize>,
    low: Vec<N>,
    high: Vec<N>,
}

/// Limits while one row is being placed, the rows before it being so.
pub(super) struct Level<N> {
    /// The largest share that can be aligned on each node.
    pub cap: Vec<N>,
    /// The sum of it, bounded by the row's own room, from each node on.
    pub cap_after: Vec<N>,
    /// No placement below is aligned more.
    pub ceiling: N,
    /// What a share of this row on a node costs at least, but for followers that
    /// will lie where it does, and with them.
    pub bare: Vec<N>,
    pub cost: Vec<N>,
    /// Nodes by each of these costs.
    pub by_bare: Vec<usize>,
    pub by_cost: Vec<usize>,
    /// What is certain whatever this row does.
    pub floor: N,
}

impl<N: Number> Limits<N> {
    pub fn new(scaled: &Scaled<N>, span: &Span<N>) -> Self {
        let parts = parts(scaled, span);
        let near: Vec<Vec<usize>> = span.distance.iter().map(|row| ascending(row)).collect();
        let seen: Vec<Vec<N>> = parts
            .iter()
            .map(|part| {
                near.iter().zip(&span.distance).map(|(order, row)| cheapest(part, row, order, &scaled.whole)).collect()
            })
            .collect();
        let orders: Vec<Vec<usize>> = seen.iter().map(|row| ascending(row)).collect();
        let pair = |a: usize, b: usize| cheapest(&parts[a], &seen[b], &orders[b], &scaled.whole);
        let apart = (0..parts.len()).map(|a| (0..parts.len()).map(|b| pair(a, b)).collect()).collect();
        let rows = span.rows.len();
        let followers = |row: usize| if row < span.known_after() { rows..parts.len() } else { 0..0 };
        let open = (0..rows).map(|row| (row + 1..rows).chain(followers(row)).collect()).collect();
        let nearest = span.distance.iter().flatten().min().cloned().unwrap_or_else(N::zero);
        Limits { parts, open, seen, apart, nearest }
    }

    /// No placement on the span has resources less far apart.
    pub fn least_apart(&self) -> N {
        self.among(&(0..self.parts.len()).collect::<Vec<_>>())
    }

    fn among(&self, parts: &[usize]) -> N {
        let mut sum = N::zero();
        for (at, &a) in parts.iter().enumerate() {
            parts[at + 1..].iter().for_each(|&b| sum += &self.apart[a][b]);
        }
        sum
    }

    /// No placement has a row less spread than this.
    pub fn least_within(&self, row: usize) -> &N {
        &self.apart[row][row]
    }

    /// Limits for placing a row after those of the frame.
    pub fn level(&self, span: &Span<N>, row: usize, frame: &Frame<N>, whole: &N) -> Level<N> {
        let nodes = span.nodes.len();
        let own = &self.parts[row];
        let mut cap = frame.least.clone();
        let mut bare = frame.cost.clone();
        let mut cost = frame.cost.clone();
        let mut floor = frame.apart.clone() + self.among(&self.open[row]);
        let mut ceiling = whole.clone();
        let order = ascending(&frame.cost);
        for &part in &self.open[row] {
            let other = &self.parts[part];
            ceiling = ceiling.min(other.alignable(&frame.least, whole));
            floor += cheapest(other, &frame.cost, &order, whole);
            for node in 0..nodes {
                if other.high[node] < cap[node] {
                    cap[node] = other.high[node].clone();
                }
                cost[node] += &self.seen[part][node];
                if part < span.rows.len() {
                    bare[node] += &self.seen[part][node];
                }
            }
        }
        ceiling =
            self.open[row].iter().fold(ceiling, |ceiling, &part| ceiling.min(self.parts[part].of_few(&cap, whole)));
        ceiling = ceiling.min(own.alignable(&cap, whole)).min(own.of_few(&cap, whole));
        let mut cap_after = vec![N::zero(); nodes + 1];
        for node in (0..nodes).rev() {
            cap_after[node] = cap_after[node + 1].clone() + cap[node].clone().min(own.high[node].clone());
        }
        ceiling = ceiling.min(cap_after[0].clone());
        Level { cap, cap_after, ceiling, by_bare: ascending(&bare), by_cost: ascending(&cost), bare, cost, floor }
    }

    /// The least cost of a share of a row on nodes from `from` on.
    pub fn rest(&self, row: usize, from: usize, share: N, cost: &[N], order: &[usize]) -> N {
        let mut sum = N::zero();
        let mut left = share;
        for &node in order.iter().filter(|&&node| node >= from) {
            if left.is_zero() {
                break;
            }
            let part = left.clone().min(self.parts[row].high[node].clone());
            left -= &part;
            sum += part * &cost[node];
        }
        sum
    }
}

impl<N: Number> Part<N> {
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

fn parts<N: Number>(scaled: &Scaled<N>, span: &Span<N>) -> Vec<Part<N>> {
    let nodes = span.nodes.len();
    let rows = span.rows.iter().map(|row| Part {
        few: usize::try_from(row.units).ok().filter(|&units| units < nodes),
        low: row.low.iter().map(|&units| row.share(units)).collect(),
        high: row.high.iter().map(|&units| row.share(units)).collect(),
    });
    let followers = span.followers.iter().map(|follower| Part {
        few: None,
        low: needed(&follower.room, &scaled.whole),
        high: follower.room.clone(),
    });
    rows.chain(followers).collect()
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

/// The least cost of all of a part.
fn cheapest<N: Number>(part: &Part<N>, cost: &[N], order: &[usize], whole: &N) -> N {
    let mut sum = N::zero();
    let mut left = whole.clone();
    for &node in order {
        let here = left.clone().min(part.high[node].clone());
        left -= &here;
        sum += here * &cost[node];
        if left.is_zero() {
            break;
        }
    }
    sum
}

fn ascending<N: Number>(values: &[N]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].cmp(&values[b]));
    order
}
