//! The exact search behind `share`: which resource leaves which node out.

use super::budget::Budget;
use super::room::{Room, Weight};

/// Nodes that all have to be left out, and others of which a number has to be.
pub(super) struct Assignment<'a> {
    rooms: &'a mut [Room],
    /// Nodes in the order in which they are decided: the forced ones, the
    /// hardest first, then the others, the easiest first.
    order: Vec<Node>,
    forced: usize,
    /// What was found: nodes, and the rooms that leave them out.
    pub(super) placed: Vec<(usize, usize)>,
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
    /// `others` and `more`: so many of these are to be left out, too.
    pub(super) fn new(rooms: &mut [Room], forced: Vec<usize>, others: Vec<usize>, more: usize) -> Assignment<'_> {
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

    /// Whether it can be, with the rooms left as found; none when the budget ran out.
    pub(super) fn solve(&mut self, budget: &mut Budget) -> Option<bool> {
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
        let optional = forced == 0;
        // Leaving out a node that costs nothing is never wrong: no other choice is looked at.
        let choices = if node.free { 1 } else { node.rooms.len() };
        for choice in if node.twin { before } else { 0 }..choices {
            let answer = self.leave_out(at, choice, more - usize::from(optional), budget);
            if answer != Some(false) {
                return answer;
            }
        }
        match optional && !self.order[at].free {
            true => self.descend(at + 1, more, choices, budget),
            false => Some(false),
        }
    }

    /// Has the node's room of this choice leave it out, and goes on from there.
    fn leave_out(&mut self, at: usize, choice: usize, more: usize, budget: &mut Budget) -> Option<bool> {
        let Node { node, ref rooms, .. } = self.order[at];
        let room = rooms[choice];
        if !self.rooms[room].fits(node) {
            return Some(false);
        }
        self.rooms[room].put(node);
        self.placed.push((node, room));
        let answer = self.descend(at + 1, more, choice, budget);
        if answer != Some(true) {
            self.rooms[room].take(node);
            self.placed.pop();
        }
        answer
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
