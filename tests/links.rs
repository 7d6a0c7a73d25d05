//! Links between GPUs, from trees of files as the drivers write them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod machines;
#[cfg(feature = "probe")]
#[path = "links/nvml.rs"]
mod nvml;

use machines::Tree;
use numa_run::topology::{Link, sysfs};

const NODES: &str = "devices/virtual/kfd/kfd/topology/nodes";

/// A machine of one node with GPUs at 0000:10:00.0, 0000:11:00.0, ... whose class is given.
fn with_gpus(class: &str, count: u32) -> Tree {
    let tree = Tree::of(&[(0, "0-3", 1024, "10")]);
    (0..count).for_each(|gpu| _ = tree.pci("pci0000:00", &format!("0000:{:02x}:00.0", 0x10 + gpu), class, 0, "0-3"));
    tree.link("class/kfd/kfd", "../../devices/virtual/kfd/kfd");
    processor(&tree, 0);
    tree
}

fn processor(tree: &Tree, node: u32) {
    let text = "cpu_cores_count 4\nsimd_count 0\nmem_banks_count 1\nlocation_id 0\ndomain 0";
    tree.file(&format!("{NODES}/{node}/properties"), text);
}

/// What the driver says of a GPU: where it is, with the number of a partition in the high bits.
fn gpu(tree: &Tree, node: u32, location: u64) {
    let text = format!(
        "cpu_cores_count 0\nsimd_count 440\nvendor_id 4098\nlocation_id {location}\ndomain 0\nhive_id 5\n\
         unknown_words are skipped\n"
    );
    tree.file(&format!("{NODES}/{node}/properties"), &text);
}

/// Kind (`io_links`, `p2p_links`), number, type, ends, weight, least and most MB/s.
type LinkRow<'a> = (&'a str, u32, u32, [u32; 2], u32, u32, u32);

fn linked(tree: &Tree, rows: &[LinkRow<'_>]) {
    for &(kind, number, of_type, [from, to], weight, least, most) in rows {
        let text = format!(
            "type {of_type}\nversion_major 0\nversion_minor 0\nnode_from {from}\nnode_to {to}\nweight {weight}\n\
             min_latency 0\nmax_latency 0\nmin_bandwidth {least}\nmax_bandwidth {most}\n\
             recommended_transfer_size 0\nrecommended_sdma_engine_id_mask 0\nflags 1"
        );
        tree.file(&format!("{NODES}/{from}/{kind}/{number}/properties"), &text);
    }
}

/// The links of a tree, as `10-11 50000`.
fn found(tree: &Tree) -> Vec<String> {
    let links = sysfs::read(tree.root()).unwrap().links;
    links.iter().map(|Link { a, b, weight }| format!("{:02x}-{:02x} {weight}", a.bus, b.bus)).collect()
}

#[test]
fn xgmi_links_are_those_of_the_compute_driver() {
    let tree = with_gpus("0x038000", 4);
    (0..4).for_each(|at| gpu(&tree, at + 1, 0x1000 + (u64::from(at) << 8)));
    linked(
        &tree,
        &[
            // PCIe to the processor, and between GPUs.
            ("io_links", 0, 2, [1, 0], 20, 312, 32000),
            ("p2p_links", 0, 2, [1, 3], 40, 312, 32000),
            // Both directions; four links, and one.
            ("io_links", 1, 11, [1, 2], 15, 50000, 200000),
            ("io_links", 1, 11, [2, 1], 15, 50000, 200000),
            ("io_links", 2, 11, [2, 3], 15, 50000, 50000),
            // By way of another: how many links is unknown.
            ("io_links", 3, 11, [1, 4], 30, 50000, 0),
            ("p2p_links", 1, 11, [3, 4], 45, 0, 0),
        ],
    );
    assert_eq!(found(&tree), ["10-11 200000", "10-13 25000", "11-12 50000", "12-13 15333"]);
}

#[test]
fn drivers_that_tell_no_bandwidth_tell_hops() {
    let tree = with_gpus("0x038000", 3);
    (0..3).for_each(|at| gpu(&tree, at + 1, 0x1000 + (u64::from(at) << 8)));
    linked(&tree, &[("io_links", 0, 11, [1, 2], 15, 0, 0), ("io_links", 1, 11, [1, 3], 30, 0, 0)]);
    assert_eq!(found(&tree), ["10-11 46000", "10-12 23000"]);
}

#[test]
fn a_gpu_in_partitions_is_one_end() {
    // Partitions are counted in the high bits of the place, on some drivers in those of the function.
    for partition in [1 << 28, 1] {
        let tree = with_gpus("0x120000", 2);
        tree.pci("pci0000:00", "0000:10:00.1", "0x040300", 0, "0-3");
        for (node, place) in [(1, 0x1000), (2, 0x1000 | partition), (3, 0x1100), (4, 0x1100 | partition)] {
            gpu(&tree, node, place);
        }
        linked(
            &tree,
            &[
                ("io_links", 0, 11, [1, 2], 13, 0, 0),
                ("io_links", 1, 11, [1, 3], 15, 64000, 64000),
                ("io_links", 2, 11, [1, 4], 15, 64000, 64000),
                ("io_links", 1, 11, [2, 4], 15, 64000, 64000),
            ],
        );
        assert_eq!(found(&tree), ["10-11 64000"], "{partition:#x}");
    }
}

#[test]
fn odd_trees_of_the_compute_driver_have_no_links() {
    let tree = with_gpus("0x038000", 2);
    gpu(&tree, 1, 0x1000);
    // No such function, and a node that cannot be read.
    gpu(&tree, 2, 0x2000);
    tree.file(&format!("{NODES}/3/properties"), "").file(&format!("{NODES}/x/properties"), "simd_count 1");
    linked(
        &tree,
        &[
            ("io_links", 0, 11, [1, 2], 15, 1, 1),
            ("io_links", 1, 11, [1, 3], 15, 1, 1),
            ("io_links", 2, 11, [1, 99], 15, 1, 1),
            ("io_links", 3, 11, [1, 1], 15, 1, 1),
        ],
    );
    tree.file(&format!("{NODES}/1/io_links/9/properties"), "type 11\nnode_from 1\nweight -1");
    assert_eq!(found(&tree), Vec::<String>::new());
    assert_eq!(found(&Tree::of(&[(0, "0", 1, "10")])), Vec::<String>::new());
}
