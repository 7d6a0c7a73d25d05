//! How what it costs to decide grows: with nodes, resources, devices and
//! leases. Whole plans; nodes and resources for the relative merge alone too.
//!
//! `cargo bench --bench growth` prints medians and fails where one that has a
//! bound is above it: 8 resources on 36 and on 64 nodes within 10 ms; 1,024 CPUs,
//! 256 virtual functions and 1,000 leases within 20 ms.

#![allow(clippy::unwrap_used)]

#[path = "../tests/growth/mod.rs"]
mod growth;

use growth::{Fleet, problem};
use numa_run::hint::relative::solve;
use numa_run::plan::Plan;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const RUNS: usize = 15;

fn main() -> ExitCode {
    // `cargo test --benches` only asks whether it starts.
    if std::env::args().any(|word| word == "--test") {
        return ExitCode::SUCCESS;
    }
    let mut table = Table { slow: false };
    for nodes in [2, 4, 8, 16, 36, 64] {
        let bound = (nodes >= 36).then_some(10);
        table.row(&format!("8 resources on {nodes} nodes, placed"), bound, || worst(nodes, 8));
    }
    for resources in [1, 2, 4, 8] {
        table.row(&format!("{resources} resources on 36 nodes, placed"), Some(10), || worst(36, resources));
    }
    let fleet = Fleet { nodes: 8, functions: 256, leases: 1000 };
    for nodes in [2, 8, 36, 64] {
        let fleet = Fleet { nodes, ..fleet };
        table.plan(&format!("everything on {nodes} nodes"), (nodes == 8).then_some(20), fleet);
    }
    for functions in [16, 64, 256, 1024] {
        table.plan(&format!("{functions} virtual functions"), None, Fleet { functions, ..fleet });
    }
    for leases in [0, 100, 1000, 10_000] {
        table.plan(&format!("{leases} leases"), None, Fleet { leases, ..fleet });
    }
    if table.slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The slowest of an idle and a busy machine, from a small part of it to most of it.
fn worst(nodes: usize, resources: usize) -> Duration {
    let cases = [false, true].into_iter().flat_map(|busy| [1, 20, 60, 95].map(|part| (busy, part)));
    let time = |(busy, part)| {
        let problem = problem(nodes, resources, busy, part);
        let begun = Instant::now();
        let _ = black_box(solve(black_box(&problem)));
        begun.elapsed()
    };
    cases.map(time).max().unwrap()
}

struct Table {
    slow: bool,
}

impl Table {
    fn row(&mut self, what: &str, bound: Option<u64>, time: impl FnMut() -> Duration) {
        let mut times: Vec<Duration> = std::iter::repeat_with(time).take(RUNS).collect();
        times.sort();
        let median = times[RUNS / 2];
        let over = bound.is_some_and(|most| median > Duration::from_millis(most));
        let said =
            bound.map_or(String::new(), |most| format!("   at most {most} ms{}", if over { ": TOO SLOW" } else { "" }));
        println!("{what:<44} {:>9} us{said}", median.as_micros());
        self.slow |= over;
    }

    /// With what the leases hold summed up first, as a launch does.
    fn plan(&mut self, what: &str, bound: Option<u64>, fleet: Fleet) {
        let (machine, leases) = (fleet.machine(), fleet.leases());
        self.row(&format!("{what}, planned"), bound, || {
            let begun = Instant::now();
            let plan: Plan = black_box(fleet.plan(&machine, &leases));
            let time = begun.elapsed();
            assert!(plan.admitted, "{:?}", plan.refusal);
            time
        });
    }
}
