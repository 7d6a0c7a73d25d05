//! The machines captured from the QEMU guest, read from their files: what numactl, lspci and hwloc printed there is what
//! `topo` says of them here. `machines/guest/README.md` tells how they were made.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod machines;

use machines::{guest, guest_file};
use numa_run::topology::CpuSet;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// A machine, as the lists of its nodes and CPUs, and how many PCI functions it has.
struct Shape {
    name: &'static str,
    nodes: &'static str,
    online: &'static str,
    isolated: &'static str,
    functions: usize,
    /// How many of them are on no known node: everything on the main bus.
    unknown: usize,
}

const MACHINES: [Shape; 6] = [
    Shape { name: "big", nodes: "0-7", online: "0-15", isolated: "", functions: 10, unknown: 6 },
    Shape { name: "hole", nodes: "0-1,3", online: "0-5", isolated: "", functions: 7, unknown: 5 },
    Shape { name: "isolated", nodes: "0-3", online: "0-7", isolated: "2-3,6-7", functions: 30, unknown: 8 },
    Shape { name: "memless", nodes: "0-3", online: "0-7", isolated: "", functions: 10, unknown: 6 },
    Shape { name: "tiers", nodes: "0-2", online: "0-7", isolated: "", functions: 4, unknown: 4 },
    Shape { name: "topo4", nodes: "0-3", online: "0-7", isolated: "", functions: 30, unknown: 8 },
];

/// CPUs, MiB and distances of a node.
type Nodes = BTreeMap<u64, (CpuSet, u64, Vec<u64>)>;

fn topo(source: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numa-run"));
    let output = command.args(["topo", "--json", "--topology", source]).output().unwrap();
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn root(name: &str) -> Value {
    let (_folder, root) = guest(name);
    topo(&format!("root:{}", root.display()))
}

fn text(name: &str, kind: &str) -> String {
    let file = guest_file(&format!("{name}.{kind}"));
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn cpus_where(topo: &Value, field: &str) -> String {
    let these = items(&topo["cpus"]).iter().filter(|cpu| cpu[field] == true);
    these.map(|cpu| cpu["id"].as_u64().unwrap() as u32).collect::<CpuSet>().to_string()
}

fn nodes(topo: &Value) -> Nodes {
    let ids = || items(&topo["nodes"]).iter().map(|node| node["id"].as_u64().unwrap());
    let node = |(id, node): (u64, &Value)| {
        let row = ids().map(|other| node["distances"][other.to_string()].as_u64().unwrap()).collect();
        let mib = node["memory_kib"].as_u64().unwrap() / 1024;
        (id, (node["cpus"].as_str().unwrap().parse().unwrap(), mib, row))
    };
    ids().zip(items(&topo["nodes"])).map(node).collect()
}

/// `node 0 cpus: 0 1`, `node 0 size: 968 MB`, and a table of distances with a row for each node.
fn numactl(text: &str) -> Nodes {
    let fields = |mark: &str| -> BTreeMap<u64, String> {
        let field = |line: &str| {
            let (node, value) = line.strip_prefix("node ")?.split_once(mark)?;
            Some((node.parse().ok()?, value.trim().to_owned()))
        };
        text.lines().filter_map(field).collect()
    };
    let table = text.lines().skip_while(|line| !line.starts_with("node distances")).skip(2);
    let numbers = |row: &str| row.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let rows = table.filter_map(|line| line.split_once(':')).map(|(_, row)| numbers(row));
    let (cpus, sizes) = (fields(" cpus:"), fields(" size:"));
    let node = |((id, cpus), row): ((&u64, &String), Vec<u64>)| {
        let cpus = cpus.split_whitespace().map(|cpu| cpu.parse::<u32>().unwrap()).collect();
        (*id, (cpus, sizes[id].strip_suffix(" MB").unwrap().parse().unwrap(), row))
    };
    cpus.iter().zip(rows).map(node).collect()
}

#[test]
fn each_machine_is_read_as_its_shape_describes_it() {
    for Shape { name, nodes, online, isolated, functions, unknown } in MACHINES {
        let topo = root(name);
        let ids: CpuSet = items(&topo["nodes"]).iter().map(|node| node["id"].as_u64().unwrap() as u32).collect();
        let nowhere = items(&topo["pci"]).iter().filter(|function| function["node"].is_null()).count();
        assert_eq!(ids.to_string(), nodes, "{name}");
        assert_eq!(cpus_where(&topo, "online"), online, "{name}");
        assert_eq!(cpus_where(&topo, "isolated"), isolated, "{name}");
        assert_eq!((items(&topo["pci"]).len(), nowhere), (functions, unknown), "{name}");
    }
}

#[test]
fn numactl_printed_the_same_nodes_on_each_machine() {
    for Shape { name, .. } in MACHINES {
        assert_eq!(nodes(&root(name)), numactl(&text(name, "numactl.txt")), "{name}");
    }
    let moved = text("topo4", "numactl.txt").replace("node 1 cpus: 2 3", "node 1 cpus: 2");
    assert_ne!(nodes(&root("topo4")), numactl(&moved));
}

#[test]
fn lspci_printed_the_same_functions_and_their_nodes_on_each_machine() {
    for Shape { name, .. } in MACHINES {
        let text = text(name, "lspci.txt");
        let field = |record: &str, field: &str| {
            record.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t")).map(str::to_owned)
        };
        let records = text.split("\n\n").filter(|record| !record.trim().is_empty());
        let printed: Vec<_> = records
            .map(|record| {
                let place: Option<u64> = field(record, "NUMANode").map(|node| node.parse().unwrap());
                (["Slot", "Class", "Vendor", "Device"].map(|name| field(record, name).unwrap()), place)
            })
            .collect();
        let topo = root(name);
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let function = |function: &Value| {
            let class = word(&function["class"])[..4].to_owned();
            let words = [word(&function["pci"]), class, word(&function["vendor"]), word(&function["device"])];
            (words, function["node"].as_u64())
        };
        assert_eq!(items(&topo["pci"]).iter().map(function).collect::<Vec<_>>(), printed, "{name}");
    }
}

/// An export has the total of hugepages but not the free ones, and hwloc 2 leaves nodes without memory out.
#[cfg(feature = "probe")]
#[test]
fn hwloc_exported_the_same_nodes_with_memory_on_each_machine() {
    for Shape { name, .. } in MACHINES {
        let (root, export) = (root(name), topo(guest_file(&format!("{name}.xml")).to_str().unwrap()));
        let with_memory = |topo: &Value| -> Vec<_> {
            let nodes = items(&topo["nodes"]).iter().filter(|node| node["memory_kib"] != 0);
            let pages =
                |node: &Value| items(&node["pages"]).iter().map(|pool| pool["total"].clone()).collect::<Vec<_>>();
            nodes.map(|node| (["id", "cpus", "memory_kib"].map(|field| node[field].clone()), pages(node))).collect()
        };
        assert_eq!(with_memory(&export), with_memory(&root), "{name}");
        assert_eq!(cpus_where(&export, "online"), cpus_where(&root, "online"), "{name}");
        let nics = |topo: &Value| -> Vec<_> {
            let nics = items(&topo["pci"]).iter().filter(|function| function["class"] == "020000");
            nics.map(|nic| ["pci", "vendor", "device"].map(|field| nic[field].clone())).collect()
        };
        assert_eq!(nics(&export), nics(&root), "{name}");
    }
}
