//! Members of a group that are each on one node, wherever the span of the group
//! has room for all of them so.

use crate::hint::relative::{self, Lacking, Problem, Solution};
use crate::request::{Request, Scope};
use crate::resource::{Allocation, Counts, HintProvider, Units};
use crate::topology::{Machine, NodeMask};
use std::collections::BTreeMap;

/// Members that are placed together; none where each launch or member is placed
/// by itself, no alignment is sought, or the split over nodes is laid down.
pub fn members(request: &Request) -> Option<u64> {
    let members = request.members.filter(|members| members.scope == Scope::Group)?;
    (request.policy.seeks_alignment() && !request.distribute).then_some(members.count.into())
}

/// The best placement on whose span so many equal members are placed: on one
/// node each, if all can be. The span stays as wide as it was.
///
/// # Errors
/// A resource of which fewer units are free than wanted.
pub fn solve(problem: &Problem<'_>, members: u64) -> Result<Solution, Lacking> {
    let solution = relative::solve(problem)?;
    let inside: Vec<usize> =
        (0..problem.nodes.len()).filter(|&at| solution.span.contains(&problem.nodes[at])).collect();
    let rows = &problem.resources;
    let free = rows.iter().map(|row| inside.iter().map(|&at| row.free[at]).collect()).collect();
    let wanted: Vec<u64> = rows.iter().map(|row| row.units + row.unknown).collect();
    let Some(whole) = on_one_node_each(&wanted, free, members).filter(|_| rows.iter().all(|row| row.unknown == 0))
    else {
        return Ok(solution);
    };
    let mut x = vec![vec![0; problem.nodes.len()]; rows.len()];
    for (x, whole) in x.iter_mut().zip(whole) {
        inside.iter().zip(whole).for_each(|(&at, units)| x[at] = units);
    }
    Ok(relative::reshaped(problem, &solution, x))
}

/// Units by resource and node, as many members as can be on the first nodes;
/// none where they are not all on one node each.
fn on_one_node_each(wanted: &[u64], free: Vec<Vec<u64>>, members: u64) -> Option<Vec<Vec<u64>>> {
    let sizes: Vec<u64> = wanted.iter().map(|units| units / members).collect();
    if wanted.iter().any(|units| !units.is_multiple_of(members)) || sizes.iter().all(|&size| size == 0) {
        return None;
    }
    let mut left = members;
    let mut units = vec![Vec::new(); sizes.len()];
    for node in 0..free.first().map_or(0, Vec::len) {
        let rooms = free.iter().zip(&sizes).filter_map(|(free, size)| free[node].checked_div(*size));
        let here = rooms.min().unwrap_or(0).min(left);
        left -= here;
        units.iter_mut().zip(&sizes).for_each(|(row, size)| row.push(here * size));
    }
    (left == 0).then_some(units)
}

/// What the kubelet's merge leaves open: members on one node each within the
/// merged mask; none where they are not.
pub fn over(
    machine: &Machine,
    providers: &[Box<dyn HintProvider>],
    mask: &NodeMask,
    members: u64,
) -> Option<Vec<Allocation>> {
    let nodes: Vec<u32> = mask.iter().collect();
    let counts: Vec<Counts> = providers.iter().map(|provider| provider.counts()).collect();
    if counts.iter().any(|counts| counts.unknown > 0) {
        return None;
    }
    let row = |counts: &Counts| nodes.iter().map(|node| counts.free.get(node).copied().unwrap_or(0)).collect();
    let wanted: Vec<u64> = counts.iter().map(|counts| counts.units).collect();
    let rows = on_one_node_each(&wanted, counts.iter().map(row).collect(), members)?;
    let by_node = |row: &Vec<u64>| -> BTreeMap<u32, u64> { nodes.iter().copied().zip(row.iter().copied()).collect() };
    let names = providers.iter().map(|provider| provider.name().to_owned());
    let units: Units = names.zip(rows.iter().map(by_node)).collect();
    let granted = providers.iter().map(|provider| provider.allocate_on(&units).ok()).collect::<Option<Vec<_>>>()?;
    // Requests that draw from the same devices may have been promised the same one.
    let as_wished = |(granted, row): (&Allocation, &Vec<u64>)| {
        let unit = granted.per_node.values().sum::<u64>().checked_div(row.iter().sum()).unwrap_or(1);
        let on = |lead: u32| -> u64 {
            granted
                .per_node
                .iter()
                .filter(|(node, _)| machine.locality(**node) == Some(lead))
                .map(|(_, units)| units)
                .sum()
        };
        granted.unknown == 0 && nodes.iter().zip(row).all(|(&node, units)| on(node) == units * unit)
    };
    granted.iter().zip(&rows).all(as_wished).then_some(granted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_on_one_node_each_or_it_is_none() {
        let each = |wanted: &[u64], free: &[&[u64]], members| {
            on_one_node_each(wanted, free.iter().map(|row| row.to_vec()).collect(), members)
        };
        assert_eq!(each(&[24], &[&[16, 16]], 2), Some(vec![vec![12, 12]]));
        assert_eq!(each(&[18, 3], &[&[16, 16], &[2, 2]], 3), Some(vec![vec![12, 6], vec![2, 1]]));
        assert_eq!(each(&[30], &[&[16, 14]], 2), None, "15 are on no second node");
        assert_eq!(each(&[3], &[&[4, 4]], 2), None);
        assert_eq!(each(&[], &[], 2), None);
    }
}
