//! What people are shown, as snapshots in `snapshots/`. `SNAPSHOTS=overwrite
//! cargo test --test shown` takes what is shown now; look at the difference.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests start programs, and fail where they cannot")]

mod machines;

use machines::described::Described;
use snapbox::{Data, assert_data_eq, file};
use std::process::{Command, Stdio};

/// Two nodes of four cores with two threads each, HBM behind node 1.
const MACHINE: &str = r#"
node = [
    { id = 0, cpus = "0-3,8-11", mib = 16384, distances = "10 21 23", pages_2m = [512, 500] },
    { id = 1, cpus = "4-7,12-15", mib = 16384, distances = "21 10 13" },
    { id = 2, mib = 8192, distances = "23 13 10" },
]
siblings_apart = 8
tiers = { 2 = "2", 4 = "0-1" }
pci = [
    { at = "0000:10:00.0", is = "0302 10de:20b0", node = 0 },
    { at = "0000:20:00.0", is = "0302 10de:20b0", node = 1 },
    { at = "0000:21:00.0", is = "0200 15b3:1017", node = 1, holds = ["net/eth0"] },
    { at = "0000:22:00.0", is = "0200 15b3:1017", node = -1 },
]
"#;

/// All that is printed, stderr first.
fn shown(arguments: &str, on_machine: bool) -> String {
    shown_on(MACHINE, arguments, on_machine)
}

fn shown_on(machine: &str, arguments: &str, on_machine: bool) -> String {
    let tree = toml::from_str::<Described>(machine).unwrap().tree();
    let mut command = Command::new(env!("CARGO_BIN_EXE_numa-run"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"NUMA_RUN_")) {
        command.env_remove(name);
    }
    command.env("NUMA_RUN_CONFIG", "/dev/null").env("NUMA_RUN_PROBE", "/nonexistent").env("COLUMNS", "100");
    command.env_remove("OMP_NUM_THREADS").env_remove("OMP_PLACES").stdin(Stdio::null());
    let root = tree.root().display().to_string();
    if on_machine {
        command.env("NUMA_RUN_TOPOLOGY", format!("root:{root}"));
    }
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    let text = [output.stderr, output.stdout].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    // The lease's name differs each time.
    let line = |line: &str| match line.split_once("ALLOC_LEASE=") {
        Some((start, _)) => format!("{start}ALLOC_LEASE=...\n"),
        None => format!("{line}\n"),
    };
    text.replace(&root, "/machine").lines().map(line).collect()
}

/// One JSON document, in lines.
fn pretty(text: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    serde_json::to_string_pretty(&json).unwrap() + "\n"
}

fn same(found: String, wanted: Data) {
    assert_data_eq!(found, wanted);
}

#[test]
fn the_help_of_a_launch_is_as_reviewed() {
    same(shown("--help", false), file!["snapshots/help.txt"]);
    same(shown("-h", false), file!["snapshots/help-short.txt"]);
}

#[test]
fn the_help_of_plan_is_as_reviewed() {
    same(shown("plan --help", false), file!["snapshots/help-plan.txt"]);
}

#[test]
fn the_help_of_topo_is_as_reviewed() {
    same(shown("topo --help", false), file!["snapshots/help-topo.txt"]);
}

#[test]
fn a_dry_run_is_as_reviewed() {
    let options = "--cpus 2 --memory 4G --gpu 1 --shared-cpus 1 --dry-run --template -- ./app -l {cpus} {gpu.0}";
    same(shown(options, true), file!["snapshots/dry-run.txt"]);
}

#[test]
fn a_dry_run_as_another_user_is_as_reviewed() {
    let who = "--user 4200000000:100 --group 27 --caps net_raw,ipc_lock --no-new-privs";
    same(shown(&format!("--cpus 2 {who} --dry-run -- ./app"), true), file!["snapshots/dry-run-user.txt"]);
}

#[test]
fn a_dry_run_with_named_devices_is_as_reviewed() {
    let devices = "--gpu 1 --nic fast=1:interface=eth0 --nic 1 --pci 0000:10:00.0";
    let words = "{nic.0} {nic.1} {nic.fast} {nic.fast.0} {nic.fast.node} {pci.0}";
    same(
        shown(&format!("{devices} --dry-run --template -- ./app {words}"), true),
        file!["snapshots/dry-run-devices.txt"],
    );
}

#[test]
fn a_plan_and_a_dry_run_for_members_are_as_reviewed() {
    let request = "--members 2 --cpus 4 --memory 1G --gpu 1";
    same(shown(&format!("plan {request}"), true), file!["snapshots/plan-members.txt"]);
    let group = format!("{request} --scope group --dry-run -- mpirun -n 2 ./app");
    same(shown(&group, true), file!["snapshots/dry-run-members.txt"]);
}

