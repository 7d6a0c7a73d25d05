//! A placement in plain sentences: what needs several nodes and why, what lies
//! beside what, what is remote and how far.

use crate::hint::Capacity;
use crate::hint::policy::Policy;
use crate::plan::{self, Plan, Said, refusal};
use crate::request::Request;
use crate::resource::pci::class;
use crate::resource::{self, Allocation, Device, Grant, Granted, Offer};
use crate::topology::{CpuSet, Machine, NodeMask};
use std::collections::BTreeSet;

/// Members, nodes and devices that are told one by one.
const TOLD: usize = 8;
const DEVICES: usize = 4;

/// The sentences, parted by semicolons; a line for each member where there are some.
pub fn words(request: &Request, machine: &Machine, plan: &Plan) -> String {
    let line = |clauses: Vec<String>| if clauses.is_empty() { String::new() } else { clauses.join("; ") + "\n" };
    if plan.members.is_empty() {
        return line(clauses(request, machine, plan));
    }
    let mut out = line(reasons(request, machine, plan, &localities(machine, plan)));
    for (number, member) in plan.members.iter().enumerate().take(TOLD) {
        let clauses = clauses(request, machine, member);
        out +=
            &line(if clauses.is_empty() { clauses } else { vec![format!("member {number}: {}", clauses.join("; "))] });
    }
    let more = plan.members.len().saturating_sub(TOLD);
    if more > 0 { out + &format!("… and {more} members more\n") } else { out }
}

fn clauses(request: &Request, machine: &Machine, plan: &Plan) -> Vec<String> {
    let span = localities(machine, plan);
    let home = home(plan, &span);
    let mut clauses = reasons(request, machine, plan, &span);
    clauses.extend(home.iter().take(TOLD).filter_map(|node| beside(machine, plan, node)));
    if home.len() > TOLD {
        clauses.push(format!("… on {} nodes in all", home.len()));
    }
    clauses.extend(plan.allocations.iter().filter_map(|allocation| remote(machine, allocation, &home)));
    clauses.extend(plan.allocations.iter().filter_map(unknown));
    clauses
}

fn localities(machine: &Machine, plan: &Plan) -> NodeMask {
    plan.span.iter().map(|node| lead(machine, node)).collect()
}

fn lead(machine: &Machine, node: u32) -> u32 {
    machine.locality(node).unwrap_or(node)
}

/// What the rest should be near to: the nodes of the CPUs, else the first one.
fn home(plan: &Plan, span: &NodeMask) -> NodeMask {
    let cpus = plan.allocations.iter().find(|allocation| matches!(allocation.granted, Granted::Cpus(_)));
    cpus.map(Allocation::nodes).unwrap_or_else(|| span.first().into_iter().collect())
}

/// Why it is on so many nodes.
fn reasons(request: &Request, machine: &Machine, plan: &Plan, span: &NodeMask) -> Vec<String> {
    let width = span.len();
    let needs: Vec<(&Said, usize)> = plan.resources.iter().filter_map(needs).collect();
    let most = needs.iter().map(|(_, nodes)| *nodes).max().unwrap_or(1);
    if width == 0 || plan.resources.is_empty() {
        return Vec::new();
    }
    let widest = needs.iter().filter(|(_, nodes)| *nodes == most && most > 1);
    let mut clauses: Vec<String> = widest.map(|(said, nodes)| needed(said, *nodes)).collect();
    if width == 1 {
        let unknown = plan.allocations.iter().any(|allocation| allocation.unknown > 0);
        let all = if unknown { "all of it that is of known locality" } else { "all of it" };
        clauses.push(format!("node {span} has {all}"));
    } else if request.policy == Policy::None {
        clauses.push("no alignment is sought: the lowest nodes come first".to_owned());
    } else if width > most {
        clauses.extend(scattered(request, machine, plan, width));
    }
    clauses
}

/// How many nodes a resource needs by itself.
fn needs(said: &Said) -> Option<(&Said, usize)> {
    let Offer::Capacity(capacity) = &said.offer else { return None };
    // What is hinted together with it is another resource's business.
    let own = Capacity { amounts: capacity.amounts.iter().take(1).cloned().collect(), ..capacity.clone() };
    Some((said, own.narrowest()?))
}

/// `gpu needs two nodes: no node has 2 free`.
fn needed(said: &Said, nodes: usize) -> String {
    let (name, wanted) = (&said.resource, resource::number(&said.resource, said.wanted));
    match nodes {
        2 => format!("{name} needs two nodes: no node has {wanted} free"),
        _ => format!("{name} needs {} nodes: no {} have {wanted} free", number(nodes), number(nodes - 1)),
    }
}

fn scattered(request: &Request, machine: &Machine, plan: &Plan, width: usize) -> Option<String> {
    let explanation = plan::explanation(request, machine, plan);
    let all_lack = explanation.nodes.iter().all(|node| !node.lacking.is_empty() || !node.outside.is_empty());
    all_lack.then(|| format!("all of it needs {} nodes: {}", number(width), refusal::scattered(plan, &explanation).1))
}

