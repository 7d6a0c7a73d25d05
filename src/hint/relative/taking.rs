//! Where what is not certain to be anywhere can be at best.

use super::certain::Certain;

/// Something that goes where it costs least.
#[derive(Default)]
pub(super) struct Taking {
    /// What it costs on each node, and room for it.
    cost: Vec<i64>,
    free: Vec<i64>,
    left: i64,
    sum: i64,
}

impl Taking {
    /// So much of it, at the difference of these costs, where this is more than that.
    pub fn begin<'a>(
        &mut self,
        cost: impl Iterator<Item = (&'a i64, &'a i64)>,
        free: impl Iterator<Item = (&'a i64, &'a i64)>,
        all: i64,
    ) {
        self.cost.clear();
        self.cost.extend(cost.map(|(all, own)| all - own));
        self.free.clear();
        self.free.extend(free.map(|(most, share)| most - share));
        (self.left, self.sum) = (all, 0);
    }

    /// Only these nodes, at so much more.
    pub fn only_from(&mut self, node: usize, more: &[i64]) {
        self.free[..node].fill(0);
        self.cost.iter_mut().zip(more).for_each(|(cost, more)| *cost += more);
    }

    /// Puts so much on these nodes, as far as there is room.
    pub fn take(&mut self, amount: i64, nodes: &[(i64, usize, i64)]) -> i64 {
        let before = self.left;
        let mut open = amount.min(self.left);
        while open > 0 {
            let some = nodes.iter().map(|place| place.1).filter(|&node| self.free[node] > 0);
            let Some(node) = some.min_by_key(|&node| self.cost[node]) else { break };
            open -= self.put(node, open);
        }
        before - self.left
    }

    /// Puts all that is left anywhere, and says what it costs.
    pub fn all(&mut self) -> i64 {
        while self.left > 0 {
            let some = (0..self.cost.len()).filter(|&node| self.free[node] > 0);
            let Some(node) = some.min_by_key(|&node| self.cost[node]) else { break };
            self.put(node, self.left);
        }
        self.sum
    }

    fn put(&mut self, node: usize, open: i64) -> i64 {
        let here = self.free[node].min(open);
        self.free[node] -= here;
        self.left -= here;
        self.sum += here * self.cost[node];
        here
    }
}

/// Nodes by their mean distance to what is followed, as far as that is certain.
#[derive(Default)]
pub(super) struct Nearest {
    /// The least distance, the node, the largest distance.
    pub order: Vec<(i64, usize, i64)>,
    /// Whether those after it are certain to be less near.
    pub last: Vec<bool>,
}

impl Nearest {
    /// What is not certain may be on any node from `from` on.
    pub fn order(&mut self, certain: &Certain, distance: &[Vec<i64>], from: usize, slack: i64) {
        let open = certain.unfollowed.max(0);
        let ends = |(at, seen): (usize, &i64)| {
            let row = distance[at][from..].iter();
            let (near, far) = row.fold((i64::MAX, 0), |(near, far), &d| (near.min(d), far.max(d)));
            let near = if from < distance.len() { near } else { 0 };
            (seen + open * near - slack, at, seen + open * far + slack)
        };
        self.order.clear();
        self.order.extend(certain.seen_of_base().iter().enumerate().map(ends));
        self.order.sort_unstable();
        self.last.clear();
        let mut farthest = (i64::MIN, 0);
        for at in 0..self.order.len() {
            farthest = farthest.max((self.order[at].2, self.order[at].1));
            let next = self.order.get(at + 1);
            self.last.push(next.is_none_or(|next| (next.0, next.1) > farthest));
        }
    }

    /// True when each node is certain to come before the next.
    pub fn is_certain(&self) -> bool {
        self.last.iter().all(|last| *last)
    }
}
