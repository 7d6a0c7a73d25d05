//! Whether all that is handed out lies in one locality, and what to say where it does not.

use super::{Need, Plan};
use crate::resource::{self, Allocation, Device, Granted};
use crate::topology::{Machine, NodeMask};

/// What everything should be near to: the nodes of the CPUs, without CPUs the
/// first node that something was taken from.
struct Home {
    nodes: NodeMask,
    name: String,
}

/// Sets `aligned` and says, one line each, what is not.
pub fn look(machine: &Machine, plan: &mut Plan) {
    let localities: NodeMask = plan.span.iter().map(|node| machine.locality(node).unwrap_or(node)).collect();
    let unknown = plan.allocations.iter().any(|allocation| allocation.unknown > 0);
    let home = home(&plan.allocations, &localities);
    let bound = bound(machine, plan, &home);
    plan.aligned = localities.len() <= 1 && !unknown && bound.is_none();
    if !plan.aligned {
        let remarks = remarks(machine, &plan.allocations, &home);
        plan.remarks.extend(remarks.into_iter().chain(bound).map(|remark| format!("not aligned: {remark}")));
    }
}

fn home(allocations: &[Allocation], localities: &NodeMask) -> Home {
    match allocations.iter().find(|allocation| matches!(allocation.granted, Granted::Cpus(_))) {
        Some(cpus) => Home { nodes: cpus.nodes(), name: "its CPUs".to_owned() },
        None => {
            let nodes: NodeMask = localities.first().into_iter().collect();
            Home { name: format!("node {nodes}"), nodes }
        }
    }
}

fn remarks(machine: &Machine, allocations: &[Allocation], home: &Home) -> Vec<String> {
    let mut remarks = Vec::new();
    if home.nodes.len() > 1 {
        remarks.push(format!("cpus are on nodes {}{}", home.nodes, apart(machine, &home.nodes)));
    }
    for allocation in allocations {
        match &allocation.granted {
            Granted::Cpus(_) if allocation.unknown > 0 => {
                remarks.push(format!("the node of {} cpus is unknown", allocation.unknown));
            }
            Granted::Cpus(_) => {}
            Granted::Mib(_) | Granted::Pages { .. } => remarks.extend(memory(machine, allocation, home)),
            Granted::Devices(grant) => {
                remarks.extend(
                    grant.devices.iter().filter_map(|device| remote(machine, &allocation.resource, device, home)),
                );
            }
        }
    }
    remarks
}

/// Memory that is not accounted and was told to come from elsewhere.
fn bound(machine: &Machine, plan: &Plan, home: &Home) -> Option<String> {
    let accounted = plan.allocations.iter().any(|allocation| matches!(allocation.granted, Granted::Mib(_)));
    let binding = plan.memory.as_ref().filter(|binding| binding.need == Need::Must && !accounted)?;
    let away = |node: &u32| !home.nodes.contains(machine.locality(*node).unwrap_or(*node));
    let node = binding.nodes.iter().find(away).filter(|_| !home.nodes.is_empty())?;
    Some(format!("memory may come from node {node}{}", far(machine, node, home)))
}

fn remote(machine: &Machine, class: &str, device: &Device, home: &Home) -> Option<String> {
    let Some(node) = device.node else {
        return Some(format!("the node of {class} {} is unknown", device.bdf));
    };
    let lead = machine.locality(node).unwrap_or(node);
    let away = !home.nodes.contains(lead);
    away.then(|| format!("{class} {} is on node {node}{}", device.bdf, far(machine, node, home)))
}

fn memory(machine: &Machine, allocation: &Allocation, home: &Home) -> Vec<String> {
    let away = |node: u32| !home.nodes.contains(machine.locality(node).unwrap_or(node));
    let away = allocation.per_node.iter().filter(|&(&node, _)| away(node));
    let name = &allocation.resource;
    away.map(|(&node, &units)| {
        let (units, are) = (resource::spoken(name, units), if units == 1 || name == "memory" { "is" } else { "are" });
        format!("{units} {are} on node {node}{}", far(machine, node, home))
    })
    .collect()
}

/// `, distance 21 from its CPUs`: from the nearest of them.
fn far(machine: &Machine, node: u32, home: &Home) -> String {
    let least = home.nodes.iter().filter_map(|from| machine.distance(from, node)).min();
    least.map(|distance| format!(", distance {distance} from {}", home.name)).unwrap_or_default()
}

fn apart(machine: &Machine, nodes: &NodeMask) -> String {
    let pairs = nodes.iter().flat_map(|from| nodes.iter().filter(move |&to| to != from).map(move |to| (from, to)));
    let most = pairs.filter_map(|(from, to)| machine.distance(from, to)).max();
    most.map(|distance| format!(", distance up to {distance}")).unwrap_or_default()
}
