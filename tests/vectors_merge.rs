//! The merge gives the kubelet's answers: see tests/vectors/merge.jsonl for the
//! form of the lines, where masks are numbers and `out` has an entry for each policy.

#![allow(clippy::unwrap_used)]

use numa_run::debug::merge::answer;
use serde_json::Value;
use std::collections::BTreeSet;

/// Answers every line; returns how many there were and their tags' first parts.
fn assert_answers(lines: &str) -> (usize, BTreeSet<String>) {
    let mut tags = BTreeSet::new();
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let answer: Value = serde_json::from_str(&answer(line).unwrap()).unwrap();
        assert_eq!(answer["id"], case["id"]);
        assert_eq!(answer["out"], case["out"], "{line}");
        tags.insert(case["tag"].as_str().unwrap().split('/').next().unwrap().to_owned());
    }
    (lines.lines().count(), tags)
}

#[test]
fn the_committed_lines_are_answered_as_the_kubelet_does() {
    let (count, tags) = assert_answers(include_str!("vectors/merge.jsonl"));
    assert!(count >= 300, "{count}");
    assert_eq!(Vec::from_iter(tags), ["adv", "corner", "example", "real", "sparse", "upstream"]);
}

#[test]
fn all_open_lines_are_answered_as_the_kubelet_does() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/vectors/open/merge.jsonl");
    match std::fs::read_to_string(file) {
        Ok(lines) => assert!(assert_answers(&lines).0 > 1800),
        Err(error) => eprintln!("SKIPPED, only the committed lines were tried: {file}: {error}"),
    }
}

#[test]
fn a_line_that_is_no_case_is_an_error() {
    let error = |line: &str| answer(line).unwrap_err().to_string();
    assert!(error("{}").starts_with("not a line of hints to merge: missing field `id`"));
    assert_eq!(error(r#"{"id":1,"nodes":[0,64],"providers":[]}"#), "node 64 is beyond the 64 bits of a mask");
}

#[test]
fn answers_in_a_line_are_ignored() {
    let line = r#"{"id":"x","nodes":[0,1],"providers":[{"cpu":[[1,1]]}],"out":{"be":[2,0,1]}}"#;
    let out: Value = serde_json::from_str(&answer(line).unwrap()).unwrap();
    assert_eq!(out["out"]["be"], serde_json::json!([1, 1, 1]));
    assert_eq!(out["out"].as_object().unwrap().len(), 4, "no _c without distances");
}
