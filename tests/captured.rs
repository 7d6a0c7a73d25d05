//! Real machines, captured by others, read from their /sys trees alone and from what hwloc exported. They are no part of the
//! project: where they are not at hand, each test is left out by name.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[cfg(feature = "probe")]
#[path = "captured/exports.rs"]
mod exports;
mod machines;

use libtest_mimic::{Arguments, Trial};
use machines::{captured, unpacked};
use numa_run::topology::{CpuSet, sysfs};

const AT_HAND: &str = "the tests are left out where there are none";

macro_rules! trials {
    ($($test:path),* $(,)?) => {
        [$((stringify!($test), $test as fn())),*]
    };
}

fn main() {
    let trees = trials![
        the_captured_server_with_sub_numa_clusters_is_read_as_it_is,
        captured_trees_have_the_cpus_nodes_and_functions_that_they_have,
        a_captured_domain_of_32_bits_is_kept,
    ];
    #[cfg(feature = "probe")]
    let exports = trials![
        exports::captured_exports_have_the_nodes_cpus_and_functions_that_they_have,
        exports::gpus_and_nics_are_on_their_nodes,
        exports::all_sixteen_gpus_of_a_dgx_2_are_found,
        exports::an_export_of_hwloc_1_with_sparse_ids_keeps_its_distances,
        exports::high_bandwidth_memory_has_no_cpus_and_a_locality,
    ];
    #[cfg(not(feature = "probe"))]
    let exports = trials![];
    let absent = captured("").is_none();
    let trial = |(name, test): (&str, fn())| {
        let name = name.replace(' ', "");
        let passed = move || {
            test();
            Ok(())
        };
        Trial::test(name, passed).with_ignored_flag(absent)
    };
    libtest_mimic::run(&Arguments::from_args(), trees.into_iter().chain(exports).map(trial).collect()).exit();
}

fn the_captured_server_with_sub_numa_clusters_is_read_as_it_is() {
    let (_folder, root) = unpacked("sysfs/nri-topology-aware-sysfs.tar.bz2", "sysfs/server").expect(AT_HAND);
    let machine = sysfs::read(&root).unwrap();
    for id in 0..4 {
        let cpus: CpuSet = format!("{id}-111:4").parse().unwrap();
        assert_eq!(machine.node(id).unwrap().cpus, cpus);
        let isolated = machine.cpus.iter().filter(|cpu| cpu.node == Some(id) && cpu.isolated).map(|cpu| cpu.id);
        assert_eq!(isolated.collect::<Vec<_>>(), [id + 4, id + 60]);
    }
    let row = |id: u32| (0..6).map(|other| machine.distance(id, other).unwrap()).collect::<Vec<_>>();
    assert_eq!(row(0), [10, 21, 11, 21, 17, 28]);
    assert_eq!([4, 5].map(|id| machine.locality(id)), [Some(0), Some(2)]);
    assert_eq!(machine.cpu(60).unwrap().core, 4);
    assert_eq!(machine.online().to_string(), "0-111");
}

fn captured_trees_have_the_cpus_nodes_and_functions_that_they_have() {
    let trees = [
        ("sysfs/2pa-pcidomain32bits.tar.bz2", "2pa-pcidomain32bits", "0", "0-1", 9),
        ("sysfs/48amd64-4pa2n6c-sparse.tar.bz2", "48amd64-4d2n6c-sparse", "0-2,33-34,45,72-73", "0-47", 0),
        ("sysfs/40intel64-2g2n4c+pcilocality.tar.bz2", "40intel64-2g2n4c+pci", "0-3", "0-39", 37),
        ("sysfs/32amd64-4s2n4c-cgroup2.tar.bz2", "32amd64-4s2n4c-cgroup", "0-7", "0-31", 0),
        ("sysfs/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2", "32em64t-2n8c+1mic", "0-1", "0-15", 137),
        ("sysfs/ghw-8581cf3a529e5d8b97ea876eade2f60d.tar.gz", "sys", "0-1", "0-23", 82),
    ];
    for (archive, tree, nodes, cpus, functions) in trees {
        let (_folder, root) = unpacked(archive, tree).expect(AT_HAND);
        let machine = sysfs::read(&root).unwrap();
        let seen = (machine.node_ids().to_string(), machine.online().to_string(), machine.pci.len());
        assert_eq!(seen, (nodes.to_owned(), cpus.to_owned(), functions), "{archive}");
        assert!(machine.warnings.iter().all(|warning| !warning.contains("no id or range")), "{:?}", machine.warnings);
    }
}

fn a_captured_domain_of_32_bits_is_kept() {
    let (_folder, root) = unpacked("sysfs/2pa-pcidomain32bits.tar.bz2", "2pa-pcidomain32bits").expect(AT_HAND);
    let machine = sysfs::read(&root).unwrap();
    assert_eq!(machine.pci.last().unwrap().bdf.to_string(), "10000:00:04.0");
    assert_eq!(machine.pci(("00:03.0").parse().unwrap()).unwrap().interfaces, ["ens3"]);
}
