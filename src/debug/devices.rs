//! Answers for device.jsonl.

use super::LineError;
use crate::resource::Offer;
use crate::resource::pci::choose::{Candidate, ChoiceError, DeviceState, choose, offer, pools};
use crate::topology::NodeMask;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Line {
    id: String,
    kind: String,
    n: u64,
    nodes: Vec<u32>,
    devs: Vec<Dev>,
    hint: Option<u64>,
    plugin_answer: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Dev {
    id: String,
    nodes: Option<Vec<i64>>,
    state: String,
}

/// One line in, one line out.
///
/// # Errors
/// The line is no vector of this kind.
pub fn answer(line: &str) -> Result<String, LineError> {
    let line: Line = serde_json::from_str(line)?;
    let candidates = line.devs.iter().map(candidate).collect::<Result<Vec<_>, _>>()?;
    let answer = match line.kind.as_str() {
        "hints" => hints(&line, &candidates)?,
        "choose" => choice(&line, &candidates),
        other => return Err(LineError::Kind(other.to_owned())),
    };
    Ok(answer.to_string())
}

fn candidate(dev: &Dev) -> Result<Candidate<String>, LineError> {
    let state = match dev.state.as_str() {
        "free" => DeviceState::Free,
        "taken" => DeviceState::Taken,
        "sick" => DeviceState::Sick,
        "reuse" => DeviceState::Reuse,
        other => return Err(LineError::Kind(other.to_owned())),
    };
    Ok(Candidate { device: dev.id.clone(), nodes: dev.nodes.clone(), state })
}

fn hints(line: &Line, candidates: &[Candidate<String>]) -> Result<Value, LineError> {
    let hints = match offer(candidates, &line.nodes.iter().copied().collect(), line.n) {
        Offer::NoPreference => Value::Null,
        Offer::CannotBeMet => json!([]),
        Offer::Capacity(capacity) => super::hint_list(&capacity)?,
    };
    Ok(json!({"id": line.id, "hints": hints}))
}

fn choice(line: &Line, candidates: &[Candidate<String>]) -> Value {
    let affinity = line.hint.map(NodeMask::from_bits);
    let pools = pools(candidates, affinity.as_ref());
    let mut answer = json!({
        "id": line.id,
        "aligned": pools.aligned,
        "unaligned": pools.unaligned,
        "no_affinity": pools.no_affinity,
    });
    match choose(candidates, affinity.as_ref(), line.n as usize, line.plugin_answer.as_deref()) {
        Ok(choice) => {
            answer["devices"] = json!(choice.devices);
            answer["plugin_called_with"] =
                choice.asked.map_or(Value::Null, |asked| json!([asked.available, asked.must_include, asked.size]));
        }
        Err(error) => {
            answer["err"] = json!(match error {
                ChoiceError::NoHealthy => "no-healthy",
                ChoiceError::NotEnough => "not-enough",
            });
        }
    }
    answer
}
