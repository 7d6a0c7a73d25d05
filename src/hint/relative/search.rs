//! The best placement on one span: rows are placed one after the other, node
//! by node, the most units on the lowest ids first, and what cannot come to
//! more than the best so far is left.

use super::cover::Budget;
use super::follow::follow;
use super::found::{Found, Frame, Head, distance};
use super::limits::{Level, Limits};
use super::scaled::{Number, Scaled};
use super::span::{Base, Row, Span};
use super::table::Written;
use super::tail::is_common;
use super::trail::Trail;
use std::cmp::{Ordering, Reverse};

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
    /// Shares by rank of what is placed.
    pub shares: Vec<Vec<N>>,
    /// How far apart the best so far is, coarse.
    pub apart: i64,
    /// All placements of the last row.
    pub written: Written,
}

/// What is placed before a row, and what can come of it.
pub(super) struct Under<'a, N> {
    pub frame: &'a Frame<N>,
    pub level: Level<N>,
    pub trail: Trail<'a>,
}

/// Where a row is being placed: the nodes before `node` have theirs.
pub(super) struct Place<N> {
    pub row: usize,
    pub node: usize,
    /// Units for this node and those after it.
    pub rest: u64,
    /// What is aligned on the nodes before.
    pub aligned: N,
    pub uneven: bool,
}

