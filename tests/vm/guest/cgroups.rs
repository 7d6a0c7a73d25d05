//! The second fence: the cgroup that a workload lives in, and what becomes of it.

mod faults;
mod legacy;
mod systemd;

use crate::landing::{landing, launch, printed, refusal, refused, run, workload};
use crate::sys::{Changed, read};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const USER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";
const MOUNT: &str = "/sys/fs/cgroup";
const TOOL: &str = "/sys/fs/cgroup/numa-run";
const ALONE: &str = "by affinity and memory policy alone, without a cgroup";

/// What a process sees of its own cgroup.
#[derive(Debug, PartialEq, Eq)]
struct Inside {
    group: String,
    cpus: String,
    mems: String,
    /// CPUs and nodes that it has come to.
    effective: (String, String),
}

/// Runs a command that ends in a launch, with this as the workload.
fn inside(command: &str) -> Inside {
    parsed(&printed(&format!("{command} sh {}", script())))
}

fn parsed(text: &str) -> Inside {
    let mut lines = text.lines().map(str::to_owned);
    let mut next = || lines.next().unwrap_or_else(|| panic!("{text}"));
    Inside { group: next(), cpus: next(), mems: next(), effective: (next(), next()) }
}

fn script() -> &'static str {
    let path = "/tmp/inside";
    let text = "group=$(sed -n s/^0:://p /proc/self/cgroup)\necho $group\nfor file in cpus mems cpus.effective mems.effective\n\
                do cat /sys/fs/cgroup$group/cpuset.$file 2>/dev/null || echo none\ndone\n";
    // Others may be running it.
    if fs::read_to_string(path).ok().as_deref() != Some(text) {
        fs::write(path, text).unwrap();
    }
    path
}

