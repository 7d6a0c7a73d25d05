//! How far apart resources are at least while a row is being placed. A share
//! that is certain to be on a node, because there is no room elsewhere or
//! because what it follows is there, is counted where it is; only the rest may
//! be where that costs least.

use super::certain::Certain;
use super::followed::Followed;
use super::limits::Limits;
use super::scaled::Number;
use super::span::Span;
use super::taking::{Nearest, Taking};

/// The row and what is not placed yet: first the row and the amounts that
/// change with it, then the rest.
pub(super) struct Trail<'a> {
    nodes: usize,
    distance: &'a [Vec<i64>],
    nearest: i64,
    /// How far apart the rows before it are.
    apart: i64,
    /// What a rest costs on each node beside what is not certain of parts that do not change.
    beside_rests: Vec<i64>,
    /// The fewest and the most units of the row, and their shares.
    low: &'a [u64],
    least: Vec<&'a [i64]>,
    most: Vec<Vec<i64>>,
    room: Vec<&'a [i64]>,
    base: Option<Followed>,
    still: Vec<Still>,
    /// By number of nodes placed.
    steps: Vec<Certain>,
    nearness: Nearest,
    complete: Certain,
    taking: Taking,
}

/// A part that does not change now.
struct Still {
    /// The mean distance of each node from what is certain of it.
    seen: Vec<i64>,
    /// What is not certain to be anywhere, and where it has room.
    rest: i64,
    free: Vec<i64>,
    /// What it costs on each node beside the rests of parts after it.
    beside_rests: Vec<i64>,
}

