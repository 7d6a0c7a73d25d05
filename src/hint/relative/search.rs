//! The best placement on one span: rows are placed one after the other, node
//! by node, the most units on the lowest ids first, and what cannot come to
//! more than the best so far is left.

use super::cover::Budget;
use super::follow::follow;
use super::limits::{Level, Limits};
use super::order::{Tail, fraction};
use super::scaled::{Number, Scaled};
use super::span::{Base, Row, Span};
use std::cmp::{Ordering, Reverse};

/// The steps of the order that need no more than shares and distances.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head<N> {
    pub aligned: Reverse<N>,
    pub uneven: bool,
    pub apart: N,
    pub from_cpus: N,
    pub within: N,
}

/// A placement of everything.
#[derive(Clone, Debug)]
pub(super) struct Found<N> {
    pub head: Head<N>,
    pub nodes: Vec<usize>,
    /// Shares by rank and node of the span.
    pub shares: Vec<Vec<N>>,
    tail: Option<Tail>,
}

/// What is placed so far, and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct Frame<N> {
    /// Shares by rank; empty where not placed.
    pub shares: Vec<Vec<N>>,
    /// The least share on each node.
    pub least: Vec<N>,
    /// Mean distance of a node from everything placed.
    pub cost: Vec<N>,
    /// Distance between the resources placed.
    pub apart: N,
    /// Distance within the counted ones.
    pub within: N,
    /// Something is not on every node.
    pub uneven: bool,
}

/// A search on one span.
pub(super) struct Search<'a, N> {
    pub scaled: &'a Scaled<'a, N>,
    pub span: &'a Span<N>,
    pub limits: &'a Limits<N>,
    pub best: &'a mut Option<Found<N>>,
    pub budget: &'a Budget,
    /// What is as good as the best so far, up to the preference of devices, is
    /// worse than it in the end.
    pub ties_lose: bool,
    /// All placements here that are equally good so far stay so up to the lowest ids.
    pub indifferent: bool,
}

/// Where a row is being placed.
struct Place<N> {
    row: usize,
    node: usize,
    rest: u64,
    aligned: N,
    far: N,
    uneven: bool,
}

impl<N: Number> Frame<N> {
    pub fn empty(scaled: &Scaled<N>, span: &Span<N>) -> Self {
        let nodes = span.nodes.len();
        let mut frame = Frame {
            shares: vec![Vec::new(); scaled.ranked.len()],
            least: vec![scaled.whole.clone(); nodes],
            cost: vec![N::zero(); nodes],
            apart: N::zero(),
            within: N::zero(),
            uneven: !span.reach,
        };
        frame.add_followers(scaled, span, 0);
        frame
    }

    /// This and one more row, with what follows when it was the last to follow.
    pub fn with(&self, scaled: &Scaled<N>, span: &Span<N>, row: usize, units: &[u64]) -> Self {
        let mut frame = self.clone();
        let at = &span.rows[row];
        let share: Vec<N> = units.iter().map(|&units| at.share(units)).collect();
        if at.counted {
            frame.within += distance(&share, &share, &span.distance);
        }
        frame.add(at.rank, share, &span.distance);
        frame.add_followers(scaled, span, row + 1);
        frame
    }

    fn add(&mut self, rank: usize, share: Vec<N>, distances: &[Vec<N>]) {
        for (node, part) in share.iter().enumerate() {
            if part.is_zero() {
                self.uneven = true;
                self.least[node] = N::zero();
                continue;
            }
            self.apart += part.clone() * &self.cost[node];
            if *part < self.least[node] {
                self.least[node] = part.clone();
            }
        }
        for (node, part) in share.iter().enumerate().filter(|(_, part)| !part.is_zero()) {
            self.cost.iter_mut().zip(&distances[node]).for_each(|(cost, distance)| *cost += part.clone() * distance);
        }
        self.shares[rank] = share;
    }

    fn add_followers(&mut self, scaled: &Scaled<N>, span: &Span<N>, placed: usize) {
        if placed != span.known_after() || span.followers.is_empty() {
            return;
        }
        let base = match &span.base {
            Base::Cpus => self.shares[span.rows[0].rank].clone(),
            Base::Mean(rows) => self.mean(span, *rows),
            Base::Share(share) => share.clone(),
        };
        for follower in &span.followers {
            let share = follow(&base, &follower.room, &span.distance, &scaled.whole);
            self.add(follower.rank, share, &span.distance);
        }
    }

