//! Lists of hints for capacities: every mask on a small machine, and short
//! lists where only some masks matter.

use super::columns::Columns;
use super::{LISTED_NODES, width};
use crate::hint::{Amount, Capacity, TopologyHint};
use crate::topology::NodeMask;

/// The list of a resource that any nodes will do for; not preferred: of one that cannot be met.
pub(super) fn any(preferred: bool) -> Vec<TopologyHint> {
    vec![TopologyHint { affinity: None, preferred }]
}

/// The list, or that of a resource that cannot be met when it is empty.
pub(super) fn or_unmet(hints: Vec<TopologyHint>) -> Vec<TopologyHint> {
    match hints.is_empty() {
        true => any(false),
        false => hints,
    }
}

/// Every hint of a capacity, or nothing when there are too many nodes for that.
pub(super) fn masks(capacity: &Capacity, columns: &Columns) -> Option<Vec<TopologyHint>> {
    let domain: Vec<u32> = capacity.domain.and(columns.all()).iter().collect();
    if domain.len() > LISTED_NODES {
        return None;
    }
    let holds = fitting(capacity, &domain, |supply| supply.free);
    let could = fitting(capacity, &domain, |supply| supply.total);
    let width = |bits: usize| bits.count_ones() as usize;
    let least = (1..could.len()).filter(|&bits| could[bits]).map(width).min().unwrap_or(domain.len());
    let mask = |bits: usize| domain.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1).map(|(_, &id)| id);
    let hints = (1..holds.len()).filter(|&bits| holds[bits]).map(|bits| (bits, mask(bits).collect::<NodeMask>()));
    let hints = hints.filter(|(_, mask)| capacity.must_hold.is_subset(mask));
    Some(hints.map(|(bits, mask)| hint(capacity, mask, width(bits) == least)).collect())
}

/// The hints of one node alone.
pub(super) fn single_nodes(capacity: &Capacity, columns: &Columns) -> Vec<TopologyHint> {
    let domain = capacity.domain.and(columns.all());
    let least = domain.len() == 1 || domain.iter().any(|id| capacity.could_hold(&NodeMask::one(id)));
    let alone = domain.iter().map(NodeMask::one).filter(|mask| capacity.holds(mask));
    alone.map(|mask| hint(capacity, mask, least)).collect()
}

/// A few true hints, where there are too many to list: the nodes alone, and all of them.
pub(super) fn outline(capacity: &Capacity, columns: &Columns) -> Vec<TopologyHint> {
    let mut hints = single_nodes(capacity, columns);
    let domain = capacity.domain.and(columns.all());
    if domain.len() > 1 && capacity.holds(&domain) {
        let least = width::preferred(capacity, columns, &mut width::budget());
        hints.push(hint(capacity, domain.clone(), least.proven && least.width == domain.len()));
    }
    hints
}

fn hint(capacity: &Capacity, mask: NodeMask, narrowest: bool) -> TopologyHint {
    let preferred = narrowest || capacity.sockets.as_ref().is_some_and(|sockets| sockets.spans_least(&mask));
    TopologyHint { affinity: Some(mask), preferred }
}

/// For each mask over the domain, as bits: whether its units serve every amount.
fn fitting(capacity: &Capacity, domain: &[u32], units: impl Fn(&crate::hint::Supply) -> u64) -> Vec<bool> {
    let mut fits = vec![true; 1 << domain.len()];
    for amount in &capacity.amounts {
        let sums = sums(amount, domain, &units);
        fits.iter_mut().zip(sums).for_each(|(fits, sum)| *fits &= sum >= amount.wanted);
    }
    fits
}

/// For each mask over the domain the units in it.
fn sums(amount: &Amount, domain: &[u32], units: impl Fn(&crate::hint::Supply) -> u64) -> Vec<u64> {
    let bits =
        |mask: &NodeMask| domain.iter().enumerate().map(|(bit, &id)| usize::from(mask.contains(id)) << bit).sum();
    let places: Vec<(usize, u64)> = amount.supply.iter().map(|supply| (bits(&supply.nodes), units(supply))).collect();
    let (shared, single): (Vec<_>, Vec<_>) = places.into_iter().partition(|(bits, _)| bits.count_ones() > 1);
    let mut sums = vec![0; 1 << domain.len()];
    for (bits, units) in single.into_iter().filter(|&(bits, _)| bits != 0) {
        sums[bits] += units;
    }
    for mask in 1..sums.len() {
        let lowest = mask & mask.wrapping_neg();
        if mask != lowest {
            sums[mask] = sums[mask ^ lowest] + sums[lowest];
        }
    }
    for (bits, units) in shared {
        (1..sums.len()).filter(|mask| mask & bits != 0).for_each(|mask| sums[mask] += units);
    }
    sums
}
