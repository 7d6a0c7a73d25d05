//! Cpusets of version 1, where they are mounted. Version 2 has none then.

use super::{ALONE, MOUNT, TOOL, USER, gc, soon};
use crate::landing::{landing, launch, printed, run, workload};
use crate::sys::read;
use std::fs;
use std::path::Path;

const CPUSETS: &str = "/tmp/cpusets";

/// Version 1 mounted; unmounted when the test ends.
struct Mounted;

impl Mounted {
    fn new() -> Mounted {
        gc();
        for folder in [TOOL, MOUNT] {
            // One that passes nothing on is fine too.
            let _ = fs::write(Path::new(folder).join("cgroup.subtree_control"), "-cpuset");
        }
        fs::create_dir_all(CPUSETS).unwrap();
        // The controller leaves version 2 a moment after its last group.
        soon(|| run(&format!("mount -t cgroup -o cpuset cpuset {CPUSETS}")).status.success());
        Mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("numa-run gc");
        let _ = fs::remove_dir(format!("{CPUSETS}/job"));
        run(&format!("umount {CPUSETS}"));
    }
}

/// Case E11, and what a host has that runs both versions.
#[test]
fn a_cpuset_of_version_1_keeps_a_workload_in() {
    let _mounted = Mounted::new();
    let show = "/tmp/legacy";
    let group = "group=$(sed -n 's/^[0-9]*:cpuset://p' /proc/self/cgroup)";
    fs::write(show, format!("{group}\necho $group\ncat {CPUSETS}$group/cpuset.cpus {CPUSETS}$group/cpuset.mems\n"))
        .unwrap();
    let found = |options: &str| printed(&format!("numa-run {options} -- sh {show}"));
    let all = found("--cpus 2 --cpu-nodes 1 --memory 64M --require-cgroup");
    assert!(all.starts_with("/numa-run-") && all.ends_with("\n2-3\n1\n"), "{all}");
    // Without a wish for memory it has what the cpuset above has: without any it would take nobody.
    assert!(found("--cpus 2 --cpu-nodes 1").ends_with("\n2-3\n0-3\n"));
    let output = run("numa-run --cpus 2 --cpu-nodes 1 -- taskset --cpu-list 4 true");
    assert!(String::from_utf8(output.stderr).unwrap().contains("Invalid argument"));
    assert_eq!(printed("numa-run gc"), "");
    let left = fs::read_dir(CPUSETS).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_dir()).count();
    assert_eq!(left, 0);
    let said = landing(&format!("{USER} numa-run --cpus 2 -- {}", workload())).said;
    assert!(said.contains(ALONE) && said.contains("/tmp/cpusets is not this user's to divide"), "{said}");
}

#[test]
fn a_cpuset_of_version_1_is_the_world() {
    let _mounted = Mounted::new();
    let job = format!("{CPUSETS}/job");
    fs::create_dir(&job).unwrap();
    fs::write(format!("{job}/cpuset.cpus"), "4-7").unwrap();
    fs::write(format!("{job}/cpuset.mems"), "2-3").unwrap();
    fs::write("/tmp/join-job", format!("echo $$ >{job}/cgroup.procs && exec \"$@\"\n")).unwrap();
    let group = printed("sh /tmp/join-job numa-run --cpus 2 --require-cgroup -- grep cpuset /proc/self/cgroup");
    assert!(group.contains(":cpuset:/job/numa-run-"), "{group}");
    let landing = landing(&format!("sh /tmp/join-job numa-run --cpus 4 --memory 64M -- {}", workload()));
    assert_eq!(landing.cpus.to_string(), "4-7");
    assert_eq!(read(&format!("{job}/cpuset.cpus")), "4-7");
    launch("--cpu-list 0-1");
    printed("numa-run gc");
}
