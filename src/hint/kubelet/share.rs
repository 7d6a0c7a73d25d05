//! Shares nodes out among the resources that can spare them.
//!
//! A mask can be reached as the AND of one mask from each resource if and only
//! if every other candidate is left out by some resource that can spare it
//! together with all else it leaves out.

use super::budget::Budget;
use super::room::{Room, Weight};

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

/// The exact search behind it: some nodes have to be left out, and a number of others.
struct Assignment<'a> {
    rooms: &'a mut [Room],
    /// Nodes in the order in which they are decided: the forced ones, the
    /// hardest first, then the others, the easiest first.
    order: Vec<Node>,
    forced: usize,
    placed: Vec<(usize, usize)>,
    more: usize,
}

struct Node {
    node: usize,
    /// Rooms that it may fit in, the one with the most room for it first.
    rooms: Vec<usize>,
    least: Weight,
    free: bool,
    /// True when the node before is just like it.
    twin: bool,
}

impl Assignment<'_> {
    fn new(rooms: &mut [Room], forced: Vec<usize>, others: Vec<usize>, more: usize) -> Assignment<'_> {
        let mut hard: Vec<Node> = forced.into_iter().map(|node| Node::new(node, rooms)).collect();
        let mut easy: Vec<Node> = others.into_iter().map(|node| Node::new(node, rooms)).collect();
        easy.retain(|node| !node.rooms.is_empty());
        hard.sort_by_key(|node| (!node.rooms.is_empty(), std::cmp::Reverse(node.least)));
        easy.sort_by_key(|node| node.least);
        mark_twins(&mut hard, rooms);
        mark_twins(&mut easy, rooms);
        let forced = hard.len();
        Assignment { rooms, order: hard.into_iter().chain(easy).collect(), forced, placed: Vec::new(), more }
    }

    fn solve(&mut self, budget: &mut Budget) -> Option<bool> {
        self.descend(0, self.more, 0, budget)
    }

    /// Decides the nodes from the `at`th on. A twin takes no earlier choice
    /// than the one before it did.
    fn descend(&mut self, at: usize, more: usize, before: usize, budget: &mut Budget) -> Option<bool> {
        let forced = self.forced.saturating_sub(at);
        if forced == 0 && more == 0 {
            return Some(true);
        }
        let amounts: usize = self.rooms.iter().map(Room::amounts).sum();
        if !budget.spend(amounts * (self.order.len() - at + 1)) {
            return None;
        }
        if !self.possible(at, forced + more) {
            return Some(false);
        }
        let node = &self.order[at];
        let (id, optional) = (node.node, forced == 0);
        let mut choices = node.rooms.clone();
        choices.truncate(if node.free { 1 } else { usize::MAX });
        let (start, skip) = (if node.twin { before } else { 0 }, choices.len());
        let may_skip = optional && !node.free;
        for (choice, room) in choices.into_iter().enumerate().skip(start) {
            if self.rooms[room].fits(id) {
                self.rooms[room].put(id);
                self.placed.push((id, room));
                let answer = self.descend(at + 1, more - usize::from(optional), choice, budget);
                if answer != Some(false) {
                    if answer.is_none() {
                        self.rooms[room].take(id);
                        self.placed.pop();
                    }
                    return answer;
                }
                self.rooms[room].take(id);
                self.placed.pop();
            }
        }
        match may_skip {
            true => self.descend(at + 1, more, skip, budget),
            false => Some(false),
        }
    }

    /// Bounds: by number of nodes, by what each room could take at most, and
    /// by the parts of the rooms that the easiest nodes need.
    fn possible(&self, at: usize, wanted: usize) -> bool {
        let rest = &self.order[at..];
        if rest.len() < wanted {
            return false;
        }
        let needed: Weight = rest[..wanted].iter().map(|node| node.least).sum();
        if needed > self.rooms.iter().map(Room::left).sum() {
            return false;
        }
        let nodes: Vec<usize> = rest.iter().map(|node| node.node).collect();
        self.rooms.iter().map(|room| room.most(&nodes)).sum::<usize>() >= wanted
    }
}

impl Node {
    fn new(node: usize, rooms: &[Room]) -> Node {
        let weights = rooms.iter().map(|room| room.weight(node)).enumerate();
        let mut fitting: Vec<(bool, Weight, usize)> =
            weights.filter_map(|(at, weight)| Some((!rooms[at].is_free(node), weight?, at))).collect();
        fitting.sort_unstable();
        Node {
            node,
            least: fitting.iter().map(|&(_, weight, _)| weight).min().unwrap_or(0),
            free: fitting.first().is_some_and(|&(costs, ..)| !costs),
            rooms: fitting.into_iter().map(|(.., room)| room).collect(),
            twin: false,
        }
    }
}

fn mark_twins(nodes: &mut [Node], rooms: &[Room]) {
    for at in 1..nodes.len() {
        nodes[at].twin = rooms.iter().all(|room| room.alike(nodes[at - 1].node, nodes[at].node));
    }
}
