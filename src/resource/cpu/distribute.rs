//! The choice with `spread-nodes`: an even share from each of as few nodes as
//! possible, so that what stays free is as balanced as can be.
//!
//! The kubelet tries every combination of nodes and, for the remainder, every
//! part of it. Here so too while these are few; beyond, the nodes with the most
//! free CPUs are taken, which is where the best balance lies.

use super::groups::Level;
use super::take::Picker;
use super::{CpuLayout, CpuOptions};
use crate::hint::list::Combinations;
use crate::topology::CpuSet;

/// Enough for 10 nodes, and a few milliseconds.
const TRIES: usize = 20_000;

/// Chooses `wanted` of the free CPUs, which are enough, evenly over nodes.
pub fn take(layout: &CpuLayout, free: &CpuSet, wanted: usize, options: &CpuOptions) -> CpuSet {
    let options = CpuOptions { prefer_l3: false, ..*options };
    let group = if options.full_cores { layout.threads_per_core() } else { 1 };
    let picker = Picker::new(layout, free, wanted);
    if wanted == 0 || !wanted.is_multiple_of(group) {
        return picker.packed(&options);
    }
    let nodes = picker.order(Level::Node);
    let free_on = nodes.iter().map(|&node| picker.count(Level::Node, node)).collect();
    let search = Search { free: free_on, wanted, group, tries: TRIES };
    let (least, most) = node_range(layout, nodes.len(), wanted, group);
    match (least..=most).find_map(|count| search.best(count)) {
        Some(split) => hand_out(layout, free, &nodes, &split, group, &options),
        None => picker.packed(&options),
    }
}

/// The least and the most nodes that are worth a try.
fn node_range(layout: &CpuLayout, available: usize, wanted: usize, group: usize) -> (usize, usize) {
    let groups_per_node = layout.len().div_ceil(group).div_ceil(layout.group_count(Level::Node));
    let needed = wanted.div_ceil(group);
    (needed.div_ceil(groups_per_node), needed.min(available))
}

/// A question: shares of `wanted`, in groups of threads, from nodes with so many free CPUs.
struct Search {
    free: Vec<usize>,
    wanted: usize,
    group: usize,
    /// Up to so many combinations are tried for each number of nodes.
    tries: usize,
}

/// An answer, in indexes into the list of nodes.
#[derive(Clone, Debug, PartialEq)]
struct Split {
    /// Nodes that give `share` CPUs each.
    nodes: Vec<usize>,
    share: usize,
    /// Nodes that give one more group of threads, once for each time that they are listed.
    turns: Vec<usize>,
    /// Standard deviation of what stays free on all nodes.
    balance: f64,
}

impl Search {
    /// The best split over so many nodes, the first one among equals.
    fn best(&self, count: usize) -> Option<Split> {
        let share = self.wanted / count / self.group * self.group;
        let parts =
            if share * count == self.wanted { 1 } else { 1usize.checked_shl(count as u32).unwrap_or(usize::MAX) };
        let all = self.free.len();
        if ways(all, count).saturating_mul(parts) > self.tries {
            return self.split(fullest(0..all, &self.free, count), share, |givers, left, count| {
                vec![fullest(givers.iter().copied(), left, count)]
            });
        }
        let splits = Combinations::new(all, count).filter_map(|nodes| self.split(nodes, share, all_parts));
        first_best(splits)
    }

    /// The best split over these nodes; `parts` lists who may give the remainder.
    fn split(
        &self,
        nodes: Vec<usize>,
        share: usize,
        parts: impl Fn(&[usize], &[usize], usize) -> Vec<Vec<usize>>,
    ) -> Option<Split> {
        let groups: usize = nodes.iter().map(|&node| self.free[node] / self.group).sum();
        if groups * self.group < self.wanted || nodes.iter().any(|&node| self.free[node] < share) {
            return None;
        }
        let mut left = self.free.clone();
        nodes.iter().for_each(|&node| left[node] -= share);
        let remainder = self.wanted - share * nodes.len();
        if remainder == 0 {
            return Some(Split { nodes, share, turns: Vec::new(), balance: deviation(&left) });
        }
        let givers: Vec<usize> = nodes.iter().copied().filter(|&node| left[node] >= self.group).collect();
        // The most givers first: the remainder is spread too.
        let parts = (1..=givers.len()).rev().flat_map(|count| parts(&givers, &left, count));
        let splits = parts.filter_map(|part| self.turns(left.clone(), &part, remainder));
        first_best(splits.map(|(turns, balance)| Split { nodes: Vec::new(), share, turns, balance }))
            .map(|best| Split { nodes, ..best })
    }

