//! The guest is the machine that its shape describes: without that, no other test here means anything.

use crate::sys::{IGB, attribute, functions, node, read};
use std::path::Path;

const FOUR_NODES: [&str; 4] = ["10 12 21 21", "12 10 21 21", "21 21 10 12", "21 21 12 10"];

fn nodes(list: &str) -> String {
    read(&format!("/sys/devices/system/node/{list}"))
}

fn distances(ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| node(id, "distance")).collect()
}

fn pages(id: u32, size: &str) -> String {
    node(id, &format!("hugepages/hugepages-{size}/nr_hugepages"))
}

fn nic_nodes() -> Vec<String> {
    functions(IGB).iter().map(|bdf| attribute(bdf, "numa_node")).collect()
}

fn has_iommu_group(bdf: &String) -> bool {
    Path::new(&format!("/sys/bus/pci/devices/{bdf}/iommu_group")).exists()
}

#[test]
fn topo4_has_four_nodes_in_two_sockets_with_smt() {
    assert_eq!(nodes("online"), "0-3");
    assert_eq!(distances(&[0, 1, 2, 3]), FOUR_NODES);
    assert_eq!(read("/sys/devices/system/cpu/cpu4/topology/thread_siblings_list"), "4-5");
    assert_eq!(read("/sys/devices/system/cpu/cpu4/topology/package_cpus_list"), "4-7");
    assert_eq!([pages(0, "2048kB"), pages(1, "2048kB"), pages(3, "2048kB")], ["16", "0", "32"]);
}

#[test]
fn topo4_has_nics_with_vfs_on_nodes_0_and_2_behind_an_iommu() {
    assert_eq!(nic_nodes(), ["0", "2"]);
    for bdf in functions(IGB) {
        assert_eq!(attribute(&bdf, "sriov_totalvfs"), "7");
        assert!(has_iommu_group(&bdf), "{bdf} has no IOMMU group");
    }
}

#[test]
fn topo4_has_one_iommu_group_of_several_devices() {
    let legacy = functions("0x8086:0x100e");
    let groups: Vec<_> = legacy.iter().map(|bdf| read_group(bdf)).collect();
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0], groups[1]);
}

fn read_group(bdf: &str) -> String {
    let link = std::fs::read_link(format!("/sys/bus/pci/devices/{bdf}/iommu_group")).unwrap();
    link.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn one_has_one_node() {
    assert_eq!(nodes("online"), "0");
}

#[test]
fn no_iommu_has_none() {
    assert_eq!(nic_nodes(), ["0", "2"]);
    assert!(!functions(IGB).iter().any(has_iommu_group));
}

#[test]
fn memless_has_a_node_without_memory_and_one_without_cpus() {
    assert_eq!(nodes("has_memory"), "0,2-3");
    assert_eq!(nodes("has_cpu"), "0-2");
    assert_eq!(distances(&[0, 1, 2, 3]), FOUR_NODES);
    assert_eq!(nic_nodes(), ["1", "2"]);
}

#[test]
fn hole_has_no_node_2() {
    assert_eq!(nodes("online"), "0-1,3");
    assert_eq!(node(3, "cpulist"), "4-5");
    assert_eq!(nic_nodes(), ["3"]);
}

#[test]
fn tiers_has_a_slow_memory_tier() {
    assert_eq!(nodes("has_cpu"), "0-1");
    assert_eq!(nodes("has_memory"), "0-2");
    assert_eq!(distances(&[0, 1, 2]), ["10 21 24", "21 10 24", "24 24 10"]);
    assert_eq!(node(2, "access0/initiators/read_latency"), "250");
    let tiers = std::fs::read_dir("/sys/devices/virtual/memory_tiering").unwrap();
    let mut nodelists: Vec<_> = tiers
        .map(|entry| entry.unwrap().path().join("nodelist"))
        .filter(|path| path.exists())
        .map(|path| read(&path.to_string_lossy()))
        .collect();
    nodelists.sort();
    assert_eq!(nodelists, ["0-1", "2"]);
}

#[test]
fn big_has_eight_nodes_and_sixteen_cpus() {
    assert_eq!(nodes("online"), "0-7");
    assert_eq!(read("/sys/devices/system/cpu/online"), "0-15");
    assert_eq!(node(6, "distance"), "21 21 21 21 12 12 10 12");
    assert_eq!(nic_nodes(), ["0", "5"]);
}

#[test]
fn giga_has_a_page_of_1g_on_node_2() {
    assert_eq!([pages(1, "1048576kB"), pages(2, "1048576kB")], ["0", "1"]);
}

#[test]
fn isolated_keeps_cpus_out_of_what_systemd_starts() {
    assert_eq!(read("/sys/devices/system/cpu/isolated"), "2-3,6-7");
    assert_eq!(read("/sys/devices/system/cpu/nohz_full"), "2-3,6-7");
    let status = read("/proc/self/status");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(allowed.trim(), "0-1");
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
