//! The masks of a [`Capacity`], listed one by one: for tests, for debugging,
//! and for machines with few nodes.

use super::{Amount, Capacity, TopologyHint};
use crate::topology::NodeMask;

/// Masks are listed for no more nodes than this: there are 2^n - 1 of them.
pub const MAX_LISTED_NODES: usize = 16;

/// Why masks are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("masks over {nodes} nodes are not listed one by one: at most {MAX_LISTED_NODES} nodes are")]
pub struct TooManyNodes {
    /// Nodes that a mask could hold.
    pub nodes: usize,
}

impl Capacity {
    /// The fewest nodes that could serve every amount with everything
    /// allocatable free; the number of nodes when all of them could not.
    ///
    /// Exact for one amount whose units are on one node each, on any number of
    /// nodes, and for anything on up to [`MAX_LISTED_NODES`]. Beyond, amounts
    /// that pull in different directions may give one node too many.
    pub fn min_width(&self) -> usize {
        let nodes: Vec<u32> = self.domain.iter().collect();
        if !self.could_hold(&self.domain) {
            return nodes.len();
        }
        let least = self.amounts.iter().map(|amount| fewest(amount, &nodes)).max().unwrap_or(1).max(1);
        if self.amounts.len() <= 1 && self.on_one_node_each() {
            return least;
        }
        let most = self.greedy_width(&nodes);
        if least >= most || nodes.len() > MAX_LISTED_NODES {
            return most;
        }
        let table = Table::new(self, &nodes, |supply| supply.total);
        (least..most)
            .find(|&width| Combinations::new(nodes.len(), width).any(|mask| table.serves(&mask)))
            .unwrap_or(most)
    }

    /// Every mask that can serve the request now, in the kubelet's order: by
    /// number of nodes, then by their ids.
    pub fn hints(&self) -> Result<Vec<TopologyHint>, TooManyNodes> {
        let nodes: Vec<u32> = self.domain.iter().collect();
        if nodes.len() > MAX_LISTED_NODES {
            return Err(TooManyNodes { nodes: nodes.len() });
        }
        let table = Table::new(self, &nodes, |supply| supply.free);
        let min_width = self.min_width();
        let masks = (1..=nodes.len()).flat_map(|width| Combinations::new(nodes.len(), width));
        let hint = |mask: Vec<usize>| {
            let affinity: NodeMask = mask.iter().map(|&at| nodes[at]).collect();
            let preferred =
                mask.len() == min_width || self.sockets.as_ref().is_some_and(|rule| rule.spans_least(&affinity));
            self.must_hold.is_subset(&affinity).then_some(TopologyHint { affinity: Some(affinity), preferred })
        };
        Ok(masks.filter(|mask| table.serves(mask)).filter_map(hint).collect())
    }

    /// The fewest nodes that serve the request now; none where no mask does,
    /// or where that is not known without listing too many masks.
    pub fn narrowest(&self) -> Option<usize> {
        let [amount] = &self.amounts[..] else { return self.narrowest_listed() };
        if !self.on_one_node_each() {
            return self.narrowest_listed();
        }
        let must = amount.free(&self.must_hold);
        let mut others: Vec<u64> =
            self.domain.minus(&self.must_hold).iter().map(|node| amount.free(&NodeMask::one(node))).collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        let enough = |count: &usize| must + others.iter().take(*count).sum::<u64>() >= amount.wanted;
        let more = (0..=others.len()).find(enough)?;
        Some((self.must_hold.len() + more).max(1))
    }

    /// The best mask that contains `inside` and serves the request now: the
    /// narrowest, of equals the smallest number; none where no mask does. With
    /// several amounts over many nodes it may be wider than need be.
    pub fn best_containing(&self, inside: &NodeMask) -> Option<NodeMask> {
        if self.holds(inside) {
            return Some(inside.clone());
        }
        if self.amounts.len() > 1 && self.domain.len() <= MAX_LISTED_NODES {
            let masks = self.hints().ok()?.into_iter().filter_map(|hint| hint.affinity);
            let around = masks.filter(|mask| inside.and(&self.domain).is_subset(mask));
            return around.min_by_key(|mask| (mask.len(), mask.clone())).map(|mask| mask.or(inside));
        }
        let mask = self
            .amounts
            .iter()
            .try_fold(inside.or(&self.must_hold), |mask, amount| widened(amount, &self.domain, mask))?;
        self.holds(&mask).then_some(mask)
    }

    fn narrowest_listed(&self) -> Option<usize> {
        let hints = self.hints().ok()?;
        hints.first()?.affinity.as_ref().map(NodeMask::len)
    }

    fn on_one_node_each(&self) -> bool {
        self.amounts.iter().flat_map(|amount| &amount.supply).all(|supply| supply.nodes.len() <= 1)
    }

