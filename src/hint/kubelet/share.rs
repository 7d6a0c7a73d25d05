//! Shares nodes out among the resources that can spare them.
//!
//! A mask can be reached as the AND of one mask from each resource if and only
//! if every other candidate is left out by some resource that can spare it
//! together with all else it leaves out.

use super::assignment::Assignment;
use super::budget::Budget;
use super::room::Room;

/// The resources, and which of them leaves each node out; none: the node stays.
pub(super) struct Sharing {
    rooms: Vec<Room>,
    by: Vec<Option<usize>>,
}

impl Sharing {
    /// Nothing is left out yet.
    pub(super) fn new(rooms: Vec<Room>, nodes: usize) -> Sharing {
        Sharing { rooms, by: vec![None; nodes] }
    }

    /// Has a resource leave out a node that it can spare.
    pub(super) fn leave_out(&mut self, node: usize, room: usize) {
        self.rooms[room].put(node);
        self.by[node] = Some(room);
    }

    /// The nodes that stay, from the highest down.
    pub(super) fn stay(&self) -> Vec<usize> {
        (0..self.by.len()).rev().filter(|&node| self.by[node].is_none()).collect()
    }

    /// True when no resource can ever spare this node.
    pub(super) fn has_to_stay(&self, node: usize) -> bool {
        self.rooms.iter().all(|room| room.weight(node).is_none())
    }

    /// Exchanges nodes until those that stay are the smallest number of their
    /// width; false when that was not proven. From the highest node down, each
    /// that stays is left out instead of lower ones if that can be.
    pub(super) fn minimise(&mut self, budget: &mut Budget) -> bool {
        let mut proven = true;
        for node in (0..self.by.len()).rev() {
            if self.by[node].is_none() && self.by[..node].iter().any(Option::is_some) && !self.has_to_stay(node) {
                let spared = match self.exchange(node, budget) {
                    true => Some(true),
                    false => budget.lend(4, |part| self.rearrange(node, part)),
                };
                proven &= spared.is_some();
            }
        }
        proven
    }

    /// True when exactly these nodes can be left out; none when the budget ran out.
    pub(super) fn can_leave_out(&self, nodes: &[usize], budget: &mut Budget) -> Option<bool> {
        let amounts: usize = self.rooms.iter().map(Room::amounts).sum();
        if !budget.spend(4 * amounts * self.by.len()) {
            return None;
        }
        let mut rooms = self.rooms.clone();
        let left_out = self.by.iter().enumerate().filter_map(|(node, by)| by.map(|room| (node, room)));
        left_out.for_each(|(node, room)| rooms[room].take(node));
        Assignment::new(&mut rooms, nodes.to_vec(), Vec::new(), 0).solve(budget)
    }

    /// Takes one lower node in and leaves this one out, with or without moving
    /// a third from one resource to another.
    fn exchange(&mut self, node: usize, budget: &mut Budget) -> bool {
        (0..node).any(|lower| {
            let Some(room) = self.by[lower] else { return false };
            let nodes = self.by.len();
            if !budget.spend(self.rooms.len() * nodes) {
                return false;
            }
            self.rooms[room].take(lower);
            self.by[lower] = None;
            let done = self.place(node) || (0..nodes).any(|third| self.place_after_moving(node, third));
            if !done {
                self.leave_out(lower, room);
            }
            done
        })
    }

    fn place(&mut self, node: usize) -> bool {
        let room = (0..self.rooms.len()).find(|&room| self.rooms[room].fits(node));
        room.map(|room| self.leave_out(node, room)).is_some()
    }

    fn place_after_moving(&mut self, node: usize, third: usize) -> bool {
        let Some(from) = self.by[third] else { return false };
        self.rooms[from].take(third);
        let to = self.rooms[from].fits(node).then(|| {
            let mut others = (0..self.rooms.len()).filter(|&room| room != from);
            others.find(|&room| self.rooms[room].fits(third))
        });
        self.leave_out(third, to.flatten().unwrap_or(from));
        match to.flatten() {
            Some(_) => self.leave_out(node, from),
            None => return false,
        }
        true
    }

