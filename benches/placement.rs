//! How well both merges place the same streams of launches and ends, on four machines.
//!
//! `cargo bench --bench placement` prints, in under a minute, how many launches
//! each policy admits before the first refusal, and how good their placements
//! are; its last lines are the table of README.md. Every number is the same in
//! every run.

#![allow(clippy::unwrap_used)]

#[path = "../tests/quality/mod.rs"]
mod quality;

use quality::compare::{Comparison, POLICIES, compare, in_full, in_short};
use quality::machines::models;
use std::thread;

/// Streams for each machine and policy.
const STREAMS: u64 = 100;

fn main() {
    let models = models();
    let comparisons: Vec<Comparison> = thread::scope(|scope| {
        let one = |model| move || POLICIES.map(|policy| compare(model, policy, 0..STREAMS));
        let threads: Vec<_> = models.iter().map(|model| scope.spawn(one(model))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let table = in_short(&comparisons);
    println!("{STREAMS} streams of launches and ends for each machine and policy. more/fewer: streams of which the");
    println!("relative merge admitted more or fewer launches than the kubelet's before the first refusal.\n");
    println!("{}\n{table}", in_full(&comparisons));
    if !include_str!("../README.md").contains(&table) {
        println!("README.md has another table: replace it by this one.");
    }
}
