//! Machines read from /sys trees alone.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod machines;

use machines::Tree;
use numa_run::topology::{CpuSet, Machine, MemoryKind, Sriov, sysfs};
use std::fs;
use std::path::PathBuf;

fn read(tree: &Tree) -> Machine {
    sysfs::read(tree.root()).unwrap()
}

fn node_cpus(machine: &Machine, id: u32) -> String {
    machine.node(id).unwrap().cpus.to_string()
}

fn place(machine: &Machine, bdf: &str) -> Option<u32> {
    machine.pci(bdf.parse().unwrap()).unwrap_or_else(|| panic!("{bdf} is there")).node
}

fn two_nodes() -> Tree {
    Tree::of(&[(0, "0-3", 1024, "10 21"), (1, "4-7", 1024, "21 10")])
}

#[test]
fn columns_of_the_distance_table_are_ordinals_on_a_machine_with_sparse_ids() {
    let memory = "80 80 10 80 80 80";
    let machine = read(&Tree::of(&[
        (0, "0-63", 1024, "10 40 80 80 80 80"),
        (8, "64-127", 1024, "40 10 80 80 80 80"),
        (252, "", 16, memory),
        (253, "", 16, memory),
        (254, "", 16, memory),
        (255, "", 16, memory),
    ]));
    assert_eq!(machine.distance(8, 0), Some(40));
    assert_eq!(machine.distance(8, 8), Some(10));
    assert_eq!(machine.distance(8, 252), Some(80));
    assert_eq!(machine.cpu_nodes().to_string(), "0,8");
    assert_eq!(machine.cpu_nodes().words(), [0x101]);
    assert_eq!(machine.cpu(64).unwrap().node, Some(8));
    assert_eq!(machine.warnings, Vec::<String>::new());
}

#[test]
fn nodes_without_memory_keep_their_cpus_and_nodes_without_cpus_their_memory() {
    let machine = read(&Tree::of(&[
        (0, "0-5,24-29", 0, "10 16 16 16"),
        (1, "6-11,30-35", 65536, "16 10 16 16"),
        (2, "", 65536, "16 16 10 16"),
        (3, "", 0, "16 16 16 10"),
    ]));
    assert_eq!(node_cpus(&machine, 0), "0-5,24-29");
    assert_eq!(machine.node(0).unwrap().memory_kib, 0);
    assert_eq!(machine.node(2).unwrap().memory_kib, 64 << 20);
    assert_eq!(machine.cpu(30).unwrap().node, Some(1));
    assert_eq!(machine.node_ids().to_string(), "0-3");
}

#[test]
fn nodes_that_are_only_possible_are_none() {
    let tree = two_nodes();
    tree.file("devices/system/node/possible", "0-3");
    assert_eq!(read(&tree).node_ids().to_string(), "0-1");
}

#[test]
fn an_offline_cpu_is_present_and_its_sibling_stands_alone() {
    let tree = Tree::of(&[(0, "0-7", 1024, "10")]);
    tree.core("0,4").core("1").core("2,6").core("3,7");
    tree.file("devices/system/cpu/online", "0-4,6-7");
    let machine = read(&tree);
    assert_eq!(machine.cpus.len(), 8);
    assert_eq!(node_cpus(&machine, 0), "0-4,6-7");
    assert_eq!(machine.online().to_string(), "0-4,6-7");
    assert!(!machine.cpu(5).unwrap().online);
    assert_eq!(machine.cpu(5).unwrap().node, None);
    let cores: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.core).collect();
    assert_eq!(cores, [0, 1, 2, 3, 0, 5, 2, 3]);
}