    /// Shares everything out anew: this node and the higher ones that are left
    /// out, and as many lower ones as it takes. True when that can be.
    fn rearrange(&mut self, node: usize, budget: &mut Budget) -> Option<bool> {
        let before = self.by.clone();
        let count = before.iter().flatten().count();
        for (node, room) in before.iter().enumerate().filter_map(|(node, by)| by.map(|room| (node, room))) {
            self.rooms[room].take(node);
        }
        let forced: Vec<usize> = (node..before.len()).filter(|&n| n == node || before[n].is_some()).collect();
        let more = count - forced.len();
        let mut assignment = Assignment::new(&mut self.rooms, forced, (0..node).collect(), more);
        let answer = assignment.solve(budget);
        match answer {
            Some(true) => {
                let placed = assignment.placed;
                self.by = vec![None; before.len()];
                placed.into_iter().for_each(|(node, room)| self.by[node] = Some(room));
            }
            _ => (0..before.len()).for_each(|node| {
                if let Some(room) = before[node] {
                    self.rooms[room].put(node);
                }
            }),
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::kubelet::columns::Columns;
    use crate::hint::{Amount, Capacity, Supply};
    use crate::topology::NodeMask;
    use proptest::prelude::*;

    const NODES: usize = 6;

    /// Rooms by their nodes' units of one or two amounts, and what is wanted.
    fn rooms(resources: &[Vec<(Vec<u64>, u64)>]) -> Vec<Room> {
        let ids: Vec<u32> = (0..NODES as u32).collect();
        let columns = Columns::new(&ids, &[]);
        let candidates: Vec<usize> = (0..NODES).collect();
        let amount = |(units, wanted): &(Vec<u64>, u64)| {
            let supply = (0u32..).zip(units).map(|(id, &free)| Supply { nodes: NodeMask::one(id), free, total: free });
            Amount { wanted: *wanted.min(&units.iter().sum()), supply: supply.collect() }
        };
        let capacity = |amounts: &Vec<_>| Capacity {
            domain: ids.iter().copied().collect(),
            amounts: amounts.iter().map(amount).collect(),
            ..Capacity::default()
        };
        resources.iter().map(|amounts| Room::new(&capacity(amounts), &candidates, &columns)).collect()
    }

    /// Whether the nodes can be shared out, by trying every way.
    fn by_trying(rooms: &mut [Room], nodes: &[usize]) -> bool {
        let Some((&node, rest)) = nodes.split_first() else { return true };
        (0..rooms.len()).any(|room| {
            rooms[room].fits(node) && {
                rooms[room].put(node);
                let done = by_trying(rooms, rest);
                rooms[room].take(node);
                done
            }
        })
    }

    fn nodes(bits: usize) -> Vec<usize> {
        (0..NODES).filter(|node| bits >> node & 1 == 1).collect()
    }

    fn resources() -> impl Strategy<Value = Vec<Vec<(Vec<u64>, u64)>>> {
        let amount = (prop::collection::vec(0u64..9, NODES), 0u64..40);
        prop::collection::vec(prop::collection::vec(amount, 1..=2), 1..=3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn nodes_are_shared_out_exactly_when_some_way_works(resources in resources()) {
            let sharing = Sharing::new(rooms(&resources), NODES);
            for bits in 0..1 << NODES {
                let answer = sharing.can_leave_out(&nodes(bits), &mut Budget::new(1 << 40));
                prop_assert_eq!(answer, Some(by_trying(&mut rooms(&resources), &nodes(bits))));
            }
        }

        #[test]
        fn the_smallest_number_stays(resources in resources()) {
            let mut sharing = Sharing::new(rooms(&resources), NODES);
            (0..NODES).for_each(|node| { sharing.place(node); });
            let width = sharing.stay().len();
            prop_assert!(sharing.minimise(&mut Budget::new(1 << 40)));
            let out = |bits: usize| nodes(!bits & ((1 << NODES) - 1));
            let mut masks = (0..1usize << NODES).filter(|bits| bits.count_ones() as usize == width);
            let smallest = masks.find(|&bits| by_trying(&mut rooms(&resources), &out(bits))).unwrap();
            let stay = sharing.stay().into_iter().fold(0, |bits, node| bits | 1 << node);
            prop_assert_eq!(stay, smallest);
        }
    }

    #[test]
    fn a_search_without_steps_proves_nothing() {
        let even = vec![(vec![3; NODES], 9)];
        let mut sharing = Sharing::new(rooms(&[even.clone(), even]), NODES);
        sharing.leave_out(0, 0);
        assert!(!sharing.minimise(&mut Budget::new(0)));
        assert_eq!(sharing.can_leave_out(&[1], &mut Budget::new(0)), None);
        assert!(sharing.minimise(&mut Budget::new(1 << 20)));
        assert_eq!(sharing.stay(), [4, 3, 2, 1, 0]);
    }
}