    /// Whose turn it is until the remainder is given, a group at a time, and
    /// the balance then; none when the part has too few whole groups.
    fn turns(&self, mut left: Vec<usize>, part: &[usize], remainder: usize) -> Option<(Vec<usize>, f64)> {
        let wanted = remainder / self.group;
        let mut turns = Vec::with_capacity(wanted);
        while turns.len() < wanted {
            let before = turns.len();
            for &node in part {
                if turns.len() < wanted && left[node] >= self.group {
                    left[node] -= self.group;
                    turns.push(node);
                }
            }
            if turns.len() == before {
                return None;
            }
        }
        Some((turns, deviation(&left)))
    }
}

fn all_parts(givers: &[usize], _left: &[usize], count: usize) -> Vec<Vec<usize>> {
    let chosen = Combinations::new(givers.len(), count);
    chosen.map(|part| part.into_iter().map(|at| givers[at]).collect()).collect()
}

/// The so many nodes with the most free CPUs, in the order of the list.
fn fullest(nodes: impl Iterator<Item = usize>, free: &[usize], count: usize) -> Vec<usize> {
    let mut nodes: Vec<usize> = nodes.collect();
    nodes.sort_by_key(|&node| std::cmp::Reverse(free[node]));
    nodes.truncate(count);
    nodes.sort_unstable();
    nodes
}

fn first_best(splits: impl Iterator<Item = Split>) -> Option<Split> {
    splits.reduce(|best, next| if next.balance < best.balance { next } else { best })
}

/// How many ways there are to choose `count` of `all`.
fn ways(all: usize, count: usize) -> usize {
    (0..count.min(all - count)).fold(1usize, |ways, at| ways.saturating_mul(all - at) / (at + 1))
}

/// Standard deviation, its mean and itself rounded to three decimals as the
/// kubelet rounds them: what it holds for equal must be equal here.
fn deviation(values: &[usize]) -> f64 {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let count = values.len() as f64;
    let mean = round(values.iter().map(|&value| value as f64).sum::<f64>() / count);
    let squares: f64 = values.iter().map(|&value| (value as f64 - mean) * (value as f64 - mean)).sum();
    round((squares / count).sqrt())
}

fn hand_out(
    layout: &CpuLayout,
    free: &CpuSet,
    nodes: &[u32],
    split: &Split,
    group: usize,
    options: &CpuOptions,
) -> CpuSet {
    let mut taken = CpuSet::new();
    let shares = split.nodes.iter().map(|&node| (node, split.share));
    let turns = split.turns.iter().map(|&node| (node, group));
    for (node, count) in shares.chain(turns) {
        let members = layout.members(Level::Node, nodes[node]).iter().map(|&cpu| layout.id(cpu));
        let rest = members.filter(|&cpu| free.contains(cpu) && !taken.contains(cpu)).collect();
        taken = taken.or(&Picker::new(layout, &rest, count).packed(options));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_remainder_that_leaves_half_cores_ends() {
        // The kubelet looks for 70 CPUs on two nodes with 18 and 19 whole cores for ever.
        let search = Search { free: vec![18, 38], wanted: 36, group: 2, tries: TRIES };
        let split = search.best(2).unwrap();
        assert_eq!((split.share, &split.turns[..]), (18, &[][..]));
        let odd = Search { free: vec![19, 19], wanted: 38, group: 2, tries: TRIES };
        assert_eq!(odd.best(2), None, "a thread of each node is on no whole core");
    }

    proptest! {
        #[test]
        fn on_many_nodes_the_balance_is_as_good_as_by_trying_all(
            free in prop::collection::vec(1usize..12, 1..7), wanted in 1usize..40, count in 1usize..7, group in 1usize..3,
        ) {
            let count = count.min(free.len());
            let wanted = wanted.next_multiple_of(group);
            let all = Search { free, wanted, group, tries: usize::MAX };
            let quick = Search { free: all.free.clone(), tries: 0, ..all };
            let (exact, quick) = (all.best(count), quick.best(count));
            prop_assert_eq!(exact.is_some(), quick.is_some());
            if let (Some(exact), Some(quick)) = (exact, quick) && group == 1 {
                prop_assert_eq!(exact.balance, quick.balance);
            }
        }
    }
}
