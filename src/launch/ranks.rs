//! A rank that is started inside of a lease and asks for nothing gets its part of it.

use crate::assume::Holdings;
use crate::lease::{Lease, Ledger, LedgerError, Life, nest};
use crate::observe::Observed;
use crate::plan::divide::Whole;
use crate::request::{
    CpuChoice, CpuRequest, DeviceRequest, HugepageRequest, ListSpec, MemoryRequest, PageAmount, PageSize, Request,
};
use crate::resource::cpu::{CpuOptions, SmtMode};
use crate::resource::pci::class;
use crate::resource::{Allocation, Device, Grant, Granted};
use crate::topology::{Bdf, CpuSet, Machine};
use std::collections::BTreeMap;

/// One of the ranks on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    number: u32,
    of: u32,
}

/// Where starters of ranks say which one it is, and how many there are on this host.
const VARIABLES: [(&str, &str); 6] = [
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
];

impl Rank {
    /// The rank that these variables name; none where they do not fit together.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Rank> {
        let number = |name: &str| variable(name)?.parse::<u32>().ok();
        let known = |(rank, size): &(&str, &str)| Some(Rank { number: number(rank)?, of: number(size)? });
        VARIABLES.iter().find_map(known).filter(|rank| rank.number < rank.of)
    }
}

/// What the rank is to have: a request for all of its part, and the part. None
/// outside of a lease.
///
/// # Errors
/// The ledger cannot be read.
pub fn part(
    rank: Rank,
    request: &Request,
    observed: &Observed,
    ledger: &Ledger,
) -> Result<Option<(Request, Holdings)>, LedgerError> {
    let entries = ledger.entries()?;
    let live = entries.into_iter().filter(|entry| entry.life == Life::Alive).filter_map(|entry| entry.lease.ok());
    let live: Vec<Lease> = live.collect();
    let Some(parent) = nest::parent(ledger, &live) else { return Ok(None) };
    let granted = granted(&parent.holdings(), &observed.machine);
    let whole = Whole {
        machine: &observed.machine,
        config: &observed.config,
        options: CpuOptions::default(),
        granted: &granted,
    };
    let part = whole.part(rank.number, rank.of);
    let asked = asked(request, &part);
    Ok(asked.holds().then(|| (asked, Holdings::default().with(&part))))
}

/// What a lease holds, as it was granted.
fn granted(held: &Holdings, machine: &Machine) -> Vec<Allocation> {
    let mut granted = Vec::new();
    if !held.cpus.is_empty() {
        granted.push(cpus(&held.cpus, machine));
    }
    if !held.memory.is_empty() {
        let per_node = held.memory.clone();
        let mib = per_node.values().sum();
        granted.push(Allocation { resource: "memory".into(), per_node, unknown: 0, granted: Granted::Mib(mib) });
    }
    let mut pages: BTreeMap<u64, BTreeMap<u32, u64>> = BTreeMap::new();
    held.pages.iter().for_each(|(&(kib, node), &count)| _ = pages.entry(kib).or_default().insert(node, count));
    for (kib, per_node) in pages {
        let (size, count) = (PageSize::from_kib(kib), per_node.values().sum());
        let granted_pages = Granted::Pages { size, count };
        let resource = format!("hugepages-{size}");
        granted.push(Allocation { resource, per_node, unknown: 0, granted: granted_pages });
    }
    granted.extend(devices(&held.devices, machine));
    granted
}

fn cpus(cpus: &CpuSet, machine: &Machine) -> Allocation {
    let mut allocation =
        Allocation { resource: "cpu".into(), granted: Granted::Cpus(cpus.clone()), ..Allocation::default() };
    for cpu in machine.cpus.iter().filter(|cpu| cpus.contains(cpu.id)) {
        match cpu.node {
            Some(node) => *allocation.per_node.entry(node).or_default() += 1,
            None => allocation.unknown += 1,
        }
    }
    allocation
}

fn devices<'a>(held: impl IntoIterator<Item = &'a Bdf>, machine: &Machine) -> impl Iterator<Item = Allocation> {
    let mut by_class: BTreeMap<&'static str, Vec<Device>> = BTreeMap::new();
    for function in held.into_iter().filter_map(|&bdf| machine.pci(bdf)) {
        let Some(row) = class::of(function) else { continue };
        let device = Device { node: function.node, bdf: function.bdf, vendor: function.vendor, made_by: None };
        by_class.entry(row.name).or_default().push(device);
    }
    by_class.into_iter().map(|(class, devices)| {
        let mut per_node = BTreeMap::new();
        devices.iter().filter_map(|device| device.node).for_each(|node| *per_node.entry(node).or_default() += 1);
        let unknown = devices.iter().filter(|device| device.node.is_none()).count() as u64;
        let grant = Grant { class: class.to_owned(), devices, ..Grant::default() };
        Allocation { resource: class.to_owned(), per_node, unknown, granted: Granted::Devices(grant) }
    })
}

/// The request that takes all of a part.
fn asked(request: &Request, part: &[Allocation]) -> Request {
    let mut asked = request.clone();
    for allocation in part {
        match &allocation.granted {
            Granted::Cpus(cpus) if !cpus.is_empty() => {
                // Ranks of one lease may well share a core.
                let choice = CpuChoice::List(ListSpec::Ids(cpus.clone()));
                asked.cpus =
                    Some(CpuRequest { choice, options: CpuOptions::default(), smt: SmtMode::Share, kind: None });
            }
            Granted::Mib(mib) if *mib > 0 => {
                let nodes = Some(ListSpec::Ids(allocation.nodes()));
                asked.memory = Some(MemoryRequest { mib: Some(*mib), nodes, kind: None });
            }
            Granted::Pages { size, count } if *count > 0 => {
                asked.hugepages.push(HugepageRequest { size: *size, amount: PageAmount::Pages(*count) });
            }
            Granted::Devices(grant) if !grant.devices.is_empty() => {
                asked.devices.push(DeviceRequest::of(&grant.class, grant.devices.len() as u32));
            }
            _ => {}
        }
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_one_of_those_on_this_host_or_none() {
        let of = |variables: &[(&str, &str)]| {
            Rank::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")]), Some(Rank { number: 1, of: 4 }));
        let slurm = [("SLURM_LOCALID", "0"), ("SLURM_NTASKS_PER_NODE", "2")];
        assert_eq!(of(&slurm), Some(Rank { number: 0, of: 2 }));
        assert_eq!(of(&[("LOCAL_RANK", "4"), ("LOCAL_WORLD_SIZE", "4")]), None);
        assert_eq!(of(&[("LOCAL_RANK", "1")]), None);
        assert_eq!(of(&[]), None);
    }
}
