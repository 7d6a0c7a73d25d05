//! Launches that change the guest and are killed at every point; and a device
//! that the kernel does not give back. The launcher here is the one that tests
//! can stop (`src/fault.rs`).

use crate::sys::{IGB, attribute, functions, read};
use crate::vfio;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LAUNCHER: &str = "numa-run-faults";
const RUN_DIR: &str = "/tmp/crash";
const LEASES: &str = "/tmp/crash/leases";
const PAGES: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
const HELD: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages";

/// A launch, or what else is done about the ledger.
fn numa_run(words: &str) -> Command {
    let mut command = Command::new(LAUNCHER);
    command.args(words.split(' ')).env("NUMA_RUN_RUN_DIR", RUN_DIR).env("NUMA_RUN_AUDIT", "never");
    command
}

fn ended(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// All that a launch may change here: the ledger, the groups with their CPUs,
/// the pages. One lease is left out, with its lock and its group.
fn host(but: &str) -> BTreeMap<String, String> {
    let mut host = BTreeMap::new();
    for file in fs::read_dir(LEASES).unwrap().flatten() {
        host.insert(file.path().display().to_string(), fs::read_to_string(file.path()).unwrap());
    }
    groups(Path::new("/sys/fs/cgroup"), &mut host);
    for file in [PAGES, HELD] {
        host.insert(file.to_owned(), read(file));
    }
    if !but.is_empty() {
        // A lock is not called like its lease, which says how.
        let lease = host.get(&format!("{LEASES}/{but}.lease")).cloned().unwrap_or_default();
        let lock = lease.split("\"lock_file\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or(but);
        host.retain(|path, _| !path.contains(but) && !path.contains(lock));
    }
    host
}

fn groups(folder: &Path, host: &mut BTreeMap<String, String>) {
    for name in ["cpuset.cpus", "cpuset.mems", "cgroup.subtree_control"] {
        let file = folder.join(name);
        let text = fs::read_to_string(&file).unwrap_or_default();
        host.insert(file.display().to_string(), text);
    }
    for entry in fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        groups(&entry.path(), host);
    }
}

/// Processes that are left of launches: guardians, and children.
fn left() -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let ours = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"numa-run"));
    pids.filter(|&pid| ours(pid)).collect()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(40);
    while !condition() {
        assert!(Instant::now() < end, "not within 40 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn changing(words: &str) -> Command {
    let mut command = numa_run(words);
    command.env("NUMA_RUN_FAULT_WRITE", format!("{PAGES}=3"));
    command
}

/// Where there is a guardian he may be first; without him the next one does it.
#[test]
fn a_launch_killed_at_any_point_leaves_the_host_as_it_was() {
    assert!(ended(&mut numa_run("--cpus 1 -- true")).status.success());
    assert!(ended(&mut numa_run("gc")).status.success());
    let before = host("");
    let mut seen = 0;
    for workload in ["true", "/no/such"] {
        let words = format!("--cpus 1 --memory 16M -- {workload}");
        let trace = "/tmp/crash-trace";
        ended(changing(&words).env("NUMA_RUN_FAULT_TRACE", trace));
        until("nobody is left", || left().is_empty());
        let points = fs::read_to_string(trace).unwrap();
        fs::remove_file(trace).unwrap();
        for group in ["group.moved", "group.set"] {
            assert!(points.contains(&format!(" {group} ")), "no point {group} in {points}");
        }
        for (at, point) in points.lines().enumerate() {
            let points = if at % 2 == 0 { point.to_owned() } else { format!("{point};guard guard.waits 1") };
            ended(changing(&words).env("NUMA_RUN_FAULT", &points));
            until("nobody is left", || left().is_empty());
            let next = if at % 4 < 2 { "gc" } else { "--cpus 1 -- printenv NUMA_RUN_ALLOC_LEASE" };
            let next = ended(&mut numa_run(next));
            assert!(next.status.success(), "{point}: {}", said(&next));
            let own = String::from_utf8_lossy(&next.stdout).trim().to_owned();
            assert_eq!(host(&own), before, "killed at {points}: {}", said(&next));
            assert!(ended(&mut numa_run("gc")).status.success());
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} points");
}

/// Starts a launch that ends in a program which sleeps.
fn sleeping(launch: &mut Command) -> Child {
    let launch = launch.stdout(Stdio::null()).spawn().unwrap();
    let name = format!("/proc/{}/comm", launch.id());
    until("the workload runs", || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep"));
    launch
}

fn group(pid: u32) -> String {
    read(&format!("/proc/{pid}/cgroup"))
}

/// As a part of it, it would keep the lease alive that it waits for; taken over
/// or not.
#[test]
fn a_guardian_lives_outside_of_the_workloads_group() {
    let named = |words: &str| {
        let mut launch = changing(words);
        let mut launch = sleeping(&mut launch);
        until("its guardian is there", || left().len() == 1);
        let (workload, guardian) = (group(launch.id()), group(left()[0]));
        assert!(workload.contains("numa-run") && guardian == group(std::process::id()), "{workload}, {guardian}");
        launch.kill().unwrap();
        launch.wait().unwrap();
    };
    named("--name x --grace 30 --cpus 1 -- sleep 600");
    assert_eq!(read(PAGES), "3");
    named("--name x --grace 30 --cpus 1 -- sleep 600");
    assert_eq!(read(PAGES), "3");
    named("--name x --grace 0 --cpus 1 -- sleep 600");
    until("nobody is left", || left().is_empty());
    assert_eq!(read(PAGES), "0");
}

fn status() -> String {
    said(&ended(&mut numa_run("status")))
}

/// As long as a virtual function is open, the kernel does not come back from
/// taking it away, and not even SIGKILL ends who waits for that.
#[test]
fn a_device_that_is_not_let_go_keeps_its_lease_and_nobody_else_waiting() {
    assert!(Command::new("modprobe").args(["-a", "vfio-pci", "vfio_iommu_type1", "igb"]).status().unwrap().success());
    let port = &functions(IGB)[0];
    let functions = || attribute(port, "sriov_numvfs");
    assert_eq!(functions(), "0");
    let change = format!("/sys/bus/pci/devices/{port}/sriov_numvfs=2");
    let mut launch = sleeping(numa_run("--cpu-list 0 -- sleep 600").env("NUMA_RUN_FAULT_WRITE", change));
    assert_eq!(functions(), "2");
    let first = fs::read_link(format!("/sys/bus/pci/devices/{port}/virtfn0")).unwrap();
    let first = first.file_name().unwrap().to_string_lossy().into_owned();
    vfio::bind(&first);
    let open = vfio::open(&first);

    launch.kill().unwrap();
    launch.wait().unwrap();
    until("it is known to be stuck", || status().contains(" is stuck: write 0 to "));
    assert!(status().contains("sriov_numvfs: not done within 10 s, and process "), "{}", status());
    let begun = Instant::now();
    assert_eq!(said(&ended(&mut numa_run("--cpu-list 2 -- echo started"))), "started\n");
    assert_eq!(ended(&mut numa_run("--cpu-list 0 -- true")).status.code(), Some(125));
    let gc = ended(&mut numa_run("gc"));
    assert_eq!(gc.status.code(), Some(125), "{}", said(&gc));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    // Then the guardian sees that nobody hangs any more, and puts it right.
    drop(open);
    until("nobody is left", || left().is_empty());
    assert_eq!(functions(), "0");
    assert!(ended(&mut numa_run("gc")).status.success());
    assert_eq!(fs::read_dir(LEASES).unwrap().count(), 0);
}
