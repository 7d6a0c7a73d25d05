//! What a node's memory is made of, as far as the kernel says.

use super::Tree;
use crate::topology::{MemoryKind, Node, NodeMask};
use std::fs;

const TIERS: &str = "devices/virtual/memory_tiering";
const DAX: &str = "bus/dax/devices";
/// The tier that the kernel gives to ordinary memory: its abstract distance
/// 576 in chunks of 128.
const DRAM_TIER: u32 = 4;

/// Sets the kind of each node without CPUs. Memory next to CPUs is DRAM.
pub(super) fn read(tree: &Tree, nodes: &mut [Node]) {
    let by_device = devices(tree);
    let by_tier = tiers(tree);
    for node in nodes.iter_mut().filter(|node| node.cpus.is_empty()) {
        let mut sources = by_device.iter().chain(&by_tier);
        if let Some((_, kind)) = sources.find(|(nodes, _)| nodes.contains(node.id)) {
            node.memory = *kind;
        }
    }
}

/// Memory that came through a DAX device: the device's place tells what it is.
fn devices(tree: &Tree) -> Vec<(NodeMask, MemoryKind)> {
    let kind = |name: &String| {
        let place = fs::read_link(tree.sys.join(DAX).join(name)).ok()?;
        let place = place.to_string_lossy().into_owned();
        let kind = match place {
            _ if place.contains("/ndbus") => MemoryKind::Pmem,
            _ if place.contains("/cxl") || place.contains("/region") => MemoryKind::Cxl,
            _ => return None,
        };
        // -1 where the memory has no node of its own.
        let node = tree.number::<i64>(format!("{DAX}/{name}/target_node"))?;
        Some((NodeMask::one(u32::try_from(node).ok()?), kind))
    };
    tree.names(DAX).iter().filter_map(kind).collect()
}

fn tiers(tree: &Tree) -> Vec<(NodeMask, MemoryKind)> {
    let tiers: Vec<u32> = tree.numbered(TIERS, "memory_tier");
    let nodes = |tier: u32| tree.text(format!("{TIERS}/memory_tier{tier}/nodelist"))?.parse().ok();
    let kind = |tier: u32| match tier.cmp(&DRAM_TIER) {
        std::cmp::Ordering::Less => MemoryKind::Hbm,
        std::cmp::Ordering::Equal => MemoryKind::Dram,
        std::cmp::Ordering::Greater => MemoryKind::Cxl,
    };
    tiers.into_iter().filter_map(|tier| Some((nodes(tier)?, kind(tier)))).collect()
}
