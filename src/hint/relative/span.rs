//! One set of nodes that holds everything, prepared for the search: what is
//! placed unit by unit, what follows, and within which limits.

use super::Kind;
use super::follow::{common_share, lowest_first, nearest_next};
use super::scaled::{Number, Scaled};

/// What is placed unit by unit: counted resources, and amounts that come from
/// one node, as a single unit.
#[derive(Clone, Debug)]
pub(super) struct Row<N> {
    pub rank: usize,
    pub counted: bool,
    pub units: u64,
    /// The share of one unit.
    pub unit: N,
    /// The fewest and the most units on each node.
    pub low: Vec<u64>,
    pub high: Vec<u64>,
}

/// An amount that follows what is counted.
#[derive(Clone, Debug)]
pub(super) struct Follower<N> {
    pub rank: usize,
    pub room: Vec<N>,
}

/// What amounts follow.
#[derive(Clone, Debug)]
pub(super) enum Base<N> {
    /// The row of the CPUs.
    Cpus(usize),
    /// The mean of these rows, which are devices.
    Mean(Vec<usize>),
    /// A share that is known from the start.
    Share(Vec<N>),
}

/// A set of nodes and everything that has to go there.
#[derive(Clone, Debug)]
pub(super) struct Span<N> {
    pub nodes: Vec<usize>,
    pub distance: Vec<Vec<N>>,
    pub rows: Vec<Row<N>>,
    pub followers: Vec<Follower<N>>,
    pub base: Base<N>,
    /// Equal masks are in reach here.
    pub reach: bool,
}

/// Whether only equal masks will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Masks {
    Any,
    Equal,
}

impl<N: Number> Span<N> {
    /// The set, once; or, with nothing counted, once for each share that amounts may have in common.
    pub fn all(scaled: &Scaled<N>, nodes: &[usize], masks: Masks) -> Vec<Span<N>> {
        let span = Span::new(scaled, nodes, masks);
        if span.rows.iter().any(|row| row.counted) || span.followers.is_empty() {
            return vec![span];
        }
        let rooms: Vec<&[N]> = span.followers.iter().map(|follower| &follower.room[..]).collect();
        let orders = nearest_next(&span.distance).chain(lowest_first(nodes.len()));
        let mut shares: Vec<Vec<N>> = orders.map(|order| common_share(&order, &rooms, &scaled.whole)).collect();
        shares.sort();
        shares.dedup();
        shares.into_iter().map(|share| Span { base: Base::Share(share), ..span.clone() }).collect()
    }

    fn new(scaled: &Scaled<N>, nodes: &[usize], masks: Masks) -> Span<N> {
        let reach = in_reach(scaled, nodes);
        let mut rows = Vec::new();
        let mut followers = Vec::new();
        for rank in 0..scaled.ranked.len() {
            let resource = scaled.resource(rank);
            let free = || nodes.iter().map(|&node| resource.free[node]);
            if !resource.kind.is_amount() {
                rows.push(Row::counted(rank, resource.units, free().collect(), scaled.unit(rank), masks));
            } else if !reach && free().any(|free| free >= resource.units) {
                let holders = free().map(|free| u64::from(free >= resource.units)).collect();
                rows.push(Row { counted: false, ..Row::counted(rank, 1, holders, scaled.whole.clone(), Masks::Any) });
            } else {
                let room = nodes.iter().map(|&node| scaled.room[rank][node].clone()).collect();
                followers.push(Follower { rank, room });
            }
        }
        // What can be placed in few ways bounds what can be placed in many.
        rows.sort_by_key(Row::splits);
        let cpus = rows.iter().position(|row| scaled.resource(row.rank).kind == Kind::Cpus);
        let counted = || (0..rows.len()).filter(|&row| rows[row].counted).collect();
        let base = cpus.map_or_else(|| Base::Mean(counted()), Base::Cpus);
        let row = |&from: &usize| nodes.iter().map(|&to| scaled.distance[from][to].clone()).collect();
        Span { nodes: nodes.to_vec(), distance: nodes.iter().map(row).collect(), rows, followers, base, reach }
    }