#[test]
fn snc_with_interleaved_cpus_slow_memory_and_isolated_cpus_is_read_as_it_is() {
    let tree = Tree::of(&[
        (0, "0-7:4", 32768, "10 21 11 21 17 28"),
        (1, "1-7:4", 32768, "21 10 21 11 28 28"),
        (2, "2-7:4", 32768, "11 21 10 21 28 17"),
        (3, "3-7:4", 32768, "21 11 21 10 28 28"),
        (4, "", 131_072, "17 28 28 28 10 28"),
        (5, "", 131_072, "28 28 17 28 28 10"),
    ]);
    tree.file("devices/system/cpu/isolated", "4-5").file("devices/system/cpu/nohz_full", "  (null)");
    tree.file("devices/virtual/memory_tiering/memory_tier4/nodelist", "0-3");
    tree.file("devices/virtual/memory_tiering/memory_tier22/nodelist", "5");
    let place = "../../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region0/dax0.0";
    tree.link("bus/dax/devices/dax0.0", place);
    tree.file("devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region0/dax0.0/target_node", "4");
    let machine = read(&tree);
    assert_eq!(node_cpus(&machine, 0), "0,4");
    let isolated: CpuSet = machine.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    assert_eq!(isolated.to_string(), "4-5");
    let kinds: Vec<MemoryKind> = machine.nodes.iter().map(|node| node.memory).collect();
    assert_eq!(kinds[3..], [MemoryKind::Dram, MemoryKind::Pmem, MemoryKind::Cxl]);
    assert_eq!(machine.locality(4), Some(0));
    assert_eq!(machine.locality(5), Some(2));
    assert_eq!(machine.warnings, Vec::<String>::new());
}

#[test]
fn hmat_names_the_cpus_that_a_node_without_cpus_is_near_to() {
    let tree = Tree::of(&[(0, "0-3", 1024, "10 20 20"), (1, "4-7", 1024, "20 10 20"), (2, "", 512, "20 20 10")]);
    tree.link("devices/system/node/node2/access1/initiators/node1", "../../../node1");
    let machine = read(&tree);
    assert_eq!(machine.node(2).unwrap().local_cpus.to_string(), "4-7");
    assert_eq!(machine.locality(2), Some(1));
    assert_eq!(machine.warnings, ["all distances equal: closeness not known"]);
}

#[test]
fn a_memory_node_belongs_to_cpus_even_where_the_table_says_otherwise() {
    let machine = read(&Tree::of(&[
        (0, "0-3", 1024, "10 21 28 28"),
        (1, "4-7", 1024, "21 10 28 28"),
        (2, "", 1024, "28 28 10 17"),
        (3, "", 1024, "28 28 17 10"),
    ]));
    assert_eq!((machine.locality(2), machine.locality(3)), (Some(0), Some(0)));
}

#[test]
fn fast_memory_is_near_to_the_node_that_the_table_says() {
    let tree = Tree::of(&[
        (0, "0-51,104-155", 1024, "10 21 13 23"),
        (1, "52-103,156-207", 1024, "21 10 23 13"),
        (2, "", 64, "13 23 10 23"),
        (3, "", 64, "23 13 23 10"),
    ]);
    tree.file("devices/virtual/memory_tiering/memory_tier2/nodelist", "2-3");
    let machine = read(&tree);
    assert_eq!([2, 3].map(|id| machine.locality(id)), [Some(0), Some(1)]);
    assert!([2, 3].iter().all(|&id| machine.node(id).unwrap().memory == MemoryKind::Hbm));
}

#[test]
fn thirty_two_parts_of_gpu_memory_are_near_to_their_four_cpu_nodes() {
    // Four nodes with CPUs, then eight per GPU; parts of GPU memory are 255 apart.
    let home = |id: u32| if id < 4 { id } else { (id - 4) / 8 };
    let distance = |from: u32, to: u32| match (from.min(to), from.max(to)) {
        (a, b) if a == b => "10",
        (_, 0..4) => "40",
        (4.., _) => "255",
        (a, b) if home(b) == a => "80",
        _ => "120",
    };
    let row = |from: u32| (0..36).map(|to| distance(from, to)).collect::<Vec<_>>().join(" ");
    let rows: Vec<(String, String)> = (0..36)
        .map(|id| (if id < 4 { format!("{}-{}", id * 72, id * 72 + 71) } else { String::new() }, row(id)))
        .collect();
    let nodes: Vec<_> = (0..36).map(|id| (id as u32, rows[id].0.as_str(), 12288, rows[id].1.as_str())).collect();
    let machine = read(&Tree::of(&nodes));
    assert_eq!(machine.cpu_nodes().to_string(), "0-3");
    assert!((0..36).all(|id| machine.locality(id) == Some(home(id))));
    assert_eq!((machine.distance(4, 5), machine.distance(35, 3)), (Some(255), Some(80)));
}

