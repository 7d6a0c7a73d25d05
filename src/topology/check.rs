//! Contradictions in a description. They are said, never a reason to stop.

use super::{CpuSet, Machine};
use std::collections::BTreeMap;

/// Adds a warning for each way in which the description contradicts itself.
pub fn warn_of_contradictions(machine: &mut Machine) {
    let found = [crossing(machine), nodeless(machine), flat(machine)];
    machine.warnings.extend(found.into_iter().flatten());
}

/// Packages and nodes nest, on real hardware. Nodes are believed.
fn crossing(machine: &Machine) -> Option<String> {
    let mut packages: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in machine.cpus.iter().filter(|cpu| cpu.online) {
        packages.entry(cpu.socket).or_default().insert(cpu.id);
    }
    let crosses = |a: &CpuSet, b: &CpuSet| !a.is_disjoint(b) && !a.is_subset(b) && !b.is_subset(a);
    packages.iter().find_map(|(package, cpus)| {
        let node = machine.nodes.iter().find(|node| crosses(&node.cpus, cpus))?;
        Some(format!("package {package} and node {} cross: the description contradicts itself, nodes count", node.id))
    })
}

fn nodeless(machine: &Machine) -> Option<String> {
    let lost: CpuSet = machine.cpus.iter().filter(|cpu| cpu.online && cpu.node.is_none()).map(|cpu| cpu.id).collect();
    (!lost.is_empty()).then(|| format!("CPUs {lost} belong to no node"))
}

/// A hypervisor that doesn't tell distances makes them all alike.
fn flat(machine: &Machine) -> Option<String> {
    let nodes = machine.nodes.len();
    let mut values = (0..nodes).flat_map(|row| (0..nodes).filter(move |&column| column != row).map(move |c| (row, c)));
    let first = machine.distances.first()?.get(1)?;
    let alike = values.all(|(row, column)| machine.distances.get(row).and_then(|row| row.get(column)) == Some(first));
    (nodes > 2 && alike).then(|| "all distances equal: closeness not known".to_owned())
}
