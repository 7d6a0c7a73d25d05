//! Answers for test vectors, through the same pure code that a launch uses:
//! one JSON line in, one out.

pub mod cpus;
pub mod devices;
pub mod memory;
pub mod merge;
pub mod place;

use crate::hint::Capacity;
use crate::hint::list::TooManyNodes;
use serde_json::{Value, json};

/// Why a line has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is not of the expected form.
    #[error("not a line of this kind: {0}")]
    Form(#[from] serde_json::Error),
    /// It asks for something that there is no answer to.
    #[error("`{0}` is not answered")]
    Kind(String),
    /// Masks over too many nodes.
    #[error(transparent)]
    Nodes(#[from] TooManyNodes),
}

/// Every mask of a capacity as `[number, 1 for preferred]`.
fn hint_list(capacity: &Capacity) -> Result<Value, TooManyNodes> {
    let number = |hint: &crate::hint::TopologyHint| {
        let bits = hint.affinity.as_ref().map(|mask| mask.words().first().copied().unwrap_or(0));
        json!([bits, u8::from(hint.preferred)])
    };
    Ok(capacity.hints()?.iter().map(number).collect())
}
