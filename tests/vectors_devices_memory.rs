//! The kubelet's own answers about devices and about memory's hints.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use numa_run::debug;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_committed_lines_about_devices_are_answered_as_the_kubelet_does() {
    compare(include_str!("vectors/device.jsonl"), debug::devices::answer, device);
}

#[test]
fn the_committed_lines_about_memory_are_hinted_as_the_kubelet_does() {
    compare(include_str!("vectors/memory.jsonl"), debug::memory::answer, memory);
}

#[test]
fn all_open_lines_about_devices_are_answered_as_the_kubelet_does() {
    open("device.jsonl", |lines| compare(lines, debug::devices::answer, device));
}

#[test]
fn all_open_lines_about_memory_are_hinted_as_the_kubelet_does() {
    open("memory.jsonl", |lines| compare(lines, debug::memory::answer, memory));
}

/// The full set lies beside the project and is not a part of it.
fn open(name: &str, check: impl Fn(&str)) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/open").join(name);
    match std::fs::read_to_string(&file) {
        Ok(lines) => check(&lines),
        Err(error) => eprintln!("SKIPPED, NOT TESTED: {}: {error}", file.display()),
    }
}

fn compare<E: std::fmt::Debug>(lines: &str, answer: fn(&str) -> Result<String, E>, same: fn(&Value, &Value) -> bool) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in lines.lines() {
        let wanted: Value = serde_json::from_str(line).unwrap();
        let given: Value = serde_json::from_str(&answer(line).unwrap()).unwrap();
        assert_eq!(wanted["id"], given["id"]);
        count += 1;
        if !same(&wanted, &given) {
            wrong.push(format!("{wanted}\n  answered: {given}"));
        }
    }
    assert!(count > 50, "only {count} lines");
    assert!(wrong.is_empty(), "{} of {count} differ, the first:\n{}", wrong.len(), wrong[0]);
}

fn memory(wanted: &Value, given: &Value) -> bool {
    wanted["steps"][0]["hints"] == given["hints"]
}

fn device(wanted: &Value, given: &Value) -> bool {
    if wanted["kind"] == "hints" {
        return wanted["hints"] == given["hints"];
    }
    let pools = ["aligned", "unaligned", "no_affinity"].iter().all(|pool| wanted[pool] == given[pool]);
    if wanted.get("err").is_some() {
        return pools && wanted["err"] == given["err"];
    }
    let set = |value: &Value| -> BTreeSet<String> {
        value.as_array().unwrap().iter().map(|device| device.as_str().unwrap().to_owned()).collect()
    };
    // Within one pool the kubelet picks at random: some devices always, others ever.
    let (devices, always, ever) = (set(&given["devices"]), set(&wanted["always"]), set(&wanted["ever"]));
    let count = given["devices"].as_array().unwrap().len();
    let asked = wanted.get("plugin_called_with").is_none_or(|asked| *asked == given["plugin_called_with"]);
    pools
        && asked
        && devices.len() == count
        && wanted["count"] == count
        && always.is_subset(&devices)
        && devices.is_subset(&ever)
}
