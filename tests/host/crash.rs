//! Launches that are killed after every single step, and those who clean up
//! after them too: whatever comes next, the host is as before.
//!
//! Which steps there are is not written here: a launch lists the points that it
//! passes (`src/fault.rs`), and is then killed at each of them.

use super::{Ended, Stage, User};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A ledger, and two files that stand for the kernel's.
struct Scene {
    stage: Stage,
    before: Host,
}

/// All that is there: files with their modes and texts.
type Host = BTreeMap<PathBuf, (u32, String)>;

impl Scene {
    fn new() -> Scene {
        let stage = Stage::new();
        for name in ["one", "two"] {
            stage.file(name, b"before\n", 0o644);
        }
        let mut scene = Scene { stage, before: Host::new() };
        // The first launch leaves the ledger itself and a snapshot of the machine.
        scene.run(&["--cpus", "1", "--", "true"]);
        scene.run(&["gc"]);
        scene.before = scene.host(&[]);
        scene
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.stage.numa_run(User::Same);
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Ended {
        Ended::of(&mut self.command(words))
    }

    /// A launch that changes both files, or what else is done about the ledger.
    fn changing(&self, words: &[&str]) -> Command {
        let mut command = self.command(words);
        let file = |name: &str| self.stage.path(name).display().to_string();
        command.env("NUMA_RUN_FAULT_WRITE", format!("{}=changed {}=changed", file("one"), file("two")));
        command
    }

    /// The points that are passed until nobody is left who could pass one.
    fn points(&self, words: &[&str]) -> Vec<String> {
        let trace = self.stage.path("trace");
        let ended = Ended::of(self.changing(words).env("NUMA_RUN_FAULT_TRACE", &trace));
        self.wait_for_others();
        let text = fs::read_to_string(&trace).unwrap_or_else(|error| panic!("{words:?}: {error}: {ended:?}"));
        fs::remove_file(trace).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The same command, with somebody killed at these points; whether the first of them was passed.
    fn killed_at(&self, words: &[&str], points: &[&str]) -> bool {
        let trace = self.stage.path("trace");
        let mut command = self.changing(words);
        Ended::of(command.env("NUMA_RUN_FAULT_TRACE", &trace).env("NUMA_RUN_FAULT", points.join(";")));
        self.wait_for_others();
        let passed = fs::read_to_string(&trace).unwrap_or_default();
        let _ = fs::remove_file(trace);
        passed.lines().any(|line| line == points[0])
    }

    /// A launch that was killed, and its guardian before it.
    fn leave_a_dead_launch(&self, options: &[&str]) {
        let mut launch = self.changing(&[options, &["--cpus", "1", "--", "sleep", "600"]].concat());
        let mut launch = launch.stdout(Stdio::null()).spawn().unwrap();
        until(|| comm(launch.id()) == "sleep");
        let guardian = || self.others().into_iter().find(|&pid| comm(pid) == "numa-run-guard");
        until(|| guardian().is_some());
        kill(Pid::from_raw(guardian().unwrap() as i32), Signal::SIGKILL).unwrap();
        launch.kill().unwrap();
        launch.wait().unwrap();
        self.wait_for_others();
    }

    /// Everything but the leases of these launches.
    fn host(&self, but: &[String]) -> Host {
        let mut host = Host::new();
        list(self.stage.0.path(), &mut host);
        host.retain(|path, _| !but.iter().any(|lease| path.to_string_lossy().contains(lease)));
        host
    }

    /// Processes of this stage: guardians, and the children of who was killed.
    fn others(&self) -> Vec<u32> {
        let stage = self.stage.0.path().to_string_lossy().into_owned();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let text = |pid: u32, file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let named = |pid: u32, file: &str| String::from_utf8_lossy(&text(pid, file)).contains(&stage);
        pids.filter(|&pid| named(pid, "cmdline") || named(pid, "environ")).collect()
    }

    fn wait_for_others(&self) {
        until(|| self.others().is_empty());
    }

    /// What must hold after something was killed: whoever comes next puts all right.
    fn is_put_right(&self, next: &[&str], what: &str) {
        self.wait_for_others();
        let ended = self.run(next);
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        let own: Vec<String> = ended.out.split_whitespace().map(str::to_owned).collect();
        assert_eq!(self.host(&own), self.before, "{what}, then {next:?}: {ended:?}");
        self.run(&["gc"]);
    }
}

fn list(folder: &Path, host: &mut Host) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let about = fs::symlink_metadata(&path).unwrap();
        let text = if about.is_file() { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        host.insert(path.clone(), (about.mode(), text));
        if about.is_dir() {
            list(&path, host);
        }
    }
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "it never came about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Those who may come next.
const GC: &[&str] = &["gc"];
const LAUNCH: &[&str] = &["--cpus", "1", "--", "sh", "-c", "echo $NUMA_RUN_ALLOC_LEASE"];
/// The guardian's first point: killed here, it does nothing.
const NO_GUARDIAN: &str = "guard guard.waits 1";

/// Kills one after the other who passes these points; once with the guardian, who may put things right, and once without.
fn kill_at_each(words: &[&str], prepare: &dyn Fn(&Scene), next: &[&str]) {
    let scene = Scene::new();
    prepare(&scene);
    let points = scene.points(words);
    scene.is_put_right(GC, "nobody was killed");
    assert!(points.len() > 5, "{points:?}");
    for point in &points {
        let guardians = point.starts_with("guard ") || point.contains("-of-guard ");
        let without = vec![NO_GUARDIAN];
        for others in [vec![], without].into_iter().take(if guardians { 1 } else { 2 }) {
            // Some points are passed only where the guardian is awake before the workload has ended.
            let killed = |_| {
                prepare(&scene);
                let killed = scene.killed_at(words, &[&[point.as_str()][..], &others].concat());
                scene.is_put_right(next, &format!("killed at {point} {others:?}"));
                killed
            };
            assert!((0..20).any(killed), "{point} {others:?} was never passed again");
        }
    }
}

const WORKLOAD: &[&str] = &["--cpus", "1", "--", "true"];
const NO_WORKLOAD: &[&str] = &["--cpus", "1", "--", "/no/such"];
const NAMED: &[&str] = &["--name", "x", "--grace", "0", "--cpus", "1", "--", "true"];
const NAMED_OTHERWISE: &[&str] =
    &["--name", "x", "--grace", "0", "--mempolicy", "local", "--", "sh", "-c", "echo $NUMA_RUN_ALLOC_LEASE"];

#[test]
fn a_launch_and_its_guardian_killed_at_any_point_are_put_right_by_gc() {
    kill_at_each(WORKLOAD, &|_| (), GC);
}

#[test]
fn a_launch_and_its_guardian_killed_at_any_point_are_put_right_by_the_next_launch() {
    kill_at_each(WORKLOAD, &|_| (), LAUNCH);
}

#[test]
fn a_launch_killed_while_it_takes_back_what_it_did_is_put_right() {
    kill_at_each(NO_WORKLOAD, &|_| (), GC);
    kill_at_each(NO_WORKLOAD, &|_| (), LAUNCH);
}

fn dead_launch(scene: &Scene) {
    scene.leave_a_dead_launch(&[]);
}

#[test]
fn a_gc_killed_at_any_point_is_finished_by_another_or_by_a_launch() {
    kill_at_each(GC, &dead_launch, GC);
    kill_at_each(GC, &dead_launch, LAUNCH);
}

#[test]
fn a_launch_killed_while_it_recovers_another_leaves_neither() {
    kill_at_each(WORKLOAD, &dead_launch, GC);
}

/// What is kept for a restart ends with one that asks for something else.
#[test]
fn a_restart_killed_while_it_takes_over_loses_nothing() {
    let kept = |scene: &Scene| scene.leave_a_dead_launch(&["--name", "x", "--grace", "600"]);
    kill_at_each(NAMED, &kept, NAMED_OTHERWISE);
}

/// Every point that is written in the source is passed by one of these.
#[test]
fn no_point_is_left_out() {
    let mut passed = BTreeSet::new();
    let scene = Scene::new();
    let mut pass = |words: &[&str]| passed.extend(scene.points(words).iter().map(|line| name(line)));
    pass(WORKLOAD);
    pass(NO_WORKLOAD);
    scene.leave_a_dead_launch(&[]);
    pass(GC);
    // The first launch in a folder makes the ledger.
    pass(&["--run-dir", scene.stage.path("new").to_str().unwrap(), "--cpus", "1", "--", "true"]);
    let leases = scene.stage.path("run-Same/leases");
    fs::write(leases.join("a1.lease"), "damaged").unwrap();
    fs::write(leases.join("b2.lock"), "").unwrap();
    pass(GC);
    let mut written = BTreeSet::new();
    points_in(Path::new("src"), &mut written);
    assert!(written.len() > 20, "{written:?}");
    // Those of cgroups are passed in the guest.
    let left_out = |point: &&String| !passed.contains(*point) && !point.starts_with("group.");
    assert_eq!(written.iter().filter(left_out).collect::<Vec<_>>(), Vec::<&String>::new());
}

fn name(line: &str) -> String {
    line.split(' ').nth(1).unwrap().to_owned()
}

fn points_in(folder: &Path, points: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            points_in(&path, points);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let calls = text.split("fault::point(\"").skip(1);
        points.extend(calls.map(|call| call.split('"').next().unwrap().to_owned()));
    }
}