/// The groups of leases that are there.
fn groups() -> Vec<String> {
    let folders = fs::read_dir(TOOL).into_iter().flatten().flatten();
    let folders = folders.filter(|entry| entry.file_type().unwrap().is_dir());
    folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn gc() {
    assert_eq!(printed("numa-run gc"), "");
    assert_eq!(groups(), [""; 0]);
}

/// A group of version 2; gone when the test ends, with what leases have left in it.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Group {
        let folder = Path::new(MOUNT).join(name);
        fs::create_dir(&folder).unwrap();
        Group(folder)
    }

    fn file(&self, name: &str) -> String {
        read(self.0.join(name).to_str().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// The start of a command whose process is in the group.
    fn line(&self) -> String {
        let join = format!("/tmp/join-{}", self.0.file_name().unwrap().to_string_lossy());
        fs::write(&join, format!("echo $$ >{}/cgroup.procs && exec \"$@\"\n", self.0.display())).unwrap();
        format!("sh {join}")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        run("numa-run gc");
        let removed = fs::remove_dir(&self.0);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

/// A program that is ended with the test.
struct Running(Child);

impl Running {
    fn start(command: &str) -> Running {
        let mut words = command.split(' ');
        Running(Command::new(words.next().unwrap()).args(words).spawn().unwrap())
    }

    fn file(&self, name: &str) -> String {
        read(&format!("/proc/{}/{name}", self.0.id()))
    }

    fn affinity(&self) -> String {
        let status = self.file("status");
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for what must come soon.
#[track_caller]
fn soon(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The only lease, as `status` tells it.
fn only_lease() -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&printed("numa-run status --json")).unwrap();
    let leases = status["leases"].as_array().unwrap().clone();
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases[0].clone()
}

#[test]
fn a_workload_lives_in_a_group_with_its_cpus_and_nodes() {
    let found = inside("numa-run --cpus 2 --cpu-nodes 1 --memory 64M --");
    assert_eq!((found.cpus.as_str(), found.mems.as_str()), ("2-3", "1"));
    assert_eq!(found.effective, ("2-3".into(), "1".into()));
    assert_eq!(Path::new(&found.group).parent(), Some(Path::new("/numa-run")));
    let lease = only_lease();
    assert_eq!(lease["group"], format!("{MOUNT}{}", found.group));
    assert_eq!(found.group, format!("/numa-run/{}", lease["lease"].as_str().unwrap()));
    // Memory that nobody asked for comes from wherever the policy finds it.
    let found = inside("numa-run --cpus 2 --cpu-nodes 1 --");
    assert_eq!((found.cpus.as_str(), found.mems.as_str()), ("2-3", ""));
    let found = inside("numa-run --cpus 2 --memory 64M --mempolicy preferred --");
    assert_eq!(found.mems, "");
    let found = inside("numa-run --memory 64M --mem-nodes 3 --");
    assert_eq!((found.cpus.as_str(), found.mems.as_str()), ("", "3"));
    let found = inside("numa-run --cpu-list 4 --shared-cpus 1 --cgroup auto --");
    assert_eq!(found.cpus, "0-4,6-7", "its own and those that it shares");
    assert_eq!(inside("numa-run --cpus 2 --cgroup never --").group, "/");
    gc();
}

#[test]
fn the_kernel_refuses_a_workload_what_is_not_its_own() {
    let there = "numa-run --cpus 2 --cpu-nodes 1 --memory 64M";
    let output = run(&format!("{there} -- taskset --cpu-list 4 true"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("Invalid argument"), "{said}");
    let both = printed(&format!("{there} -- taskset --cpu-list 2,4 grep Cpus_allowed_list /proc/self/status"));
    assert_eq!(both, "Cpus_allowed_list:\t2\n");
    assert!(!run(&format!("{there} -- numactl --membind=0 true")).status.success());
    // It is the group that refuses it.
    assert!(run(&format!("{there} --cgroup never -- taskset --cpu-list 4 true")).status.success());
    assert!(run(&format!("{there} --cgroup never -- numactl --membind=0 true")).status.success());
    gc();
}

#[test]
fn groups_go_with_their_leases() {
    gc();
    let running = Running::start("numa-run --cpus 2 -- sleep 1000");
    soon(|| groups().len() == 1);
    let first = groups();
    // The next launch removes what the last one has left, and not what lives.
    launch("--cpus 2");
    launch("--cpus 2");
    let there: BTreeSet<String> = groups().into_iter().collect();
    assert!(there.len() == 2 && there.contains(&first[0]), "{there:?}");
    printed("numa-run gc");
    assert_eq!(groups(), first);
    drop(running);
    gc();
}

#[test]
fn nothing_is_left_of_a_launch_whose_command_is_not_there() {
    for (command, code) in [("/nonexistent", 127), ("/etc/passwd", 126)] {
        let output = run(&format!("numa-run --cpus 2 --memory 64M --require-cgroup -- {command}"));
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(groups(), [""; 0]);
        assert!(printed("numa-run status").starts_with("nothing is held"));
    }
}

#[test]
fn groups_that_a_workload_made_in_its_own_go_with_it() {
    let nest = "/tmp/nest";
    fs::write(nest, "mkdir -p /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/a/b\n").unwrap();
    printed(&format!("numa-run --cpus 2 -- sh {nest}"));
    assert!(Path::new(TOOL).join(&groups()[0]).join("a/b").is_dir());
    gc();
}

/// Case J04.
#[test]
fn a_daemon_that_closed_everything_keeps_the_lease_alive() {
    let daemon = "/tmp/daemon";
    let close = "for file in /proc/$BASHPID/fd/*; do number=${file##*/}; eval \"exec $number>&-\"; done";
    fs::write(daemon, format!("({close}; exec setsid sleep 1000) &\necho $! >/tmp/daemon.pid\n")).unwrap();
    let start = |options: &str| {
        assert!(run(&format!("numa-run {options} -- bash {daemon}")).status.success());
        let pid = read("/tmp/daemon.pid");
        soon(|| read(&format!("/proc/{pid}/comm")) == "sleep");
        assert_eq!(fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(), 0);
        pid
    };
    let end = |pid: &str| {
        printed(&format!("kill -9 {pid}"));
        soon(|| !Path::new(&format!("/proc/{pid}")).exists());
    };
    let pid = start("--cpus 4");
    assert_eq!(only_lease()["state"], "running");
    let said = refused("--cpus 5");
    assert!(said.contains("5 wanted, 4 free"), "{said}");
    end(&pid);
    assert_eq!(launch("--cpus 8").cpus.len(), 8);
    // Without the group nobody could tell.
    let pid = start("--cpus 4 --cgroup never");
    assert_eq!(launch("--cpus 8").cpus.len(), 8);
    end(&pid);
    gc();
}

/// Case E08.
#[test]
fn a_group_in_which_others_live_is_left_as_it_is() {
    let session = Group::new("session");
    let others = Running::start(&format!("{} sleep 1000", session.line()));
    soon(|| session.file("cgroup.procs") == others.0.id().to_string());
    let found = inside(&format!("{} numa-run --cpus 2 --", session.line()));
    assert!(found.group.starts_with("/numa-run/"), "{found:?}");
    assert_eq!(session.file("cgroup.subtree_control"), "");
    // Out of one that limits its processes nobody is taken either.
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+pids").unwrap();
    session.write("pids.max", "100");
    let landing = landing(&format!("{} numa-run --cpus 2 -- {}", session.line(), workload()));
    let reason = "another process lives in /sys/fs/cgroup/session, which so cannot be divided";
    assert!(landing.said.contains(ALONE) && landing.said.contains(reason), "{}", landing.said);
    assert_eq!((landing.said.lines().count(), landing.cpus.len()), (1, 2), "{}", landing.said);
    let said = refusal(&format!("{} numa-run --cpus 2 --require-cgroup -- {}", session.line(), workload()));
    assert!(said.contains(reason) && said.contains("--require-cgroup"), "{said}");
    drop(others);
    soon(|| session.file("cgroup.procs").is_empty());
    let found = inside(&format!("{} numa-run --cpus 2 --", session.line()));
    assert!(found.group.starts_with("/session/numa-run-"), "{found:?}");
}

#[test]
fn a_launch_in_a_launch_divides_its_group() {
    // By another ledger: in this one, the CPUs are the outer launch's.
    let found = inside("numa-run --cpu-list 2-5 -- numa-run --run-dir /tmp/inner --cpu-list 4-5 --");
    assert!(found.group.starts_with("/numa-run/") && found.group.contains("/numa-run-"), "{found:?}");
    assert_eq!((found.cpus.as_str(), read(&format!("{MOUNT}{}/../cpuset.cpus", found.group)).as_str()), ("4-5", "2-5"));
    printed("numa-run gc --run-dir /tmp/inner");
    gc();
}

/// Case E09.
#[test]
fn a_threaded_group_is_tried_once_and_named() {
    launch("--cpus 2");
    gc();
    let threads = Group::new("numa-run/threads");
    threads.write("cgroup.type", "threaded");
    let said = refused("--cpus 2 --require-cgroup");
    assert!(said.contains("/sys/fs/cgroup/numa-run/") && said.contains("threaded"), "{said}");
    assert_eq!((groups(), said.lines().count()), (vec!["threads".to_owned()], 1), "{said}");
    let landing = launch("--cpus 2");
    assert!(landing.said.contains(ALONE) && landing.said.contains("threaded"), "{}", landing.said);
    assert_eq!(landing.said.lines().count(), 1, "{}", landing.said);
    assert_eq!(groups(), ["threads"]);
}

/// Case E14.
#[test]
fn a_parent_that_shrinks_undoes_the_launch() {
    launch("--cpus 2");
    gc();
    {
        let _narrow = Changed::to("/sys/fs/cgroup/numa-run/cpuset.cpus", "0-1");
        let said = refused("--cpu-list 2-3");
        assert!(
            said.contains("write 2-3 to /sys/fs/cgroup/numa-run/") && said.contains("kept `0-1` instead"),
            "{said}"
        );
        assert_eq!(groups(), [""; 0]);
        let said = refused("--cpu-list 1-2");
        assert!(said.contains("kept `1` instead"), "{said}");
    }
    assert_eq!(launch("--cpu-list 2-3").cpus.to_string(), "2-3");
    gc();
}

/// As case E14, of memory: the kernel takes the nodes and keeps others.
#[test]
fn nodes_that_the_group_does_not_come_to_undo_the_launch() {
    launch("--cpus 2");
    gc();
    {
        let _narrow = Changed::to("/sys/fs/cgroup/numa-run/cpuset.mems", "0");
        for policy in ["none", "best-effort", "restricted"] {
            let said = refused(&format!("--cpus 2 --memory 64M --mem-nodes 2 --cpu-nodes 2 --policy {policy}"));
            assert!(said.contains("cpuset.mems: the kernel kept `0` instead"), "{said}");
            assert_eq!(groups(), [""; 0]);
        }
    }
    gc();
}

/// Case E13.
#[test]
fn nodes_are_no_cpus() {
    let said = refused("--memory 64M --mem-nodes 0-31");
    assert!(said.contains("4-31"), "{said}");
}

/// Case E16.
#[test]
fn a_launch_writes_to_no_group_but_its_own() {
    let first = Running::start("numa-run --cpu-list 4-5 --memory 64M -- sleep 1000");
    soon(|| first.file("comm") == "sleep");
    let group = Path::new(TOOL).join(&groups()[0]);
    let id = first.0.id();
    printed(&format!("taskset --cpu-list --pid 5 {id}"));
    assert_eq!(first.affinity(), "5");
    let trace = "/tmp/trace";
    printed(&format!("strace -o {trace} -e trace=%file numa-run --cpu-list 2-3 --memory 64M -- true"));
    let text = read(trace);
    let changed =
        text.lines().filter(|line| line.contains(MOUNT) && (line.contains("O_WRONLY") || line.contains("dir(")));
    let changed: Vec<&str> = changed.collect();
    assert_eq!(changed.len(), 4, "its folder, its CPUs, its nodes, itself: {changed:?}");
    let own = |line: &&str| line.contains("/numa-run/") && !line.contains(&*group.to_string_lossy());
    assert!(changed.iter().all(own), "{changed:?}");
    assert_eq!(first.affinity(), "5");
    assert_eq!(read(group.join("cpuset.cpus").to_str().unwrap()), "4-5");
    printed("numa-run gc");
    // What others do to it is said; that it has pinned itself to a part of it is not.
    assert_eq!(only_lease()["drift"], serde_json::Value::Null);
    fs::write(group.join("cpuset.cpus"), "4-6").unwrap();
    assert_eq!(only_lease()["drift"], "its cpuset was changed to 4-6, and 4-5 was granted");
    drop(first);
    gc();
}

/// What a launch costs in system calls; the guest's clock would tell nothing.
#[test]
fn a_group_costs_a_launch_a_few_system_calls() {
    launch("--cpus 2");
    let calls = |options: &str| {
        gc();
        printed(&format!("strace -o /tmp/calls numa-run --cpus 2 --memory 64M {options} -- true"));
        read("/tmp/calls").lines().position(|line| line.contains("/bin/true")).unwrap()
    };
    let (without, with) = (calls("--cgroup never"), calls("--cgroup auto"));
    println!("{with} system calls with a group, {without} without");
    assert!(with > without && with < without + 60, "{with} with, {without} without");
    gc();
}

#[test]
fn an_ordinary_user_has_a_group_where_one_was_left_to_him() {
    // Root makes the ledger first, for all.
    launch("--cpus 1");
    let said = landing(&format!("{USER} numa-run --cpus 2 -- {}", workload())).said;
    assert!(said.contains(ALONE) && said.contains("only root can make one in /sys/fs/cgroup"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(landing(&format!("{USER} numa-run --quiet --cpus 2 -- {}", workload())).said, "");
    let said = refusal(&format!("{USER} numa-run --cpus 2 --require-cgroup -- {}", workload()));
    assert!(said.contains("only root can make one"), "{said}");
    let mine = Group::new("mine");
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        std::os::unix::fs::chown(mine.0.join(file), Some(65534), Some(65534)).unwrap();
    }
    let found = inside(&format!("{} {USER} numa-run --cpus 2 --memory 64M --require-cgroup --", mine.line()));
    assert!(found.group.starts_with("/mine/numa-run-"), "{found:?}");
    assert_eq!(found.effective.0.len(), 3, "{found:?}");
    // What it needed to do so is put back with the group.
    assert_eq!(mine.file("cgroup.subtree_control"), "cpuset");
    printed(&format!("{USER} numa-run gc"));
    assert_eq!(mine.file("cgroup.subtree_control"), "");
}

#[test]
fn who_was_pinned_stays_pinned_when_cpusets_are_first_passed_on() {
    launch("--cpus 2");
    gc();
    for folder in [TOOL, MOUNT] {
        fs::write(Path::new(folder).join("cgroup.subtree_control"), "-cpuset").unwrap();
    }
    let other = Group::new("other");
    let pinned = Running::start(&format!("{} taskset --cpu-list 6 sleep 1000", other.line()));
    soon(|| pinned.file("comm") == "sleep" && pinned.affinity() == "6");
    let found = inside("numa-run --cpus 2 --require-cgroup --");
    assert!(found.group.starts_with("/numa-run/"), "{found:?}");
    assert!(read("/sys/fs/cgroup/cgroup.subtree_control").contains("cpuset"));
    assert_eq!(pinned.affinity(), "6");
    drop(pinned);
    gc();
    soon(|| other.file("cgroup.procs").is_empty());
}

#[test]
fn a_dry_run_of_a_launch_with_a_group_does_the_same() {
    let steps = printed(&format!("numa-run --cpu-list 2-3 --memory 64M --dry-run -- sh {}", script()));
    assert!(steps.contains("mkdir /sys/fs/cgroup/numa-run/"), "{steps}");
    fs::write("/tmp/steps", &steps).unwrap();
    let text = printed("sh /tmp/steps");
    let printed_by_taskset = text.lines().take_while(|line| line.starts_with("pid ")).count();
    let found = parsed(&text.lines().skip(printed_by_taskset).collect::<Vec<_>>().join("\n"));
    assert_eq!(found.effective, ("2-3".into(), "1".into()));
    fs::remove_dir(format!("{MOUNT}{}", found.group)).unwrap();
}
