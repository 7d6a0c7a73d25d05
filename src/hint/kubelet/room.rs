//! What one resource can spare: the nodes that it may leave out of its mask.

use super::columns::Columns;
use crate::hint::{Amount, Capacity};
use crate::topology::NodeMask;

/// One resource, while nodes are being left out of its mask. Nodes are
/// positions among the candidates.
#[derive(Clone)]
pub(super) struct Room {
    stores: Vec<Store>,
    keeps: Vec<bool>,
}

/// One amount of it.
#[derive(Clone)]
struct Store {
    /// Free units beyond those wanted, at first and now.
    spare: u64,
    left: u64,
    /// Units that go with each node.
    cost: Vec<u64>,
    /// Units that go with the last of several nodes.
    shared: Vec<Shared>,
}

#[derive(Clone)]
struct Shared {
    units: u64,
    of: Vec<bool>,
    held: usize,
}

/// A node's part of what can be spared, in 2^-64.
pub(super) type Weight = u128;
/// All that can be spared.
const WHOLE: Weight = 1 << 64;

impl Room {
    /// The room of a capacity whose whole domain serves the request. Its nodes
    /// beyond the candidates stay in its mask at no cost: another resource
    /// lacks them in its domain.
    pub(super) fn new(capacity: &Capacity, candidates: &[usize], columns: &Columns) -> Room {
        let domain = capacity.domain.and(columns.all());
        let ids: Vec<u32> = candidates.iter().map(|&column| columns.id(column)).collect();
        Room {
            stores: capacity.amounts.iter().map(|amount| Store::new(amount, &domain, &ids)).collect(),
            keeps: ids.iter().map(|&id| capacity.must_hold.contains(id)).collect(),
        }
    }

    /// True when this node can be left out as well.
    pub(super) fn fits(&self, node: usize) -> bool {
        !self.keeps[node] && self.stores.iter().all(|store| store.cost_now(node) <= store.left)
    }

    /// Leaves a node out that fits.
    pub(super) fn put(&mut self, node: usize) {
        self.stores.iter_mut().for_each(|store| store.put(node));
    }

    /// Takes a node in again that was left out.
    pub(super) fn take(&mut self, node: usize) {
        self.stores.iter_mut().for_each(|store| store.take(node));
    }

    /// True when leaving the node out never costs anything.
    pub(super) fn is_free(&self, node: usize) -> bool {
        let free = |store: &Store| store.cost[node] == 0 && store.shared.iter().all(|shared| !shared.of[node]);
        !self.keeps[node] && self.stores.iter().all(free)
    }

    /// The least part of the room that the node takes, over all amounts; none
    /// when it never fits.
    pub(super) fn weight(&self, node: usize) -> Option<Weight> {
        let fits = !self.keeps[node] && self.stores.iter().all(|store| store.cost[node] <= store.spare);
        let parts = || self.stores.iter().map(|store| store.part(store.cost[node]));
        fits.then(|| parts().sum::<Weight>() / self.stores.len().max(1) as Weight)
    }

    /// The part of the room that is left.
    pub(super) fn left(&self) -> Weight {
        match self.stores.len() {
            0 => WHOLE,
            count => self.stores.iter().map(|store| store.part(store.left)).sum::<Weight>() / count as Weight,
        }
    }

    /// At most so many of the nodes still fit together.
    pub(super) fn most(&self, nodes: &[usize]) -> usize {
        let possible: Vec<usize> = nodes.iter().copied().filter(|&node| !self.keeps[node]).collect();
        let counts = self.stores.iter().map(|store| store.most(&possible));
        counts.min().unwrap_or(possible.len())
    }

    /// True when the two nodes are alike to this resource.
    pub(super) fn alike(&self, a: usize, b: usize) -> bool {
        let same = |store: &Store| {
            store.cost[a] == store.cost[b] && store.shared.iter().all(|shared| shared.of[a] == shared.of[b])
        };
        self.keeps[a] == self.keeps[b] && self.stores.iter().all(same)
    }

    /// How many amounts it has, which is what looking at a node costs.
    pub(super) fn amounts(&self) -> usize {
        self.stores.len()
    }
}

impl Store {
    fn new(amount: &Amount, domain: &NodeMask, ids: &[u32]) -> Store {
        let (mut cost, mut shared) = (vec![0; ids.len()], Vec::new());
        for supply in &amount.supply {
            let nodes = supply.nodes.and(domain);
            let places: Vec<usize> = (0..ids.len()).filter(|&place| nodes.contains(ids[place])).collect();
            match places[..] {
                // A node beyond the candidates stays, and these units with it.
                _ if places.len() < nodes.len() || places.is_empty() => {}
                [place] => cost[place] += supply.free,
                _ => shared.push(Shared {
                    units: supply.free,
                    of: ids.iter().map(|&id| nodes.contains(id)).collect(),
                    held: places.len(),
                }),
            }
        }
        let spare = amount.free(domain).saturating_sub(amount.wanted);
        Store { spare, left: spare, cost, shared }
    }

    fn cost_now(&self, node: usize) -> u64 {
        let last = self.shared.iter().filter(|shared| shared.of[node] && shared.held == 1);
        self.cost[node] + last.map(|shared| shared.units).sum::<u64>()
    }

    fn put(&mut self, node: usize) {
        self.left -= self.cost_now(node);
        self.shared.iter_mut().filter(|shared| shared.of[node]).for_each(|shared| shared.held -= 1);
    }

    fn take(&mut self, node: usize) {
        self.shared.iter_mut().filter(|shared| shared.of[node]).for_each(|shared| shared.held += 1);
        self.left += self.cost_now(node);
    }

    fn part(&self, units: u64) -> Weight {
        match self.spare {
            0 => 0,
            spare => (Weight::from(units) << 64) / Weight::from(spare),
        }
    }

    fn most(&self, nodes: &[usize]) -> usize {
        let mut costs: Vec<u64> = nodes.iter().map(|&node| self.cost[node]).collect();
        costs.sort_unstable();
        let sums = costs.into_iter().scan(0, |sum: &mut u64, cost| {
            *sum += cost;
            Some(*sum)
        });
        sums.take_while(|&sum| sum <= self.left).count()
    }
}
