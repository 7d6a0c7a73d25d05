//! Whether all that is handed out lies in one locality, and what to say where it does not.

use super::Plan;
use crate::resource::{self, Allocation, Device, Granted};
use crate::topology::{Machine, NodeMask};

/// Sets `aligned` and says, one line each, what is not.
pub fn look(machine: &Machine, plan: &mut Plan) {
    let localities: NodeMask = plan.span.iter().map(|node| machine.locality(node).unwrap_or(node)).collect();
    let unknown = plan.allocations.iter().any(|allocation| allocation.unknown > 0);
    plan.aligned = localities.len() <= 1 && !unknown;
    if !plan.aligned {
        let remarks = remarks(machine, &plan.allocations, &localities);
        plan.remarks.extend(remarks.into_iter().map(|remark| format!("not aligned: {remark}")));
    }
}

fn remarks(machine: &Machine, allocations: &[Allocation], localities: &NodeMask) -> Vec<String> {
    let cpus = allocations.iter().find(|allocation| matches!(allocation.granted, Granted::Cpus(_)));
    let home: NodeMask = cpus.map_or_else(|| localities.first().into_iter().collect(), Allocation::nodes);
    let mut remarks = Vec::new();
    if home.len() > 1 {
        remarks.push(format!("cpus are on nodes {home}{}", apart(machine, &home)));
    }
    for allocation in allocations {
        match &allocation.granted {
            Granted::Cpus(_) if allocation.unknown > 0 => {
                remarks.push(format!("the node of {} cpus is unknown", allocation.unknown));
            }
            Granted::Cpus(_) => {}
            Granted::Mib(_) | Granted::Pages { .. } => remarks.extend(memory(machine, allocation, &home)),
            Granted::Devices(devices) => {
                remarks
                    .extend(devices.iter().filter_map(|device| remote(machine, &allocation.resource, device, &home)));
            }
        }
    }
    remarks
}

fn remote(machine: &Machine, class: &str, device: &Device, home: &NodeMask) -> Option<String> {
    let Some(node) = device.node else {
        return Some(format!("the node of {class} {} is unknown", device.bdf));
    };
    let lead = machine.locality(node).unwrap_or(node);
    (!home.contains(lead)).then(|| format!("{class} {} is on node {node}{}", device.bdf, far(machine, node, home)))
}

fn memory(machine: &Machine, allocation: &Allocation, home: &NodeMask) -> Vec<String> {
    let away = allocation.per_node.iter().filter(|&(&node, _)| !home.contains(machine.locality(node).unwrap_or(node)));
    let name = &allocation.resource;
    away.map(|(&node, &units)| {
        let (units, are) = (resource::spoken(name, units), if units == 1 || name == "memory" { "is" } else { "are" });
        format!("{units} {are} on node {node}{}", far(machine, node, home))
    })
    .collect()
}

/// `, distance 21 from its CPUs`: from the nearest of them.
fn far(machine: &Machine, node: u32, home: &NodeMask) -> String {
    let least = home.iter().filter_map(|from| machine.distance(from, node)).min();
    least.map(|distance| format!(", distance {distance} from its CPUs")).unwrap_or_default()
}

fn apart(machine: &Machine, nodes: &NodeMask) -> String {
    let pairs = nodes.iter().flat_map(|from| nodes.iter().filter(move |&to| to != from).map(move |to| (from, to)));
    let most = pairs.filter_map(|(from, to)| machine.distance(from, to)).max();
    most.map(|distance| format!(", distance up to {distance}")).unwrap_or_default()
}
