//! `topo --json` says what numactl, lspci and /sys say.

use crate::landing::{listed, printed, topo};
use crate::sys::{attribute, node, read};
use numa_run::topology::CpuSet;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// A node's CPUs, MiB and distances to all nodes in their order.
type Nodes = BTreeMap<u32, (CpuSet, u64, Vec<u64>)>;
/// Hugepages by node and size in KiB: all, free.
type Pools = BTreeMap<(u32, u64), (u64, u64)>;
/// PCI functions: class, vendor and device as four digits each, and the node, none where unknown.
type Functions = BTreeMap<String, (String, String, String, Option<u32>)>;

/// Everything that is compared.
#[derive(Debug, PartialEq)]
struct Seen {
    nodes: Nodes,
    pools: Pools,
    functions: Functions,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

/// What `numa-run topo --json` printed.
fn seen(topo: &Value) -> Seen {
    let id = |node: &Value| number(&node["id"]) as u32;
    let ids: Vec<String> = items(&topo["nodes"]).map(|node| id(node).to_string()).collect();
    let row = |node: &Value| ids.iter().map(|id| number(&node["distances"][id])).collect();
    let nodes = items(&topo["nodes"])
        .map(|node| (id(node), (text(&node["cpus"]).parse().unwrap(), number(&node["memory_kib"]) / 1024, row(node))));
    let pools = items(&topo["nodes"]).flat_map(|node| items(&node["pages"]).map(move |pool| (id(node), pool)));
    let pools =
        pools.map(|(node, pool)| ((node, number(&pool["size_kib"])), (number(&pool["total"]), number(&pool["free"]))));
    let functions = items(&topo["pci"]).map(|function| {
        let place = function["node"].as_u64().map(|node| node as u32);
        let class = text(&function["class"])[..4].to_owned();
        (text(&function["pci"]), (class, text(&function["vendor"]), text(&function["device"]), place))
    });
    Seen { nodes: nodes.collect(), pools: pools.collect(), functions: functions.collect() }
}

fn numactl() -> Nodes {
    let text = printed("numactl --hardware");
    let field = |id: u32, name: &str| {
        let line = format!("node {id} {name}:");
        text.lines()
            .find_map(|found| found.strip_prefix(&line))
            .unwrap_or_else(|| panic!("no `{line}` in {text}"))
            .trim()
            .to_owned()
    };
    let row = |id: u32| {
        let start = format!("{id}:");
        let row = text.lines().find_map(|line| line.trim_start().strip_prefix(&start)).unwrap();
        row.split_whitespace().map(|distance| distance.parse().unwrap()).collect()
    };
    let node = |id: u32| {
        let cpus = field(id, "cpus").split_whitespace().map(|cpu| cpu.parse::<u32>().unwrap()).collect();
        let mib = field(id, "size").strip_suffix(" MB").unwrap().parse().unwrap();
        (id, (cpus, mib, row(id)))
    };
    listed("online").into_iter().map(node).collect()
}

/// `lspci` names a node only where the kernel knows one.
fn lspci() -> Functions {
    let text = printed("lspci -D -n -vmm");
    let function = |record: &str| {
        let field = |name: &str| {
            let value = record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            value.map(str::to_owned)
        };
        let node = field("NUMANode").map(|node| node.parse().unwrap());
        (field("Slot").unwrap(), (field("Class").unwrap(), field("Vendor").unwrap(), field("Device").unwrap(), node))
    };
    text.split("\n\n").filter(|record| !record.trim().is_empty()).map(function).collect()
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn kernel() -> Seen {
    let memory = |id: u32| {
        let text = node(id, "meminfo");
        let total = text.lines().find_map(|line| line.split_once("MemTotal:")).unwrap().1;
        total.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
    };
    let row = |id| node(id, "distance").split(' ').map(|distance| distance.parse().unwrap()).collect();
    let ids = listed("online");
    let nodes = ids.iter().map(|&id| (id, (node(id, "cpulist").parse().unwrap(), memory(id), row(id))));
    let functions = names("/sys/bus/pci/devices").into_iter().map(|bdf| {
        let digits = |name: &str| attribute(&bdf, name)[2..].chars().take(4).collect::<String>();
        // sysfs prints -1 where the firmware names no node.
        let place = attribute(&bdf, "numa_node").parse().ok();
        (bdf.clone(), (digits("class"), digits("vendor"), digits("device"), place))
    });
    let pools = ids.iter().flat_map(|&id| {
        let folder = format!("/sys/devices/system/node/node{id}/hugepages");
        names(&folder).into_iter().map(move |pool| {
            let count = |file: &str| read(&format!("{folder}/{pool}/{file}")).parse().unwrap();
            let size =
                pool.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB")).unwrap().parse().unwrap();
            ((id, size), (count("nr_hugepages"), count("free_hugepages")))
        })
    });
    Seen { nodes: nodes.collect(), pools: pools.collect(), functions: functions.collect() }
}

/// All of them agree, whether the machine was read now or is remembered. Gives what they agree on.
fn agreed() -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let options = format!("--run-dir {}", folder.path().display());
    let now = topo(&options);
    assert!(folder.path().join("machine.snapshot").exists(), "nothing was remembered");
    assert!(now["hwloc"].is_string(), "libhwloc was not asked: {}", now["warnings"]);
    assert_eq!(topo(&options), now, "what is remembered differs");
    let seen = seen(&now);
    assert_eq!(seen, kernel());
    assert_eq!(seen.nodes, numactl());
    assert_eq!(seen.functions, lspci());
    seen
}

/// Functions whose node is known, and those whose node is not.
fn by_locality(seen: &Seen) -> (usize, usize) {
    let known = seen.functions.values().filter(|function| function.3.is_some()).count();
    (known, seen.functions.len() - known)
}

#[test]
fn topo4_is_what_others_say_it_is() {
    let seen = agreed();
    assert_eq!(seen.pools[&(3, 2048)], (32, 32));
    let (known, unknown) = by_locality(&seen);
    assert!(known >= 16 && unknown >= 3, "{known} known, {unknown} unknown");
}

#[test]
fn memless_is_what_others_say_it_is() {
    let seen = agreed();
    assert_eq!((seen.nodes[&1].1, seen.nodes[&3].0.len()), (0, 0));
}

#[test]
fn hole_is_what_others_say_it_is() {
    assert_eq!(agreed().nodes.keys().copied().collect::<Vec<_>>(), [0, 1, 3]);
}

#[test]
fn big_is_what_others_say_it_is() {
    let seen = agreed();
    assert_eq!(seen.nodes.len(), 8);
    assert_eq!(seen.pools[&(5, 2048)].0, 8);
}

#[test]
fn tiers_is_what_others_say_it_is() {
    agreed();
    let kinds: Vec<Value> = items(&topo("")["nodes"]).map(|node| node["memory_kind"].clone()).collect();
    assert_eq!(kinds, ["dram", "dram", "cxl"]);
}

#[test]
fn giga_is_what_others_say_it_is() {
    assert_eq!(agreed().pools[&(2, 1_048_576)], (1, 1));
}

#[test]
fn where_there_is_one_node_everything_is_on_it() {
    let (seen, mut kernel) = (seen(&topo("")), kernel());
    assert!(kernel.functions.values().all(|function| function.3.is_none()));
    kernel.functions.values_mut().for_each(|function| function.3 = Some(0));
    assert_eq!(seen, kernel);
}

#[test]
fn a_page_that_is_taken_is_no_longer_free() {
    let file = "/dev/hugepages/taken";
    printed(&format!("numactl --membind=2 fallocate --length 4M {file}"));
    let seen = agreed();
    fs::remove_file(file).unwrap();
    assert_eq!(seen.pools[&(2, 2048)], (16, 14));
    assert_eq!(agreed().pools[&(2, 2048)], (16, 16));
}

#[test]
fn the_comparison_notices_a_cpu_a_page_and_a_device_in_the_wrong_place() {
    let right = topo("");
    let spoilt = |spoil: fn(&mut Value)| {
        let mut wrong = right.clone();
        spoil(&mut wrong);
        seen(&wrong) != kernel()
    };
    assert!(!spoilt(|_| ()));
    assert!(spoilt(|wrong| wrong["nodes"][1]["cpus"] = "2".into()));
    assert!(spoilt(|wrong| wrong["nodes"][0]["pages"][0]["free"] = 15.into()));
    assert!(spoilt(|wrong| wrong["nodes"][3]["distances"]["0"] = 12.into()));
    assert!(spoilt(|wrong| wrong["pci"][0]["node"] = 0.into()));
}