#[test]
fn nearly_two_thousand_cpus_are_read_to_the_last() {
    let rows: Vec<String> = (0..16).map(|node| format!("{}-{}", node * 120, node * 120 + 119)).collect();
    let distances: Vec<String> =
        (0..16).map(|row| (0..16).map(|column| if row == column { "10 " } else { "20 " }).collect()).collect();
    let nodes: Vec<_> = (0..16).map(|id| (id as u32, rows[id].as_str(), 1024, distances[id].as_str())).collect();
    let machine = read(&Tree::of(&nodes));
    assert_eq!(machine.cpus.len(), 1920);
    assert_eq!(node_cpus(&machine, 15), "1800-1919");
    assert_eq!(machine.cpu(1919).unwrap().node, Some(15));
}

#[test]
fn kinds_of_a_hybrid_machine_come_from_the_kernel_and_never_from_frequencies() {
    let tree = Tree::of(&[(0, "0-31", 1024, "10")]);
    for cpu in 0..32 {
        let hertz = if (8..12).contains(&cpu) { "5800000" } else { "5500000" };
        tree.file(&format!("devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"), hertz);
    }
    assert!(read(&tree).cpus.iter().all(|cpu| cpu.kind.is_none()));
    tree.file("devices/cpu_core/cpus", "0-15").file("devices/cpu_atom/cpus", "16-31");
    let machine = read(&tree);
    let kind = |id| machine.cpu(id).unwrap().kind.as_deref();
    assert_eq!([kind(0), kind(15), kind(16), kind(31)], [Some("P"), Some("P"), Some("E"), Some("E")]);
}

#[test]
fn kinds_by_capacity_are_those_of_big_and_little_cores() {
    let tree = Tree::of(&[(0, "0-3", 1024, "10")]);
    (0..4).for_each(|cpu| {
        tree.file(&format!("devices/system/cpu/cpu{cpu}/cpu_capacity"), if cpu < 2 { "446" } else { "1024" });
    });
    let machine = read(&tree);
    assert_eq!(machine.cpu(0).unwrap().kind.as_deref(), Some("capacity-446"));
    assert_eq!(machine.cpu(3).unwrap().kind.as_deref(), Some("capacity-1024"));
}

#[test]
fn packages_that_cross_nodes_are_a_warning_and_the_nodes_count() {
    let tree = Tree::of(&[(0, "0-31,64-95", 1024, "10 20"), (1, "32-63,96-127", 1024, "20 10")]);
    (0..128).for_each(|cpu| tree.topology(cpu, "physical_package_id", if cpu < 64 { "0" } else { "1" }));
    let machine = read(&tree);
    assert_eq!(node_cpus(&machine, 0), "0-31,64-95");
    assert_eq!(machine.cpu(64).unwrap().socket, 1);
    let said = machine.warnings.iter().filter(|warning| warning.contains("cross")).count();
    assert_eq!(said, 1, "{:?}", machine.warnings);
}

#[test]
fn where_one_node_has_all_cpus_everything_is_on_it() {
    let tree = Tree::of(&[(0, "0-15", 1024, "10")]);
    (0..16).for_each(|cpu| tree.topology(cpu, "physical_package_id", if cpu < 8 { "0" } else { "1" }));
    tree.pci("pci0000:00", "0000:00:03.0", "0x020000", -1, "0-15");
    tree.pci("pci0000:00", "0000:00:04.0", "0x020000", 0, "0-15");
    let machine = read(&tree);
    assert_eq!(place(&machine, "00:03.0"), Some(0));
    assert_eq!(place(&machine, "00:04.0"), Some(0));
    assert_eq!(machine.cpu(8).unwrap().socket, 1);
    assert_eq!(machine.warnings, Vec::<String>::new());
}

