//! Hugepage pools per node.

use super::Tree;
use super::nodes::NODES;
use crate::topology::{Machine, Node, PagePool};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const GLOBAL: &str = "kernel/mm/hugepages";

/// Reads every pool again. A Machine from a snapshot has old counts: call this
/// where pages are asked for.
pub fn refresh_pages(machine: &mut Machine, root: &Path) {
    let tree = Tree::at(root);
    read(&tree, &mut machine.nodes);
    machine.promised_pages = promised(&tree);
}

/// Fills in the pools. A size that the machine knows is listed on every node.
pub(super) fn read(tree: &Tree, nodes: &mut [Node]) {
    let numa = tree.sys.join(NODES).is_dir();
    let folder = |node: &Node| match numa {
        true => format!("{NODES}/node{}/hugepages", node.id),
        false => GLOBAL.to_owned(),
    };
    let mut sizes: BTreeSet<u64> = sizes(tree, GLOBAL).collect();
    nodes.iter().for_each(|node| sizes.extend(self::sizes(tree, &folder(node))));
    for node in nodes {
        let folder = folder(node);
        node.pages = sizes.iter().map(|&size_kib| pool(tree, &folder, size_kib)).collect();
    }
}

/// Free pages that are promised to mappings, by size.
pub(super) fn promised(tree: &Tree) -> BTreeMap<u64, u64> {
    let count = |size: u64| tree.number(format!("{GLOBAL}/hugepages-{size}kB/resv_hugepages"));
    sizes(tree, GLOBAL).filter_map(|size| Some((size, count(size)?))).collect()
}

fn sizes<'a>(tree: &'a Tree, folder: &str) -> impl Iterator<Item = u64> + use<'a> {
    let size = |name: String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok();
    tree.names(folder).into_iter().filter_map(size)
}

fn pool(tree: &Tree, folder: &str, size_kib: u64) -> PagePool {
    let count = |name: &str| tree.number(format!("{folder}/hugepages-{size_kib}kB/{name}")).unwrap_or(0);
    PagePool { size_kib, total: count("nr_hugepages"), free: Some(count("free_hugepages")) }
}