#[test]
fn settings_of_virtual_functions_are_refused_by_a_launch() {
    let said = shown("--vf n3=1:vlan=100,trust=on -- true", false);
    assert!(said.contains("vf.n3: vlan=100,trust=on: not applied by this version yet"), "{said}");
}

#[test]
fn an_explanation_is_as_reviewed() {
    same(shown("plan --cpus 6 --memory 4G --gpu 1 --nic 1 --explain", true), file!["snapshots/explain.txt"]);
}

#[test]
fn an_explanation_of_what_is_not_aligned_is_as_reviewed() {
    same(
        shown("plan --cpus 6 --memory 4G --gpu 2 --nic 2 --explain", true),
        file!["snapshots/explain-not-aligned.txt"],
    );
    same(
        shown("plan --members 2 --cpus 4 --gpu 1 --explain --scope group", true),
        file!["snapshots/explain-members.txt"],
    );
}

#[test]
fn an_explained_refusal_is_as_reviewed() {
    same(
        shown("plan --cpus 9 --gpu 1 --policy single-numa-node --explain", true),
        file!["snapshots/explain-refused.txt"],
    );
}

#[test]
fn a_plan_is_as_reviewed() {
    same(shown("plan --cpus 4 --memory 4G --gpu 1 --nic 1 --shared-cpus 1", true), file!["snapshots/plan.txt"]);
    same(shown("plan --cpus 12 --nic 2", true), file!["snapshots/plan-not-aligned.txt"]);
    same(shown("plan --cpus 2 --gpu 3", true), file!["snapshots/plan-refused.txt"]);
}

/// A port of node 1 that has no virtual functions yet.
const PORT: &str = r#"
node = [
    { id = 0, cpus = "0-3", mib = 1024, distances = "10 21" },
    { id = 1, cpus = "4-7", mib = 1024, distances = "21 10" },
]
pci = [{ at = "0000:3b:00.0", is = "0200 8086:1592", node = 1, holds = ["net/ens1f0"] }]
[links]
"bus/pci/devices/0000:3b:00.0/driver" = "../../../bus/pci/drivers/ice"
[files]
"bus/pci/devices/0000:3b:00.0/sriov_totalvfs" = "4"
"bus/pci/devices/0000:3b:00.0/sriov_offset" = "8"
"bus/pci/devices/0000:3b:00.0/sriov_stride" = "1"
"#;

#[test]
fn a_plan_says_what_has_to_be_made_and_a_dry_run_how() {
    same(shown_on(PORT, "plan --cpus 2 --vf 2 --create-vfs", true), file!["snapshots/plan-create-vfs.txt"]);
    let said = shown_on(PORT, "--cpus 2 --vf 2 --create-vfs --dry-run -- true", true);
    let devices = said.lines().filter(|line| line.contains("/sys/bus/pci/")).collect::<Vec<_>>().join("\n") + "\n";
    same(devices, file!["snapshots/dry-run-create-vfs.txt"]);
    let said = shown_on(PORT, "--cpus 2 --vf 2 --dry-run -- true", true);
    assert!(said.contains("this machine has no vf, and 4 could be made with --create-vfs"), "{said}");
}

#[test]
fn a_plan_for_scripts_is_as_reviewed() {
    same(pretty(&shown("plan --cpus 2 --memory 4G --nic 1 --json", true)), file!["snapshots/plan.json"]);
    same(pretty(&shown("plan --cpus 2 --gpu 3 --json", true)), file!["snapshots/plan-refused.json"]);
}

#[test]
fn a_machine_is_as_reviewed() {
    same(shown("topo", true), file!["snapshots/topo.txt"]);
}

#[test]
fn the_explanation_of_a_big_machine_is_a_page() {
    let distances = |id: usize| (0..64).map(|other| if other == id { "10 " } else { "21 " }).collect::<String>();
    let node = |id: usize| {
        format!("{{ id = {id}, cpus = \"{}-{}\", mib = 1024, distances = \"{}\" }}", id * 4, id * 4 + 3, distances(id))
    };
    let machine = format!("node = [{}]", (0..64).map(node).collect::<Vec<_>>().join(", "));
    for arguments in ["plan --explain --cpus 30 --memory 9G", "plan --explain --cpus 90 --policy single-numa-node"] {
        let text = shown_on(&machine, arguments, true);
        assert!(text.lines().count() < 30 && text.len() < 4000, "{text}");
    }
}
