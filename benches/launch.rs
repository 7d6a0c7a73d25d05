//! What a launch costs beside its rivals: whole commands, interleaved in one
//! run, as an ordinary user with a warm snapshot. Trust the ratios, not the times.
//!
//! `NUMA_RUN_STATIC` names the launcher to measure; `./x bench` sets it to the static one.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RUNS: usize = 200;
const NOBODY: u32 = 65534;

struct Rival {
    name: &'static str,
    words: Vec<String>,
    times: Vec<Duration>,
}

impl Rival {
    fn new(name: &'static str, words: &[&str]) -> Option<Rival> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).chain(["/bin/true".to_owned()]).collect();
        let found = words[0].contains('/') || Path::new("/usr/bin").join(&words[0]).exists();
        if !found {
            eprintln!("{name} is not installed: not compared");
        }
        found.then_some(Rival { name, words, times: Vec::new() })
    }

    fn run(&self) -> Duration {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).current_dir("/").stdin(Stdio::null());
        // The host's cgroups are left alone; in the guest, a test counts what one costs.
        command.env("NUMA_RUN_CGROUP", "never");
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let start = Instant::now();
        let status = command.status().expect("it can be started");
        let elapsed = start.elapsed();
        assert!(status.success(), "{} failed: {status}", self.name);
        elapsed
    }

    fn median(&mut self) -> Duration {
        self.times.sort();
        self.times[self.times.len() / 2]
    }
}

fn main() -> ExitCode {
    // `cargo test --benches` only asks whether it starts.
    if std::env::args().any(|word| word == "--test") {
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().unwrap();
    let binary = own_copy(folder.path());
    let ledger = in_memory();
    if nix::unistd::geteuid().is_root() {
        chown(ledger.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let (binary, run_dir) = (binary.to_str().unwrap(), ledger.path().to_str().unwrap());
    let ours = [binary, "--run-dir", run_dir, "--cpus", "1", "--"];
    let memory = [binary, "--run-dir", run_dir, "--cpus", "1", "--memory", "64M", "--"];
    let rivals = [
        Rival::new("bare exec", &[]),
        Rival::new("numa-run --cpus 1", &ours),
        Rival::new("numa-run --cpus 1 --memory 64M", &memory),
        Rival::new("numactl --physcpubind=0 --membind=0", &["numactl", "--physcpubind=0", "--membind=0"]),
        Rival::new("taskset -c 0", &["taskset", "-c", "0"]),
        Rival::new("hwloc-bind core:0", &["hwloc-bind", "core:0", "--"]),
    ];
    let mut rivals: Vec<Rival> = rivals.into_iter().flatten().collect();
    rivals.iter().for_each(|rival| _ = rival.run());
    for _ in 0..RUNS {
        for rival in &mut rivals {
            let time = rival.run();
            rival.times.push(time);
        }
    }
    report(&mut rivals)
}

/// A folder for leases that is in memory as /run is: on a disk each one is waited for.
fn in_memory() -> TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// The launcher and the probe where an ordinary user can start them.
fn own_copy(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let named = std::env::var_os("NUMA_RUN_STATIC").map(PathBuf::from);
    let source = named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_numa-run")));
    let copy = folder.join("numa-run");
    std::fs::copy(&source, &copy).unwrap();
    let probe = source.with_file_name("numa-run-probe");
    if probe.exists() {
        std::fs::copy(probe, folder.join("numa-run-probe")).unwrap();
    }
    copy
}

fn report(rivals: &mut [Rival]) -> ExitCode {
    let bare = rivals[0].median();
    println!("{:36} {:>10} {:>8} {:>12}", "median of 200 interleaved runs", "time", "ratio", "over bare");
    let mut over = Vec::new();
    for rival in rivals.iter_mut() {
        let median = rival.median();
        let extra = median.saturating_sub(bare);
        let ratio = median.as_secs_f64() / bare.as_secs_f64();
        println!("{:36} {:>7} us {ratio:>8.2} {:>9} us", rival.name, median.as_micros(), extra.as_micros());
        over.push((rival.name, median, extra));
    }
    let find = |name: &str| over.iter().find(|(other, ..)| other.starts_with(name)).copied();
    let Some((_, ours, extra)) = find("numa-run --cpus 1") else { return ExitCode::FAILURE };
    let mut code = ExitCode::SUCCESS;
    if find("numactl").is_some_and(|(_, theirs, _)| ours > theirs) {
        println!("TOO SLOW: a launch takes longer than numactl");
        code = ExitCode::FAILURE;
    }
    if find("hwloc-bind").is_some_and(|(_, _, theirs)| extra * 10 > theirs) {
        println!("TOO SLOW: over a bare exec, a launch takes more than a tenth of hwloc-bind");
        code = ExitCode::FAILURE;
    }
    code
}
