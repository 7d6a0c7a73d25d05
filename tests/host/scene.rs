//! A place where launches change something outside of themselves: two files
//! that stand for the kernel's. Only programs built with the feature `faults` do.

use super::{Ended, Stage, User};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A ledger, and two files that stand for the kernel's.
pub struct Scene {
    pub stage: Stage,
    before: Host,
}

/// All that is there: files with their modes and texts.
pub type Host = BTreeMap<PathBuf, (u32, String)>;

impl Scene {
    pub fn new() -> Scene {
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

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.stage.numa_run(User::Same);
        command.args(words);
        command
    }

    pub fn run(&self, words: &[&str]) -> Ended {
        Ended::of(&mut self.command(words))
    }

    /// A launch that changes both files, or what else is done about the ledger.
    pub fn changing(&self, words: &[&str]) -> Command {
        let mut command = self.command(words);
        let file = |name: &str| self.stage.path(name).display().to_string();
        command.env("NUMA_RUN_FAULT_WRITE", format!("{}=changed {}=changed", file("one"), file("two")));
        command
    }

    /// The points that are passed until nobody is left who could pass one.
    pub fn points(&self, words: &[&str]) -> Vec<String> {
        let trace = self.stage.path("trace");
        let ended = Ended::of(self.changing(words).env("NUMA_RUN_FAULT_TRACE", &trace));
        self.wait_for_others();
        let text = fs::read_to_string(&trace).unwrap_or_else(|error| panic!("{words:?}: {error}: {ended:?}"));
        fs::remove_file(trace).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The same command, with somebody killed at these points; whether the first of them was passed.
    pub fn killed_at(&self, words: &[&str], points: &[&str]) -> bool {
        let trace = self.stage.path("trace");
        let mut command = self.changing(words);
        Ended::of(command.env("NUMA_RUN_FAULT_TRACE", &trace).env("NUMA_RUN_FAULT", points.join(";")));
        self.wait_for_others();
        let passed = fs::read_to_string(&trace).unwrap_or_default();
        let _ = fs::remove_file(trace);
        passed.lines().any(|line| line == points[0])
    }

    /// A launch whose workload sleeps, and its guardian.
    pub fn sleeping(&self, options: &[&str]) -> (Child, Pid) {
        let mut launch = self.changing(&[options, &["--cpus", "1", "--", "sleep", "600"]].concat());
        let launch = launch.stdout(Stdio::null()).spawn().unwrap();
        until(|| comm(launch.id()) == "sleep");
        let guardian = || self.others().into_iter().find(|&pid| comm(pid) == "numa-run-guard");
        until(|| guardian().is_some());
        let guardian = guardian().unwrap();
        (launch, Pid::from_raw(guardian as i32))
    }

    /// A launch that was killed, and its guardian before it.
    pub fn leave_a_dead_launch(&self, options: &[&str]) {
        let (mut launch, guardian) = self.sleeping(options);
        kill(guardian, Signal::SIGKILL).unwrap();
        launch.kill().unwrap();
        launch.wait().unwrap();
        self.wait_for_others();
    }

    /// Whether nothing is left of any launch.
    pub fn is_as_before(&self) -> bool {
        let now = self.host(&[]);
        if now != self.before {
            eprintln!("now: {now:?}\nbefore: {:?}", self.before);
        }
        now == self.before
    }

    /// What one of the two files holds.
    pub fn file(&self, name: &str) -> String {
        fs::read_to_string(self.stage.path(name)).unwrap().trim().to_owned()
    }

    /// Everything but the leases of these launches.
    pub fn host(&self, but: &[String]) -> Host {
        let mut host = Host::new();
        list(self.stage.0.path(), &mut host);
        // A lock is not called like its lease, which says how.
        let leases = host.iter().filter(|(path, _)| but.iter().any(|lease| path.ends_with(format!("{lease}.lease"))));
        let locks = leases.filter_map(|(_, (_, text))| text.split("\"lock_file\":\"").nth(1)?.split('"').next());
        let but: Vec<String> = but.iter().cloned().chain(locks.map(str::to_owned)).collect();
        host.retain(|path, _| !but.iter().any(|name| path.to_string_lossy().contains(name)));
        host
    }

    /// Processes of this stage: guardians, and the children of who was killed.
    pub fn others(&self) -> Vec<u32> {
        let stage = self.stage.0.path().to_string_lossy().into_owned();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let text = |pid: u32, file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let named = |pid: u32, file: &str| String::from_utf8_lossy(&text(pid, file)).contains(&stage);
        pids.filter(|&pid| named(pid, "cmdline") || named(pid, "environ")).collect()
    }

    pub fn wait_for_others(&self) {
        until(|| self.others().is_empty());
    }

    /// What must hold after something was killed: whoever comes next puts all right.
    pub fn is_put_right(&self, next: &[&str], what: &str) {
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

pub fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

pub fn until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "it never came about");
        std::thread::sleep(Duration::from_millis(2));
    }
}
