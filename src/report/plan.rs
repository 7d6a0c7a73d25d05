//! A plan for people.

use crate::plan::Plan;
use crate::request::{Mib, Request};
use crate::resource::{Allocation, Grant, Granted};
use crate::topology::Machine;
use std::collections::BTreeSet;
use std::fmt::Write;

/// What a launch would get.
pub fn text(request: &Request, machine: &Machine, plan: &Plan) -> String {
    let mut out = String::new();
    if let Some(refusal) = &plan.refusal {
        let _ = writeln!(out, "refused ({}): {refusal}", refusal.kind.name());
        return out + &lines(&plan.left_out);
    }
    let aligned = if plan.aligned { "aligned" } else { "not aligned" };
    let preferred = if plan.preferred { "preferred" } else { "not preferred" };
    let _ = writeln!(out, "admitted by {}: {aligned}, {preferred}", request.policy.name());
    let mut table = super::table(&["resource", "granted", "nodes"]);
    for allocation in &plan.allocations {
        table.add_row([allocation.resource.clone(), granted(machine, allocation), places(allocation)]);
    }
    if !plan.shared_cpus.is_empty() {
        table.add_row(["shared cpus".to_owned(), plan.shared_cpus.to_string(), String::new()]);
    }
    if !table.is_empty() {
        out += &super::text(&table);
    }
    out += &members(machine, plan);
    match &plan.memory {
        Some(binding) if binding.policy.takes_nodes() => {
            let accounted =
                if request.memory.as_ref().is_some_and(|memory| memory.mib.is_some()) { "" } else { ", unaccounted" };
            let _ = writeln!(out, "memory policy: {} on nodes {}{accounted}", binding.policy.name(), binding.nodes);
        }
        Some(binding) => {
            let _ = writeln!(out, "memory policy: {}", binding.policy.name());
        }
        None => out += "memory policy: left as it is\n",
    }
    plan.creations.iter().for_each(|creation| out += &format!("would create {creation}\n"));
    out + &lines(&plan.remarks) + &lines(&plan.left_out)
}

/// What each member gets of it.
fn members(machine: &Machine, plan: &Plan) -> String {
    let mut table = super::table(&["member", "resource", "granted", "nodes"]);
    for (member, plan) in plan.members.iter().enumerate() {
        for allocation in &plan.allocations {
            let resource = allocation.resource.clone();
            table.add_row([member.to_string(), resource, granted(machine, allocation), places(allocation)]);
        }
    }
    if table.is_empty() { String::new() } else { super::text(&table) }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn granted(machine: &Machine, allocation: &Allocation) -> String {
    match &allocation.granted {
        Granted::Cpus(cpus) => {
            let cores: BTreeSet<u32> = cpus.iter().filter_map(|cpu| machine.cpu(cpu)).map(|cpu| cpu.core).collect();
            let word = if cores.len() == 1 { "core" } else { "cores" };
            format!("{cpus} ({} {word})", cores.len())
        }
        Granted::Mib(mib) => Mib(*mib).to_string(),
        Granted::Pages { size, count } => format!("{count} pages of {size}"),
        Granted::Devices(grant) => devices(grant),
    }
}

fn devices(grant: &Grant) -> String {
    let addresses = grant.devices.iter().map(|device| device.bdf.to_string());
    let settings = (!grant.settings.is_empty()).then(|| format!("({})", grant.settings));
    addresses.chain(settings).collect::<Vec<_>>().join(" ")
}

fn places(allocation: &Allocation) -> String {
    let units = |units: u64| match allocation.granted {
        Granted::Mib(_) => Mib(units).to_string(),
        _ => units.to_string(),
    };
    let known = allocation.per_node.iter().map(|(node, &count)| format!("{node}: {}", units(count)));
    let unknown = (allocation.unknown > 0).then(|| format!("unknown: {}", allocation.unknown));
    known.chain(unknown).collect::<Vec<_>>().join(", ")
}
