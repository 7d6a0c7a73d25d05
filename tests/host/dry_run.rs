//! `--dry-run`: the steps as lines that a shell can run.

use super::{Ended, Stage, User, installed, started, typed, users};
use std::process::Command;

#[test]
fn a_dry_run_starts_nothing_and_its_lines_do_the_same() {
    let show = "grep Cpus_allowed_list /proc/self/status; grep -m1 -o 'bind[^ ]*' /proc/self/numa_maps; env | grep OMP";
    for user in users() {
        let stage = Stage::new();
        let mark = stage.path("it's a mark");
        let script = format!("touch \"$1\"; {show}");
        let run = |options: &[&str]| {
            let mut command = stage.numa_run(user);
            command.args(["--cpus", "1", "--memory", "64M"]).args(options).args(["--", "sh", "-c", &script, "sh"]);
            Ended::fine(command.arg(&mark))
        };
        let steps = run(&["--dry-run"]);
        assert!(!started(&mark), "{steps}");
        if !installed("taskset") || !installed("numactl") {
            return;
        }
        let by_hand = Ended::fine(typed(user, "sh").args(["-c", &steps]));
        assert!(started(&mark), "{steps}");
        let by_hand: Vec<&str> = by_hand.lines().filter(|line| !line.starts_with("pid ")).collect();
        assert_eq!(by_hand, run(&[]).lines().collect::<Vec<_>>(), "{steps}");
    }
}

#[test]
fn every_memory_policy_is_written_as_numactl_takes_it() {
    if !installed("numactl") {
        return;
    }
    for (mode, shown) in [
        ("bind", "bind:"),
        ("preferred", "prefer"),
        ("interleave", "interleave:"),
        ("local", "local"),
        ("default", "default"),
    ] {
        let stage = Stage::new();
        let options = ["--dry-run", "--cpus", "1", "--mempolicy", mode, "--", "cat", "/proc/self/numa_maps"];
        let steps = Ended::fine(stage.numa_run(User::Same).args(options));
        let out = Ended::fine(Command::new("sh").args(["-c", &steps]));
        let policy =
            out.lines().find(|line| !line.starts_with("pid ")).and_then(|line| line.split_once(' ')).expect(&steps).1;
        assert!(policy.starts_with(shown), "{mode}: {steps}: {policy}");
    }
}

#[test]
fn a_dry_run_may_be_of_another_machine() {
    let stage = Stage::new();
    let tree = stage.path("sys/devices/system/cpu");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("online"), "0-63\n").unwrap();
    let mut command = stage.numa_run(User::Same);
    command.env("NUMA_RUN_PROBE", "/nonexistent").arg("--topology").arg(format!("root:{}", stage.path("").display()));
    let steps = Ended::fine(command.args(["--dry-run", "--cpu-list", "60-63", "--", "./app", "two words", "$HOME"]));
    assert!(steps.starts_with("taskset --cpu-list --pid 60-63 $$\n"), "{steps}");
    assert!(steps.ends_with("./app 'two words' '$HOME'\n"), "{steps}");
}

#[test]
fn a_reader_that_goes_away_or_a_full_disk_crashes_nothing() {
    let stage = Stage::new();
    for words in [["--dry-run", "--cpus", "1", "--", "true"], ["plan", "--json", "--explain", "--cpus", "1"]] {
        let (ours, theirs) = nix::unistd::pipe().unwrap();
        drop(ours);
        let status = stage.numa_run(User::Same).args(words).stdout(theirs).status().unwrap();
        assert_eq!(status.code(), Some(0), "{words:?}");
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = Ended::of(stage.numa_run(User::Same).args(words).stdout(full()));
        assert_eq!(ended.code, Some(125), "{words:?}: {ended:?}");
        assert!(ended.errors.contains("No space left on device"), "{ended:?}");
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = stage.numa_run(User::Same);
    let status = command.args(["--explain", "--cpus", "1", "--", "true"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(0), "nobody hears the explanation, and the command runs");
}
