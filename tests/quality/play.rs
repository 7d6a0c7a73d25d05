//! Plays launches and ends on a machine until something is refused.

use super::stream::Launch;
use super::yardstick::Quality;
use numa_run::assume::{Assume, Holdings};
use numa_run::config::Config;
use numa_run::plan::{Facts, Plan, Surroundings, plan};
use numa_run::request::{Merge, Request};
use numa_run::resource::prefer::Answers;
use numa_run::resource::{Allocation, Granted};
use numa_run::topology::{Bdf, CpuSet, Machine};
use std::collections::BTreeSet;

/// What came of a stream.
#[derive(Debug, Default)]
pub struct Run {
    /// Of each launch that was admitted, in their order.
    pub admitted: Vec<Quality>,
    /// What was held when the next one was refused.
    pub holdings: Holdings,
    /// Plans of which it is not known that no better one exists.
    pub unproven: usize,
}

impl Run {
    /// The launches of a stream before the first one that is refused.
    pub fn of(machine: &Machine, launches: &[Launch], merge: Merge) -> Run {
        let mut run = Run::default();
        let mut living: Vec<(usize, Vec<Allocation>)> = Vec::new();
        for (turn, launch) in launches.iter().enumerate() {
            let ended = living.extract_if(.., |(end, _)| *end <= turn);
            ended
                .flat_map(|(_, allocations)| allocations)
                .for_each(|allocation| give_back(&mut run.holdings, &allocation));
            let plan = decide(machine, &run.holdings, &launch.request, merge);
            run.unproven += usize::from(!plan.proven);
            if !plan.admitted {
                break;
            }
            run.admitted.push(Quality::of(machine, &plan.allocations));
            plan.allocations.iter().for_each(|allocation| take(&mut run.holdings, allocation));
            living.push((launch.end, plan.allocations));
        }
        run
    }
}

/// The plan for a request where this is held.
pub fn decide(machine: &Machine, holdings: &Holdings, request: &Request, merge: Merge) -> Plan {
    let request = Request { merge, ..request.clone() };
    let (config, assume, surroundings) = (Config::default(), Assume::default(), Surroundings::default());
    plan(
        &request,
        &Facts {
            machine,
            config: &config,
            assume: &assume,
            holdings,
            surroundings: &surroundings,
            answers: &Answers::default(),
        },
    )
}

/// Adds what a launch was given to what is held.
pub fn take(holdings: &mut Holdings, allocation: &Allocation) {
    holdings.cpus = holdings.cpus.or(&cpus(allocation));
    holdings.devices.extend(devices(allocation));
    amounts(holdings, allocation, |held, units| held + units);
}

/// Takes it off again.
pub fn give_back(holdings: &mut Holdings, allocation: &Allocation) {
    holdings.cpus = holdings.cpus.minus(&cpus(allocation));
    holdings.devices = &holdings.devices - &devices(allocation);
    amounts(holdings, allocation, |held, units| held - units);
}

fn cpus(allocation: &Allocation) -> CpuSet {
    match &allocation.granted {
        Granted::Cpus(cpus) => cpus.clone(),
        _ => CpuSet::new(),
    }
}

fn devices(allocation: &Allocation) -> BTreeSet<Bdf> {
    match &allocation.granted {
        Granted::Devices(grant) => grant.devices.iter().map(|device| device.bdf).collect(),
        _ => BTreeSet::new(),
    }
}

fn amounts(holdings: &mut Holdings, allocation: &Allocation, change: impl Fn(u64, u64) -> u64) {
    for (&node, &units) in &allocation.per_node {
        let held = match &allocation.granted {
            Granted::Mib(_) => holdings.memory.entry(node).or_default(),
            Granted::Pages { size, .. } => holdings.pages.entry((size.kib(), node)).or_default(),
            Granted::Cpus(_) | Granted::Devices(_) => continue,
        };
        *held = change(*held, units);
    }
}
