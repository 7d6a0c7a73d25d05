//! How narrow a mask of one resource can be: with what is free now, and on an
//! idle machine.

use super::budget::Budget;
use super::columns::Columns;
use super::subset::{Choice, Floor};
use crate::hint::{Amount, Capacity, Supply};
use crate::topology::NodeMask;

/// Steps for one width that is asked by itself.
const STEPS: u64 = 200_000;

/// The narrowest width, and a mask of it.
pub(super) struct Width {
    pub(super) width: usize,
    /// A mask of this width over the domain; the domain where nothing fits.
    pub(super) mask: NodeMask,
    /// False when a narrower mask may have been missed.
    pub(super) proven: bool,
}

/// Steps for one width.
pub(super) fn budget() -> Budget {
    Budget::new(STEPS)
}

/// The width that makes a hint preferred: the least that could serve the
/// request on an idle machine; all nodes of the domain where none could.
pub(super) fn preferred(capacity: &Capacity, columns: &Columns, budget: &mut Budget) -> Width {
    least(capacity, &NodeMask::new(), columns, |supply| supply.total, |mask| capacity.could_hold(mask), budget)
}

/// The width of the narrowest mask that serves the request now.
pub(super) fn narrowest(capacity: &Capacity, columns: &Columns, budget: &mut Budget) -> Width {
    least(capacity, &capacity.must_hold, columns, |supply| supply.free, |mask| capacity.holds(mask), budget)
}

fn least(
    capacity: &Capacity,
    must: &NodeMask,
    columns: &Columns,
    units: impl Fn(&Supply) -> u64 + Copy,
    holds: impl Fn(&NodeMask) -> bool,
    budget: &mut Budget,
) -> Width {
    let candidates = columns.of(&capacity.domain);
    let mask = |positions: &[usize]| columns.mask(positions.iter().map(|&position| candidates[position]));
    let choice = Choice {
        columns,
        must: candidates.iter().map(|&column| must.contains(columns.id(column))).collect(),
        floors: capacity.amounts.iter().map(|amount| floor(amount, &candidates, columns, units)).collect(),
        plain: is_plain(capacity, &capacity.domain.and(columns.all())),
        candidates: &candidates,
    };
    let mut proven = true;
    for width in choice.least_width()..candidates.len() {
        let found = budget.lend(4, |part| choice.smallest(width, part, &mut |chosen, _| Some(holds(&mask(chosen)))));
        if let Some(chosen) = found.mask {
            return Width { width, mask: mask(&chosen), proven };
        }
        proven &= found.proven;
    }
    Width { width: candidates.len(), mask: columns.mask(candidates.iter().copied()), proven }
}

/// What one amount asks of the candidates.
pub(super) fn floor(amount: &Amount, candidates: &[usize], columns: &Columns, units: impl Fn(&Supply) -> u64) -> Floor {
    let mut by_column = vec![0; columns.len()];
    for supply in &amount.supply {
        columns.of(&supply.nodes).into_iter().for_each(|column| by_column[column] += units(supply));
    }
    Floor { wanted: amount.wanted, units: candidates.iter().map(|&column| by_column[column]).collect() }
}

/// True when no unit is on several of these nodes.
pub(super) fn is_plain(capacity: &Capacity, nodes: &NodeMask) -> bool {
    let supplies = capacity.amounts.iter().flat_map(|amount| &amount.supply);
    supplies.into_iter().all(|supply| supply.nodes.and(nodes).len() <= 1)
}
