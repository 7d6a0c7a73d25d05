//! Launches with a group that are killed, or that have somebody who comes after them.

use super::{Group, TOOL, gc, groups, script, soon};
use crate::landing::{printed, run};
use crate::sys::read;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

const USER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// Runs a command with a switch for faults set.
fn faulty(command: &str, switch: &str, value: &str) -> Output {
    let mut words = command.split(' ');
    Command::new(words.next().unwrap()).args(words).env(format!("NUMA_RUN_FAULT{switch}"), value).output().unwrap()
}

/// The points that a launch passes.
fn points(command: &str) -> Vec<String> {
    let trace = "/tmp/passed";
    let _ = fs::remove_file(trace);
    // The launcher may be somebody else.
    printed(&format!("touch {trace}"));
    printed(&format!("chmod 666 {trace}"));
    faulty(command, "_TRACE", trace);
    read(trace).lines().filter(|line| line.starts_with("launch ")).map(str::to_owned).collect()
}

fn in_a_group(point: &&String) -> bool {
    point.contains(" group.")
}

#[test]
fn of_a_launch_that_is_killed_at_any_point_nothing_is_left() {
    printed("numa-run --cpus 1 -- true");
    gc();
    for command in ["true", "/nonexistent"] {
        let launch = format!("numa-run --cpus 2 --memory 64M --require-cgroup -- {command}");
        let points = points(&launch);
        assert!(points.iter().filter(in_a_group).count() > 4 && points.len() > 15, "{points:?}");
        for point in &points {
            assert_eq!(faulty(&launch, "", point).status.signal(), Some(9), "{point}");
            // Whoever comes next: two take turns.
            match point.len() % 2 {
                0 => printed("numa-run gc"),
                _ => printed("numa-run --cpus 8 -- true"),
            };
            gc();
            assert!(printed("numa-run status").starts_with("nothing is held"), "killed at {point}");
        }
    }
}

#[test]
fn what_was_passed_on_for_a_launch_that_is_killed_is_passed_on_no_longer() {
    printed("numa-run --cpus 1 -- true");
    gc();
    let mine = Group::new("mine");
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        std::os::unix::fs::chown(mine.0.join(file), Some(65534), Some(65534)).unwrap();
    }
    let launch = format!("{} {USER} numa-run --cpus 2 --memory 64M --require-cgroup -- true", mine.line());
    let points = points(&launch);
    assert!(points.iter().filter(in_a_group).count() > 5, "{points:?}");
    for point in points.iter().filter(in_a_group) {
        assert_eq!(faulty(&launch, "", point).status.signal(), Some(9), "{point}");
        printed(&format!("{USER} numa-run gc"));
        let left = fs::read_dir(&mine.0).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_dir()).count();
        assert_eq!((mine.file("cgroup.subtree_control").as_str(), left), ("", 0), "killed at {point}");
    }
    // The same where it is the launch itself that takes it back.
    let output = run(&format!("{} {USER} numa-run --cpus 2 --require-cgroup -- /nonexistent", mine.line()));
    assert_eq!((output.status.code(), mine.file("cgroup.subtree_control").as_str()), (Some(127), ""));
}

#[test]
fn who_becomes_another_user_lives_in_the_group_and_it_goes_where_he_cannot_start() {
    printed("numa-run --cpus 1 -- true");
    gc();
    let launch = "numa-run --user 65534:65534 --cpus 2 --cpu-nodes 1 --require-cgroup --";
    let found = super::inside(launch);
    assert_eq!((found.cpus.as_str(), found.group.starts_with("/numa-run/")), ("2-3", true), "{found:?}");
    gc();
    let output = run(&format!("{launch} /nonexistent"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), groups()), (Some(127), Vec::new()), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(printed("numa-run status").starts_with("nothing is held"));
}

#[test]
fn a_guardian_is_not_in_the_group_whose_end_it_waits_for() {
    let file = "/tmp/changed";
    fs::write(file, "before\n").unwrap();
    let launch = format!("numa-run --cpus 2 --require-cgroup -- sh {}", script());
    let output = faulty(&launch, "_WRITE", &format!("{file}=during"));
    assert!(output.status.success(), "{output:?}");
    soon(|| read(file) == "before" && groups().is_empty());
    assert!(Path::new(TOOL).exists());
}
