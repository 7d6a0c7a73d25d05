//! Where the workload lands.

use super::{Ended, Stage, User, allowed_cpus, installed, typed, users};
use numa_run::topology::CpuSet;

const WHERE: &str = "grep Cpus_allowed_list /proc/self/status; grep -m1 heap /proc/self/numa_maps";

fn cpus(out: &str) -> CpuSet {
    let line = out.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect(out);
    line.trim().parse().unwrap()
}

#[test]
fn the_workload_runs_on_the_cpu_granted_with_its_memory_bound() {
    for user in users() {
        let stage = Stage::new();
        let out = Ended::fine(stage.numa_run(user).args(["--cpus", "1", "--memory", "64M", "--", "sh", "-c", WHERE]));
        assert_eq!(cpus(&out).len(), 1, "{user:?}: {out}");
        assert!(out.contains(" bind:"), "{user:?}: {out}");
    }
}

#[test]
fn the_first_word_that_is_no_option_starts_the_command() {
    let stage = Stage::new();
    let out = Ended::fine(stage.numa_run(User::Same).args(["--cpus", "1", "sh", "-c", WHERE]));
    assert_eq!(cpus(&out).len(), 1, "{out}");
}

#[test]
fn under_taskset_it_stays_on_the_cpu_that_was_left() {
    let last = allowed_cpus().last().unwrap();
    if !installed("taskset") {
        return;
    }
    for user in users() {
        let stage = Stage::new();
        let mut command = typed(user, "taskset");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run")).args(["-c", &last.to_string(), super::NUMA_RUN]);
        let out = Ended::fine(command.args(["--cpus", "1", "--", "sh", "-c", WHERE]));
        assert_eq!(cpus(&out), CpuSet::one(last), "{user:?}: {out}");
    }
}

#[test]
fn without_wishes_nothing_is_changed() {
    let stage = Stage::new();
    let script = "grep allowed_list /proc/self/status; cut -d' ' -f2 /proc/self/numa_maps | sort -u";
    let ours = Ended::fine(stage.numa_run(User::Same).args(["--", "sh", "-c", script]));
    let plain = Ended::fine(typed(User::Same, "sh").args(["-c", script]));
    assert_eq!(ours, plain);
}

#[test]
fn every_memory_policy_is_the_workloads_own() {
    let policies = [
        ("bind", "bind:"),
        ("preferred", "prefer:"),
        ("preferred-many", "prefer (many):"),
        ("interleave", "interleave:"),
        ("weighted-interleave", "weighted interleave:"),
        ("local", "local"),
        ("default", "default"),
    ];
    for (mode, shown) in policies {
        let stage = Stage::new();
        let ended = Ended::of(stage.numa_run(User::Same).args([
            "--cpus",
            "1",
            "--mempolicy",
            mode,
            "cat",
            "/proc/self/numa_maps",
        ]));
        if mode == "weighted-interleave" && ended.errors.contains("Invalid argument") {
            eprintln!("SKIPPED, NOT TESTED: {mode} (before Linux 6.9)");
            continue;
        }
        let line = ended.out.lines().next().unwrap_or_default();
        let policy = line.split_once(' ').map(|(_, rest)| rest).unwrap_or_default();
        assert!(
            policy.starts_with(shown) || (mode == "preferred-many" && policy.starts_with("prefer:")),
            "{mode}: {ended:?}"
        );
    }
}

#[test]
fn numactl_sees_the_same() {
    if !installed("numactl") {
        return;
    }
    for user in users() {
        let stage = Stage::new();
        let out = Ended::fine(stage.numa_run(user).args(["--cpus", "1", "--memory", "64M", "numactl", "--show"]));
        let line = |name: &str| out.lines().find_map(|line| line.strip_prefix(name)).expect(&out).trim().to_owned();
        assert_eq!(line("policy:"), "bind", "{user:?}");
        assert_eq!(line("physcpubind:").split(' ').count(), 1, "{user:?}: {out}");
        assert_eq!(line("membind:").split(' ').count(), 1, "{user:?}: {out}");
    }
}

#[test]
fn all_cpus_can_be_had_at_once() {
    let stage = Stage::new();
    let all = allowed_cpus();
    let out =
        Ended::fine(stage.numa_run(User::Same).args(["--isolated", "never", "--cpu-list", "all", "sh", "-c", WHERE]));
    assert_eq!(cpus(&out), all, "{out}");
}

#[test]
fn where_memory_policies_are_forbidden_only_what_was_asked_for_is_missed() {
    if !installed("strace") {
        return;
    }
    let run = |options: &[&str]| {
        let stage = Stage::new();
        let mut command = typed(User::Same, "strace");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run")).args(["-qq", "-o", "/dev/null"]);
        command.args([
            "-e",
            "trace=set_mempolicy,get_mempolicy",
            "-e",
            "inject=set_mempolicy,get_mempolicy:error=EPERM",
        ]);
        Ended::of(command.arg(super::NUMA_RUN).args(options).args(["--", "sh", "-c", WHERE]))
    };
    if run(&[]).code != Some(0) {
        eprintln!("SKIPPED, NOT TESTED: strace cannot trace here");
        return;
    }
    let unasked = run(&["--cpus", "1"]);
    assert_eq!(unasked.code, Some(0), "{unasked:?}");
    assert_eq!(cpus(&unasked.out).len(), 1, "{unasked:?}");
    assert!(unasked.errors.contains("memory is left unbound: set_mempolicy(preferred-many"), "{unasked:?}");
    assert!(unasked.errors.contains("Operation not permitted"), "{unasked:?}");
    for asked in [&["--cpus", "1", "--memory", "64M"] as &[&str], &["--mempolicy", "local"], &["--mem-nodes", "all"]] {
        let ended = run(asked);
        assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{ended:?}");
        assert!(ended.errors.contains("Operation not permitted"), "{ended:?}");
    }
}

#[test]
fn what_is_for_one_launch_alone_is_given_to_none_where_that_cannot_be_recorded() {
    for user in users() {
        let stage = Stage::new();
        let run = |asked: &[&str]| {
            let mut command = stage.numa_run(user);
            Ended::of(command.args(["--run-dir", "/proc/no/such"]).args(asked).args(["--", "echo", "ran"]))
        };
        let ended = run(&["--cpus", "1"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{user:?}: {ended:?}");
        assert!(ended.errors.contains("cannot record the launch in /proc/no/such"), "{ended:?}");
        let ended = run(&["--mempolicy", "local"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{user:?}: {ended:?}");
    }
}

#[test]
fn many_first_launches_at_once_all_get_their_machine() {
    let stage = Stage::new();
    let start = |_| stage.numa_run(User::Same).args(["--mem-nodes", "0", "--", "true"]).spawn().unwrap();
    let children: Vec<_> = (0..12).map(start).collect();
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
