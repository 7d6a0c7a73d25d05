//! `debug cpus`: lines that reserve, take, allocate or hint CPUs on a described machine.

use crate::hint::TopologyHint;
use crate::hint::list::TooManyNodes;
use crate::resource::cpu::{
    Ask, CpuError, CpuLayout, CpuOptions, CpuPlace, OptionError, Stock, alloc, capacity, reserve, take,
};
use crate::topology::{CpuSet, NodeMask};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Why a line has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CpuLineError {
    /// Text that does not have the form of a line or of a list of topologies.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A topology that was not given.
    #[error("no topology `{0}`")]
    Topology(String),
    /// Options that are unknown or clash.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// Masks over too many nodes.
    #[error(transparent)]
    Nodes(#[from] TooManyNodes),
}

/// Machines that lines refer to, by name.
#[derive(Debug, Default)]
pub struct Topologies {
    layouts: BTreeMap<String, CpuLayout>,
}

#[derive(Deserialize)]
struct Topology {
    id: String,
    /// CPU, core, socket, node, L3.
    cpus: Vec<[u32; 5]>,
}

impl Topologies {
    /// Reads a list of topologies, each with an `id` and `cpus` rows of CPU,
    /// core, socket, node and L3. CPU ids that are left out are offline CPUs.
    pub fn from_json(text: &str) -> Result<Self, CpuLineError> {
        let topologies: Vec<Topology> = serde_json::from_str(text)?;
        Ok(Topologies {
            layouts: topologies.into_iter().map(|topology| (topology.id, layout(&topology.cpus))).collect(),
        })
    }

    /// The machine with this name.
    pub fn layout(&self, id: &str) -> Option<&CpuLayout> {
        self.layouts.get(id)
    }
}

fn layout(rows: &[[u32; 5]]) -> CpuLayout {
    let place =
        |&[cpu, core, socket, node, l3]: &[u32; 5]| CpuPlace { cpu, core, socket, node: Some(node), l3: Some(l3) };
    let places: Vec<CpuPlace> = rows.iter().map(place).collect();
    let ids: CpuSet = places.iter().map(|place| place.cpu).collect();
    let offline = ids.last().map_or(0, |last| last as usize + 1 - ids.len());
    CpuLayout::new(&places, offline)
}

#[derive(Deserialize)]
struct Line {
    id: Value,
    topo: String,
    #[serde(default)]
    opts: Vec<String>,
    n: usize,
    #[serde(flatten)]
    question: Question,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Question {
    Reserve,
    Take {
        free: CpuSet,
    },
    Alloc {
        default: CpuSet,
        #[serde(default)]
        reserved: CpuSet,
        #[serde(default)]
        reusable: CpuSet,
        mask: Option<u64>,
    },
    Hints {
        free: CpuSet,
        #[serde(default)]
        reusable: CpuSet,
    },
}

/// Answers one line with one line: the same `id`, then what the kind asks for, or `err`.
/// Whether the options suit the machine's shape is not asked, as lines try that out too.
pub fn answer(line: &str, topologies: &Topologies) -> Result<String, CpuLineError> {
    let Line { id, topo, opts, n, question } = serde_json::from_str(line)?;
    let options = CpuOptions::parse(&opts)?;
    let layout = topologies.layout(&topo).ok_or(CpuLineError::Topology(topo))?;
    let mut answer = match question {
        Question::Hints { free, reusable } => hints(layout, free, reusable, n, &options)?,
        other => chosen(layout, other, n, &options).unwrap_or_else(|error| json!({ "err": error.word() })),
    };
    answer["id"] = id;
    Ok(answer.to_string())
}

fn hints(
    layout: &CpuLayout,
    free: CpuSet,
    reusable: CpuSet,
    wanted: usize,
    options: &CpuOptions,
) -> Result<Value, TooManyNodes> {
    let stock = Stock { allocatable: layout.cpus().clone(), free, reusable };
    let hints = capacity(layout, &stock, wanted, options).hints()?;
    let pair = |hint: TopologyHint| json!([hint.affinity.as_ref().map(number), u8::from(hint.preferred)]);
    Ok(json!({ "hints": hints.into_iter().map(pair).collect::<Vec<Value>>() }))
}

/// A mask as the number that its bits make; as a list where that number is too large.
fn number(mask: &NodeMask) -> Value {
    match mask.words() {
        [] => json!(0),
        [word] => json!(word),
        _ => json!(mask),
    }
}

fn chosen(layout: &CpuLayout, question: Question, wanted: usize, options: &CpuOptions) -> Result<Value, CpuError> {
    Ok(match question {
        Question::Reserve => {
            let reserved = reserve(layout, wanted, options)?;
            json!({ "reserved": reserved.cpus, "reserved_cores": reserved.cores })
        }
        Question::Take { free } => json!({ "cpus": take(layout, &free, wanted, options)? }),
        Question::Alloc { default, reserved, reusable, mask } => {
            let mask = mask.map(NodeMask::from_bits);
            let grant = alloc(layout, &Ask { wanted, mask, shared: default, reserved, reusable }, options)?;
            json!({ "cpus": grant.cpus, "default_after": grant.shared_after, "uncore_aligned": grant.l3_aligned })
        }
        Question::Hints { .. } => json!({}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> Result<String, String> {
        let topologies = r#"[{"id": "two", "cpus": [[0, 0, 0, 0, 0], [1, 1, 0, 70, 0]], "about": "nodes 0 and 70"}]"#;
        answer(line, &Topologies::from_json(topologies).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn answers_that_a_line_holds_are_not_looked_at() {
        let line =
            r#"{"id": 7, "kind": "take", "topo": "two", "n": 1, "free": "0-1", "cpus": {"no": "list"}, "err": "x"}"#;
        assert_eq!(answered(line).unwrap(), r#"{"cpus":"0","id":7}"#);
    }

    #[test]
    fn a_mask_too_large_for_a_number_is_a_list() {
        let line = r#"{"id": "a", "kind": "hints", "topo": "two", "n": 2, "free": "0-1"}"#;
        assert_eq!(answered(line).unwrap(), r#"{"hints":[["0,70",1]],"id":"a"}"#);
    }

    #[test]
    fn a_line_that_makes_no_sense_says_why() {
        let error = |line: &str| answered(line).unwrap_err();
        assert_eq!(error(r#"{"id": 1, "kind": "reserve", "topo": "three", "n": 1}"#), "no topology `three`");
        assert!(error(r#"{"id": 1, "kind": "guess", "topo": "two", "n": 1}"#).contains("unknown variant `guess`"));
        assert!(error(r#"{"id": 1, "kind": "reserve", "topo": "two", "n": 1, "opts": ["fast"]}"#).contains("`fast`"));
        assert!(error(r#"{"id": 1, "kind": "take", "topo": "two", "n": 1, "free": "1-0"}"#).contains("runs backwards"));
    }
}
