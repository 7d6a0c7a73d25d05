//! Answers for memory.jsonl: the hints of the first step.

use super::LineError;
use crate::hint::Amount;
use crate::resource::memory::allocatable;
use crate::resource::store::{Place, Store, capacity};
use crate::topology::NodeMask;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Line {
    id: String,
    nodes: Vec<Node>,
    start: BTreeMap<u32, Start>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Node {
    id: u32,
    mem: u64,
    h2m: Option<u64>,
    h1g: Option<u64>,
    #[serde(default)]
    reserved: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Start {
    cells: Vec<u32>,
    free: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    req: BTreeMap<String, u64>,
}

/// One line in, one line out.
///
/// # Errors
/// The line is no vector of this kind, or starts with a group of several
/// nodes: groups are not reproduced.
pub fn answer(line: &str) -> Result<String, LineError> {
    let line: Line = serde_json::from_str(line)?;
    if line.start.values().any(|start| start.cells.len() > 1) {
        return Err(LineError::Kind("a start with a group of several nodes".into()));
    }
    let wanted = line.steps.first().map(|step| step.req.clone()).unwrap_or_default();
    let wanted: BTreeMap<String, u64> = wanted.into_iter().filter(|&(_, amount)| amount > 0).collect();
    let kinds: Vec<Amount> = wanted.iter().map(|(name, &wanted)| store(&line, name, wanted).amount()).collect();
    let domain: NodeMask = line.nodes.iter().map(|node| node.id).collect();
    let list = super::hint_list(&capacity(kinds, domain))?;
    let none = wanted.is_empty() || list.as_array().is_none_or(Vec::is_empty);
    let hints: Map<String, Value> = wanted.keys().map(|name| (name.clone(), list.clone())).filter(|_| !none).collect();
    Ok(json!({"id": line.id, "hints": hints}).to_string())
}

fn store(line: &Line, name: &str, wanted: u64) -> Store {
    let place = |node: &Node| {
        let free = line.start.get(&node.id).and_then(|start| start.free.get(name)).copied().unwrap_or(0);
        (node.id, Place { lead: node.id, free, total: total(node, name) })
    };
    Store { wanted, places: line.nodes.iter().map(place).collect() }
}

fn total(node: &Node, name: &str) -> u64 {
    let (small, large) = (node.h2m.unwrap_or(0) * 2, node.h1g.unwrap_or(0) * 1024);
    let reserved = node.reserved.get(name).copied().unwrap_or(0);
    match name {
        "memory" => allocatable(node.mem, small + large, reserved),
        "hugepages-2Mi" => small.saturating_sub(reserved),
        "hugepages-1Gi" => large.saturating_sub(reserved),
        _ => 0,
    }
}