    /// Followers are known when so many rows are placed.
    pub fn known_after(&self) -> usize {
        match &self.base {
            Base::Cpus(row) => row + 1,
            Base::Mean(rows) => rows.last().map_or(0, |row| row + 1),
            Base::Share(_) => 0,
        }
    }

    /// True when rows are placed in the order in which the lowest ids are given out.
    pub fn in_order(&self) -> bool {
        self.rows.is_sorted_by_key(|row| row.rank)
    }

    /// About how many operations it takes to place everything once.
    pub fn size(&self) -> usize {
        let nodes = self.nodes.len();
        (self.rows.len() + 2 * self.followers.len()) * nodes * (nodes + 8)
    }

    /// No more ways than that to place the rows.
    pub fn splits(&self) -> u64 {
        self.rows.iter().map(Row::splits).fold(1, u64::saturating_mul)
    }
}

/// True when every resource can have a unit on each of the nodes.
pub(super) fn in_reach<N: Number>(scaled: &Scaled<N>, nodes: &[usize]) -> bool {
    (0..scaled.ranked.len())
        .map(|rank| scaled.resource(rank))
        .all(|resource| resource.units >= nodes.len() as u64 && nodes.iter().all(|&node| resource.free[node] > 0))
}

impl<N: Number> Row<N> {
    fn counted(rank: usize, units: u64, free: Vec<u64>, unit: N, masks: Masks) -> Row<N> {
        let nodes = free.len() as u64;
        let (least, most) = match masks {
            Masks::Any => (0, units),
            Masks::Equal => (1, units + 1 - nodes),
        };
        let high: Vec<u64> = free.iter().map(|free| *free.min(&most)).collect();
        let all: u128 = high.iter().map(|&high| u128::from(high)).sum();
        let needed = |&high: &u64| u128::from(units).saturating_sub(all - u128::from(high)) as u64;
        let low = high.iter().map(|high| needed(high).max(least)).collect();
        Row { rank, counted: true, units, unit, low, high }
    }

    /// The share of so many units.
    pub fn share(&self, units: u64) -> N {
        N::fit(units) * &self.unit
    }

    /// The least and the most units on a node when `rest` are left for it and those after it.
    pub fn range(&self, node: usize, rest: u64) -> std::ops::RangeInclusive<u64> {
        let after = |row: &[u64]| row[node + 1..].iter().fold(0, |sum: u64, units| sum.saturating_add(*units));
        let low = self.low[node].max(rest.saturating_sub(after(&self.high)));
        let high = self.high[node].min(rest.saturating_sub(after(&self.low)));
        low..=high
    }

    /// No more ways than that to place it.
    pub fn splits(&self) -> u64 {
        let slack = self.units.saturating_sub(self.low.iter().fold(0, |sum: u64, low| sum.saturating_add(*low)));
        let ways = |(low, high): (&u64, &u64)| (high - low).min(slack).saturating_add(1);
        let mut ways: Vec<u64> = self.low.iter().zip(&self.high).map(ways).collect();
        ways.sort_unstable();
        // The node with the most gets what is left.
        ways.pop();
        ways.into_iter().fold(1, u64::saturating_mul)
    }

    /// How many ways there are to place it; more are not counted than `most`.
    pub fn ways(&self, most: u64) -> u64 {
        let slack = self.units.saturating_sub(self.low.iter().fold(0, |sum: u64, low| sum.saturating_add(*low)));
        if slack > most {
            return most + 1;
        }
        // By units placed beyond the fewest, node after node.
        let mut ways = vec![0_u64; slack as usize + 1];
        ways[0] = 1;
        for (low, high) in self.low.iter().zip(&self.high) {
            let range = usize::try_from(high - low).unwrap_or(usize::MAX).min(slack as usize);
            let mut sum = 0_u64;
            let before = std::mem::replace(&mut ways, vec![0; slack as usize + 1]);
            for (units, count) in ways.iter_mut().enumerate() {
                sum += before[units];
                sum -= if units > range { before[units - range - 1] } else { 0 };
                *count = sum.min(most + 1);
            }
        }
        ways[slack as usize]
    }
}
