//! NUMA nodes, their CPUs, memory and distances.

use super::{Tree, pages};
use crate::topology::{CpuSet, Machine, Node, NodeMask};
use std::path::Path;

pub(super) const NODES: &str = "devices/system/node";

/// Reads again how much memory each node has: a balloon or hotplug changes it
/// while the nodes, and so the snapshot, stay. Call this where memory is asked for.
pub fn refresh_memory(machine: &mut Machine, root: &Path) {
    let tree = Tree::at(root);
    let numa = tree.sys.join(NODES).is_dir();
    for node in &mut machine.nodes {
        let told = if numa { meminfo(&tree, node.id) } else { tree.meminfo() };
        node.memory_kib = told.map_or(node.memory_kib, |text| total(&text));
    }
}

/// The online nodes. Those that are only possible are none.
pub(super) fn read(tree: &mut Tree, online: &CpuSet) -> Vec<Node> {
    let ids = match tree.list::<NodeMask>(format!("{NODES}/online")) {
        Some(ids) => ids,
        None => tree.numbered(NODES, "node"),
    };
    let mut nodes: Vec<Node> = ids.iter().map(|id| node(tree, id, online)).collect();
    if nodes.is_empty() {
        // A kernel without NUMA has no such folder: all is one node.
        let memory_kib = total(&tree.meminfo().unwrap_or_default());
        nodes.push(Node { cpus: online.clone(), memory_kib, ..Node::default() });
    }
    pages::read(tree, &mut nodes);
    attach_memory_only(tree, &mut nodes);
    nodes
}

fn node(tree: &mut Tree, id: u32, online: &CpuSet) -> Node {
    let folder = format!("{NODES}/node{id}");
    let listed = tree.list::<CpuSet>(format!("{folder}/cpulist"));
    let cpus = listed.unwrap_or_else(|| tree.numbered(&folder, "cpu")).and(online);
    let meminfo = meminfo(tree, id);
    if meminfo.is_none() {
        tree.warn(format!("node {id} does not say how much memory it has: taken as none"));
    }
    Node { id, local_cpus: cpus.clone(), cpus, memory_kib: total(&meminfo.unwrap_or_default()), ..Node::default() }
}

fn meminfo(tree: &Tree, id: u32) -> Option<String> {
    tree.text(format!("{NODES}/node{id}/meminfo"))
}

/// `MemTotal` in KiB, from a node's meminfo or the machine's.
fn total(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.split_once("MemTotal:"));
    line.and_then(|(_, value)| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The firmware (HMAT) may name the nodes whose CPUs reach a memory-only node best.
fn attach_memory_only(tree: &Tree, nodes: &mut [Node]) {
    for index in 0..nodes.len() {
        if !nodes[index].cpus.is_empty() {
            continue;
        }
        let id = nodes[index].id;
        // access1 counts CPUs only; access0 may name a generic initiator.
        let initiators = ["access1", "access0"].iter().find_map(|class| {
            let near: NodeMask = tree.numbered(format!("{NODES}/node{id}/{class}/initiators"), "node");
            Some(near).filter(|near| !near.is_empty())
        });
        let near = initiators.unwrap_or_default();
        let cpus = nodes.iter().filter(|node| near.contains(node.id)).flat_map(|node| node.cpus.iter());
        nodes[index].local_cpus = cpus.collect();
    }
}

/// The distance table; empty, with a warning, where it does not fit the nodes.
pub(super) fn distances(tree: &mut Tree, nodes: &[Node]) -> Vec<Vec<u32>> {
    let row = |node: &Node| -> Option<Vec<u32>> {
        let text = tree.text(format!("{NODES}/node{}/distance", node.id))?;
        text.split_whitespace().map(|value| value.parse().ok()).collect()
    };
    let rows: Vec<Vec<u32>> = nodes.iter().filter_map(row).collect();
    // Columns are the online nodes in order, whatever their ids are.
    if rows.len() == nodes.len() && rows.iter().all(|row| row.len() == nodes.len()) {
        return rows;
    }
    if nodes.len() == 1 {
        return vec![vec![10]];
    }
    tree.warn(format!("the distance table does not fit the {} nodes: distances are unknown", nodes.len()));
    Vec::new()
}
