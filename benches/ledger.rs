//! What many live leases cost a launch and `status`: whole commands, interleaved
//! in one run. The leases are held by this process and hold memory of no account.
//!
//! `NUMA_RUN_STATIC` names the launcher to measure; `./x bench` sets it to the static one.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use numa_run::lease::ledger::{Own, new_id};
use numa_run::lease::record::Event;
use numa_run::lease::{Header, Held, Identity, Ledger};
use numa_run::step::Undo;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 60;
const SIZES: [usize; 4] = [0, 10, 100, 1000];

/// A ledger with so many live leases.
struct Crowd {
    folder: tempfile::TempDir,
    leases: Vec<Own>,
    launches: Vec<Duration>,
    looks: Vec<Duration>,
}

impl Crowd {
    fn new(leases: usize) -> Crowd {
        let shared = Path::new("/dev/shm");
        let folder = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.unwrap();
        let ledger = Ledger::find(Some(folder.path()), folder.path());
        let locked = ledger.lock(Duration::from_secs(1)).unwrap();
        let root = Path::new("/");
        let header = |number: usize| Header {
            lease: format!("{}-{number}", new_id(&Identity::own(root))),
            owner: Identity::own(root),
            command: "/usr/bin/dpdk-testpmd".into(),
            held: Held { memory: [(0, 0)].into(), ..Held::default() },
            ..Header::default()
        };
        let launched = |number| {
            let mut own = locked.publish(header(number), "--cpus 1").unwrap();
            own.note(&Event::Undo(Undo::RemoveGroup(format!("/sys/fs/cgroup/numa-run/{}", own.id).into()))).unwrap();
            own.note(&Event::Running).unwrap();
            own
        };
        let leases = (0..leases).map(launched).collect();
        drop(locked);
        Crowd { folder, leases, launches: Vec::new(), looks: Vec::new() }
    }

    fn time(&self, binary: &Path, words: &[&str]) -> Duration {
        let mut command = Command::new(binary);
        command.env("NUMA_RUN_RUN_DIR", self.folder.path()).env("NUMA_RUN_CGROUP", "never");
        command.env("NUMA_RUN_AUDIT", "never").args(words).stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        assert!(command.status().unwrap().success(), "{words:?} with {} leases", self.leases.len());
        begun.elapsed()
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() -> ExitCode {
    // `cargo test --benches` only asks whether it starts.
    if std::env::args().any(|word| word == "--test") {
        return ExitCode::SUCCESS;
    }
    let named = std::env::var_os("NUMA_RUN_STATIC").map(PathBuf::from);
    let binary = named.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_numa-run")));
    let mut crowds: Vec<Crowd> = SIZES.into_iter().map(Crowd::new).collect();
    for run in 0..=RUNS {
        for crowd in &mut crowds {
            let launch = crowd.time(&binary, &["--quiet", "--cpus", "1", "--", "/bin/true"]);
            let look = crowd.time(&binary, &["status"]);
            // The first one reads the machine.
            if run > 0 {
                crowd.launches.push(launch);
                crowd.looks.push(look);
            }
        }
    }
    report(&mut crowds)
}

fn report(crowds: &mut [Crowd]) -> ExitCode {
    println!("{:>8} {:>12} {:>12} {:>12}   medians of {RUNS} interleaved runs", "leases", "launch", "more", "status");
    let none = median(&mut crowds[0].launches);
    let mut code = ExitCode::SUCCESS;
    for crowd in crowds {
        let (launch, look) = (median(&mut crowd.launches), median(&mut crowd.looks));
        let more = launch.saturating_sub(none);
        let (leases, us) = (crowd.leases.len(), |time: Duration| time.as_micros());
        println!("{leases:>8} {:>9} us {:>9} us {:>9} us", us(launch), us(more), us(look));
        if more > Duration::from_millis(10) || look > Duration::from_millis(100) {
            println!("TOO SLOW: a launch takes more than 10 ms longer, or status more than 100 ms");
            code = ExitCode::FAILURE;
        }
    }
    code
}
