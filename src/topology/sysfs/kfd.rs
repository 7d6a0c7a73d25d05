//! Links between AMD's GPUs, as the kernel's compute driver tells them.

use super::Tree;
use crate::topology::{Bdf, Link, PciFunction};
use std::collections::BTreeMap;

/// The second is where the first points, should a capture have lost the link.
const NODES: [&str; 2] = ["class/kfd/kfd/topology/nodes", "devices/virtual/kfd/kfd/topology/nodes"];
/// Links through one hop, and those that go by way of others.
const LINKS: [&str; 2] = ["io_links", "p2p_links"];
/// Type of a link that is xGMI.
const XGMI: u64 = 11;
/// The driver's weight of one hop over xGMI.
const HOP: u64 = 15;
/// MB/s over one link of 16 lanes at 23 GT/s; drivers before Linux 5.15, and for GPUs before MI200, tell none.
const ONE_LINK: u64 = 46_000;
/// Base classes of what computes: display and processing accelerators.
const COMPUTE: [u32; 2] = [0x03, 0x12];

/// All xGMI links between functions that there are, in the order of their ends.
pub(super) fn links(tree: &Tree, functions: &[PciFunction]) -> Vec<Link> {
    let Some(folder) = NODES.into_iter().find(|folder| tree.sys.join(folder).is_dir()) else { return Vec::new() };
    let nodes = tree.names(folder);
    // A GPU in partitions has several nodes.
    let ends: BTreeMap<u64, Bdf> =
        nodes.iter().filter_map(|node| Some((node.parse().ok()?, end(tree, folder, node, functions)?))).collect();
    let mut widest: BTreeMap<(Bdf, Bdf), u64> = BTreeMap::new();
    for link in nodes.iter().flat_map(|node| links_of(tree, &format!("{folder}/{node}"))) {
        let (Some(&a), Some(&b)) = (ends.get(&link.from), ends.get(&link.to)) else { continue };
        if a != b {
            let known = widest.entry((a.min(b), a.max(b))).or_default();
            *known = link.bandwidth.max(*known);
        }
    }
    let weight = |bandwidth| u32::try_from(bandwidth).unwrap_or(u32::MAX);
    widest.into_iter().map(|((a, b), bandwidth)| Link { a, b, weight: weight(bandwidth) }).collect()
}

/// The function that a node of the driver is; none for processors.
fn end(tree: &Tree, folder: &str, node: &str, functions: &[PciFunction]) -> Option<Bdf> {
    let properties = properties(tree, &format!("{folder}/{node}"))?;
    let number = |name: &str| properties.get(name).copied();
    let place = number("location_id").filter(|_| number("simd_count") > Some(0))?;
    let function = Bdf {
        domain: number("domain").unwrap_or(0).try_into().ok()?,
        bus: (place >> 8 & 0xff) as u8,
        device: (place >> 3 & 0x1f) as u8,
        function: (place & 7) as u8,
    };
    // Some drivers put the number of a partition where the function was.
    let known = |bdf: &Bdf| {
        let at = functions.binary_search_by_key(bdf, |function| function.bdf);
        at.is_ok_and(|at| COMPUTE.contains(&(functions[at].class >> 16)))
    };
    [function, Bdf { function: 0, ..function }].into_iter().find(known)
}

/// One direction of a link.
struct Way {
    from: u64,
    to: u64,
    bandwidth: u64,
}

fn links_of(tree: &Tree, node: &str) -> Vec<Way> {
    let files = LINKS.iter().flat_map(|kind| {
        let folder = format!("{node}/{kind}");
        tree.names(&folder).into_iter().map(move |name| format!("{folder}/{name}"))
    });
    files.filter_map(|link| way(&properties(tree, &link)?)).collect()
}

fn way(properties: &BTreeMap<String, u64>) -> Option<Way> {
    let number = |name: &str| properties.get(name).copied();
    if number("type") != Some(XGMI) {
        return None;
    }
    // Through other GPUs, how many links there are is unknown: the driver says 0 at most, and one at least.
    let told = number("max_bandwidth").filter(|&bandwidth| bandwidth > 0);
    let one = number("min_bandwidth").filter(|&bandwidth| bandwidth > 0).unwrap_or(ONE_LINK);
    let hops = number("weight").map_or(1, |weight| weight.div_ceil(HOP)).max(1);
    Some(Way { from: number("node_from")?, to: number("node_to")?, bandwidth: told.unwrap_or(one / hops) })
}

/// The lines `name number` of a folder's properties. A node that the caller's cgroup may not see is an error to read.
fn properties(tree: &Tree, folder: &str) -> Option<BTreeMap<String, u64>> {
    let text = tree.text(format!("{folder}/properties"))?;
    let line = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    Some(text.lines().filter_map(line).collect())
}
