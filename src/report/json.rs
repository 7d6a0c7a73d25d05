//! A plan for scripts. Fields are added, never changed, within a version.

use crate::plan::{MemoryBinding, Plan};
use crate::request::Request;
use crate::resource::pci::creation::Creation;
use crate::resource::prefer::{Advice, Because};
use crate::resource::{Allocation, Granted, Offer};
use crate::topology::NodeMask;
use serde_json::{Map, Value, json};

/// Version of the plan's JSON.
pub const VERSION: u32 = 1;

/// Nodes up to which every mask is listed.
const LISTED_NODES: usize = 4;

/// The plan as JSON.
pub fn plan(request: &Request, plan: &Plan) -> Value {
    json!({
        "version": VERSION,
        "admitted": plan.admitted,
        "preferred": plan.preferred,
        "aligned": plan.admitted && plan.aligned,
        "proven": plan.proven,
        "aligned_share": plan.score.map(|score| score.aligned_share),
        "mean_distance": plan.score.map(|score| score.mean_distance),
        "policy": request.policy.name(),
        "merge": request.merge.name(),
        "affinity": plan.affinity.as_ref().map(ids),
        "span": ids(&plan.span),
        "refusal": plan.refusal.as_ref().map(|refusal| json!({
            "kind": refusal.kind.name(),
            "resource": refusal.resource,
            "message": refusal.message,
        })),
        "hints": plan.resources.iter().map(hints).collect::<Vec<_>>(),
        "allocations": plan.allocations.iter().map(allocation).collect::<Vec<_>>(),
        "scope": request.members.map(|members| members.scope.name()),
        "members": request.members.map(|_| plan.members.iter().map(member).collect::<Vec<_>>()),
        "shared_cpus": plan.shared_cpus.to_string(),
        "create_vfs": plan.creations.iter().map(creation).collect::<Vec<_>>(),
        "memory_policy": plan.memory.as_ref().map(memory),
        "remarks": plan.remarks,
        "left_out": plan.left_out,
    })
}

fn creation(creation: &Creation) -> Value {
    json!({
        "physical_function": creation.physical_function,
        "interfaces": creation.interfaces,
        "node": creation.node,
        "count": creation.virtual_functions.len(),
        "virtual_functions": creation.virtual_functions,
    })
}

/// What one member gets of it.
fn member(plan: &Plan) -> Value {
    json!({
        "aligned": plan.aligned,
        "preferred": plan.preferred,
        "span": ids(&plan.span),
        "allocations": plan.allocations.iter().map(allocation).collect::<Vec<_>>(),
        "memory_policy": plan.memory.as_ref().map(memory),
    })
}

fn memory(binding: &MemoryBinding) -> Value {
    json!({ "mode": binding.policy.name(), "nodes": ids(&binding.nodes) })
}

fn ids(nodes: &NodeMask) -> Vec<u32> {
    nodes.iter().collect()
}

fn hints(said: &crate::plan::Said) -> Value {
    let mut value = Map::new();
    value.insert("resource".into(), json!(said.resource));
    value.insert("wanted".into(), json!(said.wanted));
    match &said.offer {
        Offer::NoPreference => drop(value.insert("answer".into(), json!("no preference"))),
        Offer::CannotBeMet => drop(value.insert("answer".into(), json!("cannot be met"))),
        Offer::Capacity(capacity) => {
            value.insert("answer".into(), json!("hints"));
            value.insert("preferred_width".into(), json!(capacity.min_width()));
            value.insert("narrowest_width".into(), json!(capacity.narrowest()));
            value.insert("nodes".into(), capacity.domain.iter().map(|node| place(capacity, node)).collect());
            if capacity.domain.len() <= LISTED_NODES {
                let masks = capacity.hints().unwrap_or_default();
                let mask = |hint: &crate::hint::TopologyHint| json!({"affinity": hint.affinity.as_ref().map(ids), "preferred": hint.preferred});
                value.insert("masks".into(), masks.iter().map(mask).collect());
            }
        }
    }
    Value::Object(value)
}

fn place(capacity: &crate::hint::Capacity, node: u32) -> Value {
    let mask = NodeMask::one(node);
    let amount = capacity.amounts.first();
    json!({
        "node": node,
        "free": amount.map_or(0, |amount| amount.free(&mask)),
        "total": amount.map_or(0, |amount| amount.total(&mask)),
    })
}

fn allocation(allocation: &Allocation) -> Value {
    let mut value = Map::new();
    value.insert("kind".into(), json!(allocation.resource));
    let per_node: Map<String, Value> =
        allocation.per_node.iter().map(|(node, units)| (node.to_string(), json!(units))).collect();
    value.insert("per_node".into(), Value::Object(per_node));
    value.insert("unknown".into(), json!(allocation.unknown));
    match &allocation.granted {
        Granted::Cpus(cpus) => drop(value.insert("cpus".into(), json!(cpus.to_string()))),
        Granted::Mib(mib) => drop(value.insert("mib".into(), json!(mib))),
        Granted::Pages { size, count } => {
            value.insert("page_size".into(), json!(size.to_string()));
            value.insert("pages".into(), json!(count));
        }
        Granted::Devices(grant) => {
            value.insert("class".into(), json!(grant.class));
            value.insert("name".into(), json!(grant.name));
            value.insert("devices".into(), grant.devices.iter().map(|device| json!(device.bdf)).collect());
            if let Some(advice) = &grant.advice {
                value.insert("preference".into(), preference(advice));
            }
            if !grant.settings.is_empty() {
                value.insert("settings".into(), json!(grant.settings.to_string()));
            }
        }
    }
    Value::Object(value)
}

fn preference(advice: &Advice) -> Value {
    let instead_of: Vec<Value> = advice.instead_of.iter().map(|device| json!(device.bdf)).collect();
    match &advice.because {
        Because::BuiltIn(reason) => json!({"instead_of": instead_of, "because": reason}),
        Because::Plugin(plugin) => json!({
            "instead_of": instead_of,
            "because": plugin.terms(),
            "plugin": plugin.program.display().to_string(),
            "cost": plugin.cost.number(),
            "resource_domain": plugin.resource_domain,
        }),
    }
}
