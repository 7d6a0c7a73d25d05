//! How a placement came about: each resource's hints, the merge, the winner,
//! and why others lost.

use super::words::words;
use crate::hint::kubelet::NodeVerdict;
use crate::hint::{Capacity, TopologyHint};
use crate::plan::refusal::missing;
use crate::plan::{self, Facts, Plan, Said};
use crate::request::{Request, Scope};
use crate::resource::prefer::Because;
use crate::resource::{self, Allocation, Device, Granted, Offer};
use crate::topology::NodeMask;
use std::fmt::Write;

/// Nodes up to which every mask is listed; beyond, hints are summarised.
const LISTED_NODES: usize = 4;

/// Nodes that are explained one by one.
const LISTED_LOSERS: usize = 8;

/// Members whose devices are explained.
const LISTED_MEMBERS: usize = 8;

/// The explanation, in lines. Of members that are placed one by one the first is explained.
pub fn explain(request: &Request, facts: &Facts<'_>, plan: &Plan) -> String {
    let one_by_one = request.members.is_some_and(|members| members.scope == Scope::Member);
    let first = plan.members.first().filter(|_| one_by_one);
    let whose = if first.is_some() { "member 0, which is placed first:\n" } else { "" };
    let unprobed = facts.machine.unprobed.iter().map(|reason| format!("{reason}\n"));
    let mut out = unprobed.collect::<String>() + whose + &merged(request, facts, first.unwrap_or(plan));
    plan.members.iter().take(LISTED_MEMBERS).enumerate().for_each(|(at, member)| {
        let lines = member.allocations.iter().map(preference).filter(|line| !line.is_empty());
        lines.for_each(|line| out += &format!("member {at}: {line}"));
    });
    if plan.refusal.is_none() {
        out += &words(request, facts.machine, plan);
    }
    if request.prefer_closest && all_alike(facts) {
        out += "all distances are equal: which nodes are close is not known\n";
    }
    out
}

/// What was offered, how it was merged, and why others lost.
fn merged(request: &Request, facts: &Facts<'_>, plan: &Plan) -> String {
    let mut out = format!("free cpus here: {}\n", shown(&plan.pool.to_string()));
    for said in &plan.resources {
        let _ = writeln!(out, "{}: {}", said.resource, answer(said));
    }
    plan.left_out.iter().for_each(|line| out += &format!("{line}\n"));
    out += &merge(request, plan);
    if plan.refusal.is_none() {
        out += &losers(request, facts, plan);
    }
    plan.allocations.iter().for_each(|allocation| out += &preference(allocation));
    out
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn amount(said: &Said, units: u64) -> String {
    resource::number(&said.resource, units)
}

fn answer(said: &Said) -> String {
    let wanted = amount(said, said.wanted);
    match &said.offer {
        Offer::NoPreference => format!("{wanted} wanted; no preference, for its locality is unknown"),
        Offer::CannotBeMet => format!("{wanted} wanted; not as many of known locality are free"),
        Offer::Capacity(capacity) => {
            format!("{wanted} wanted; free by node: {}; {}", free(said, capacity), masks(capacity))
        }
    }
}

fn free(said: &Said, capacity: &Capacity) -> String {
    let Some(units) = capacity.amounts.first() else { return String::new() };
    let place = |node: u32| {
        let mask = NodeMask::one(node);
        format!("{node}: {} of {}", amount(said, units.free(&mask)), amount(said, units.total(&mask)))
    };
    let mut places: Vec<String> = capacity.domain.iter().take(LISTED_LOSERS).map(place).collect();
    if capacity.domain.len() > LISTED_LOSERS {
        places.push(format!("… ({} nodes)", capacity.domain.len()));
    }
    places.join(", ")
}

fn masks(capacity: &Capacity) -> String {
    let preferred = capacity.min_width();
    if capacity.domain.len() <= LISTED_NODES {
        let hints = capacity.hints().unwrap_or_default();
        let one = |hint: &TopologyHint| {
            let nodes = hint.affinity.as_ref().map_or_else(|| "any".to_owned(), |mask| format!("{{{mask}}}"));
            if hint.preferred { format!("{nodes} preferred") } else { nodes }
        };
        let listed: Vec<String> = hints.iter().map(one).collect();
        return format!("hints {}", shown(&listed.join(", ")));
    }
    match capacity.narrowest() {
        Some(narrowest) => format!("hints from {narrowest} nodes up, {preferred} preferred"),
        None => "no hints".to_owned(),
    }
}

fn merge(request: &Request, plan: &Plan) -> String {
    if plan.affinity.is_none() && plan.refusal.is_some() && !plan.preferred {
        return String::new();
    }
    let nodes =
        plan.affinity.as_ref().map_or_else(|| "no nodes in particular".to_owned(), |mask| format!("{{{mask}}}"));
    let preferred = if plan.preferred { "preferred" } else { "not preferred" };
    let proven = if plan.proven { "" } else { " (a better answer was not ruled out)" };
    let score = plan.score.map_or_else(String::new, |score| {
        format!(", aligned share {:.3}, mean distance {:.1}", score.aligned_share, score.mean_distance)
    });
    format!("merge {}: {nodes}, {preferred}{score}{proven}; policy {}\n", request.merge.name(), request.policy.name())
}

/// Why each other single node did not win.
fn losers(request: &Request, facts: &Facts<'_>, plan: &Plan) -> String {
    let Some(winner) = plan.affinity.as_ref() else { return String::new() };
    let explanation = plan::explanation(request, facts.machine, plan);
    let others = explanation.nodes.iter().filter(|verdict| *winner != NodeMask::one(verdict.node));
    let line = |verdict: &NodeVerdict| match missing(plan, verdict) {
        lacks if lacks.is_empty() => format!("node {} alone: would do as well; a lower one wins\n", verdict.node),
        lacks => format!("node {} alone: lacks {}\n", verdict.node, lacks.join(", ")),
    };
    others.take(LISTED_LOSERS).map(line).collect()
}

/// What the preference among devices changed.
fn preference(allocation: &Allocation) -> String {
    let Granted::Devices(grant) = &allocation.granted else { return String::new() };
    let Some(advice) = &grant.advice else { return String::new() };
    let list = |devices: &[Device]| devices.iter().map(|device| device.bdf.to_string()).collect::<Vec<_>>().join(" ");
    let (ours, theirs) = (list(&grant.devices), list(&advice.instead_of));
    let resource = &allocation.resource;
    match &advice.because {
        Because::BuiltIn(reason) => format!("{resource}: {ours} preferred to {theirs}: {reason}\n"),
        Because::Plugin(plugin) => {
            let changed = grant.devices.iter().any(|device| !advice.instead_of.contains(device));
            let instead = if changed { format!("instead of {theirs}") } else { "as without it".to_owned() };
            format!("{resource}: plugin {} prefers {ours}, {instead}, {}\n", plugin.program.display(), plugin.terms())
        }
    }
}

fn all_alike(facts: &Facts<'_>) -> bool {
    let rows = &facts.machine.distances;
    let mut apart = rows.iter().enumerate().flat_map(|(row, line)| {
        line.iter().enumerate().filter(move |(column, _)| *column != row).map(|(_, distance)| *distance)
    });
    let first = apart.next();
    rows.len() > 2 && apart.all(|distance| Some(distance) == first)
}
