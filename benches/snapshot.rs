//! Reading the kept Machine of a host with 256 CPUs, 8 nodes and 192 functions.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[path = "../tests/machines/mod.rs"]
mod machines;

use criterion::Criterion;
use machines::Tree;
use numa_run::host::snapshot::store;
use numa_run::topology::snapshot::{Fingerprint, load};
use numa_run::topology::sysfs;

fn main() {
    let cpus: Vec<String> = (0..8).map(|node| format!("{}-{}", node * 32, node * 32 + 31)).collect();
    let row = "10 20 20 20 20 20 20 20";
    let nodes: Vec<_> = (0..8).map(|id| (id as u32, cpus[id].as_str(), 65536, row)).collect();
    let tree = Tree::of(&nodes);
    tree.file("../proc/sys/kernel/random/boot_id", "0ee5a8b4");
    for function in 0..192 {
        let name = format!("0000:{:02x}:{:02x}.0", function / 32, function % 32);
        tree.pci("pci0000:00", &name, "0x020000", i64::from(function / 32), "0-31");
    }
    let machine = sysfs::read(tree.root()).expect("the tree is complete");
    let run = tempfile::tempdir().expect("there is a temporary folder");
    store(run.path(), &machine, Fingerprint::read(tree.root())).expect("the folder is ours");
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("snapshot of 256 CPUs, 8 nodes, 192 functions", |bench| {
        bench.iter(|| load(run.path(), tree.root(), None).expect("nothing changed"));
    });
    criterion.bench_function("the same machine from sysfs", |bench| bench.iter(|| sysfs::read(tree.root())));
}