#[test]
fn a_locality_that_says_nothing_is_unknown() {
    let tree = two_nodes();
    tree.pci("pci0000:3a", "0000:3b:00.0", "0x020000", -1, "0-7");
    tree.pci("pci0000:3a", "0000:3c:00.0", "0x020000", 0, "0-7");
    tree.pci("pci0000:3a", "0000:3d:00.0", "0x020000", 5, "");
    tree.pci("pci0000:3a", "0000:3e:00.0", "0x020000", 1, "4-7");
    let machine = read(&tree);
    let places = ["3b", "3c", "3d", "3e"].map(|bus| place(&machine, &format!("{bus}:00.0")));
    assert_eq!(places, [None, None, None, Some(1)]);
    assert_eq!(
        machine.warnings,
        [
            "1 PCI functions name no node (first 0000:3b:00.0): locality unknown",
            "1 PCI functions name a node that does not exist (first 0000:3d:00.0): locality unknown",
            "1 PCI functions claim to be near to all CPUs (first 0000:3c:00.0): locality unknown",
        ]
    );
}

#[test]
fn long_domains_are_read_and_an_odd_name_is_skipped_with_a_warning() {
    let tree = two_nodes();
    let vmd = "pci0000:d7/0000:d7:05.5";
    tree.pci("pci0000:d7", "0000:d7:05.5", "0x010400", 1, "4-7");
    tree.pci(&format!("{vmd}/pci10000:00/10000:00:02.0"), "10000:01:00.0", "0x010802", -1, "0-7");
    tree.pci("pci5d0505:00", "5d0505:01:00.0", "0x010802", 0, "0-3");
    tree.pci("pci0000:00", "0000:3b:20.0", "0x020000", 0, "0-3");
    tree.pci("pci0000:00", "junk", "0x020000", 0, "0-3");
    let machine = read(&tree);
    let addresses: Vec<String> = machine.pci.iter().map(|function| function.bdf.to_string()).collect();
    assert_eq!(addresses, ["0000:d7:05.5", "10000:01:00.0", "5d0505:01:00.0"]);
    assert_eq!(place(&machine, "10000:01:00.0"), Some(1), "a VMD's child is where the VMD is");
    assert_eq!(machine.warnings.iter().filter(|warning| warning.contains("skipped")).count(), 2);
}

#[test]
fn a_function_tells_its_driver_interfaces_and_physical_function_and_they_can_be_read_again() {
    let tree = two_nodes();
    let folder = "devices/pci0000:12/0000:12:02.3";
    tree.pci("pci0000:12", "0000:12:02.3", "0x020000", 0, "0-3");
    tree.link(&format!("{folder}/driver"), "../../../bus/pci/drivers/iavf");
    tree.link(&format!("{folder}/physfn"), "../0000:12:00.0");
    tree.file(&format!("{folder}/net/eth5/mtu"), "1500");
    tree.file(&format!("{folder}/drm/renderD128/dev"), "226:128");
    let mut machine = read(&tree);
    let function = &mut machine.pci[0];
    assert_eq!(function.driver.as_deref(), Some("iavf"));
    assert_eq!(function.interfaces, ["eth5"]);
    assert_eq!(function.physical_function, "12:00.0".parse().ok());
    assert_eq!((function.class, function.vendor, function.device), (0x02_0000, 0x8086, 0x1572));
    assert!(function.render_node);
    // udev renames while others look: a net folder that is empty is no error.
    fs::remove_dir_all(tree.root().join("sys").join(folder).join("net/eth5")).unwrap();
    sysfs::refresh_function(function, tree.root());
    assert_eq!(function.interfaces, Vec::<String>::new());
    assert_eq!(function.driver.as_deref(), Some("iavf"));
}

#[test]
fn every_node_lists_every_page_size_and_what_moves_can_be_read_again() {
    let tree = two_nodes();
    tree.pages(0, 2048, 512, 500).pages(1, 1_048_576, 4, 4);
    let mut machine = read(&tree);
    let pools = |machine: &Machine, id| -> Vec<_> {
        machine.node(id).unwrap().pages.iter().map(|pool| (pool.size_kib, pool.total, pool.free)).collect()
    };
    assert_eq!(pools(&machine, 0), [(2048, 512, Some(500)), (1_048_576, 0, Some(0))]);
    assert_eq!(pools(&machine, 1), [(2048, 0, Some(0)), (1_048_576, 4, Some(4))]);
    tree.pages(0, 2048, 512, 3);
    sysfs::refresh_pages(&mut machine, tree.root());
    assert_eq!(pools(&machine, 0)[0], (2048, 512, Some(3)));
    tree.file("devices/system/node/node1/meminfo", "Node 1 MemTotal: 99 kB");
    sysfs::refresh_memory(&mut machine, tree.root());
    let memory: Vec<u64> = machine.nodes.iter().map(|node| node.memory_kib).collect();
    assert_eq!(memory, [1 << 20, 99], "a balloon took some");
}