    /// Nodes until all amounts are served, each time the one that serves most of what is missing.
    fn greedy_width(&self, nodes: &[u32]) -> usize {
        let mut mask = NodeMask::new();
        while !self.could_hold(&mask) {
            let outside = nodes.iter().copied().filter(|&node| !mask.contains(node));
            match outside.max_by(|&a, &b| self.gain(a, &mask).total_cmp(&self.gain(b, &mask))) {
                Some(node) => mask.insert(node),
                None => break,
            }
        }
        mask.len().max(1)
    }

    /// How much of what the mask cannot serve the node would add; each amount counts as one.
    fn gain(&self, node: u32, mask: &NodeMask) -> f64 {
        let part = |amount: &Amount| {
            let missing = amount.wanted.saturating_sub(amount.total(mask));
            let new =
                amount.supply.iter().filter(|supply| supply.nodes.contains(node) && supply.nodes.is_disjoint(mask));
            new.map(|supply| supply.total).sum::<u64>().min(missing) as f64 / amount.wanted.max(1) as f64
        };
        self.amounts.iter().map(part).sum()
    }
}

/// The mask with the fewest more nodes that hold the amount; of equals the
/// smallest number: from the top, a node stays out as long as the others do without it.
fn widened(amount: &Amount, domain: &NodeMask, mask: NodeMask) -> Option<NodeMask> {
    let free = |node: u32| amount.free(&NodeMask::one(node));
    let mut others: Vec<u64> = domain.minus(&mask).iter().map(free).collect();
    let mut missing = amount.wanted.saturating_sub(amount.free(&mask));
    let mut width = (0..=others.len()).find(|&count| most(&others, count) >= missing)?;
    let mut chosen = mask.clone();
    for node in domain.minus(&mask).iter().rev() {
        others.pop();
        if width > 0 && (others.len() < width || most(&others, width) < missing) {
            chosen.insert(node);
            width -= 1;
            missing = missing.saturating_sub(free(node));
        }
    }
    Some(chosen)
}

/// The sum of the `count` largest.
fn most(units: &[u64], count: usize) -> u64 {
    let mut units = units.to_vec();
    units.sort_unstable_by(|a, b| b.cmp(a));
    units.iter().take(count).sum()
}

/// No fewer nodes than this could serve the amount, even if no unit were near to several.
fn fewest(amount: &Amount, nodes: &[u32]) -> usize {
    let mut totals: Vec<u64> = nodes.iter().map(|&node| amount.total(&NodeMask::one(node))).collect();
    totals.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0;
    let short = totals.iter().take_while(|&&total| {
        let missing = sum < amount.wanted;
        sum += total;
        missing
    });
    short.count()
}

/// A capacity over few nodes, as bits, for walking many masks.
struct Table {
    /// For each amount: units wanted, and how many there are by bits of nodes.
    amounts: Vec<(u64, Vec<(u32, u64)>)>,
}

impl Table {
    fn new(capacity: &Capacity, nodes: &[u32], units: impl Fn(&super::Supply) -> u64) -> Self {
        let bits = |mask: &NodeMask| {
            bits(nodes.iter().enumerate().filter(|(_, node)| mask.contains(**node)).map(|(at, _)| at))
        };
        let rows = |amount: &Amount| amount.supply.iter().map(|supply| (bits(&supply.nodes), units(supply))).collect();
        Table { amounts: capacity.amounts.iter().map(|amount| (amount.wanted, rows(amount))).collect() }
    }

    fn serves(&self, mask: &[usize]) -> bool {
        let mask = bits(mask.iter().copied());
        let held = |rows: &[(u32, u64)]| {
            rows.iter().filter(|(nodes, _)| nodes & mask != 0).map(|(_, units)| units).sum::<u64>()
        };
        self.amounts.iter().all(|(wanted, rows)| held(rows) >= *wanted)
    }
}

fn bits(places: impl Iterator<Item = usize>) -> u32 {
    places.fold(0, |bits, at| bits | 1 << at)
}

/// All ways to choose `count` of the numbers below `all`, each ascending, in
/// ascending order.
pub(crate) struct Combinations {
    all: usize,
    next: Option<Vec<usize>>,
}

impl Combinations {
    pub(crate) fn new(all: usize, count: usize) -> Self {
        Combinations { all, next: (count <= all).then(|| (0..count).collect()) }
    }
}

impl Iterator for Combinations {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let current = self.next.take()?;
        let count = current.len();
        // The last place that can still move up.
        if let Some(at) = (0..count).rev().find(|&at| current[at] < self.all - count + at) {
            let mut following = current.clone();
            let start = current[at] + 1;
            following[at..].iter_mut().zip(start..).for_each(|(place, value)| *place = value);
            self.next = Some(following);
        }
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{Sockets, Supply};
    use proptest::prelude::*;