impl<'a> Trail<'a> {
    /// For a row after others that cost so much on each node and are so far
    /// apart; `placed` is what they have on each node, of such a whole.
    pub fn new<N: Number>(
        span: &'a Span<N>,
        limits: &'a Limits<N>,
        row: usize,
        (apart, cost): (i64, Vec<i64>),
        placed: impl Fn(usize, usize, i64) -> i64,
    ) -> Trail<'a> {
        let (nodes, rows) = (span.nodes.len(), span.rows.len());
        let base = Followed::new(span, limits, row, placed);
        let moving = if base.as_ref().is_some_and(|base| base.moves) { rows..limits.parts.len() } else { 0..0 };
        let still = if base.as_ref().is_some_and(|base| !base.moves) { rows..limits.parts.len() } else { 0..0 };
        let parts = || std::iter::once(row).chain(moving.clone());
        let room: Vec<&[i64]> = parts().map(|part| &limits.parts[part].most[..]).collect();
        let mut trail = Trail {
            nodes,
            distance: &limits.distance,
            nearest: limits.nearest,
            apart,
            beside_rests: vec![0; nodes],
            low: &span.rows[row].low,
            least: parts().map(|part| &limits.parts[part].least[..]).collect(),
            most: most(&room, base.as_ref().map(|base| &base.highest[..])),
            room,
            still: Vec::new(),
            steps: Vec::with_capacity(nodes + 1),
            nearness: Nearest::default(),
            complete: Certain::default(),
            taking: Taking::default(),
            base,
        };
        let mut start = Certain::nothing(nodes, trail.room.len(), limits.coarse.whole);
        start.seen_of_all().copy_from_slice(&cost);
        for part in (row + 1..rows).chain(still).rev() {
            let still = trail.still(&mut start, limits, part);
            trail.still.push(still);
            trail.beside_rests.iter_mut().zip(&limits.rest_seen[part]).for_each(|(own, seen)| *own += seen);
        }
        trail.start(&mut start);
        trail.steps.push(start);
        trail
    }

    fn still<N: Number>(&self, start: &mut Certain, limits: &Limits<N>, part: usize) -> Still {
        let (part, beside_rests) = (&limits.parts[part], self.beside_rests.clone());
        let mut seen = vec![0; self.nodes];
        for (node, share) in part.least.iter().enumerate().filter(|(_, share)| **share > 0) {
            seen.iter_mut().zip(&self.distance[node]).for_each(|(seen, distance)| *seen += share * distance);
        }
        start.cost += part.least.iter().zip(start.seen_of_all().iter()).map(|(share, cost)| share * cost).sum::<i64>();
        start.seen_of_all().iter_mut().zip(&seen).for_each(|(all, seen)| *all += seen);
        Still { seen, rest: part.rest(limits.coarse.whole), free: part.free(), beside_rests }
    }

    /// Before any node is placed.
    fn start(&self, start: &mut Certain) {
        if let Some(base) = self.base.as_ref().filter(|base| base.moves) {
            start.unfollowed = base.weights.all;
            for (node, &known) in base.weights.known.iter().enumerate() {
                start.follow(known, &self.distance[node]);
            }
            for (part, node) in (1..self.room.len()).flat_map(|part| (0..self.nodes).map(move |node| (part, node))) {
                start.overflow(part, (base.share(node, 0) - self.room[part][node]).max(0));
            }
        }
        (0..self.nodes).for_each(|node| self.raise(start, node, (0, self.low[node]), self.least[0][node]));
    }

    /// About how many operations a step takes.
    pub fn size(&self) -> usize {
        5 * self.nodes * (self.room.len() + self.still.len())
    }

    /// The row's units on the next node, and their share.
    pub fn place(&mut self, node: usize, units: u64, share: i64) {
        if self.steps.len() == node + 1 {
            self.steps.push(Certain::default());
        }
        let mut next = std::mem::take(&mut self.steps[node + 1]);
        next.copy(&self.steps[node]);
        self.raise(&mut next, node, (self.low[node], units), share);
        self.steps[node + 1] = next;
    }

    /// No less of the row than that is on a node, where it had some units.
    fn raise(&self, certain: &mut Certain, node: usize, units: (u64, u64), share: i64) {
        let distances = &self.distance[node];
        let before = certain.share(0)[node];
        certain.add(0, node, share, distances);
        let Some(base) = self.base.as_ref().filter(|base| base.moves && share > before) else { return };
        certain.follow(base.weights.of(units.1) - base.weights.of(units.0), distances);
        let (before, followed) = (base.share(node, before), base.share(node, share));
        for part in 1..self.room.len() {
            let room = self.room[part][node];
            certain.overflow(part, (followed - room).max(0) - (before - room).max(0));
            certain.add(part, node, followed.min(room).max(self.least[part][node]), distances);
        }
    }

    /// What a part has on a node because what it follows is there.
    fn beside(&self, certain: &Certain, part: usize, node: usize) -> i64 {
        let followed = self.base.as_ref().map_or(0, |base| base.share(node, certain.share(0)[node]));
        followed.min(self.room[part][node])
    }

    /// No placement of the nodes from `node` on has resources less far apart.
    pub fn least(&mut self, node: usize) -> i64 {
        let certain = &self.steps[node];
        let overflows = (1..self.room.len()).any(|part| certain.over(part) > 0);
        if let Some(base) = self.base.as_ref().filter(|_| overflows) {
            let from = if base.weights.open { 0 } else { node };
            self.nearness.order(certain, self.distance, from, base.weights.slack);
        }
        if node == self.nodes && self.still.is_empty() && (!overflows || self.nearness.is_certain()) {
            return self.apart + self.complete(node, overflows);
        }
        let mut taking = std::mem::take(&mut self.taking);
        let cost = self.bound(node, &mut taking);
        self.taking = taking;
        self.apart + cost
    }

    fn bound(&self, node: usize, taking: &mut Taking) -> i64 {
        let certain = &self.steps[node];
        let (mut sum, mut rests) = (certain.cost, 0);
        for part in 0..self.room.len() {
            let rest = certain.rest(part);
            if rest > 0 {
                sum += self.rest(part, node, rest, taking) + rest * rests * self.nearest;
                rests += rest;
            }
        }
        let (all, _) = certain.seen_of_all_and(0);
        for still in self.still.iter().filter(|still| still.rest > 0) {
            taking.begin(all.iter().zip(&still.seen), still.free.iter().zip(std::iter::repeat(&0)), still.rest);
            taking.only_from(0, &still.beside_rests);
            sum += taking.all();
        }
        sum
    }

    /// The least cost of what is not certain to be anywhere of a part.
    fn rest(&self, part: usize, node: usize, rest: i64, taking: &mut Taking) -> i64 {
        let certain = &self.steps[node];
        let (all, own) = certain.seen_of_all_and(part);
        taking.begin(all.iter().zip(own), self.most[part].iter().zip(certain.share(part)), rest);
        taking.only_from(if part == 0 { node } else { 0 }, &self.beside_rests);
        if part > 0 && certain.over(part) > 0 {
            self.overflow(certain, part, taking);
        }
        taking.all()
    }

    /// What has no room where what it follows is comes to the nearest nodes.
    fn overflow(&self, certain: &Certain, part: usize, taking: &mut Taking) {
        let (mut room, mut taken) = (0, 0);
        let share = certain.share(part);
        for (at, &(_, node, _)) in self.nearness.order.iter().enumerate() {
            let beside = self.beside(certain, part, node);
            room += self.room[part][node] - beside;
            taken += share[node] - beside;
            if self.nearness.last[at] {
                let need = room.min(certain.over(part)) - taken;
                taken += taking.take(need, &self.nearness.order[..=at]);
            }
        }
    }

    /// True when what is complete is known as exactly as shares are.
    pub fn is_exact(&self) -> bool {
        self.still.is_empty() && self.base.as_ref().is_none_or(|base| base.weights.slack == 0)
    }

    /// Once the row is placed: how far apart it and what follows it are; what
    /// is on each node is added to `shares`.
    pub fn whole(&mut self, shares: &mut Vec<i64>) -> i64 {
        let certain = &self.steps[self.nodes];
        let overflows = (1..self.room.len()).any(|part| certain.over(part) > 0);
        if overflows {
            self.nearness.order(certain, self.distance, self.nodes, 0);
        }
        let apart = self.apart + self.complete(self.nodes, overflows);
        let all = if overflows { &self.complete } else { &self.steps[self.nodes] };
        shares.extend((0..self.nodes).map(|node| (0..self.room.len()).map(|part| all.share(part)[node]).sum::<i64>()));
        apart
    }

    /// What all of it costs, once the row is placed.
    fn complete(&mut self, node: usize, overflows: bool) -> i64 {
        let certain = &self.steps[node];
        if !overflows {
            return certain.cost;
        }
        let mut complete = std::mem::take(&mut self.complete);
        complete.copy(certain);
        for part in (1..self.room.len()).filter(|&part| certain.over(part) > 0) {
            let mut left = certain.over(part);
            for &(_, node, _) in &self.nearness.order {
                let beside = self.beside(certain, part, node);
                let here = left.min(self.room[part][node] - beside);
                left -= here;
                complete.add(part, node, beside + here, &self.distance[node]);
            }
        }
        let cost = complete.cost;
        self.complete = complete;
        cost
    }
}

/// The most of each part on each node: amounts come only where what they
/// follow can be, but for what has no room there.
fn most(room: &[&[i64]], highest: Option<&[i64]>) -> Vec<Vec<i64>> {
    let follower = |room: &&[i64]| -> Vec<i64> {
        let Some(highest) = highest else { return room.to_vec() };
        let over: i64 = highest.iter().zip(*room).map(|(high, room)| (high - room).max(0)).sum();
        room.iter().zip(highest).map(|(room, high)| *room.min(&(high + over))).collect()
    };
    let row = room.iter().take(1).map(|room| room.to_vec());
    row.chain(room.iter().skip(1).map(follower)).collect()
}
