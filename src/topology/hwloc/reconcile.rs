//! sysfs is the authority; libhwloc adds to it and is checked against it.

use crate::topology::{Machine, MemoryKind, Node};

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
    let only_hbm = is_only_hbm(machine, seen);
    for node in &mut machine.nodes {
        let Some(seen) = seen.node(node.id) else { continue };
        // Newer libhwlocs guess: where there is slower memory too, they take that next to CPUs for HBM.
        if node.memory == MemoryKind::Dram && (node.cpus.is_empty() || only_hbm) {
            node.memory = seen.memory;
        }
        if node.cpus.is_empty() && node.local_cpus.is_empty() {
            node.local_cpus = seen.local_cpus.clone();
        }
    }
}

/// True where libhwloc takes all memory for HBM: there is nothing slower that it could have guessed by.
fn is_only_hbm(machine: &Machine, seen: &Machine) -> bool {
    let hbm = |node: &Node| seen.node(node.id).is_some_and(|seen| seen.memory == MemoryKind::Hbm);
    let kinds = [MemoryKind::Dram, MemoryKind::Hbm];
    machine.nodes.iter().filter(|node| node.memory_kib > 0).all(|node| hbm(node) && kinds.contains(&node.memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u32, cpus: &str, memory: MemoryKind) -> Node {
        Node { id, cpus: cpus.parse().unwrap(), memory, memory_kib: 1, ..Node::default() }
    }

    fn kinds(machine: &Machine) -> Vec<MemoryKind> {
        machine.nodes.iter().map(|node| node.memory).collect()
    }

    #[test]
    fn memory_next_to_cpus_is_no_hbm_whatever_libhwloc_guesses() {
        let machine = |memory| Machine {
            nodes: vec![node(0, "0-3", memory), node(1, "", memory), node(2, "", MemoryKind::Cxl)],
            ..Machine::default()
        };
        let merged = merge(machine(MemoryKind::Dram), &machine(MemoryKind::Hbm));
        assert_eq!(kinds(&merged), [MemoryKind::Dram, MemoryKind::Hbm, MemoryKind::Cxl]);
    }

    #[test]
    fn memory_next_to_cpus_is_hbm_where_libhwloc_sees_no_other() {
        let machine =
            |memory| Machine { nodes: vec![node(0, "0-3", memory), node(1, "4-7", memory)], ..Machine::default() };
        let hbm = machine(MemoryKind::Hbm);
        assert_eq!(kinds(&merge(machine(MemoryKind::Dram), &hbm)), [MemoryKind::Hbm; 2]);
        // One that libhwloc takes for ordinary memory is what it compared with.
        let mut two = hbm.clone();
        two.nodes[1].memory = MemoryKind::Dram;
        assert_eq!(kinds(&merge(machine(MemoryKind::Dram), &two)), [MemoryKind::Dram; 2]);
        // So is a node that only sysfs has.
        let mut larger = machine(MemoryKind::Dram);
        larger.nodes.push(node(2, "", MemoryKind::Cxl));
        assert_eq!(kinds(&merge(larger, &hbm)), [MemoryKind::Dram, MemoryKind::Dram, MemoryKind::Cxl]);
    }
}
