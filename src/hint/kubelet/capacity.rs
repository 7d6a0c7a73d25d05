//! Merges capacities without listing masks, for any number of nodes.
//!
//! Let D be the nodes that are in every domain. More nodes never serve less,
//! so (1) a preferred mask is one of the preferred width in D that every
//! resource can live on; (2) masks that can be reached stay so when nodes of D
//! are added, and the narrowest mask of any one resource can be reached, or
//! has no node in D: hence the best not preferred mask has exactly as many
//! nodes as the resource that needs the most, or is D; (3) which masks can be
//! reached is a matter of sharing out the other nodes of D (see `share`).

use super::budget::Budget;
use super::columns::Columns;
use super::room::Room;
use super::share::Sharing;
use super::subset::{Choice, Found};
use super::width::{self, Width};
use super::{Merged, Offer, TieBreak};
use crate::hint::Capacity;
use crate::topology::NodeMask;

/// Steps for a whole merge, about 10 ms.
const STEPS: u64 = 2_000_000;

/// The kubelet's answer under best-effort and restricted.
pub(super) fn merge(offers: &[Offer], columns: &Columns, tie: TieBreak) -> Merged {
    let mut unmet = false;
    let mut capacities = Vec::new();
    for offer in offers {
        match offer {
            Offer::Capacity(capacity) if can_be_met(capacity, columns) => capacities.push(capacity),
            Offer::Capacity(_) | Offer::CannotBeMet | Offer::Hints(_) => unmet = true,
            Offer::NoPreference => {}
        }
    }
    if capacities.is_empty() {
        return Merged { affinity: Some(columns.all().clone()), preferred: !unmet, proven: true };
    }
    Common::new(capacities, columns).merge(unmet, tie)
}

/// More nodes never serve less, so the whole domain decides.
pub(super) fn can_be_met(capacity: &Capacity, columns: &Columns) -> bool {
    let domain = capacity.domain.and(columns.all());
    !domain.is_empty() && capacity.holds(&domain)
}

/// Capacities that can be met, and the nodes that they have in common.
struct Common<'a> {
    capacities: Vec<&'a Capacity>,
    columns: &'a Columns,
    nodes: NodeMask,
    candidates: Vec<usize>,
}

