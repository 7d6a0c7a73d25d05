//! Real machines as hwloc exported them, by way of the probe.

use super::machines::captured;
use numa_run::topology::probe::Probe;
use numa_run::topology::{Machine, MemoryKind, TopologySource};
use std::time::Duration;

fn read(file: &str) -> Machine {
    let file = captured(file).expect("the tests are left out where there are none");
    let probe = Probe::at(env!("CARGO_BIN_EXE_numa-run-probe"), Duration::from_secs(60));
    probe.machine(&TopologySource::Xml(file)).unwrap()
}

fn place(machine: &Machine, bdf: &str) -> Option<u32> {
    machine.pci(bdf.parse().unwrap()).unwrap_or_else(|| panic!("{bdf} is there")).node
}

pub fn captured_exports_have_the_nodes_cpus_and_functions_that_they_have() {
    let exports = [
        ("16intel64-manyVFs", "0-1", 16, 18),
        ("24em64t-2n6c2t-pci", "0-1", 24, 9),
        // One function is there twice.
        ("32em64t-2n8c2t-pci-wholeio", "0-1", 32, 10),
        ("64intel64-fakeKNL-SNC4-hybrid", "0-7", 64, 0),
        ("8intel64-4n2t-memattrs", "0-3", 8, 0),
        ("cpuid-AMD-19h-Zen4-2xEpyc-9654", "0", 384, 0),
        ("cxlmem+dax.v2", "0", 4, 7),
        ("mpibind-cascade-lake-ap-snl-hwloc1", "0-3", 192, 0),
        ("mpibind-coral-butte-hwloc1", "0,8,252-255", 176, 13),
        ("mpibind-epyc-corona", "0-7", 96, 10),
        ("mpibind-g4dnmetal", "0-1", 96, 15),
        ("mpibind-knl-snc4-flat-hwloc1", "0-7", 272, 7),
        ("nvidiaDGX2", "0-1", 4, 28),
        ("power8gpudistances", "0-1", 16, 4),
        ("sysfs-20em64t-hybrid-1p6c2t+2ca4co1t", "0", 20, 0),
    ];
    for (name, nodes, cpus, functions) in exports {
        let machine = read(&format!("hwloc-xml/{name}.xml"));
        let seen = (machine.node_ids().to_string(), machine.cpus.len(), machine.pci.len());
        assert_eq!(seen, (nodes.to_owned(), cpus, functions), "{name}");
        assert!(machine.cpus.iter().all(|cpu| cpu.online && cpu.node.is_some()), "{name}");
    }
}

pub fn gpus_and_nics_are_on_their_nodes() {
    let machine = read("hwloc-xml/mpibind-epyc-corona.xml");
    let places = ["13:00.0", "23:00.0", "53:00.0", "73:00.0", "33:00.0"].map(|bdf| place(&machine, bdf));
    assert_eq!(places, [1, 2, 5, 7, 3].map(Some));
    let gpu = machine.pci("13:00.0".parse().unwrap()).unwrap();
    assert_eq!((gpu.class, gpu.vendor, gpu.render_node), (0x03_0000, 0x1002, true));
    let console = machine.pci("05:00.0".parse().unwrap()).unwrap();
    assert_eq!((console.class, console.render_node), (0x03_0000, false));
    assert_eq!(machine.pci("03:00.0".parse().unwrap()).unwrap().interfaces, ["enp3s0f0"]);
    assert_eq!(machine.node(1).unwrap().cpus.to_string(), "6-11,54-59");
    assert_eq!((machine.distance(0, 1), machine.distance(0, 4)), (Some(16), Some(32)));
    assert_eq!((machine.cpu(54).unwrap().core, machine.cpu(54).unwrap().l3), (6, Some(6)));
}

pub fn all_sixteen_gpus_of_a_dgx_2_are_found() {
    let machine = read("hwloc-xml/nvidiaDGX2.xml");
    let gpus = machine.pci.iter().filter(|function| function.class == 0x03_0200 && function.vendor == 0x10de);
    assert_eq!(gpus.clone().count(), 16);
    assert_eq!(gpus.clone().filter(|gpu| gpu.node == Some(0)).count(), 8);
    assert!(gpus.clone().all(|gpu| gpu.render_node && gpu.node.is_some()));
}

pub fn an_export_of_hwloc_1_with_sparse_ids_keeps_its_distances() {
    let machine = read("hwloc-xml/mpibind-coral-butte-hwloc1.xml");
    assert_eq!(machine.cpu_nodes().to_string(), "0,8");
    assert_eq!((machine.distance(8, 0), machine.distance(8, 252)), (Some(40), Some(80)));
    assert_eq!(machine.locality(255), Some(0));
    assert_eq!(place(&machine, "0004:04:00.0"), Some(0));
}

pub fn high_bandwidth_memory_has_no_cpus_and_a_locality() {
    let machine = read("hwloc-xml/mpibind-knl-snc4-flat-hwloc1.xml");
    assert_eq!(machine.cpu_nodes().to_string(), "0-3");
    for id in 4..8 {
        assert_eq!(machine.node(id).unwrap().memory, MemoryKind::Hbm);
        assert_eq!(machine.locality(id), Some(id - 4));
    }
}
