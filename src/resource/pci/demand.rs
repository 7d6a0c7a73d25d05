//! What one request may choose from, and why it may not choose other devices.

use super::choose::{Candidate, DeviceState};
use super::class::{Class, FUNCTION, option};
use super::creation;
use crate::assume::{AssumedDevice, State};
use crate::request::DeviceRequest;
use crate::resource::prefer::Taste;
use crate::resource::{Device, Shortage, Situation, per_node_text};
use crate::topology::{Bdf, PciFunction};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Devices that are named one by one in a refusal.
const NAMED: usize = 4;

/// A request, and the devices that would serve it.
#[derive(Debug)]
pub struct Demand {
    /// The request.
    pub request: DeviceRequest,
    /// What it is called.
    pub label: String,
    /// Which of its devices go well together.
    pub taste: Taste,
    /// The program that is asked which of them to take.
    pub plugin: Option<PathBuf>,
    /// Devices that would serve it, ordered by node, then address.
    pub candidates: Vec<Candidate<Device>>,
    /// Devices that would serve it but for what they are used for.
    pub left_out: BTreeMap<Bdf, String>,
    /// Virtual functions that would serve it if they might be made.
    pub with_permission: u64,
}

impl Demand {
    /// The devices of its class that are like it.
    pub fn new(request: &DeviceRequest, class: Class<'_>, situation: &Situation<'_>) -> Demand {
        let mut found = Found { situation, candidates: BTreeMap::new(), left_out: BTreeMap::new() };
        let assumed = &situation.assume.device;
        let elsewhere = |function: &PciFunction| assumed.iter().any(|device| device.pci == function.bdf);
        let alike = |function: &PciFunction| request.like.matches(function, situation.machine);
        let known = situation.machine.pci.iter().filter(|function| !elsewhere(function));
        let known = known.filter(|function| class.holds(function, situation.machine) && alike(function));
        known.for_each(|function| found.known(function));
        let of_class = assumed.iter().filter(|device| device.class == class.name || class.name == FUNCTION.name);
        for device in of_class {
            let bare = || PciFunction { bdf: device.pci, ..PciFunction::default() };
            let function = situation.machine.pci(device.pci).cloned().unwrap_or_else(bare);
            if alike(&function) {
                found.assumed(device, &function);
            }
        }
        let outlook = creation::outlook(&class, situation, alike);
        outlook.functions.iter().for_each(|function| found.possible(function));
        found.left_out.extend(outlook.barred);
        let mut candidates: Vec<_> = found.candidates.into_values().collect();
        candidates.sort_by(|a, b| a.device.cmp(&b.device));
        Demand {
            request: request.clone(),
            label: request.label(),
            taste: class.taste(),
            plugin: class.plugin().map(Path::to_owned),
            candidates,
            left_out: found.left_out,
            with_permission: outlook.with_permission,
        }
    }

    /// How many devices.
    pub fn wanted(&self) -> usize {
        self.request.count as usize
    }

    /// Devices that can be had.
    pub fn free(&self) -> impl Iterator<Item = &Candidate<Device>> {
        self.candidates.iter().filter(|candidate| candidate.state == DeviceState::Free)
    }

    /// Too few for this request alone.
    pub fn shortage(&self) -> Option<Shortage> {
        let free = self.free().count();
        if free >= self.wanted() {
            return None;
        }
        let message = match self.request.class == FUNCTION.name {
            true => self.why_not(),
            false => format!("not enough {}: {} wanted, {}", self.label, self.wanted(), self.found()),
        };
        Some(Shortage { resource: self.label.clone(), wanted: self.wanted() as u64, free: free as u64, message })
    }

    fn found(&self) -> String {
        let class = &self.request.class;
        let like = match self.request.like.is_empty() {
            true => String::new(),
            false => format!(" with {}", self.request.like),
        };
        let mut places: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        self.free().for_each(|candidate| *places.entry(candidate.device.node).or_default() += 1);
        let found = match (self.candidates.len(), self.left_out.is_empty()) {
            (0, true) => format!("this machine has no {class}{like}"),
            (0, false) => format!("no {class}{like} can be had"),
            (total, _) => format!("{} free of {total}{like}{}", self.free().count(), per_node_text(&places)),
        };
        let more = match self.with_permission {
            0 => String::new(),
            count => format!(", and {count} could be made with --create-vfs"),
        };
        found + &self.besides() + &more
    }

