//! Whether something half-made may still win.

use super::found::{Frame, Head, distance};
use super::limits::Level;
use super::scaled::Number;
use super::search::{Place, Search, Under};
use super::span::Row;
use std::cmp::{Ordering, Reverse};

impl<N: Number> Search<'_, N> {
    /// Compares the best that can come of it with the best so far.
    pub fn may_win(&self, place: &Place<N>, under: &mut Under<N>, units: &[u64]) -> bool {
        let so_far = self.best.as_ref().map_or(Ordering::Less, |best| self.aligned(place, &under.level, &best.head));
        if so_far == Ordering::Greater {
            return false;
        }
        let node = place.node - 1;
        self.budget.spend(under.trail.size() as u64);
        under.trail.place(node, units[node], self.limits.share(place.row, units[node]));
        // The last node takes what is left: that is one placement.
        so_far == Ordering::Less || place.node + 1 == self.span.nodes.len() || self.is_near(place, under, units)
    }

    /// The same, where as much can be aligned.
    fn is_near(&self, place: &Place<N>, under: &mut Under<N>, units: &[u64]) -> bool {
        let coarse = &self.limits.coarse;
        let apart = under.trail.least(place.node).cmp(&self.apart.saturating_add(coarse.slack));
        if apart != Ordering::Equal || !coarse.is_exact() {
            return apart != Ordering::Greater;
        }
        self.tie_may_win(place.row, under.frame, &units[..place.node])
    }

    /// The same, where resources are as far apart.
    pub fn tie_may_win(&self, row: usize, frame: &Frame<N>, units: &[u64]) -> bool {
        let Some(best) = self.best.as_ref().map(|best| &best.head) else { return true };
        // What comes between is not bounded.
        if !best.from_cpus.is_zero() && !self.is_pair() {
            return true;
        }
        let mut within = frame.within.clone();
        if self.span.rows[row].counted {
            within += self.spread(&self.span.rows[row], units);
        }
        for row in (row + 1..self.span.rows.len()).filter(|&row| self.span.rows[row].counted) {
            // The numbers are exact here.
            within += N::fit(self.limits.least_within(row).unsigned_abs());
        }
        match within.cmp(&best.within) {
            Ordering::Equal => !self.ties_lose,
            other => other == Ordering::Less,
        }
    }

    /// Compares what can be aligned at best.
    fn aligned(&self, place: &Place<N>, level: &Level<N>, best: &Head<N>) -> Ordering {
        let more = self.span.rows[place.row].share(place.rest).min(level.cap_after[place.node].clone());
        let aligned = Reverse((place.aligned.clone() + more).min(level.ceiling.clone()));
        aligned.cmp(&best.aligned).then(place.uneven.cmp(&best.uneven))
    }

    /// CPUs and one amount: the distance between them is that between all resources.
    fn is_pair(&self) -> bool {
        self.scaled.ranked.len() == 2
    }

    /// The least distance within a row of which the units on the first nodes are
    /// known. What has no room elsewhere is certain on the others; the rest is
    /// where it is nearest to what is certain.
    fn spread(&self, row: &Row<N>, units: &[u64]) -> N {
        let (known, nodes) = (units.len(), self.span.nodes.len());
        // Distances among all, from those that are left to all, and numbers that are moved about.
        self.charge(nodes * nodes + 2 * nodes * (nodes - known) + 8 * nodes);
        let mut rest = row.units - units.iter().sum::<u64>();
        let room: u128 = row.high[known..].iter().map(|&high| u128::from(high)).sum();
        let needed = |high: u64| u128::from(rest).saturating_sub(room - u128::from(high)) as u64;
        let limits = row.low[known..].iter().zip(&row.high[known..]);
        let least: Vec<u64> = limits.map(|(&low, &high)| needed(high).max(low)).collect();
        rest = rest.saturating_sub(least.iter().sum());
        let share: Vec<N> = units.iter().chain(&least).map(|&units| row.share(units)).collect();
        let mut sum = distance(&share, &share, &self.span.distance);
        if rest == 0 {
            return sum;
        }
        let seen = |node: usize| {
            let mut seen = N::zero();
            share.iter().zip(&self.span.distance[node]).for_each(|(share, d)| seen += share.clone() * d);
            seen
        };
        let mut near: Vec<(N, u64)> =
            (known..nodes).map(|node| (seen(node), row.high[node] - least[node - known])).collect();
        near.sort_unstable();
        let all = row.share(rest);
        sum += all.clone() * &all * &N::fit(self.limits.nearest.unsigned_abs());
        for (seen, room) in near {
            let here = rest.min(room);
            rest -= here;
            // There and back.
            sum += seen * &row.share(2 * here);
        }
        sum
    }
}