impl<N: Number> Search<'_, N> {
    /// Looks at everything that may be better than the best so far.
    pub fn run(&mut self) {
        self.apart = self.best.as_ref().map_or(0, |best| self.limits.coarse.apart(&best.head.apart));
        let frame = self.empty();
        self.row(0, &frame);
    }

    fn empty(&mut self) -> Frame<N> {
        let nodes = self.span.nodes.len();
        let mut frame = Frame {
            least: vec![self.scaled.whole.clone(); nodes],
            cost: vec![N::zero(); nodes],
            apart: N::zero(),
            within: N::zero(),
            uneven: !self.span.reach,
        };
        self.add_followers(&mut frame, 0);
        frame
    }

    /// The frame and one more row, with what follows when it was the last to follow.
    pub fn with(&mut self, frame: &Frame<N>, row: usize, units: &[u64]) -> Frame<N> {
        let mut frame = frame.clone();
        let at = &self.span.rows[row];
        let share = &mut self.shares[at.rank];
        share.clear();
        share.extend(units.iter().map(|&units| at.share(units)));
        if at.counted {
            frame.within += distance(share, share, &self.span.distance);
        }
        frame.add(share, &self.span.distance);
        self.add_followers(&mut frame, row + 1);
        frame
    }

    fn add_followers(&mut self, frame: &mut Frame<N>, placed: usize) {
        let span = self.span;
        if placed != span.known_after() || span.followers.is_empty() {
            return;
        }
        let base = match &span.base {
            Base::Cpus(row) => self.shares[span.rows[*row].rank].clone(),
            Base::Mean(rows) => self.mean(rows),
            Base::Share(share) => share.clone(),
        };
        for follower in &span.followers {
            let share = follow(&base, &follower.room, &span.distance, &self.scaled.whole);
            frame.add(&share, &span.distance);
            self.shares[follower.rank] = share;
        }
    }

    /// `parts` made the whole a multiple of the number of classes.
    fn mean(&self, rows: &[usize]) -> Vec<N> {
        let count = N::fit(rows.len().max(1) as u64);
        let mut sum = vec![N::zero(); self.span.nodes.len()];
        for &row in rows {
            let share = &self.shares[self.span.rows[row].rank];
            sum.iter_mut().zip(share).for_each(|(sum, share)| *sum += share);
        }
        sum.into_iter().map(|sum| sum / &count).collect()
    }

    /// What the order compares first. The distance to the amounts is looked at
    /// only where the steps before it do not decide.
    fn head(&self, frame: &Frame<N>) -> Head<N> {
        let mut aligned = N::zero();
        frame.least.iter().for_each(|least| aligned += least);
        let mut head = Head {
            aligned: Reverse(aligned),
            uneven: frame.uneven,
            apart: frame.apart.clone(),
            from_cpus: N::zero(),
            within: frame.within.clone(),
        };
        let first = |head: &Head<N>| (head.aligned.clone(), head.uneven, head.apart.clone());
        if self.best.as_ref().is_none_or(|best| first(&head) <= first(&best.head)) {
            head.from_cpus = self.amounts_from_cpus();
        }
        head
    }

    fn amounts_from_cpus(&self) -> N {
        let mut sum = N::zero();
        let kind = |rank: usize| self.scaled.resource(rank).kind;
        for cpus in (0..self.shares.len()).filter(|&rank| kind(rank) == super::Kind::Cpus) {
            for amount in (0..self.shares.len()).filter(|&rank| kind(rank).is_amount()) {
                sum += distance(&self.shares[cpus], &self.shares[amount], &self.span.distance);
            }
        }
        sum
    }

    /// The same search, for somebody who gives it back.
    pub fn again(&mut self) -> Search<'_, N> {
        Search { best: &mut *self.best, shares: self.shares.clone(), written: Written::Never, ..*self }
    }

    /// True when nothing on the span can be better than the best so far.
    pub fn is_hopeless(&mut self) -> bool {
        let empty = self.empty();
        let Some(best) = self.best.as_ref().map(|best| &best.head) else { return false };
        let ceiling = match self.span.rows.is_empty() {
            true => self.scaled.whole.clone(),
            false => self.limits.level(0, 1..self.limits.parts.len(), &empty, &self.scaled.whole).ceiling,
        };
        let aligned = Reverse(ceiling).cmp(&best.aligned);
        let even = aligned.then((!self.span.reach).cmp(&best.uneven));
        let most = self.apart.saturating_add(self.limits.coarse.slack);
        even.then_with(|| self.limits.least_apart().cmp(&most)) == Ordering::Greater
    }

    /// Finds out whether placements here can differ in what comes after the
    /// distances, but for the lowest ids, and how they compare to the best so far.
    pub fn weigh_ties(&mut self) {
        let scaled = self.scaled;
        let known = matches!(self.span.base, Base::Share(_));
        self.indifferent = scaled.problem.preference.is_none()
            && !known
            && self.span.in_order()
            && is_common(scaled, &self.span.nodes);
        if let (true, Some(best)) = (self.indifferent, self.best.as_mut()) {
            let common = self.limits.common(scaled, self.span);
            self.ties_lose = *best.tail(scaled, common) < common.any();
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
        let mut frame = self.empty();
        for (row, units) in units.iter().enumerate() {
            frame = self.with(&frame, row, units);
        }
        self.charge(self.span.size() / 4);
        self.take(&frame)
    }

    /// Spends about so many operations on numbers of its type.
    pub fn charge(&self, operations: usize) -> bool {
        self.budget.spend(operations as u64 * N::COST)
    }

    pub fn row(&mut self, row: usize, frame: &Frame<N>) {
        if row == self.span.rows.len() {
            let head = self.take(frame);
            let ties = |best: &Found<N>| best.head == head && best.nodes == self.span.nodes;
            // What comes later and is as good has fewer units on lower ids.
            self.ties_lose = self.ties_lose || self.indifferent && self.best.as_ref().is_some_and(ties);
            return;
        }
        let parts = self.span.rows.len() + self.span.followers.len();
        if !self.charge((parts + 4) * self.span.nodes.len()) {
            return;
        }
        if self.by_table(row, frame) {
            return;
        }
        let (span, limits) = (self.span, self.limits);
        let open =
            (row + 1..span.rows.len()).chain(if row < span.known_after() { span.rows.len()..parts } else { 0..0 });
        let level = limits.level(row, open, frame, &self.scaled.whole);
        let beside =
            (limits.coarse.apart(&frame.apart), frame.cost.iter().map(|cost| limits.coarse.share(cost)).collect());
        let placed = |row: usize, node: usize, whole: i64| {
            limits.coarse.share_of(&self.shares[span.rows[row].rank][node], whole)
        };
        let mut under = Under { frame, level, trail: Trail::new(span, limits, row, beside, placed) };
        let mut units = vec![0; span.nodes.len()];
        let rest = span.rows[row].units;
        let start = Place { row, node: 0, rest, aligned: N::zero(), uneven: frame.uneven };
        self.node(&start, &mut under, &mut units);
    }

    fn node(&mut self, place: &Place<N>, under: &mut Under<N>, units: &mut Vec<u64>) {
        let nodes = self.span.nodes.len();
        if place.node == nodes {
            let next = self.with(under.frame, place.row, units);
            self.charge(self.span.size() / self.span.rows.len() / 2);
            return self.row(place.row + 1, &next);
        }
        let row = &self.span.rows[place.row];
        for count in row.range(place.node, place.rest).rev() {
            if !self.charge(4) {
                return;
            }
            units[place.node] = count;
            let next = Place {
                row: place.row,
                node: place.node + 1,
                rest: place.rest - count,
                aligned: under.level.cap[place.node].clone().min(row.share(count)) + &place.aligned,
                uneven: place.uneven || count == 0,
            };
            if self.may_win(&next, under, units) {
                self.node(&next, under, units);
            }
        }
    }

    /// Keeps it when it is better.
    fn take(&mut self, frame: &Frame<N>) -> Head<N> {
        let head = self.head(frame);
        let worse = self.best.as_ref().is_some_and(|best| head > best.head);
        if !worse {
            let (nodes, shares) = (self.span.nodes.clone(), self.shares.clone());
            let mut found = Found { head: head.clone(), nodes, shares, tail: None };
            let common = || self.limits.common(self.scaled, self.span);
            let better = |best: &mut Found<N>| found.compare(best, self.scaled, common) == Ordering::Less;
            let better = self.best.as_mut().is_none_or(better);
            if found.is_unrated(self.scaled) {
                self.budget.doubt();
            }
            if better {
                self.apart = self.limits.coarse.apart(&head.apart);
                *self.best = Some(found);
            }
        }
        head
    }
}
