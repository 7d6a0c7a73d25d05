//! sysfs is the authority; libhwloc adds to it and is checked against it.

use crate::topology::{Machine, MemoryKind};

/// Adds what only libhwloc knows. Other CPUs than in sysfs mean that libhwloc
/// looked at another machine: a root that it can't use silently makes it
/// describe this host. Then it adds nothing.
pub(super) fn merge(mut machine: Machine, seen: &Machine) -> Machine {
    let (ours, theirs) = (machine.online(), seen.online());
    if ours != theirs {
        machine.warnings.push(format!("libhwloc sees CPUs {theirs} and sysfs has {ours}: only sysfs counts"));
        return machine;
    }
    merge_nodes(&mut machine, seen);
    machine.links.extend(&seen.links);
    if machine.cpus.iter().all(|cpu| cpu.kind.is_none()) {
        let kind = |id| seen.cpu(id).and_then(|cpu| cpu.kind.clone());
        machine.cpus.iter_mut().for_each(|cpu| cpu.kind = kind(cpu.id));
    }
    machine
}

fn merge_nodes(machine: &mut Machine, seen: &Machine) {
    let only_hwloc = seen.node_ids().minus(&machine.node_ids());
    if !only_hwloc.is_empty() {
        machine.warnings.push(format!("libhwloc lists nodes {only_hwloc} and sysfs does not: left out"));
    }
    for node in &mut machine.nodes {
        let Some(seen) = seen.node(node.id) else { continue };
        // Newer libhwlocs guess: where there is slower memory too, they take that next to CPUs for HBM.
        if node.memory == MemoryKind::Dram && node.cpus.is_empty() {
            node.memory = seen.memory;
        }
        if node.cpus.is_empty() && node.local_cpus.is_empty() {
            node.local_cpus = seen.local_cpus.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Node;

    #[test]
    fn memory_next_to_cpus_is_no_hbm_whatever_libhwloc_guesses() {
        let node = |id: u32, cpus: &str, memory| Node { id, cpus: cpus.parse().unwrap(), memory, ..Node::default() };
        let machine = |memory| Machine {
            nodes: vec![node(0, "0-3", memory), node(1, "", memory), node(2, "", MemoryKind::Cxl)],
            ..Machine::default()
        };
        let merged = merge(machine(MemoryKind::Dram), &machine(MemoryKind::Hbm));
        let kinds: Vec<MemoryKind> = merged.nodes.iter().map(|node| node.memory).collect();
        assert_eq!(kinds, [MemoryKind::Dram, MemoryKind::Hbm, MemoryKind::Cxl]);
    }
}
