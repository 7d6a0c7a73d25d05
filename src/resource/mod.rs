//! Kinds of resources, one file each: how much a set of nodes holds, and how
//! to take some.

pub mod cpu;
pub mod hugepage;
pub mod memory;
pub mod pci;
pub mod prefer;
pub mod store;

use crate::assume::{Assume, Holdings};
use crate::config::Config;
use crate::hint::relative::{self, Rating};
use crate::hint::{Amount, Capacity, kubelet};
use crate::request::{CpuChoice, CpuRequest, DeviceRequest, Mib, PageAmount, PageSize, Request, VfSettings};
use crate::topology::{Bdf, CpuSet, Machine, NodeMask};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Everything that providers look at besides the request's own line: data, read beforehand.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The configuration.
    pub config: &'a Config,
    /// What is taken for granted.
    pub assume: &'a Assume,
    /// What other launches hold.
    pub holdings: &'a Holdings,
    /// CPUs that launches may have for themselves here, reserved ones taken off.
    pub pool: CpuSet,
    /// CPUs of the shared pool, before what is held comes off.
    pub shared: CpuSet,
    /// Nodes that the caller's cpuset allows memory on; none: all.
    pub memory_nodes: Option<NodeMask>,
    /// Nodes that the user states for devices.
    pub stated: BTreeMap<Bdf, u32>,
    /// Devices that cannot be had, and why.
    pub in_use: &'a BTreeMap<Bdf, String>,
    /// A lease that is divided, or taken again: nothing outside of it is there.
    pub inside: Option<&'a Holdings>,
    /// True where the user allows virtual functions to be made.
    pub create_vfs: bool,
    /// Functions on which none are to be made, and why.
    pub no_vfs: &'a BTreeMap<Bdf, String>,
    /// What plugins have answered.
    pub answers: &'a prefer::Answers,
}

impl Situation<'_> {
    /// What is left of a node's memory (MiB), or of its pages of a size, inside
    /// the lease that is divided, if one is.
    pub fn cut(&self, units: u64, inside: impl Fn(&Holdings) -> Option<u64>) -> u64 {
        self.inside.map_or(units, |holdings| units.min(inside(holdings).unwrap_or(0)))
    }

    /// The node that the user or the configuration states for a device.
    pub fn stated_node(&self, bdf: Bdf) -> Option<u32> {
        self.stated.get(&bdf).or_else(|| self.config.device_node.get(&bdf)).copied()
    }
}

/// The kinds of resources that a request asks for, in the order in which they are served.
pub fn providers(request: &Request, situation: &Situation<'_>) -> Vec<Box<dyn HintProvider>> {
    let mut providers: Vec<Box<dyn HintProvider>> = Vec::new();
    for devices in pci::providers(&request.devices, situation) {
        providers.push(Box::new(devices));
    }
    if let Some(cpus) = &request.cpus {
        providers.push(Box::new(cpu::CpuProvider::new(cpus, situation)));
    }
    for pages in &request.hugepages {
        providers.push(Box::new(hugepage::HugepageProvider::new(pages, request.memory.as_ref(), situation)));
    }
    if let Some((memory, mib)) = request.memory.as_ref().and_then(|memory| Some((memory, memory.mib?))) {
        providers.push(Box::new(memory::MemoryProvider::new(mib, memory, situation)));
    }
    providers
}

/// What a kind of resource has to say about one request.
pub trait HintProvider {
    /// Its name in plans and refusals, such as `cpu` or `gpu`.
    fn name(&self) -> &str;

    /// Units asked for: CPUs, MiB, devices.
    fn wanted(&self) -> u64;

    /// Which nodes could serve the request.
    ///
    /// # Errors
    /// There is not enough anywhere: no policy can admit it.
    fn offer(&self) -> Result<Offer, Shortage>;

    /// The amount, for kinds of memory: those that are asked for together are
    /// hinted together.
    fn together(&self) -> Option<Amount> {
        None
    }

    /// Takes what was asked for, from these nodes as far as they hold it, then
    /// from elsewhere; none: from anywhere, lowest ids first. Kinds of memory
    /// are asked with a mask that holds them all.
    fn allocate(&self, affinity: Option<&NodeMask>) -> Result<Allocation, Shortage>;

    /// The request by numbers, for a merge that places all resources together.
    fn counts(&self) -> Counts;

    /// Takes so many units from each locality, and the rest from where it is
    /// unknown; an error where that cannot be had exactly.
    ///
    /// # Errors
    /// The numbers do not fit, such as half a core where cores are whole.
    fn allocate_on(&self, units: &Units) -> Result<Allocation, Shortage>;

