//! Whether something half-made may still win.

use super::found::{Frame, distance};
use super::limits::Level;
use super::scaled::Number;
use super::search::{Place, Search};
use super::span::Base;
use std::cmp::{Ordering, Reverse};

impl<N: Number> Search<'_, N> {
    /// Compares the best that can come of it with the best so far.
    pub fn may_win(&self, place: &Place<N>, frame: &Frame<N>, level: &Level<N>, units: &[u64]) -> bool {
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
        let follows = matches!(self.span.base, Base::Cpus(row) if row == place.row);
        if !follows || self.span.followers.is_empty() {
            return N::zero();
        }
        let rest = self.span.rows[place.row].share(place.rest);
        let mut sum = level.floor.clone() + self.limits.rest(place.row, place.node, rest, &level.bare, &level.by_bare);
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
}