    fn mask(text: &str) -> NodeMask {
        text.parse().unwrap()
    }

    /// Nodes, free units, all units.
    type Row<'a> = (&'a str, u64, u64);

    fn capacity(domain: &str, amounts: &[(u64, &[Row])]) -> Capacity {
        let supply = |&(nodes, free, total): &Row| Supply { nodes: mask(nodes), free, total };
        let amount =
            |&(wanted, rows): &(u64, &[(&str, u64, u64)])| Amount { wanted, supply: rows.iter().map(supply).collect() };
        Capacity { domain: mask(domain), amounts: amounts.iter().map(amount).collect(), ..Capacity::default() }
    }

    fn listed(capacity: &Capacity) -> Vec<(String, bool)> {
        let hints = capacity.hints().unwrap();
        hints.into_iter().map(|hint| (hint.affinity.unwrap().to_string(), hint.preferred)).collect()
    }

    #[test]
    fn a_busy_machine_does_not_make_a_wide_mask_preferred() {
        let busy = capacity("0-2", &[(4, &[("0", 2, 6), ("1", 2, 6), ("2", 2, 6)])]);
        let expected = ["0-1", "0,2", "1-2", "0-2"].map(|mask| (mask.to_owned(), false));
        assert_eq!(listed(&busy), expected);
        assert_eq!(busy.min_width(), 1);
    }

    #[test]
    fn masks_come_by_size_and_then_by_ids() {
        let any = capacity("0,8,9", &[(1, &[("0", 1, 1), ("8", 1, 1), ("9", 1, 1)])]);
        let order: Vec<String> = listed(&any).into_iter().map(|(mask, _)| mask).collect();
        assert_eq!(order, ["0", "8", "9", "0,8", "0,9", "8-9", "0,8-9"]);
    }

    #[test]
    fn a_device_near_to_two_nodes_is_in_the_masks_of_both_and_counts_once() {
        let devices = capacity("0-2", &[(2, &[("0-1", 1, 1), ("2", 1, 1)])]);
        assert_eq!(listed(&devices), [("0,2".into(), true), ("1-2".into(), true), ("0-2".into(), false)]);
    }

    #[test]
    fn every_mask_holds_the_nodes_of_reusable_units() {
        let mut some = capacity("0-1", &[(1, &[("0", 4, 4), ("1", 4, 4)])]);
        some.must_hold = mask("1");
        assert_eq!(listed(&some), [("1".into(), true), ("0-1".into(), false)]);
    }

    #[test]
    fn a_mask_on_no_more_sockets_than_needed_is_preferred_too() {
        let mut near = capacity("0-3", &[(4, &[("0", 2, 4), ("1", 2, 4), ("2", 2, 4), ("3", 2, 4)])]);
        let of_node = vec![(0, vec![0]), (1, vec![0]), (2, vec![1]), (3, vec![1])];
        near.sockets = Some(Sockets { of_node, least: 1 });
        let preferred: Vec<_> = listed(&near).into_iter().filter(|(_, preferred)| *preferred).collect();
        assert_eq!(preferred, [("0-1".into(), true), ("2-3".into(), true)]);
    }

    #[test]
    fn masks_over_many_nodes_are_not_listed_and_still_have_a_least_width() {
        let nodes: Vec<String> = (0..64).map(|node| node.to_string()).collect();
        let rows: Vec<Row> = nodes.iter().zip(0..).map(|(node, at)| (node.as_str(), 1, 1 + at % 3)).collect();
        let many = capacity("0-63", &[(64, &rows)]);
        assert_eq!(many.hints(), Err(TooManyNodes { nodes: 64 }));
        assert_eq!(many.min_width(), 22, "21 nodes with three and one with two");
        assert_eq!(capacity("0-63", &[(10_000, &rows)]).min_width(), 64, "no mask could");
    }

    proptest! {
        #[test]
        fn the_least_width_is_that_of_the_narrowest_mask_that_could_serve(
            rows in prop::collection::vec((prop::collection::vec((1u64..64, 0u64..9), 1..7), 0u64..20), 1..4),
        ) {
            let supply = |&(bits, total): &(u64, u64)| Supply { nodes: NodeMask::from_bits(bits), free: 0, total };
            let amounts = rows.iter().map(|(rows, wanted)| Amount { wanted: *wanted, supply: rows.iter().map(supply).collect() });
            let some = Capacity { domain: NodeMask::from_bits(63), amounts: amounts.collect(), ..Capacity::default() };
            let masks = (1..64).map(NodeMask::from_bits).filter(|mask| some.could_hold(mask));
            prop_assert_eq!(some.min_width(), masks.map(|mask| mask.len()).min().unwrap_or(6));
        }
    }
}
