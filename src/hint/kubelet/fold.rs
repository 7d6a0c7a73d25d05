//! The masks that are an AND of one hint from each list.
//!
//! Lists are folded one by one. Two short lists are ANDed pair by pair; for
//! long ones the sums over supersets of both are multiplied and taken apart
//! again, which costs `n * 2^n` however long they are.

use super::LISTED_NODES;
use super::columns::Columns;
use crate::hint::TopologyHint;
use crate::topology::NodeMask;

/// Beyond this many masks on big machines the widest are followed and the rest let go.
const MOST_MASKS: usize = 1 << 14;
/// The most pairs that one step looks at on big machines.
const MOST_PAIRS: usize = 1 << 20;

/// A mask that the fold works on.
pub(super) trait Mask: Ord + Clone {
    fn meet(&self, other: &Self) -> Self;
    fn count(&self) -> usize;
    fn columns(&self, columns: &Columns) -> Vec<usize>;
}

impl Mask for u32 {
    fn meet(&self, other: &Self) -> Self {
        self & other
    }

    fn count(&self) -> usize {
        self.count_ones() as usize
    }

    fn columns(&self, _: &Columns) -> Vec<usize> {
        (0..32).filter(|bit| self >> bit & 1 == 1).collect()
    }
}

impl Mask for NodeMask {
    fn meet(&self, other: &Self) -> Self {
        self.and(other)
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn columns(&self, columns: &Columns) -> Vec<usize> {
        columns.of(self)
    }
}

/// Masks as bits by column where there are few nodes, as ids where there are many.
pub(super) enum Masks {
    Bits(Vec<u32>),
    Ids(Vec<NodeMask>),
}

/// Every AND of one hint from each list that is not empty, and whether these are all.
pub(super) fn reachable<L: AsRef<[TopologyHint]>>(lists: &[L], columns: &Columns) -> (Masks, bool) {
    match columns.len() <= LISTED_NODES {
        true => (Masks::Bits(by_bits(lists, columns)), true),
        false => {
            let (masks, proven) = by_ids(lists, columns);
            (Masks::Ids(masks), proven)
        }
    }
}

fn by_bits<L: AsRef<[TopologyHint]>>(lists: &[L], columns: &Columns) -> Vec<u32> {
    let all = (1 << columns.len()) - 1;
    let bits = |hint: &TopologyHint| hint.affinity.as_ref().map_or(all, |mask| columns.bits(mask));
    let mut reached = vec![all; usize::from(all != 0)];
    for list in lists {
        let masks: Vec<u32> = list.as_ref().iter().map(bits).collect();
        reached = match reached.len() * masks.len() <= 1 << columns.len().saturating_sub(2) {
            true => pairwise(&reached, &masks),
            false => by_supersets(&reached, &masks, columns.len()),
        };
        reached.retain(|&mask| mask != 0);
    }
    reached
}

fn by_ids<L: AsRef<[TopologyHint]>>(lists: &[L], columns: &Columns) -> (Vec<NodeMask>, bool) {
    let mut proven = true;
    let mut reached = vec![columns.all().clone()];
    let mut widest = |masks: &mut Vec<NodeMask>, most: usize| {
        masks.sort_unstable_by_key(|mask| (std::cmp::Reverse(mask.len()), mask.clone()));
        masks.dedup();
        proven &= masks.len() <= most;
        masks.truncate(most);
    };
    for list in lists {
        let within = |mask: &NodeMask| mask.and(columns.all());
        let hints = list.as_ref().iter().map(|hint| hint.affinity.as_ref().map_or(columns.all().clone(), within));
        let mut masks: Vec<NodeMask> = hints.collect();
        widest(&mut masks, MOST_MASKS);
        widest(&mut reached, MOST_PAIRS / masks.len().max(1));
        reached = pairwise(&reached, &masks);
        reached.retain(|mask| !mask.is_empty());
    }
    (reached, proven)
}

fn pairwise<M: Mask>(reached: &[M], masks: &[M]) -> Vec<M> {
    let mut met: Vec<M> = reached.iter().flat_map(|a| masks.iter().map(|b| a.meet(b))).collect();
    met.sort_unstable();
    met.dedup();
    met
}

/// How many pairs meet in a mask or above is the product of how many of each
/// lie above it; taken apart again it says how many meet in the mask itself.
/// There are at most 2^32 pairs and not all meet in one mask (both lists would
/// hold it alone), so counting modulo 2^32 never makes a zero of a mask that is met.
fn by_supersets(reached: &[u32], masks: &[u32], nodes: usize) -> Vec<u32> {
    let mut met = above(reached, nodes);
    met.iter_mut().zip(above(masks, nodes)).for_each(|(a, b)| *a = a.wrapping_mul(b));
    over_pairs(&mut met, nodes, |below, above| *below = below.wrapping_sub(above));
    (0u32..).zip(met).filter(|&(_, pairs)| pairs != 0).map(|(mask, _)| mask).collect()
}

/// For each mask how many of these lie above it, itself included.
fn above(masks: &[u32], nodes: usize) -> Vec<u32> {
    let mut sums = vec![0; 1 << nodes];
    masks.iter().for_each(|&mask| sums[mask as usize] = 1);
    over_pairs(&mut sums, nodes, |below, above| *below = below.wrapping_add(above));
    sums
}

/// Visits, node by node, each mask without the node together with the same one with it.
fn over_pairs(sums: &mut [u32], nodes: usize, visit: impl Fn(&mut u32, u32)) {
    for half in (0..nodes).map(|node| 1 << node) {
        for block in sums.chunks_exact_mut(2 * half) {
            let (without, with) = block.split_at_mut(half);
            without.iter_mut().zip(with).for_each(|(below, above)| visit(below, *above));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_over_supersets_find_what_pairs_find(
            a in prop::collection::vec(0u32..64, 1..40),
            b in prop::collection::vec(0u32..64, 1..40),
        ) {
            prop_assert_eq!(by_supersets(&a, &b, 6), pairwise(&a, &b));
        }
    }

    #[test]
    fn all_masks_of_sixteen_nodes_meet_in_all_masks() {
        let all: Vec<u32> = (0..1 << 16).collect();
        assert_eq!(by_supersets(&all, &all, 16), all);
    }
}
