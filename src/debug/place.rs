//! `debug place`: the resources-relative merge.

use crate::hint::policy::Policy;
use crate::hint::relative::{Kind, Other, Problem, Resource, Solution, solve};
use num_rational::BigRational;
use num_traits::ToPrimitive;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Why a line has no answer.
#[derive(Debug, thiserror::Error)]
pub enum PlaceLineError {
    /// It is not of the expected form.
    #[error("not a line of resources to place: {0}")]
    Form(#[from] serde_json::Error),
    /// It names a policy that there is not.
    #[error(transparent)]
    Policy(#[from] crate::hint::policy::UnknownPolicy),
    /// A table that does not fit the nodes.
    #[error("the distances have {rows} rows, one of {columns} columns, for {nodes} nodes")]
    Distances {
        /// Rows of the table.
        rows: usize,
        /// The first row that is too short or too long, else the last.
        columns: usize,
        /// Nodes, one row and column each.
        nodes: usize,
    },
    /// A node twice, or units on one that is not there.
    #[error("node {0} is there twice, or holds something and is not among the nodes")]
    Node(u32),
    /// Two resources of one name, which the answer could not tell apart.
    #[error("`{0}` is there twice")]
    Twice(String),
}

/// One case; answers in it are ignored.
#[derive(Deserialize)]
struct Case {
    id: Option<Value>,
    nodes: Vec<u32>,
    #[serde(default)]
    dist: Vec<Vec<u32>>,
    resources: Vec<Row>,
    policy: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    units: u64,
    free: BTreeMap<u32, u64>,
    total: Option<BTreeMap<u32, u64>>,
    #[serde(default)]
    follows: bool,
}

/// Answers one line. A device class of no units is one that was not asked for.
pub fn answer(line: &str) -> Result<String, PlaceLineError> {
    let case: Case = serde_json::from_str(line)?;
    let id = case.id.clone();
    let problem = problem(case)?;
    let mut out = Map::new();
    out.extend(id.map(|id| ("id".to_owned(), id)));
    match solve(&problem) {
        Ok(solution) => describe(&problem, &solution, &mut out),
        Err(lacking) => {
            let no = json!({
                "x": {}, "span": [], "preferred": false, "admitted": false, "proven": true,
                "aligned_share": null, "mean_distance": null, "impossible": lacking.to_string(),
            });
            out.extend(no.as_object().cloned().unwrap_or_default());
        }
    }
    Ok(Value::Object(out).to_string())
}

fn problem(case: Case) -> Result<Problem<'static>, PlaceLineError> {
    check(&case)?;
    let mut order: Vec<usize> = (0..case.nodes.len()).collect();
    order.sort_by_key(|&at| case.nodes[at]);
    let nodes: Vec<u32> = order.iter().map(|&at| case.nodes[at]).collect();
    let turned = |row: &Vec<u32>| order.iter().map(|&at| row[at]).collect();
    let distances =
        if case.dist.is_empty() { Vec::new() } else { order.iter().map(|&at| turned(&case.dist[at])).collect() };
    let resources: Vec<Resource> = case.resources.iter().map(|row| resource(row, &nodes)).collect();
    let others = resources.iter().filter(|row| row.units == 0 && row.kind == Kind::Devices);
    Ok(Problem {
        policy: case.policy.as_deref().map_or(Ok(Policy::default()), policy)?,
        others: others.map(|row| Other { free: row.free.clone(), elsewhere: 0 }).collect(),
        resources,
        nodes,
        distances,
        preference: None,
    })
}

fn check(case: &Case) -> Result<(), PlaceLineError> {
    let nodes = case.nodes.len();
    let wrong = case.dist.iter().map(Vec::len).find(|&columns| columns != nodes);
    if !case.dist.is_empty() && (case.dist.len() != nodes || wrong.is_some()) {
        return Err(PlaceLineError::Distances { rows: case.dist.len(), columns: wrong.unwrap_or(nodes), nodes });
    }
    let twice = (1..nodes).find(|&at| case.nodes[..at].contains(&case.nodes[at])).map(|at| case.nodes[at]);
    let keys = case.resources.iter().flat_map(|row| row.free.keys().chain(row.total.iter().flat_map(BTreeMap::keys)));
    let strange = keys.copied().find(|node| !case.nodes.contains(node));
    if let Some(node) = twice.or(strange) {
        return Err(PlaceLineError::Node(node));
    }
    let name = |at: usize| &case.resources[at].name;
    match (1..case.resources.len()).find(|&at| (0..at).any(|before| name(before) == name(at))) {
        Some(at) => Err(PlaceLineError::Twice(name(at).clone())),
        None => Ok(()),
    }
}

fn resource(row: &Row, nodes: &[u32]) -> Resource {
    let on_nodes = |map: &BTreeMap<u32, u64>| nodes.iter().map(|node| map.get(node).copied().unwrap_or(0)).collect();
    Resource {
        name: row.name.clone(),
        kind: kind(&row.name, row.follows),
        units: row.units,
        unknown: 0,
        free: on_nodes(&row.free),
        total: on_nodes(row.total.as_ref().unwrap_or(&row.free)),
    }
}

fn kind(name: &str, follows: bool) -> Kind {
    match (follows, name) {
        (true, "memory" | "mem") => Kind::Memory,
        (true, _) => Kind::Pages,
        (false, "cpu" | "cpus" | "core" | "cores") => Kind::Cpus,
        (false, _) => Kind::Devices,
    }
}

fn policy(name: &str) -> Result<Policy, crate::hint::policy::UnknownPolicy> {
    match name {
        "be" => Ok(Policy::BestEffort),
        "re" => Ok(Policy::Restricted),
        "sn" => Ok(Policy::SingleNumaNode),
        name => name.parse(),
    }
}

fn describe(problem: &Problem, solution: &Solution, out: &mut Map<String, Value>) {
    let on_nodes = |row: &Vec<u64>| -> Map<String, Value> {
        let some = problem.nodes.iter().zip(row).filter(|(_, units)| **units > 0);
        some.map(|(node, units)| (node.to_string(), json!(units))).collect()
    };
    let rows = problem.resources.iter().zip(&solution.x).filter(|(resource, _)| resource.units > 0);
    let x: Map<String, Value> = match solution.admitted() {
        true => rows.map(|(resource, row)| (resource.name.clone(), Value::Object(on_nodes(row)))).collect(),
        false => Map::new(),
    };
    let number = |fraction: &BigRational| json!(fraction.to_f64());
    out.insert("x".to_owned(), Value::Object(x));
    out.insert("span".to_owned(), json!(solution.span));
    out.insert("preferred".to_owned(), json!(solution.preferred));
    out.insert("admitted".to_owned(), json!(solution.admitted()));
    out.insert("proven".to_owned(), json!(solution.proven));
    out.insert("aligned_share".to_owned(), number(&solution.aligned_share));
    out.insert("mean_distance".to_owned(), number(&solution.mean_distance));
}
