//! A workload: writes to memory of its own (MiB, the first argument), then prints as JSON what the kernel says of this process
//! and of that memory. Linked statically, so no page of a shared library is ever counted.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // A test's program.

use std::collections::BTreeMap;
use std::env;
use std::fs::read_to_string;
use std::hint::black_box;

fn main() {
    let mib: usize = env::args().nth(1).map_or(32, |argument| argument.parse().unwrap());
    let memory = black_box(vec![1_u8; mib << 20]);
    let status = read_to_string("/proc/self/status").unwrap();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let ours = |(name, _): &(String, String)| name.starts_with("NUMA_RUN_") || name.starts_with("PCIDEVICE_");
    let answer = serde_json::json!({
        "cpus": cpus.trim(),
        "numa_maps": mapping_of(memory.as_ptr() as usize),
        "environment": env::vars().filter(ours).collect::<BTreeMap<_, _>>(),
    });
    println!("{answer}");
}

/// The line of the mapping that holds an address: the last one that starts at or below it.
fn mapping_of(address: usize) -> String {
    let maps = read_to_string("/proc/self/numa_maps").unwrap();
    let starts_below = |line: &&str| usize::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap() <= address;
    maps.lines().rfind(starts_below).unwrap().to_owned()
}
