//! CPUs that may not be had: offline, isolated, outside the affinity or the cpuset.

use crate::landing::{Landing, landing, launch, refusal, refused, run, topo, workload};
use crate::sys::Changed;
use numa_run::topology::CpuSet;
use std::fs;
use std::path::Path;

const USER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";
const BALANCE: &str = "are isolated";

fn cpus(options: &str) -> String {
    launch(options).cpus.to_string()
}

fn is_online(cpu: usize) -> bool {
    topo("")["cpus"][cpu]["online"].as_bool().unwrap()
}

#[test]
fn an_offline_cpu_is_refused_by_name_and_left_out_of_an_amount() {
    assert!(is_online(5));
    {
        let _offline = Changed::to("/sys/devices/system/cpu/cpu5/online", "0");
        assert!(!is_online(5), "the snapshot hides that the machine has changed");
        let said = refused("--cpu-list 4-5");
        assert!(said.contains("CPU 5 is offline"), "{said}");
        let said = refused("--pool 4-5 --cpus 1");
        assert!(said.contains("CPU 5 is offline"), "{said}");
        let said = refused("--cpus 2 --cpu-nodes 2");
        assert!(said.contains("not enough cpus: 2 wanted, 1 free"), "{said}");
        assert_eq!(cpus("--cpus 7"), "0-4,6-7");
        assert_eq!(cpus("--cpu-nodes 2"), "4");
        refused("--cpus 8");
    }
    assert!(is_online(5));
    assert_eq!(cpus("--cpu-list 4-5"), "4-5");
}

/// A control group with a cpuset of its own; gone when the test ends.
struct Group(&'static Path);

impl Group {
    fn with(cpus: &str, memory: &str) -> Group {
        let root = Path::new("/sys/fs/cgroup");
        fs::write(root.join("cgroup.subtree_control"), "+cpuset").unwrap();
        let group = Group(Path::new("/sys/fs/cgroup/narrow"));
        fs::create_dir(group.0).unwrap();
        fs::write(group.0.join("cpuset.cpus"), cpus).unwrap();
        fs::write(group.0.join("cpuset.mems"), memory).unwrap();
        group
    }

    /// A launch by a process that has joined the group.
    fn line(&self, options: &str) -> String {
        let join = "/tmp/join";
        fs::write(join, format!("echo $$ >{}/cgroup.procs\nexec \"$@\"\n", self.0.display())).unwrap();
        format!("sh {join} numa-run {options} -- {}", workload())
    }

    fn launch(&self, options: &str) -> Landing {
        landing(&self.line(options))
    }

    fn refused(&self, options: &str) -> String {
        refusal(&self.line(options))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Where the launches were alone in it, their groups are below it.
        run("numa-run gc");
        fs::remove_dir(self.0).unwrap();
    }
}

#[test]
fn in_a_group_the_pool_is_its_cpuset() {
    let group = Group::with("3-6", "1-2");
    assert_eq!(group.launch("--cpus 4").cpus.to_string(), "3-6");
    assert_eq!(group.launch("--cpus 2 --memory 64M --policy single-numa-node").not_on(2, 2), None);
    let said = group.refused("--cpus 5");
    assert!(
        said.contains("not enough cpus: 5 wanted, 4 free") && said.contains("4 allowed here of 8 online"),
        "{said}"
    );
    let said = group.refused("--cpu-list 2-3");
    assert!(said.contains("CPU 2 is outside the CPUs that are allowed here (3-6)"), "{said}");
    let said = group.refused("--cpus 1 --pool 0-3");
    assert!(said.contains("0-2 is outside the cpuset (3-6)"), "{said}");
    let said = group.refused("--memory 64M --mem-nodes 0");
    assert!(said.contains("node 0 is outside the nodes that memory may come from here (1-2)"), "{said}");
    // Outside of the group all of it is there.
    assert_eq!(cpus("--cpu-list 2-3"), "2-3");
}

#[test]
fn isolated_cpus_are_roots_own_where_nothing_else_is_said() {
    let isolated: CpuSet = "2-3,6-7".parse().unwrap();
    let landing = launch("--merge kubelet --cpus 2 --memory 64M");
    assert_eq!(landing.not_on(1, 2), None);
    assert!(landing.cpus.is_subset(&isolated));
    assert!(landing.said.contains(BALANCE), "two threads on isolated CPUs: {}", landing.said);
    let landing = launch("--cpus 1");
    assert!(landing.cpus.is_subset(&isolated) && !landing.said.contains(BALANCE), "{landing:?}");
    let said = refused("--cpus 5");
    assert!(said.contains("not enough cpus: 5 wanted, 4 free"), "{said}");
}

#[test]
fn isolated_cpus_are_used_also_or_never_as_it_is_said() {
    assert_eq!(cpus("--isolated never --cpus 2"), "0-1");
    assert_eq!(cpus("--isolated only --cpus 4"), "2-3,6-7");
    assert_eq!(cpus("--isolated also --cpus 6"), "0-3,6-7");
    let landing = launch("--isolated never --cpus 2");
    assert!(!landing.said.contains(BALANCE), "{}", landing.said);
}

#[test]
fn isolated_cpus_are_not_for_an_ordinary_user_who_does_not_ask() {
    let user = |options: &str| landing(&format!("{USER} numa-run {options} -- {}", workload())).cpus.to_string();
    assert_eq!(user("--cpus 2"), "0-1");
    assert_eq!(user("--cpus 4 --isolated only"), "2-3,6-7");
}

#[test]
fn systemds_affinity_is_the_pool_until_another_is_named() {
    // The workload by itself stays where systemd put it.
    assert_eq!(landing(&workload()).cpus.to_string(), "0-1");
    let said = refused("--isolated never --cpus 3");
    assert!(said.contains("3 wanted, 2 free") && said.contains("2 allowed here of 8 online"), "{said}");
    let landing = launch("--isolated never --pool 4-5 --cpus 2 --memory 64M");
    assert_eq!(landing.not_on(2, 2), None);
    assert_eq!(cpus("--isolated never --pool 0-7 --cpus 4"), "0-1,4-5");
}
