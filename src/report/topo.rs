//! The machine, as tables and as JSON.

use crate::request::Mib;
use crate::topology::{Machine, MemoryKind, Node};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Version of the machine's JSON.
pub const VERSION: u32 = 1;

/// The machine for people.
pub fn text(machine: &Machine) -> String {
    let mut out = String::new();
    let online = machine.online();
    let cores: BTreeSet<u32> = machine.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.core).collect();
    let _ = writeln!(
        out,
        "{}: {} nodes, {} CPUs on {} cores, {} PCI functions",
        machine.source,
        machine.nodes.len(),
        online.len(),
        cores.len(),
        machine.pci.len()
    );
    let mut table = super::table(&["node", "kind", "cpus", "memory", "hugepages", "distances"]);
    for (index, node) in machine.nodes.iter().enumerate() {
        table.add_row([
            node.id.to_string(),
            kind(node).to_owned(),
            node.cpus.to_string(),
            Mib(node.memory_kib / 1024).to_string(),
            pages(node),
            distances(machine, index),
        ]);
    }
    out += &super::text(&table);
    out += &others(machine);
    out += &devices(machine);
    warnings(machine).for_each(|warning| out += &format!("warning: {warning}\n"));
    out
}

fn warnings(machine: &Machine) -> impl Iterator<Item = &String> {
    machine.warnings.iter().chain(&machine.unprobed)
}

/// CPUs that no node holds, offline ones, isolated ones.
fn others(machine: &Machine) -> String {
    let named = |text: &str, these: crate::topology::CpuSet| match these.is_empty() {
        true => String::new(),
        false => format!("{text}: {these}\n"),
    };
    let pick =
        |holds: fn(&crate::topology::Cpu) -> bool| machine.cpus.iter().filter(move |cpu| holds(cpu)).map(|cpu| cpu.id);
    named("cpus of unknown node", pick(|cpu| cpu.online && cpu.node.is_none()).collect())
        + &named("offline cpus", pick(|cpu| !cpu.online).collect())
        + &named("isolated cpus", pick(|cpu| cpu.isolated).collect())
}

fn kind(node: &Node) -> &'static str {
    let memory = match (node.memory, node.memory_kib) {
        (_, 0) => "",
        (MemoryKind::Dram, _) => "dram",
        (MemoryKind::Hbm, _) => "hbm",
        (MemoryKind::Cxl, _) => "cxl",
        (MemoryKind::Pmem, _) => "pmem",
        (MemoryKind::Gpu, _) => "gpu",
    };
    match (node.cpus.is_empty(), memory) {
        (true, "") => "empty",
        (true, _) => "memory only",
        (false, "") => "cpu only",
        (false, "dram") => "cpu+dram",
        (false, "hbm") => "cpu+hbm",
        (false, _) => "cpu+memory",
    }
}

fn pages(node: &Node) -> String {
    let filled = node.pages.iter().filter(|pool| pool.total > 0);
    let one = |pool: &crate::topology::PagePool| {
        let free = pool.free.map(|free| format!(" ({free} free)")).unwrap_or_default();
        format!("{} x {}{free}", pool.total, Mib(pool.size_kib / 1024))
    };
    filled.map(one).collect::<Vec<_>>().join(", ")
}

fn distances(machine: &Machine, row: usize) -> String {
    let row = machine.distances.get(row).map(Vec::as_slice).unwrap_or_default();
    row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn devices(machine: &Machine) -> String {
    let mut table = super::table(&["class", "pci", "vendor:device", "node", "driver", "interfaces"]);
    for function in &machine.pci {
        let Some(class) = crate::resource::pci::class::of(function) else { continue };
        table.add_row([
            class.name.to_owned(),
            function.bdf.to_string(),
            format!("{:04x}:{:04x}", function.vendor, function.device),
            function.node.map_or("unknown".to_owned(), |node| node.to_string()),
            function.driver.clone().unwrap_or_default(),
            function.interfaces.join(" "),
        ]);
    }
    if table.is_empty() { String::new() } else { super::text(&table) }
}

/// The machine for scripts.
pub fn json(machine: &Machine) -> Value {
    json!({
        "version": VERSION,
        "source": machine.source,
        "hwloc": machine.hwloc,
        "nodes": machine.nodes.iter().map(|node| node_json(machine, node)).collect::<Vec<_>>(),
        "cpus": machine.cpus,
        "pci": machine.pci.iter().map(pci_json).collect::<Vec<_>>(),
        "links": machine.links,
        "warnings": warnings(machine).collect::<Vec<_>>(),
    })
}

fn node_json(machine: &Machine, node: &Node) -> Value {
    let distance = |other: &Node| Some((other.id.to_string(), machine.distance(node.id, other.id)?));
    let distances: BTreeMap<String, u32> = machine.nodes.iter().filter_map(distance).collect();
    json!({
        "id": node.id,
        "kind": kind(node),
        "cpus": node.cpus.to_string(),
        "memory_kib": node.memory_kib,
        "memory_kind": node.memory,
        "locality": machine.locality(node.id),
        "pages": node.pages,
        "distances": distances,
    })
}

fn pci_json(function: &crate::topology::PciFunction) -> Value {
    json!({
        "pci": function.bdf,
        "class": format!("{:06x}", function.class),
        "vendor": format!("{:04x}", function.vendor),
        "device": format!("{:04x}", function.device),
        "node": function.node,
        "driver": function.driver,
        "interfaces": function.interfaces,
        "physical_function": function.physical_function,
        "sriov": function.sriov.map(|sriov| json!({"total": sriov.total, "made": sriov.made})),
        "above": function.above,
    })
}
