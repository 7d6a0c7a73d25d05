//! Whether something half-made may still win.

use super::found::{Frame, Head, distance};
use super::limits::Level;
use super::scaled::Number;
use super::search::{Place, Search, Under};
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
        if !self.ties_lose || !best.from_cpus.is_zero() && !self.is_pair() {
            return true;
        }
        let mut within = frame.within.clone();
        if self.span.rows[row].counted {
            let share: Vec<N> = units.iter().map(|&units| self.span.rows[row].share(units)).collect();
            within += self.spread(&share, &share);
        }
        for row in (row + 1..self.span.rows.len()).filter(|&row| self.span.rows[row].counted) {
            // The numbers are exact here.
            within += N::fit(self.limits.least_within(row).unsigned_abs());
        }
        within < best.within
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
            sum += rest_a * rest_b * &N::fit(self.limits.nearest.unsigned_abs());
        }
        sum
    }
}
