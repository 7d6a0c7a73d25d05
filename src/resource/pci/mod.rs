//! PCI devices: a row for each class, one provider for all of them.

pub mod choose;

use super::{Allocation, Device, Granted, HintProvider, Offer, Shortage, Situation, per_node_text};
use crate::assume::State;
use crate::topology::{NodeMask, PciFunction};
use choose::{Candidate, DeviceState};
use std::collections::BTreeMap;

/// A class of devices: one row of [`CLASSES`].
#[derive(Debug)]
pub struct Class {
    /// The word for it, on the command line and in plans.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Whether a function belongs to it by itself.
    pub holds: fn(&PciFunction) -> bool,
}

/// The classes that are built in.
pub const CLASSES: &[Class] = &[
    Class { name: "gpu", about: "GPUs of NVIDIA, AMD and Intel; no management graphics", holds: is_gpu },
    Class { name: "nic", about: "Network controllers; no virtual functions", holds: is_nic },
];

/// PCI vendor id of NVIDIA.
pub const NVIDIA: u16 = 0x10de;
/// PCI vendor id of AMD.
pub const AMD: u16 = 0x1002;
/// PCI vendor id of Intel.
pub const INTEL: u16 = 0x8086;

/// Class 0302, 0380 or 0300 of a vendor that makes GPUs; the console that the
/// firmware booted on counts only if its driver can render.
fn is_gpu(function: &PciFunction) -> bool {
    let vendor = [NVIDIA, AMD, INTEL].contains(&function.vendor);
    let console = function.boot_vga && !function.render_node;
    vendor && [0x0302, 0x0380, 0x0300].contains(&(function.class >> 8)) && !console
}

fn is_nic(function: &PciFunction) -> bool {
    function.class >> 16 == 0x02 && function.physical_function.is_none()
}

/// The row with this name.
pub fn class(name: &str) -> Option<&'static Class> {
    CLASSES.iter().find(|class| class.name == name)
}

/// Devices of one class, and how many of them are wanted.
#[derive(Debug)]
pub struct PciProvider {
    class: &'static Class,
    wanted: u32,
    /// The machine's nodes.
    nodes: NodeMask,
    /// Ordered by node, then address.
    candidates: Vec<Candidate<Device>>,
}

impl PciProvider {
    /// The devices of a class that there are.
    pub fn new(class: &'static Class, wanted: u32, situation: &Situation<'_>) -> PciProvider {
        let mut candidates: Vec<Candidate<Device>> = devices(class, situation).into_values().collect();
        candidates.sort_by(|a, b| a.device.cmp(&b.device));
        PciProvider { class, wanted, nodes: situation.machine.node_ids(), candidates }
    }

    fn free(&self) -> impl Iterator<Item = &Candidate<Device>> {
        self.candidates.iter().filter(|candidate| candidate.state == DeviceState::Free)
    }

    fn shortage(&self) -> Option<Shortage> {
        let (free, total) = (self.free().count(), self.candidates.len());
        if free >= self.wanted as usize {
            return None;
        }
        let mut places: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        self.free().for_each(|candidate| *places.entry(candidate.device.node).or_default() += 1);
        let name = self.class.name;
        let found = match total {
            0 => format!("this machine has no {name}"),
            _ => format!("{free} free of {total}{}", per_node_text(&places)),
        };
        let message = format!("not enough {name}: {} wanted, {found}", self.wanted);
        Some(Shortage { resource: name.to_owned(), wanted: self.wanted.into(), free: free as u64, message })
    }
}

/// The machine's functions of the class, and those that are taken for granted.
fn devices(class: &Class, situation: &Situation<'_>) -> BTreeMap<crate::topology::Bdf, Candidate<Device>> {
    // A function that the configuration puts into a class is in no other, so
    // that it is never handed out twice.
    let belongs = |function: &PciFunction| match situation.config.class_of(function.vendor, function.device) {
        Some(name) => name == class.name,
        None => (class.holds)(function),
    };
    let assumed = &situation.assume.device;
    let elsewhere = |function: &PciFunction| assumed.iter().any(|device| device.pci == function.bdf);
    let known = situation.machine.pci.iter().filter(|function| !elsewhere(function));
    let known = known.filter(|function| belongs(function)).map(|function| {
        let node = situation.stated_node(function.bdf).or(function.node);
        let held = situation.holdings.devices.contains(&function.bdf);
        candidate(Device { node, bdf: function.bdf, vendor: function.vendor }, held, situation)
    });
    let assumed = assumed.iter().filter(|device| device.class == class.name).map(|device| {
        let vendor = situation.machine.pci(device.pci).map_or(0, |function| function.vendor);
        let known = device.node.filter(|&node| situation.machine.node(node).is_some());
        let node = situation.stated_node(device.pci).or(known);
        candidate(Device { node, bdf: device.pci, vendor }, device.state == State::Held, situation)
    });
    known.chain(assumed).map(|candidate| (candidate.device.bdf, candidate)).collect()
}

fn candidate(mut device: Device, held: bool, situation: &Situation<'_>) -> Candidate<Device> {
    // A node that does not exist is none.
    device.node = device.node.filter(|&node| situation.machine.node(node).is_some());
    let lead = device.node.and_then(|node| situation.machine.locality(node));
    let state = if held { DeviceState::Taken } else { DeviceState::Free };
    Candidate { nodes: lead.map(|node| vec![node.into()]), state, device }
}

impl HintProvider for PciProvider {
    fn name(&self) -> &str {
        self.class.name
    }

    fn wanted(&self) -> u64 {
        self.wanted.into()
    }

    fn offer(&self) -> Result<Offer, Shortage> {
        self.shortage().map_or_else(|| Ok(choose::offer(&self.candidates, &self.nodes, self.wanted.into())), Err)
    }

    fn allocate(&self, affinity: Option<&NodeMask>) -> Result<Allocation, Shortage> {
        let choice = choose::choose(&self.candidates, affinity, self.wanted as usize, None);
        let devices = choice.map(|choice| choice.devices).unwrap_or_default();
        if devices.len() < self.wanted as usize {
            return Err(self.shortage().unwrap_or_else(|| Shortage::of(self.class.name, self.wanted.into(), 0)));
        }
        let mut per_node = BTreeMap::new();
        devices.iter().filter_map(|device| device.node).for_each(|node| *per_node.entry(node).or_default() += 1);
        let unknown = devices.iter().filter(|device| device.node.is_none()).count() as u64;
        let resource = self.class.name.to_owned();
        Ok(Allocation { resource, per_node, unknown, granted: Granted::Devices(devices) })
    }

    fn smaller(&self) -> Vec<u64> {
        let free = self.free().count() as u64;
        (1..=free.min(u64::from(self.wanted).saturating_sub(1))).rev().collect()
    }

    fn option(&self, units: u64) -> String {
        format!("--{} {units}", self.class.name)
    }
}