    /// `parts` made the whole a multiple of the number of classes.
    fn mean(&self, span: &Span<N>, rows: usize) -> Vec<N> {
        let count = N::fit(rows.max(1) as u64);
        let mut sum = vec![N::zero(); span.nodes.len()];
        for row in &span.rows[..rows] {
            sum.iter_mut().zip(&self.shares[row.rank]).for_each(|(sum, share)| *sum += share);
        }
        sum.into_iter().map(|sum| sum / &count).collect()
    }

    fn head(&self, scaled: &Scaled<N>, span: &Span<N>) -> Head<N> {
        let mut aligned = N::zero();
        self.least.iter().for_each(|least| aligned += least);
        Head {
            aligned: Reverse(aligned),
            uneven: self.uneven,
            apart: self.apart.clone(),
            from_cpus: self.from_cpus(scaled, span),
            within: self.within.clone(),
        }
    }

    fn from_cpus(&self, scaled: &Scaled<N>, span: &Span<N>) -> N {
        let mut sum = N::zero();
        let is_cpus = |rank: &usize| scaled.resource(*rank).kind == super::Kind::Cpus;
        let is_amount = |rank: &usize| scaled.resource(*rank).kind.is_amount();
        for cpus in (0..self.shares.len()).filter(is_cpus) {
            for amount in (0..self.shares.len()).filter(is_amount) {
                sum += distance(&self.shares[cpus], &self.shares[amount], &span.distance);
            }
        }
        sum
    }
}

/// Distance between the units of two shares.
fn distance<N: Number>(a: &[N], b: &[N], distances: &[Vec<N>]) -> N {
    let mut sum = N::zero();
    for (a, row) in a.iter().zip(distances).filter(|(a, _)| !a.is_zero()) {
        let mut seen = N::zero();
        b.iter().zip(row).for_each(|(b, distance)| seen += b.clone() * distance);
        sum += seen * a;
    }
    sum
}

impl<N: Number> Found<N> {
    /// The rest of the order, which few placements need.
    pub fn tail(&mut self, scaled: &Scaled<N>) -> &Tail {
        self.tail.get_or_insert_with(|| {
            let units = |resource: usize, node: usize| {
                let rank = scaled.ranked.iter().position(|&at| at == resource);
                let at = self.nodes.iter().position(|&other| other == node);
                match (rank, at) {
                    (Some(rank), Some(at)) => scaled.units(rank, &self.shares[rank][at]),
                    _ => num_traits::Zero::zero(),
                }
            };
            Tail::new(scaled.problem, &scaled.ranked, &self.nodes, units)
        })
    }

    /// Less when better.
    fn compare(&mut self, other: &mut Found<N>, scaled: &Scaled<N>) -> Ordering {
        let head = self.head.cmp(&other.head);
        head.then_with(|| self.tail(scaled).cmp(other.tail(scaled))).then_with(|| other.shares.cmp(&self.shares))
    }
}