impl<'a> Common<'a> {
    fn new(capacities: Vec<&'a Capacity>, columns: &'a Columns) -> Common<'a> {
        let nodes = capacities.iter().fold(columns.all().clone(), |nodes, capacity| nodes.and(&capacity.domain));
        Common { candidates: columns.of(&nodes), capacities, columns, nodes }
    }

    fn merge(&self, unmet: bool, tie: TieBreak) -> Merged {
        let mut budget = Budget::new(STEPS);
        let preferred = match unmet {
            true => Found { mask: None, proven: true },
            false => budget.lend(2, |part| self.preferred(tie, part)),
        };
        if let Some(positions) = preferred.mask {
            return Merged { affinity: Some(self.mask(&positions)), preferred: true, proven: preferred.proven };
        }
        if self.candidates.is_empty() {
            let affinity = Some(self.columns.all().clone());
            return Merged { affinity, preferred: false, proven: preferred.proven };
        }
        let reached = self.reached(tie, &mut budget);
        let positions = reached.mask.unwrap_or_default();
        let proven = preferred.proven && reached.proven;
        Merged { affinity: Some(self.mask(&positions)), preferred: false, proven }
    }

    /// The best mask that all prefer. A width that was not proven is not taken for one.
    fn preferred(&self, tie: TieBreak, budget: &mut Budget) -> Found {
        let widths: Vec<Width> = (self.capacities.iter())
            .map(|capacity| budget.lend(4, |part| width::preferred(capacity, self.columns, part)))
            .collect();
        let mut proven = widths.iter().all(|width| width.proven);
        let strict = self.capacities.iter().zip(&widths).filter(|(capacity, _)| capacity.sockets.is_none());
        let mut strict = strict.map(|(_, width)| width.width);
        let span = match strict.next() {
            Some(width) if strict.any(|other| other != width) => return Found { mask: None, proven },
            Some(width) => width..width + 1,
            None => 1..self.candidates.len() + 1,
        };
        for width in span {
            let narrow: Vec<bool> = widths.iter().map(|own| own.proven && own.width == width).collect();
            if self.could_be_preferred(&narrow) && width <= self.candidates.len() {
                let found = budget.lend(2, |part| self.preferred_of_width(width, &narrow, tie, part));
                proven &= found.proven;
                if found.mask.is_some() {
                    return Found { mask: found.mask, proven };
                }
            }
        }
        Found { mask: None, proven }
    }

    /// `narrow`: for each resource, whether this is its preferred width. Those
    /// with a socket rule prefer others, too.
    fn could_be_preferred(&self, narrow: &[bool]) -> bool {
        self.capacities.iter().zip(narrow).all(|(capacity, narrow)| *narrow || capacity.sockets.is_some())
            && self.capacities.iter().all(|capacity| capacity.must_hold.is_subset(&self.nodes))
    }

    fn preferred_of_width(&self, width: usize, narrow: &[bool], tie: TieBreak, budget: &mut Budget) -> Found {
        let amounts = self.capacities.iter().flat_map(|capacity| &capacity.amounts);
        let must = |column: usize| self.capacities.iter().any(|c| c.must_hold.contains(self.columns.id(column)));
        let simple = |(capacity, &narrow): (&&Capacity, &bool)| narrow && width::is_plain(capacity, &self.nodes);
        let choice = Choice {
            columns: self.columns,
            candidates: &self.candidates,
            must: self.candidates.iter().map(|&column| must(column)).collect(),
            floors: amounts.map(|a| width::floor(a, &self.candidates, self.columns, |supply| supply.free)).collect(),
            plain: self.capacities.iter().zip(narrow).all(simple),
        };
        let prefers = |(capacity, narrow): (&&Capacity, &bool), mask: &NodeMask| {
            let aligned = || capacity.sockets.as_ref().is_some_and(|sockets| sockets.spans_least(mask));
            capacity.holds(mask) && (*narrow || aligned())
        };
        let mut accept = |positions: &[usize], _: &mut Budget| {
            let mask = self.mask(positions);
            Some(self.capacities.iter().zip(narrow).all(|resource| prefers(resource, &mask)))
        };
        let smallest = budget.lend(2, |part| choice.smallest(width, part, &mut accept));
        closer(&choice, smallest, tie, budget, &mut accept)
    }

    /// The best mask that can be reached.
    fn reached(&self, tie: TieBreak, budget: &mut Budget) -> Found {
        let widths: Vec<Width> = (self.capacities.iter())
            .map(|capacity| budget.lend(8, |part| width::narrowest(capacity, self.columns, part)))
            .collect();
        let proven = widths.iter().all(|width| width.proven);
        let Some((room, widest)) = widths.iter().enumerate().max_by_key(|(_, width)| width.width) else {
            return Found::default();
        };
        let count = self.candidates.len();
        if widest.width >= count {
            return Found { mask: Some((0..count).rev().collect()), proven };
        }
        let rooms = self.capacities.iter().map(|capacity| Room::new(capacity, &self.candidates, self.columns));
        let mut sharing = Sharing::new(rooms.collect(), count);
        let outside = |&position: &usize| !widest.mask.contains(self.columns.id(self.candidates[position]));
        (0..count).rev().filter(outside).take(count - widest.width).for_each(|p| sharing.leave_out(p, room));
        let minimal = budget.lend(2, |part| sharing.minimise(part));
        let smallest = Found { mask: Some(sharing.stay()), proven: minimal };
        let found = self.closest_reached(&sharing, smallest, tie, budget);
        Found { proven: found.proven && proven, ..found }
    }

    fn closest_reached(&self, sharing: &Sharing, smallest: Found, tie: TieBreak, budget: &mut Budget) -> Found {
        let count = self.candidates.len();
        let choice = Choice {
            columns: self.columns,
            candidates: &self.candidates,
            must: (0..count).map(|position| sharing.has_to_stay(position)).collect(),
            floors: Vec::new(),
            plain: false,
        };
        let mut accept = |positions: &[usize], budget: &mut Budget| {
            let others: Vec<usize> = (0..count).filter(|position| !positions.contains(position)).collect();
            sharing.can_leave_out(&others, budget)
        };
        closer(&choice, smallest, tie, budget, &mut accept)
    }

    fn mask(&self, positions: &[usize]) -> NodeMask {
        self.columns.mask(positions.iter().map(|&position| self.candidates[position]))
    }
}

/// The closest mask where that is asked for, beginning with the smallest.
fn closer(
    choice: &Choice,
    smallest: Found,
    tie: TieBreak,
    budget: &mut Budget,
    accept: &mut super::subset::Accept,
) -> Found {
    match (tie, smallest.mask) {
        (TieBreak::Closest, Some(start)) => {
            let found = choice.closest(start, budget, accept);
            Found { proven: found.proven && smallest.proven, ..found }
        }
        (_, mask) => Found { mask, proven: smallest.proven },
    }
}
