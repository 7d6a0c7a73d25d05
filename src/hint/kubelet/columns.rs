//! Numbers the machine's nodes from 0, whatever their ids.

use super::TieBreak;
use crate::topology::NodeMask;

/// The machine's nodes in ascending order of their ids, and how near they are.
pub(super) struct Columns {
    ids: Vec<u32>,
    all: NodeMask,
    near: Vec<Vec<u64>>,
    /// True when the ids are 0, 1, 2 and so on, at most 32 of them.
    dense: bool,
}

impl Columns {
    /// Rows and columns of `distances` are in the order of `nodes`. The table
    /// is never indexed by id: with ids 0 and 8 the kubelet's own code panics.
    pub(super) fn new(nodes: &[u32], distances: &[Vec<u32>]) -> Columns {
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_unstable_by_key(|&place| nodes[place]);
        order.dedup_by_key(|place| nodes[*place]);
        let distance = |from: usize, to: usize| distances.get(from).and_then(|row| row.get(to)).copied().unwrap_or(0);
        let near = order.iter().map(|&from| order.iter().map(|&to| u64::from(distance(from, to))).collect());
        let ids: Vec<u32> = order.iter().map(|&place| nodes[place]).collect();
        let dense = (1..=32).contains(&ids.len()) && ids.iter().zip(0..).all(|(&id, column)| id == column);
        Columns { near: near.collect(), all: ids.iter().copied().collect(), ids, dense }
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// All nodes of the machine.
    pub(super) fn all(&self) -> &NodeMask {
        &self.all
    }

    /// The id of the node in this column.
    pub(super) fn id(&self, column: usize) -> u32 {
        self.ids[column]
    }

    /// The columns of the mask's nodes, ascending; those that the machine lacks are left out.
    pub(super) fn of(&self, mask: &NodeMask) -> Vec<usize> {
        mask.iter().filter_map(|id| self.ids.binary_search(&id).ok()).collect()
    }

    /// The same as bits; for machines of at most 32 nodes.
    pub(super) fn bits(&self, mask: &NodeMask) -> u32 {
        match self.dense {
            true => mask.words().first().map_or(0, |&word| (word & self.all.words()[0]) as u32),
            false => self.of(mask).into_iter().fold(0, |bits, column| bits | 1 << column),
        }
    }

    /// The mask of these columns.
    pub(super) fn mask(&self, columns: impl IntoIterator<Item = usize>) -> NodeMask {
        columns.into_iter().map(|column| self.ids[column]).collect()
    }

    /// Both directions between two columns, or the one distance of a node from itself.
    pub(super) fn between(&self, a: usize, b: usize) -> u64 {
        match a == b {
            true => self.near[a][a],
            false => self.near[a][b] + self.near[b][a],
        }
    }

    /// The sum over all ordered pairs, a node with itself included. Between
    /// masks of one width it orders as the mean does, without rounding.
    pub(super) fn spread(&self, columns: &[usize], tie: TieBreak) -> u64 {
        match tie {
            TieBreak::Lowest => 0,
            TieBreak::Closest => columns.iter().flat_map(|&a| columns.iter().map(move |&b| self.near[a][b])).sum(),
        }
    }
}