    /// Rates numbers by what would be taken, for kinds of which some things go
    /// better together than others; one answer for all requests of the kind.
    /// None where it makes no difference.
    fn preference(&self) -> Option<Preference<'_>> {
        None
    }

    /// Amounts below `wanted` that are worth trying when the request is refused, best first.
    fn smaller(&self) -> Vec<u64>;

    /// The option that asks for so many units.
    fn option(&self, units: u64) -> String;

    /// What would have served but for another use, one sentence each.
    fn left_out(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The request with another amount of one resource.
pub fn resized(request: &Request, resource: &str, units: u64) -> Option<Request> {
    let mut less = request.clone();
    if let Some(device) = less.devices.iter_mut().find(|device| device.label() == resource) {
        device.count = u32::try_from(units).ok()?;
        return Some(less);
    }
    let named = |size: PageSize| resource.strip_prefix("hugepages-") == Some(&size.to_string());
    if let Some(pages) = less.hugepages.iter_mut().find(|pages| named(pages.size)) {
        pages.amount = PageAmount::Pages(units);
        return Some(less);
    }
    match (resource, &mut less.cpus, &mut less.memory) {
        ("cpu", Some(CpuRequest { choice: CpuChoice::Count(count, _), .. }), _) => {
            *count = u32::try_from(units).ok()?
        }
        ("memory", _, Some(memory)) => memory.mib = Some(units),
        _ => return None,
    }
    Some(less)
}

/// Amounts at which an answer may change: what each node has, what the freest
/// two have, and so on; and the next few below what was wanted. Largest first.
pub fn amounts_worth_trying(free: impl IntoIterator<Item = u64>, wanted: u64) -> Vec<u64> {
    let mut free: Vec<u64> = free.into_iter().collect();
    free.sort_unstable_by(|a, b| b.cmp(a));
    let sums = free.iter().scan(0, |sum, free| {
        *sum += free;
        Some(*sum)
    });
    let near = (1..=64).map_while(|less| wanted.checked_sub(less));
    let mut amounts: Vec<u64> = free.iter().copied().chain(sums).chain(near).chain([1]).collect();
    amounts.retain(|&amount| amount > 0 && amount < wanted);
    amounts.sort_unstable_by(|a, b| b.cmp(a));
    amounts.dedup();
    amounts
}

/// Units by resource and locality: what each provider is to take. Each looks up
/// its own, and may look at those of others that draw from the same things.
pub type Units = BTreeMap<String, BTreeMap<u32, u64>>;

/// How well what is taken by these numbers goes together; none where it would
/// take too long to find out.
pub type Preference<'a> = Box<dyn Fn(&Units) -> Option<Rating> + 'a>;

/// A request by numbers. Units are CPUs, or cores where only whole ones are
/// handed out; devices; pages; MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What kind of thing it is.
    pub kind: relative::Kind,
    /// Units to place.
    pub units: u64,
    /// Further units that only what is of unknown locality can give.
    pub unknown: u64,
    /// Units free by locality.
    pub free: BTreeMap<u32, u64>,
    /// Units by locality with everything allocatable free.
    pub total: BTreeMap<u32, u64>,
}

impl Counts {
    /// The numbers of an amount; units beyond what known localities have free
    /// are of unknown locality.
    pub fn of(kind: relative::Kind, amount: &Amount) -> Counts {
        let mut counts = Counts { kind, ..Counts::default() };
        for supply in &amount.supply {
            if let Some(node) = supply.nodes.first() {
                *counts.free.entry(node).or_default() += supply.free;
                *counts.total.entry(node).or_default() += supply.total;
            }
        }
        counts.units = amount.wanted.min(counts.free.values().sum());
        counts.unknown = amount.wanted - counts.units;
        counts
    }
}

/// Device classes that are not asked for: what is free of them by locality. A
/// placement that needs none of them keeps off their nodes.
pub fn unasked(request: &Request, situation: &Situation<'_>) -> Vec<BTreeMap<u32, u64>> {
    let asked = |name: &&str| request.devices.iter().any(|device| device.class == *name);
    let others: Vec<DeviceRequest> = pci::class::names(situation.config)
        .into_iter()
        .filter(|name| !asked(name))
        .map(|name| DeviceRequest::of(name, 0))
        .collect();
    pci::providers(&others, situation).iter().map(|provider| provider.counts().free).collect()
}

