//! The guest is the machine that its shape describes: without that, no other test here means anything.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_string()
}

fn distances(node: u32) -> String {
    read(&format!("/sys/devices/system/node/node{node}/distance"))
}

/// The addresses of the PCI functions with this vendor and device, by the node that the firmware names.
fn functions(vendor: &str, device: &str) -> Vec<(String, String)> {
    let mut found: Vec<_> = fs::read_dir("/sys/bus/pci/devices")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| attribute(path, "vendor") == vendor && attribute(path, "device") == device)
        .map(|path| (attribute(&path, "numa_node"), path.file_name().unwrap().to_string_lossy().into_owned()))
        .collect();
    found.sort();
    found
}

fn attribute(function: &Path, name: &str) -> String {
    read(&format!("{}/{name}", function.display()))
}

#[test]
fn four_nodes_in_two_sockets() {
    assert_eq!(read("/sys/devices/system/node/online"), "0-3");
    let table: Vec<_> = (0..4).map(distances).collect();
    assert_eq!(table, ["10 12 21 21", "12 10 21 21", "21 21 10 12", "21 21 12 10"]);
    assert_eq!(read("/sys/devices/system/cpu/cpu4/topology/thread_siblings_list"), "4-5");
}

#[test]
fn nics_with_vfs_on_nodes_0_and_2_behind_an_iommu() {
    let nics = functions("0x8086", "0x10c9");
    let nodes: Vec<_> = nics.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(nodes, ["0", "2"]);
    for (_, bdf) in &nics {
        assert_eq!(read(&format!("/sys/bus/pci/devices/{bdf}/sriov_totalvfs")), "7");
        assert!(Path::new(&format!("/sys/bus/pci/devices/{bdf}/iommu_group")).exists(), "{bdf} has no IOMMU group");
    }
}

#[test]
fn systemd_is_process_1_of_cgroup_v2() {
    assert_eq!(read("/proc/1/comm"), "systemd");
    assert!(read("/sys/fs/cgroup/cgroup.controllers").contains("cpuset"));
    assert_eq!(read("/proc/self/cgroup"), "0::/system.slice/rig.service");
}

#[test]
fn the_fast_init_mounts_cgroup_v2() {
    assert_eq!(read("/proc/1/comm"), "rig-run");
    assert!(read("/sys/fs/cgroup/cgroup.controllers").contains("cpuset"));
}
