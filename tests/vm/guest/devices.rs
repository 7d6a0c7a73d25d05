//! CPUs and memory go where the device is.

use crate::landing::{launch, refused, run, workload};
use crate::sys::{Changed, IGB, attribute, functions};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The display device of node 3 is no GPU by itself: QEMU's vendor, class 0380.
const BOCHS: &str = "0x1234:0x1111";
const BOCHS_IS_A_GPU: &str = "[class.gpu]\ndevices = [\"1234:1111\"]\n";

/// The devices of this kind on a node, by what the kernel says.
fn on_node(vendor_device: &str, node: u32) -> Vec<String> {
    let mut found = functions(vendor_device);
    found.retain(|bdf| attribute(bdf, "numa_node") == node.to_string());
    assert!(!found.is_empty(), "no {vendor_device} on node {node}");
    found
}

/// All three are on the node, and the workload knows the NIC.
fn nic_on(node: u32, options: &str) {
    let landing = launch(&format!("{options} --nic 1 --policy single-numa-node"));
    assert_eq!(landing.not_on(node, 2), None, "{options}");
    let nic = &on_node(IGB, node)[0];
    assert_eq!(landing.variable("PCIDEVICE_NIC"), nic);
    assert_eq!(landing.variable("NUMA_RUN_ALLOC_NIC"), nic);
}

#[test]
fn with_a_nic_on_node_2_everything_lands_on_node_2() {
    nic_on(2, "--cpus 2 --cpu-nodes 2 --memory 64M");
    // Node 1 has no NIC; the pool leaves out node 0, which has one.
    nic_on(2, "--cpus 2 --pool 2-5 --memory 64M");
    nic_on(0, "--cpus 2 --memory 64M");
}

#[test]
fn a_nic_on_another_node_than_the_cpus_is_refused_or_said() {
    let said = refused("--cpus 2 --cpu-nodes 1 --nic 1 --policy single-numa-node");
    assert!(said.contains("no node has all of it") && said.contains("node 1 lacks nic"), "{said}");
    let landing = launch("--cpus 2 --cpu-nodes 1 --nic 1");
    assert_eq!(landing.not_on(1, 2), None);
    let remark = format!("not aligned: nic {} is on node 0, distance 12 from its CPUs", on_node(IGB, 0)[0]);
    assert!(landing.said.contains(&remark), "{}", landing.said);
}

#[test]
fn a_nic_in_the_other_socket_of_eight_nodes_is_found() {
    nic_on(5, "--cpus 2 --pool 2-15 --memory 64M");
}

#[test]
fn a_nic_behind_a_hole_in_the_numbers_is_found() {
    nic_on(3, "--cpus 2 --memory 64M");
}

#[test]
fn a_nic_on_a_node_without_memory_is_passed_over_where_memory_is_asked_for() {
    nic_on(2, "--cpus 2 --memory 64M");
    let landing = launch("--cpus 2 --nic 1 --policy single-numa-node");
    assert_eq!(landing.cpus.to_string(), "2-3");
    assert_eq!(landing.variable("PCIDEVICE_NIC"), on_node(IGB, 1)[0]);
}

#[test]
fn a_display_device_is_a_gpu_where_the_configuration_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs::write(&file, BOCHS_IS_A_GPU).unwrap();
    let landing =
        launch(&format!("--config {} --cpus 2 --gpu 1 --memory 64M --policy single-numa-node", file.display()));
    assert_eq!(landing.not_on(3, 2), None);
}

#[test]
fn two_cpus_and_a_gpu_land_on_the_gpus_node() {
    fs::create_dir_all("/etc/numa-run").unwrap();
    fs::write(numa_run::config::PATH, BOCHS_IS_A_GPU).unwrap();
    let line = format!("numa-run --cpus 2 --gpu 1 -- {}", workload());
    let landing = crate::landing::landing(&line);
    fs::remove_file(numa_run::config::PATH).unwrap();
    assert_eq!(landing.not_on(3, 2), None);
    let gpus = on_node(BOCHS, 3);
    let told = landing.variable("PCIDEVICE_GPU");
    assert!(gpus.iter().any(|gpu| gpu == told), "{told} is none of {gpus:?}");
    assert_eq!(landing.variable("NUMA_RUN_ALLOC_GPU"), told);
    assert_eq!(landing.variable("NUMA_RUN_ALLOC_GPU_0"), told);
    // Without the configuration the machine has no such GPU, so it was the configuration that chose.
    let bare = run(&line.replace("--gpu 1", "--gpu 2"));
    assert_eq!(bare.status.code(), Some(125));
}

/// The plan of a line, and what has to be made for it.
fn to_be_made(options: &str) -> Vec<Value> {
    let output = run(&format!("numa-run plan --json {options}"));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(plan["admitted"], true, "{plan}");
    plan["create_vfs"].as_array().unwrap().clone()
}

/// Makes as many as the plan says, and compares the addresses.
fn made_where(planned: &Value, parent: &str) {
    assert_eq!(planned["physical_function"], parent);
    assert_eq!(planned["node"].to_string(), attribute(parent, "numa_node"));
    let folder = format!("/sys/bus/pci/devices/{parent}");
    let (probe, number) = (format!("{folder}/sriov_drivers_autoprobe"), format!("{folder}/sriov_numvfs"));
    let _probe = Changed::to(&probe, "0");
    let _number = Changed::to(&number, &planned["count"].to_string());
    let addresses = planned["virtual_functions"].as_array().unwrap();
    for (index, planned) in addresses.iter().enumerate() {
        let made = fs::read_link(Path::new(&folder).join(format!("virtfn{index}"))).unwrap();
        assert_eq!(made.file_name().unwrap().to_str(), planned.as_str());
    }
    assert!(!Path::new(&folder).join(format!("virtfn{}", addresses.len())).exists());
    // Those that are there are no longer to be made.
    assert_eq!(to_be_made(&format!("--device all={} --config /tmp/vfs.toml", addresses.len())), Vec::<Value>::new());
}

#[test]
fn virtual_functions_appear_where_the_plan_says() {
    let on_0 = &on_node(IGB, 0)[0];
    let planned = to_be_made("--vf 7 --create-vfs --cpus 2 --cpu-nodes 0 --policy single-numa-node");
    let disks: Vec<String> = fs::read_dir("/sys/bus/pci/drivers/nvme")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| Path::new(&format!("/sys/bus/pci/devices/{name}/sriov_totalvfs")).exists())
        .collect();
    let config = |bdf: &str| {
        let text = format!("[class.all]\nmatch = [{{ pf = \"{bdf}\" }}]\ncreate = 2\n");
        fs::write("/tmp/vfs.toml", text).unwrap();
    };
    config(on_0);
    made_where(&planned[0], on_0);
    assert_eq!((planned.len(), planned[0]["count"].as_u64()), (1, Some(7)));
    config(&disks[0]);
    made_where(&to_be_made("--device all=1 --config /tmp/vfs.toml")[0], &disks[0]);
    fs::remove_file("/tmp/vfs.toml").unwrap();
}
