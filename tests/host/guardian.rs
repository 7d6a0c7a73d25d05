//! Who undoes what a launch has changed on the host, and when.

use super::Ended;
use super::scene::{Scene, comm, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;

fn link(pid: Pid, name: &str) -> String {
    fs::read_link(format!("/proc/{pid}/{name}")).unwrap().display().to_string()
}

fn status(pid: Pid, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).trim().to_owned()
}

/// Fields of stat(5) behind the name: 1 is the parent, 3 the session.
fn stat(pid: Pid, field: usize) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text.rsplit_once(") ").unwrap().1.split(' ').nth(field).unwrap().parse().unwrap()
}

#[test]
fn a_change_comes_back_as_soon_as_the_workload_has_ended() {
    let scene = Scene::new();
    let (mut launch, _) = scene.sleeping(&[]);
    assert_eq!([scene.file("one"), scene.file("two")], ["changed", "changed"]);
    launch.kill().unwrap();
    launch.wait().unwrap();
    scene.wait_for_others();
    assert!(scene.is_as_before());
}

#[test]
fn a_guardian_has_nothing_of_the_workload_or_the_caller() {
    let scene = Scene::new();
    let (mut launch, guardian) = scene.sleeping(&[]);
    let workload = Pid::from_raw(launch.id() as i32);
    until(|| blocked(guardian));
    // Its session's leader has ended, so that it can never get a terminal.
    let session = stat(guardian, 3);
    assert!(session != stat(workload, 3) && session != guardian.as_raw(), "{session}");
    assert!(![workload.as_raw(), std::process::id() as i32].contains(&stat(guardian, 1)));
    assert_eq!(link(guardian, "cwd"), "/");
    let descriptors = fs::read_dir(format!("/proc/{guardian}/fd")).unwrap();
    let mut names: Vec<String> =
        descriptors.map(|entry| link(guardian, &format!("fd/{}", entry.unwrap().file_name().display()))).collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(&names[..2], ["/dev/null", "/dev/null"]);
    assert!(names.iter().any(|name| name.ends_with(".lock") && name.contains("/leases/")), "{names:?}");
    // The workload has one CPU; the guardian was started before it was given to it.
    assert_ne!(status(guardian, "Cpus_allowed_list"), status(workload, "Cpus_allowed_list"));
    let kib: u64 = status(guardian, "VmRSS").trim_end_matches(" kB").trim().parse().unwrap();
    assert!(kib < 16_000, "{kib} KiB");
    launch.kill().unwrap();
    launch.wait().unwrap();
    scene.wait_for_others();
}

/// It waits for the lock, as /proc/locks tells.
fn blocked(pid: Pid) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&format!(" {pid} ")))
}

#[test]
fn a_guardian_outlives_a_terminal_and_a_stopped_unit() {
    let scene = Scene::new();
    let (mut launch, guardian) = scene.sleeping(&[]);
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT] {
        kill(guardian, signal).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(comm(guardian.as_raw() as u32), "numa-run-guard");
    launch.kill().unwrap();
    launch.wait().unwrap();
    scene.wait_for_others();
    assert!(scene.is_as_before());
}

#[test]
fn a_caller_who_reads_to_the_end_is_not_kept_by_a_guardian() {
    let scene = Scene::new();
    let daemon = "(exec sleep 600) </dev/null >/dev/null 2>&1 & echo $!";
    let ended = Ended::of(&mut scene.changing(&["--cpus", "1", "--", "sh", "-c", daemon]));
    assert_eq!((ended.code, ended.errors.as_str()), (Some(0), ""));
    // The daemon keeps the lease alive, and so the guardian waits.
    assert_eq!(scene.file("one"), "changed");
    assert_eq!(Ended::of(&mut scene.command(&["gc"])).code, Some(0));
    assert_eq!(scene.file("one"), "changed");
    kill(Pid::from_raw(ended.out.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    scene.wait_for_others();
    assert!(scene.is_as_before());
}

#[test]
fn who_changes_nothing_on_the_host_leaves_nobody_behind() {
    let scene = Scene::new();
    let mut launch = scene.command(&["--cpus", "1", "--", "sleep", "600"]).spawn().unwrap();
    until(|| comm(launch.id()) == "sleep");
    assert_eq!(scene.others(), [launch.id()]);
    launch.kill().unwrap();
    launch.wait().unwrap();
    // A value that stands already is not changed, and so there is nothing to be undone.
    for name in ["one", "two"] {
        fs::write(scene.stage.path(name), "changed\n").unwrap();
    }
    let mut launch = scene.changing(&["--cpus", "1", "--", "sleep", "600"]).spawn().unwrap();
    until(|| comm(launch.id()) == "sleep");
    assert_eq!(scene.others(), [launch.id()]);
    launch.kill().unwrap();
    launch.wait().unwrap();
    assert_eq!(scene.run(&["gc"]).code, Some(0));
    assert_eq!(scene.file("one"), "changed");
}

#[test]
fn what_somebody_else_has_changed_since_is_left_to_him_and_said() {
    let scene = Scene::new();
    let (mut launch, guardian) = scene.sleeping(&[]);
    kill(guardian, Signal::SIGKILL).unwrap();
    fs::write(scene.stage.path("one"), "the administrator's\n").unwrap();
    launch.kill().unwrap();
    launch.wait().unwrap();
    scene.wait_for_others();
    let ended = scene.run(&["gc"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.errors.contains("left as it is, because it was changed since: write before to "), "{ended:?}");
    assert!(ended.errors.contains("/one: found the administrator's"), "{ended:?}");
    assert_eq!([scene.file("one"), scene.file("two")], ["the administrator's", "before"]);
    fs::write(scene.stage.path("one"), "before\n").unwrap();
    assert!(scene.is_as_before());
}

#[test]
fn what_a_named_launch_changed_stays_for_its_restart_and_ends_with_the_grace() {
    let scene = Scene::new();
    let named = ["--name", "x", "--grace", "2s"];
    let (mut first, _) = scene.sleeping(&named);
    first.kill().unwrap();
    first.wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(scene.file("one"), "changed");
    // The first one's guardian sees that its lease is gone; the restart has one of its own.
    let (mut second, _) = scene.sleeping(&named);
    until(|| scene.others().len() == 2);
    assert_eq!(scene.file("one"), "changed");
    second.kill().unwrap();
    second.wait().unwrap();
    scene.wait_for_others();
    assert!(scene.is_as_before());
}

#[test]
fn a_supervisor_undoes_it_before_it_ends_and_leaves_nobody_behind() {
    let scene = Scene::new();
    let script = "cat \"$1\"; exit 4";
    let one = scene.stage.path("one");
    let words = ["--supervise", "--cpus", "1", "--", "sh", "-c", script, "sh", one.to_str().unwrap()];
    let ended = Ended::of(&mut scene.changing(&words));
    assert_eq!((ended.code, ended.out.lines().next()), (Some(4), Some("changed")));
    assert!(scene.is_as_before());
    assert_eq!(scene.others(), Vec::<u32>::new());
}

#[test]
fn a_guardian_of_a_ledger_named_by_a_relative_path_finds_it() {
    let scene = Scene::new();
    let mut launch = scene.changing(&["--run-dir", "run-Same", "--cpus", "1", "--", "true"]);
    assert_eq!(Ended::of(launch.current_dir(scene.stage.path(""))).code, Some(0));
    scene.wait_for_others();
    assert!(scene.is_as_before());
}