    fn besides(&self) -> String {
        let named = self.left_out.iter().take(NAMED).map(|(bdf, reason)| format!("{bdf} {reason}"));
        let named: Vec<String> = named.collect();
        let more = if self.left_out.len() > NAMED { ", …" } else { "" };
        match self.left_out.len() {
            0 => String::new(),
            count => format!(", and {count} left out ({}{more})", named.join(", ")),
        }
    }

    /// The function that was named cannot be had.
    fn why_not(&self) -> String {
        let like = self.request.like.to_string();
        let name = like.split_once('=').map_or(like.as_str(), |(_, value)| value);
        if let Some((bdf, reason)) = self.left_out.iter().next() {
            return format!("{bdf} {reason}");
        }
        match self.candidates.first() {
            Some(candidate) => format!("{} is held by another launch", candidate.device.bdf),
            None => format!("{name} is no function that can be handed out: it does not exist or is a bridge"),
        }
    }

    /// The option that asks for so many.
    pub fn option(&self, count: u64) -> String {
        option(&self.request, count)
    }
}

/// Devices on the way to a demand.
struct Found<'a> {
    situation: &'a Situation<'a>,
    candidates: BTreeMap<Bdf, Candidate<Device>>,
    left_out: BTreeMap<Bdf, String>,
}

impl Found<'_> {
    fn known(&mut self, function: &PciFunction) {
        let Situation { config, machine, in_use, .. } = self.situation;
        let covered = config.protect.iter().any(|protected| protected.covers(function, machine));
        let protected = covered.then(|| "is protected by the configuration".to_owned());
        match protected.or_else(|| in_use.get(&function.bdf).cloned()) {
            Some(reason) => drop(self.left_out.insert(function.bdf, reason)),
            None => {
                let node = self.situation.stated_node(function.bdf).or(function.node);
                let device = Device { node, bdf: function.bdf, vendor: function.vendor, made_by: None };
                self.candidate(device, self.held(function));
            }
        }
    }

    /// It is where its physical function is.
    fn possible(&mut self, function: &PciFunction) {
        let stated = |bdf| self.situation.stated_node(bdf);
        let node = stated(function.bdf).or_else(|| stated(function.physical_function?)).or(function.node);
        let covered = self.situation.config.protect.iter().any(|it| it.covers(function, self.situation.machine));
        if !covered {
            let made_by = function.physical_function;
            self.candidate(Device { node, bdf: function.bdf, vendor: function.vendor, made_by }, false);
        }
    }

    fn assumed(&mut self, device: &AssumedDevice, function: &PciFunction) {
        let known = device.node.filter(|&node| self.situation.machine.node(node).is_some());
        let node = self.situation.stated_node(device.pci).or(known);
        let found = Device { node, bdf: device.pci, vendor: function.vendor, made_by: None };
        match device.state {
            State::Used => drop(self.left_out.insert(device.pci, "is assumed to be in use".to_owned())),
            state => self.candidate(found, state == State::Held || self.held(function)),
        }
    }

    /// A physical function goes with its virtual functions: who holds one of
    /// them needs it to stay as it is, and the other way round.
    fn held(&self, function: &PciFunction) -> bool {
        let held = &self.situation.holdings.devices;
        let parent = function.physical_function.is_some_and(|parent| held.contains(&parent));
        let child = |bdf: &Bdf| {
            self.situation.machine.pci(*bdf).is_some_and(|other| other.physical_function == Some(function.bdf))
        };
        held.contains(&function.bdf) || parent || held.iter().any(child)
    }

    fn candidate(&mut self, device: Device, held: bool) {
        // A node that does not exist is none.
        if self.situation.inside.is_some_and(|inside| !inside.devices.contains(&device.bdf)) {
            return;
        }
        let node = device.node.filter(|&node| self.situation.machine.node(node).is_some());
        let device = Device { node, ..device };
        let lead = device.node.and_then(|node| self.situation.machine.locality(node));
        let state = if held { DeviceState::Taken } else { DeviceState::Free };
        let candidate = Candidate { nodes: lead.map(|node| vec![node.into()]), state, device };
        self.candidates.insert(candidate.device.bdf, candidate);
    }
}
