//! Merges lists of hints.
//!
//! A preferred answer is a mask that every list prefers, a preferred hint
//! without nodes standing in for any. Without one, the answer is the best AND
//! of one hint from each list.

use super::columns::Columns;
use super::fold::{self, Masks};
use super::{Merged, TieBreak};
use crate::hint::TopologyHint;
use crate::topology::NodeMask;
use std::collections::HashSet;

/// The kubelet's answer under best-effort and restricted.
pub(super) fn merge<L: AsRef<[TopologyHint]>>(lists: &[L], columns: &Columns, tie: TieBreak) -> Merged {
    if let Some(mask) = preferred(lists, columns, tie) {
        return Merged { affinity: Some(mask), preferred: true, proven: true };
    }
    let (reached, proven) = fold::reachable(lists, columns);
    let wanted = wanted_count(lists);
    let best = match &reached {
        Masks::Bits(masks) => best(masks, wanted, columns, tie),
        Masks::Ids(masks) => best(masks, wanted, columns, tie),
    };
    let affinity = Some(best.unwrap_or_else(|| columns.all().clone()));
    Merged { affinity, preferred: false, proven }
}

/// The best mask that is preferred by all lists, as far as the machine has its nodes.
pub(super) fn preferred<L: AsRef<[TopologyHint]>>(lists: &[L], columns: &Columns, tie: TieBreak) -> Option<NodeMask> {
    let lists: Vec<Vec<&TopologyHint>> =
        lists.iter().map(|list| list.as_ref().iter().filter(|hint| hint.preferred).collect()).collect();
    if lists.iter().any(Vec::is_empty) {
        return None;
    }
    let joker = |list: &Vec<&TopologyHint>| list.iter().any(|hint| hint.affinity.is_none());
    let (jokers, bound): (Vec<_>, Vec<_>) = lists.iter().partition(|list| joker(list));
    let masks = match common(&bound) {
        Some(masks) => masks.into_iter().map(|mask| mask.and(columns.all())).collect(),
        None => {
            let named = jokers.into_iter().flatten().filter_map(|hint| hint.affinity.as_ref());
            named.map(|mask| mask.and(columns.all())).chain([columns.all().clone()]).collect()
        }
    };
    let masks: Vec<NodeMask> = masks;
    let filled = masks.into_iter().filter(|mask| !mask.is_empty());
    filled.min_by_key(|mask| (mask.len(), columns.spread(&columns.of(mask), tie), mask.clone()))
}

/// The masks that are in every one of the lists, nodes that the machine lacks
/// included; nothing for no lists.
fn common<'a>(lists: &[&Vec<&'a TopologyHint>]) -> Option<Vec<&'a NodeMask>> {
    let mut sets = lists.iter().map(|list| list.iter().filter_map(|hint| hint.affinity.as_ref()));
    let mut common: HashSet<&NodeMask> = sets.next()?.collect();
    for set in sets {
        common = set.filter(|mask| common.contains(mask)).collect();
    }
    Some(common.into_iter().collect())
}

/// The kubelet's `bestNonPreferredAffinityCount`: the width of the narrowest
/// mask of the list that has the widest such.
fn wanted_count<L: AsRef<[TopologyHint]>>(lists: &[L]) -> usize {
    let narrowest = |list: &L| list.as_ref().iter().filter_map(|hint| hint.affinity.as_ref()).map(NodeMask::len).min();
    lists.iter().filter_map(narrowest).max().unwrap_or(0)
}

/// As wide as wanted, else the next narrower ones, else the next wider ones;
/// among these the closest, then the smallest number.
fn best<M: fold::Mask>(masks: &[M], wanted: usize, columns: &Columns, tie: TieBreak) -> Option<NodeMask> {
    let counts = masks.iter().map(M::count);
    let count = counts.min_by_key(|&count| (count > wanted, count.abs_diff(wanted)))?;
    let level = masks.iter().filter(|mask| mask.count() == count);
    let best = level.min_by_key(|mask| (columns.spread(&mask.columns(columns), tie), *mask))?;
    Some(columns.mask(best.columns(columns)))
}
