//! The kubelet's answers about CPUs, line by line.

// A vector that does not have the form of one is a failure of the test.
#![allow(clippy::unwrap_used)]

use numa_run::debug::cpus::{Topologies, answer};
use serde_json::{Value, json};
use std::path::Path;

/// Machines on which the kubelet's averages mislead it; unit tests say what is right there.
const MISLED: [&str; 2] = ["hybrid", "s2n2c12t2x"];

#[test]
fn the_committed_lines_are_answered_as_the_kubelet_answers_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let compared = compare(&folder.join("cpu.jsonl"), &folder.join("cpu_topologies.json"));
    assert!(compared >= 250, "only {compared} lines were compared");
}

#[test]
fn all_shared_lines_are_answered_as_the_kubelet_answers_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors");
    if !folder.is_dir() {
        eprintln!("SKIPPED: {} does not exist here; the committed lines are compared all the same", folder.display());
        return;
    }
    let compared = compare(&folder.join("open/cpu.jsonl"), &folder.join("cpu_topologies.json"));
    assert!(compared >= 2_000, "only {compared} lines were compared");
}

fn compare(lines: &Path, topologies: &Path) -> usize {
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let topologies = Topologies::from_json(&read(topologies)).unwrap();
    let mut compared = 0;
    let mut wrong = Vec::new();
    for line in read(lines).lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        if MISLED.contains(&vector["topo"].as_str().unwrap()) {
            continue;
        }
        let mut ours: Value = serde_json::from_str(&answer(line, &topologies).unwrap()).unwrap();
        if vector.get("repaired_cpus").is_some() {
            // Only the CPUs are given as repaired; the rest follows from them.
            ours = json!({ "id": ours["id"], "cpus": ours["cpus"] });
        }
        compared += 1;
        if ours != expected(&vector) {
            wrong.push(format!("{line}\n  ours: {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    compared
}

/// What a line says the answer is, with the kubelet's defects repaired.
fn expected(vector: &Value) -> Value {
    let mut answer = serde_json::Map::from_iter([("id".to_owned(), vector["id"].clone())]);
    let mut copy = |key: &str, from: &str| answer.insert(key.to_owned(), vector[from].clone());
    match (vector.get("repaired_cpus"), vector.get("err"), vector["kind"].as_str().unwrap()) {
        (Some(_), _, _) => _ = copy("cpus", "repaired_cpus"),
        (None, _, _) if vector.get("repaired_err").is_some() => _ = copy("err", "repaired_err"),
        (None, Some(_), _) => _ = copy("err", "err"),
        (None, None, kind) => keys(kind).iter().for_each(|key| _ = copy(key, key)),
    }
    answer.into()
}

fn keys(kind: &str) -> &'static [&'static str] {
    match kind {
        "reserve" => &["reserved", "reserved_cores"],
        "take" => &["cpus"],
        "alloc" => &["cpus", "default_after", "uncore_aligned"],
        _ => &["hints"],
    }
}