fn number(count: usize) -> String {
    let words = ["two", "three", "four", "five", "six", "seven", "eight", "nine"];
    count.checked_sub(2).and_then(|at| words.get(at)).map_or_else(|| count.to_string(), |word| (*word).to_owned())
}

/// `cpus 0-3 beside gpu 0000:3b:00.0 and 4G of memory on node 1`.
fn beside(machine: &Machine, plan: &Plan, node: u32) -> Option<String> {
    let cpus = plan.allocations.iter().filter(|allocation| matches!(allocation.granted, Granted::Cpus(_)));
    let others = plan.allocations.iter().filter(|allocation| !matches!(allocation.granted, Granted::Cpus(_)));
    let mut here: Vec<String> = cpus.chain(others).filter_map(|allocation| things(machine, allocation, node)).collect();
    if here.is_empty() {
        return None;
    }
    let first = here.remove(0);
    let beside = match listed(&here) {
        rest if !rest.is_empty() => format!(" beside {rest}"),
        _ if plan.allocations.len() > 1 => " alone".to_owned(),
        _ => String::new(),
    };
    Some(format!("{first}{beside} on node {node}"))
}

/// What of it is in the locality of a node.
fn things(machine: &Machine, allocation: &Allocation, node: u32) -> Option<String> {
    let name = &allocation.resource;
    match &allocation.granted {
        Granted::Cpus(cpus) => {
            let own = |cpu: &u32| machine.cpu(*cpu).and_then(|cpu| cpu.node) == Some(node);
            let own: CpuSet = cpus.iter().filter(own).collect();
            (!own.is_empty()).then(|| format!("{} {own}", if own.len() == 1 { "cpu" } else { "cpus" }))
        }
        Granted::Devices(grant) => devices(machine, name, grant, node),
        Granted::Mib(_) | Granted::Pages { .. } => {
            let here = allocation.per_node.iter().filter(|(at, units)| lead(machine, **at) == node && **units > 0);
            let place = |at: u32| if at == node { String::new() } else { format!(" (node {at})") };
            let parts: Vec<String> = here.map(|(&at, &units)| resource::spoken(name, units) + &place(at)).collect();
            (!parts.is_empty()).then(|| listed(&parts))
        }
    }
}

fn devices(machine: &Machine, name: &str, grant: &Grant, node: u32) -> Option<String> {
    let here = |device: &&Device| device.node.map(|at| lead(machine, at)) == Some(node);
    let here: Vec<String> = grant.devices.iter().filter(here).map(|device| device.bdf.to_string()).collect();
    let more = here.len().saturating_sub(DEVICES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let told = here.iter().take(DEVICES).cloned().collect::<Vec<_>>().join(" ");
    (!here.is_empty()).then(|| format!("{name} {told}{more}"))
}

fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 of 2 GPUs is remote (distance 21)`.
fn remote(machine: &Machine, allocation: &Allocation, home: &NodeMask) -> Option<String> {
    if matches!(allocation.granted, Granted::Cpus(_)) {
        return None;
    }
    let away = allocation.per_node.iter().filter(|(node, units)| **units > 0 && !home.contains(lead(machine, **node)));
    let (nodes, units): (Vec<u32>, Vec<u64>) = away.map(|(&node, &units)| (node, units)).unzip();
    let far = |node: &u32| home.iter().filter_map(|from| machine.distance(from, *node)).min();
    let far: BTreeSet<u32> = nodes.iter().filter_map(far).collect();
    let far: Vec<String> = far.iter().map(u32::to_string).collect();
    let distance = if far.is_empty() { String::new() } else { format!(" (distance {})", listed(&far)) };
    (!nodes.is_empty()).then(|| format!("{} remote{distance}", some_are(allocation, units.iter().sum())))
}

/// `1 of 2 NICs is of unknown locality`.
fn unknown(allocation: &Allocation) -> Option<String> {
    (allocation.unknown > 0).then(|| format!("{} of unknown locality", some_are(allocation, allocation.unknown)))
}

/// `1 of 2 GPUs is`, `2G of 4G of memory is`, `the gpu is`.
fn some_are(allocation: &Allocation, units: u64) -> String {
    let name = &allocation.resource;
    let all = allocation.per_node.values().sum::<u64>() + allocation.unknown;
    let verb = if units == 1 || name == "memory" { "is" } else { "are" };
    let many = match &allocation.granted {
        Granted::Devices(grant) if grant.name.is_none() => format!("{all} {}", class::plural(&grant.class)),
        _ => resource::spoken(name, all),
    };
    match all {
        1 => format!("the {name} is"),
        _ => format!("{} of {many} {verb}", resource::number(name, units)),
    }
}