#[test]
fn cpus_that_share_an_l3_have_its_lowest_cpu_for_a_name() {
    let tree = Tree::of(&[(0, "0-7", 1024, "10")]);
    tree.l3("0-1,4-5").l3("2-3,6-7");
    let l3: Vec<_> = read(&tree).cpus.iter().map(|cpu| cpu.l3).collect();
    assert_eq!(l3, [0, 0, 2, 2, 0, 0, 2, 2].map(Some));
    assert_eq!(read(&two_nodes()).cpu(0).unwrap().l3, None);
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let tree = Tree::new();
    tree.file("devices/system/cpu/online", "0-1");
    tree.file("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7");
    tree.file("../proc/meminfo", "MemTotal:        2048 kB");
    let machine = read(&tree);
    assert_eq!((node_cpus(&machine, 0).as_str(), machine.node(0).unwrap().memory_kib), ("0-1", 2048));
    assert_eq!(machine.node(0).unwrap().pages[0].total, 7);
    assert_eq!(machine.distance(0, 0), Some(10));
}

#[test]
fn a_table_that_does_not_fit_leaves_distances_unknown() {
    let machine = read(&Tree::of(&[(0, "0-3", 1024, "10 21 30"), (1, "4-7", 1024, "21 10")]));
    assert_eq!(machine.distance(0, 1), None);
    assert!(machine.warnings[0].contains("distances are unknown"), "{:?}", machine.warnings);
}

#[test]
fn functions_say_how_many_virtual_functions_they_have_and_may_have() {
    let tree = two_nodes();
    for (name, files) in [
        (
            "0000:21:00.0",
            &[
                ("sriov_totalvfs", "7"),
                ("virtfn0", ""),
                ("virtfn1", ""),
                ("sriov_offset", "128"),
                ("sriov_stride", "2"),
                ("sriov_vf_device", "10ca"),
            ][..],
        ),
        ("0000:22:00.0", &[("sriov_totalvfs", "0")]),
        ("0000:23:00.0", &[("sriov_numvfs", "1")]),
    ] {
        tree.pci("pci0000:20", name, "0x020000", 0, "0-3");
        files.iter().for_each(|(file, text)| _ = tree.file(&format!("devices/pci0000:20/{name}/{file}"), text));
    }
    let mut machine = read(&tree);
    let sriov = Sriov { total: 7, made: 2, offset: 128, stride: 2, device: 0x10ca };
    let told = |machine: &Machine| machine.pci.iter().map(|function| function.sriov).collect::<Vec<_>>();
    assert_eq!(told(&machine), [Some(sriov), Some(Sriov::default()), None]);
    fs::remove_file(tree.root().join("sys/devices/pci0000:20/0000:21:00.0/virtfn1")).unwrap();
    sysfs::refresh_function(&mut machine.pci[0], tree.root());
    assert_eq!(machine.pci[0].sriov, Some(Sriov { made: 1, ..sriov }));
}

#[test]
fn a_relative_root_reads_as_the_absolute_one() {
    let tree = Tree::of(&[(0, "0-3", 1024, "10")]);
    // A CPU that is there and not online tells the list from the fallback.
    tree.topology(7, "physical_package_id", "0");
    let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect::<PathBuf>();
    let relative = up.join(tree.root().strip_prefix("/").unwrap());
    let machine = sysfs::read(&relative).unwrap();
    assert_eq!(machine.online().to_string(), "0-3");
}

#[test]
fn a_folder_without_a_sys_tree_is_no_machine() {
    let error = sysfs::read(Tree::new().root()).unwrap_err().to_string();
    assert!(error.contains("/sys/devices/system/cpu/online names no online CPU"), "{error}");
}

#[test]
fn this_host_has_a_machine() {
    let machine = sysfs::read("/".as_ref()).unwrap();
    assert_eq!(machine.source, "this host");
    assert!(machine.cpus.iter().filter(|cpu| cpu.online).all(|cpu| cpu.node.is_some()));
    assert!(machine.nodes.iter().any(|node| node.memory_kib > 0));
}
