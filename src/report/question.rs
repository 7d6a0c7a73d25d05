//! A question to the plugin of a device class. Fields are added, never changed,
//! within a version.

use super::topo;
use crate::resource::prefer::{Place, Question};
use crate::topology::Machine;
use serde_json::{Value, json};

/// Version of the question's JSON.
pub const VERSION: u32 = 1;

/// The question as JSON.
pub fn json(question: &Question, machine: &Machine) -> Value {
    json!({
        "version": VERSION,
        "class": question.class,
        "request": question.request,
        "available": question.available(),
        "must_include": question.must_include(),
        "size": question.size(),
        "places": question.places.iter().map(place).collect::<Vec<_>>(),
        "machine": topo::json(machine),
    })
}

fn place(place: &Place) -> Value {
    let available: Vec<Value> = place.from.iter().map(|device| json!(device.bdf)).collect();
    json!({"nodes": place.nodes(), "count": place.count, "available": available})
}
