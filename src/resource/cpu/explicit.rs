//! CPUs and nodes that were named: each one is checked, none is cut off silently.

use super::{CpuLayout, SmtMode};
use crate::plan::pool::not_online;
use crate::request::CpuChoice;
use crate::resource::Situation;
use crate::topology::{CpuSet, Machine, NodeMask};
use std::collections::BTreeSet;

/// Online CPUs of a kind; all of them where none is asked for.
pub fn of_kind(kind: Option<&str>, machine: &Machine) -> Result<CpuSet, String> {
    let Some(kind) = kind else { return Ok(machine.online()) };
    let kinds: BTreeSet<&str> = machine.cpus.iter().filter_map(|cpu| cpu.kind.as_deref()).collect();
    if kinds.is_empty() {
        return Err(format!("--cpu-kind {kind}: the kinds of this machine's CPUs are not known, or all are alike"));
    }
    let alike = |found: &str| found.eq_ignore_ascii_case(kind);
    if !kinds.iter().any(|found| alike(found)) {
        let kinds: Vec<&str> = kinds.into_iter().collect();
        return Err(format!("--cpu-kind {kind}: this machine's CPUs are of the kinds {}", kinds.join(", ")));
    }
    let these = machine.cpus.iter().filter(|cpu| cpu.online && cpu.kind.as_deref().is_some_and(alike));
    Ok(these.map(|cpu| cpu.id).collect())
}

/// The nodes that CPUs may come from, if some were named; each has CPUs.
pub fn nodes(choice: &CpuChoice, machine: &Machine) -> Result<Option<NodeMask>, String> {
    let spec = match choice {
        CpuChoice::Count(_, nodes) => nodes.as_ref(),
        CpuChoice::Nodes(nodes) => Some(nodes),
        CpuChoice::List(_) => None,
    };
    let Some(spec) = spec else { return Ok(None) };
    let nodes = spec.resolve(&machine.cpu_nodes());
    match nodes.minus(&machine.cpu_nodes()).first() {
        Some(node) => Err(format!("--cpu-nodes: node {node} has no CPUs")),
        None => Ok(Some(nodes)),
    }
}

/// The very CPUs that the request names.
pub fn exactly(choice: &CpuChoice, pool: &CpuSet, machine: &Machine) -> Option<CpuSet> {
    match choice {
        CpuChoice::Count(..) => None,
        CpuChoice::Nodes(_) => Some(pool.clone()),
        // `all` and `!` mean the pool; ids that were written out are kept, and checked.
        CpuChoice::List(list) => Some(list.resolve(&pool.and(&machine.online()))),
    }
}

/// Checks CPUs that were named.
pub fn check(cpus: &CpuSet, layout: &CpuLayout, situation: &Situation<'_>, smt: SmtMode) -> Result<(), String> {
    let machine = situation.machine;
    let offline = cpus.minus(&machine.online());
    if cpus.is_empty() {
        return Err("no CPU is left of the list".into());
    }
    if !offline.is_empty() {
        return Err(not_online(machine, &offline));
    }
    let held = &situation.holdings.cpus;
    let beside = match smt {
        SmtMode::Share => CpuSet::new(),
        _ => layout.with_siblings(held).minus(held),
    };
    let checks = [
        (cpus.minus(layout.cpus()), "not of the kind that is asked for"),
        (cpus.and(&situation.config.reserved.cpus), "reserved for the host"),
        (cpus.and(held), "held by another launch"),
        (cpus.and(&beside), "on a core that another launch holds (--smt share allows that)"),
    ];
    for (cpus, what) in &checks {
        if !cpus.is_empty() {
            return Err(format!("{} {what}", are(cpus)));
        }
    }
    let outside = cpus.minus(&situation.pool);
    match outside.is_empty() {
        true => Ok(()),
        false => {
            let (are, pool, help) = (are(&outside), &situation.pool, isolation(&outside, situation));
            Err(format!("{are} outside the CPUs that are allowed here ({pool}){help}"))
        }
    }
}

/// What to type where it is isolation alone that keeps CPUs out of the pool.
fn isolation(outside: &CpuSet, situation: &Situation<'_>) -> &'static str {
    let isolated: CpuSet = situation.machine.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    let pool = &situation.pool;
    if outside.is_subset(&situation.shared) && !pool.is_empty() && pool.is_subset(&isolated) {
        ": only isolated CPUs are used; others too with --isolated also, no isolated ones with --isolated never"
    } else if outside.is_subset(&isolated) && pool.is_disjoint(&isolated) {
        ": no isolated CPU is used; they are too with --isolated also, nothing else with --isolated only"
    } else {
        ""
    }
}

fn are(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus} is") } else { format!("CPUs {cpus} are") }
}