impl<N: Number> Search<'_, N> {
    /// Looks at everything that may be better than the best so far.
    pub fn run(&mut self) {
        let frame = Frame::empty(self.scaled, self.span);
        self.row(0, &frame);
    }

    /// The same search, for somebody who gives it back.
    pub fn again(&mut self) -> Search<'_, N> {
        Search { best: &mut *self.best, ..*self }
    }

    /// True when nothing on the span can be better than the best so far.
    pub fn is_hopeless(&self) -> bool {
        let Some(best) = self.best.as_ref().map(|best| &best.head) else { return false };
        let empty = Frame::empty(self.scaled, self.span);
        let ceiling = match self.span.rows.is_empty() {
            true => self.scaled.whole.clone(),
            false => self.limits.level(self.span, 0, &empty, &self.scaled.whole).ceiling,
        };
        let aligned = Reverse(ceiling).cmp(&best.aligned);
        let even = aligned.then((!self.span.reach).cmp(&best.uneven));
        even.then_with(|| self.limits.least_apart().cmp(&best.apart)) == Ordering::Greater
    }

    /// Finds out whether placements here can differ in what comes after the
    /// distances, but for the lowest ids, and how they compare to the best so far.
    pub fn weigh_ties(&mut self) {
        let (scaled, nodes) = (self.scaled, &self.span.nodes);
        let same = |rank: usize| {
            let most = |node: &usize| scaled.resource(rank).most(*node);
            nodes.iter().all(|node| most(node) == most(&nodes[0]))
        };
        let known = matches!(self.span.base, Base::Share(_));
        self.indifferent = scaled.problem.preference.is_none() && !known && (0..scaled.ranked.len()).all(same);
        if let (true, Some(best)) = (self.indifferent, self.best.as_mut()) {
            // What is left in total does not depend on where units are taken.
            let units = |resource: usize, node: usize| match node == nodes[0] {
                true => fraction(scaled.problem.resources[resource].units, 1),
                false => num_traits::Zero::zero(),
            };
            let tail = Tail::new(scaled.problem, &scaled.ranked, nodes, units);
            self.ties_lose = *best.tail(scaled) < tail;
        }
    }

    /// The first placement there is, however good.
    pub fn offer_first(&mut self) {
        let first = |row: &Row<N>| {
            let mut rest = row.units;
            (0..row.low.len())
                .map(|node| {
                    let count = *row.range(node, rest).end();
                    rest -= count;
                    count
                })
                .collect()
        };
        let units: Vec<Vec<u64>> = self.span.rows.iter().map(first).collect();
        self.offer(&units);
    }

    /// A placement that was made some other way.
    pub fn offer(&mut self, units: &[Vec<u64>]) -> Head<N> {
        let mut frame = Frame::empty(self.scaled, self.span);
        for (row, units) in units.iter().enumerate() {
            frame = frame.with(self.scaled, self.span, row, units);
        }
        self.charge(self.span.rows.len() * self.span.nodes.len() / 8 + 1);
        self.take(&frame)
    }

    fn charge(&mut self, steps: usize) -> bool {
        let width = 1 + self.span.nodes.len() as u64 / 8;
        self.budget.spend(steps as u64 * width * N::COST)
    }

    fn row(&mut self, row: usize, frame: &Frame<N>) {
        if row == self.span.rows.len() {
            let head = self.take(frame);
            let ties = |best: &Found<N>| best.head == head && best.nodes == self.span.nodes;
            // What comes later and is as good has fewer units on lower ids.
            self.ties_lose = self.ties_lose || self.indifferent && self.best.as_ref().is_some_and(ties);
            return;
        }
        let rows = self.span.rows.len() + self.span.followers.len();
        if !self.charge(rows) {
            return;
        }
        let level = self.limits.level(self.span, row, frame, &self.scaled.whole);
        let mut units = vec![0; self.span.nodes.len()];
        let rest = self.span.rows[row].units;
        let start = Place { row, node: 0, rest, aligned: N::zero(), far: N::zero(), uneven: frame.uneven };
        self.node(&start, frame, &level, &mut units);
    }

    fn node(&mut self, place: &Place<N>, frame: &Frame<N>, level: &Level<N>, units: &mut Vec<u64>) {
        if place.node == self.span.nodes.len() {
            let next = frame.with(self.scaled, self.span, place.row, units);
            return self.row(place.row + 1, &next);
        }
        let row = &self.span.rows[place.row];
        for count in row.range(place.node, place.rest).rev() {
            if !self.charge(1) {
                return;
            }
            units[place.node] = count;
            let share = row.share(count);
            let next = Place {
                row: place.row,
                node: place.node + 1,
                rest: place.rest - count,
                aligned: level.cap[place.node].clone().min(share.clone()) + &place.aligned,
                far: share * &level.cost[place.node] + &place.far,
                uneven: place.uneven || count == 0,
            };
            if self.may_win(&next, frame, level, units) {
                self.node(&next, frame, level, units);
            }
        }
    }

    /// Compares the best that can come of it with the best so far.
    fn may_win(&self, place: &Place<N>, frame: &Frame<N>, level: &Level<N>, units: &[u64]) -> bool {
        let Some(best) = self.best.as_ref().map(|best| &best.head) else { return true };
        let rest = self.span.rows[place.row].share(place.rest);
        let more = rest.clone().min(level.cap_after[place.node].clone());
        let aligned = Reverse((place.aligned.clone() + more).min(level.ceiling.clone()));
        let so_far = aligned.cmp(&best.aligned).then(place.uneven.cmp(&best.uneven));
        if so_far != Ordering::Equal {
            return so_far == Ordering::Less;
        }
        let further = self.limits.rest(place.row, place.node, rest, &level.cost, &level.by_cost);
        let apart = level.floor.clone() + &place.far + further;
        if apart > best.apart {
            return false;
        }
        self.closely(place, frame, level, &units[..place.node], apart)
    }

    /// The same, with what lies beside itself and what follows it; slower.
    fn closely(&self, place: &Place<N>, frame: &Frame<N>, level: &Level<N>, units: &[u64], apart: N) -> bool {
        let Some(best) = self.best.as_ref().map(|best| &best.head) else { return true };
        let row = &self.span.rows[place.row];
        let share: Vec<N> = units.iter().map(|&units| row.share(units)).collect();
        let apart = apart.max(self.with_followers(place, level, &share));
        if apart != best.apart {
            return apart < best.apart;
        }
        if !self.ties_lose || !best.from_cpus.is_zero() && !self.is_pair() {
            return true;
        }
        let mut within = frame.within.clone();
        if row.counted {
            within += self.spread(&share, &share);
        }
        for row in (place.row + 1..self.span.rows.len()).filter(|&row| self.span.rows[row].counted) {
            within += self.limits.least_within(row);
        }
        within < best.within
    }

    /// CPUs and one amount: the distance between them is that between all resources.
    fn is_pair(&self) -> bool {
        self.scaled.ranked.len() == 2
    }

    /// The least distance between all resources when amounts follow this row.
    fn with_followers(&self, place: &Place<N>, level: &Level<N>, share: &[N]) -> N {
        let follows = matches!(self.span.base, Base::Cpus) && place.row == 0;
        if !follows || self.span.followers.is_empty() {
            return N::zero();
        }
        let rest = self.span.rows[0].share(place.rest);
        let mut sum = level.floor.clone() + self.limits.rest(0, place.node, rest, &level.bare, &level.by_bare);
        share.iter().zip(&level.bare).for_each(|(share, cost)| sum += share.clone() * cost);
        for follower in &self.span.followers {
            let beside: Vec<N> = share.iter().zip(&follower.room).map(|(a, b)| a.min(b).clone()).collect();
            sum += self.spread(share, &beside);
        }
        sum
    }

    /// The least distance between two shares of which the first nodes are known.
    fn spread(&self, a: &[N], b: &[N]) -> N {
        let known = a.len();
        let rest = |share: &[N]| {
            let mut rest = self.scaled.whole.clone();
            share.iter().for_each(|share| rest -= share);
            rest
        };
        let seen = |share: &[N], node: usize| {
            let mut sum = N::zero();
            share.iter().zip(&self.span.distance[node]).for_each(|(share, d)| sum += share.clone() * d);
            sum
        };
        let (rest_a, rest_b) = (rest(a), rest(b));
        let nodes = self.span.nodes.len();
        let mut sum = distance(a, b, &self.span.distance);
        if !rest_a.is_zero() {
            sum += (known..nodes).map(|node| seen(b, node)).min().unwrap_or_else(N::zero) * &rest_a;
        }
        if !rest_b.is_zero() {
            sum += (0..nodes).map(|node| seen(a, node)).min().unwrap_or_else(N::zero) * &rest_b;
            sum += rest_a * rest_b * &self.limits.nearest;
        }
        sum
    }

    /// Keeps it when it is better.
    fn take(&mut self, frame: &Frame<N>) -> Head<N> {
        let head = frame.head(self.scaled, self.span);
        let worse = self.best.as_ref().is_some_and(|best| head > best.head);
        if !worse {
            let (nodes, shares) = (self.span.nodes.clone(), frame.shares.clone());
            let mut found = Found { head: head.clone(), nodes, shares, tail: None };
            let better = |best: &mut Found<N>| found.compare(best, self.scaled) == Ordering::Less;
            if self.best.as_mut().is_none_or(better) {
                *self.best = Some(found);
            }
        }
        head
    }
}