/// One of the three answers of a provider; the fourth, that it is impossible, is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It has no opinion.
    NoPreference,
    /// No nodes could serve it, which does not stop others from being placed.
    CannotBeMet,
    /// These nodes, by what they hold.
    Capacity(Capacity),
}

impl From<&Offer> for kubelet::Offer {
    fn from(offer: &Offer) -> kubelet::Offer {
        match offer {
            Offer::NoPreference => kubelet::Offer::NoPreference,
            Offer::CannotBeMet => kubelet::Offer::CannotBeMet,
            Offer::Capacity(capacity) => kubelet::Offer::Capacity(capacity.clone()),
        }
    }
}

/// There is not enough of something, wherever it is taken from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Shortage {
    /// The resource.
    pub resource: String,
    /// Units wanted.
    pub wanted: u64,
    /// Units free.
    pub free: u64,
    /// What was wanted and what was found, as a sentence.
    pub message: String,
}

impl Shortage {
    /// The plain sentence for it.
    pub fn of(resource: &str, wanted: u64, free: u64) -> Shortage {
        let message = format!("not enough {resource}: {wanted} wanted, {free} free");
        Shortage { resource: resource.to_owned(), wanted, free, message }
    }
}

/// An amount of a resource in words: `1 CPU`, `4 CPUs`, `512M of memory`, `2 gpu`.
pub fn spoken(resource: &str, units: u64) -> String {
    match (resource, units) {
        ("cpu", 1) => "1 CPU".to_owned(),
        ("cpu", _) => format!("{units} CPUs"),
        ("memory", _) => format!("{} of memory", Mib(units)),
        (pages, _) if pages.starts_with("hugepages-") => {
            format!("{units} hugepages of {}", pages.trim_start_matches("hugepages-"))
        }
        _ => format!("{units} {resource}"),
    }
}

/// The number alone: `4`, `512M`.
pub fn number(resource: &str, units: u64) -> String {
    if resource == "memory" { Mib(units).to_string() } else { units.to_string() }
}

/// `: node 0: 2, node 1: 1, node unknown: 1`; nothing where there is nothing.
pub fn per_node_text<T: Display>(places: &BTreeMap<Option<u32>, T>) -> String {
    let known = places.iter().filter_map(|(node, units)| Some(format!("node {}: {units}", (*node)?)));
    let unknown = places.get(&None).map(|units| format!("node unknown: {units}"));
    let parts: Vec<String> = known.chain(unknown).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// What was taken for one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Name of the resource.
    pub resource: String,
    /// Units by node.
    pub per_node: BTreeMap<u32, u64>,
    /// Units whose node is unknown.
    pub unknown: u64,
    /// The things themselves.
    pub granted: Granted,
}

/// The things of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    /// CPUs for the workload alone.
    Cpus(CpuSet),
    /// MiB of memory.
    Mib(u64),
    /// Hugepages of one size.
    Pages {
        /// Size of a page.
        size: PageSize,
        /// How many.
        count: u64,
    },
    /// Devices.
    Devices(Grant),
}

/// Devices that are granted to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Name of their class.
    pub class: String,
    /// The user's name for them.
    pub name: Option<String>,
    /// The devices, in the order of choice.
    pub devices: Vec<Device>,
    /// How they are to be set up.
    pub settings: VfSettings,
    /// What the preference changed.
    pub advice: Option<prefer::Advice>,
    /// What the plugin of their class is to be asked: with the answer, other
    /// devices may be chosen.
    pub question: Option<Box<prefer::Question>>,
    /// What was wrong with its answer.
    pub warning: Option<String>,
}

impl Default for Granted {
    fn default() -> Granted {
        Granted::Mib(0)
    }
}

/// A device that can be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its node; none when the locality is unknown.
    pub node: Option<u32>,
    /// Its address.
    pub bdf: Bdf,
    /// PCI vendor id; 0 for one that is only assumed.
    pub vendor: u16,
    /// For a virtual function that is not there yet: the function that has to make it.
    pub made_by: Option<Bdf>,
}

/// By node, what is there before what has to be made, then by address; what is
/// of unknown locality comes last.
impl Ord for Device {
    fn cmp(&self, other: &Device) -> Ordering {
        let key = |device: &Device| {
            (device.node.is_none(), device.node, device.made_by.is_some(), device.bdf, device.vendor, device.made_by)
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Device {
    fn partial_cmp(&self, other: &Device) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Allocation {
    /// Nodes that something was taken from.
    pub fn nodes(&self) -> NodeMask {
        self.per_node.iter().filter(|&(_, &units)| units > 0).map(|(&node, _)| node).collect()
    }
}
