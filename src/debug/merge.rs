//! `debug merge`: the merge of hints under every policy.

use crate::hint::TopologyHint;
use crate::hint::kubelet::{Merged, Offer, TieBreak, merge};
use crate::hint::policy::Policy;
use crate::topology::NodeMask;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Why a line has no answer.
#[derive(Debug, thiserror::Error)]
pub enum MergeLineError {
    /// It is not of the expected form.
    #[error("not a line of hints to merge: {0}")]
    Form(#[from] serde_json::Error),
    /// A node that the masks of such lines have no bit for.
    #[error("node {0} is beyond the 64 bits of a mask")]
    Node(u32),
}

/// One case; answers in it are ignored.
#[derive(Deserialize)]
struct Case {
    id: Value,
    nodes: Vec<u32>,
    dist: Option<Vec<Vec<u32>>>,
    providers: Vec<Option<BTreeMap<String, Option<Vec<Hint>>>>>,
}

/// Mask as a number, and 1 for preferred.
#[derive(Deserialize)]
struct Hint(Option<u64>, u8);

/// Answers one line with `{"id":…, "out":{…}}`: for each policy mask, preferred
/// and admitted, with `_c` for prefer-closest where distances are given.
pub fn answer(line: &str) -> Result<String, MergeLineError> {
    let case: Case = serde_json::from_str(line)?;
    if let Some(&node) = case.nodes.iter().find(|&&node| node > 63) {
        return Err(MergeLineError::Node(node));
    }
    let offers = offers(case.providers);
    let distances = case.dist.unwrap_or_default();
    let mut out = Map::new();
    for policy in Policy::ALL {
        let mut put = |suffix: &str, tie: TieBreak| {
            let merged = merge(&offers, &case.nodes, &distances, policy, tie);
            out.insert(format!("{}{suffix}", key(policy)), result(&merged, policy));
        };
        put("", TieBreak::Lowest);
        if policy != Policy::None && !distances.is_empty() {
            put("_c", TieBreak::Closest);
        }
    }
    Ok(json!({ "id": case.id, "out": out }).to_string())
}

fn offers(providers: Vec<Option<BTreeMap<String, Option<Vec<Hint>>>>>) -> Vec<Offer> {
    let resources = providers.into_iter().flat_map(|provider| match provider {
        Some(resources) if !resources.is_empty() => resources.into_values().collect(),
        _ => vec![None],
    });
    resources
        .map(|hints| hints.map_or(Offer::NoPreference, |hints| Offer::Hints(hints.iter().map(hint).collect())))
        .collect()
}

fn hint(Hint(mask, preferred): &Hint) -> TopologyHint {
    TopologyHint { affinity: mask.map(NodeMask::from_bits), preferred: *preferred != 0 }
}

fn key(policy: Policy) -> &'static str {
    match policy {
        Policy::None => "none",
        Policy::BestEffort => "be",
        Policy::Restricted => "re",
        Policy::SingleNumaNode => "sn",
    }
}

fn result(merged: &Merged, policy: Policy) -> Value {
    let mask = merged.affinity.as_ref().map(|mask| mask.words().first().copied().unwrap_or(0));
    json!([mask, u8::from(merged.preferred), u8::from(policy.admits(merged.preferred))])
}
