//! PCI devices: a row for each class, one provider for all of them.

pub mod choose;
pub mod class;
pub mod creation;
pub mod demand;
pub mod field;
mod gpu;
mod preferred;

use super::prefer::{Nearness, Taste};
use super::{Allocation, Counts, Grant, Granted, HintProvider, Offer, Preference, Shortage, Situation, Units};
use crate::config::Config;
use crate::hint::relative::Kind;
use crate::hint::{Amount, Supply};
use crate::request::{DeviceRequest, Request};
use crate::topology::{Bdf, Machine, NodeMask};
use choose::DeviceState;
use class::Class;
use demand::Demand;
use field::{Chosen, Field, Wish};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The devices of one request; it knows of the others, for they may want the same ones.
#[derive(Debug)]
pub struct PciProvider {
    field: Rc<Field>,
    at: usize,
}

/// A provider for each request whose class there is.
pub fn providers(requests: &[DeviceRequest], situation: &Situation<'_>) -> Vec<PciProvider> {
    let demand = |request: &DeviceRequest| {
        Some(Demand::new(request, Class::named(&request.class, situation.config)?, situation))
    };
    let demands: Vec<Demand> = requests.iter().filter_map(demand).collect();
    let count = demands.len();
    // A machine's list of devices is not gone through where none are asked for.
    let wanted = demands.iter().any(|demand| demand.wanted() > 0);
    let mut nearness = if wanted { Nearness::of(situation.machine) } else { Nearness::default() };
    for device in demands.iter().flat_map(|demand| &demand.candidates).map(|candidate| &candidate.device) {
        device.made_by.into_iter().for_each(|parent| nearness.add(device.bdf, parent, situation.machine));
    }
    let field =
        Rc::new(Field { demands, nodes: situation.machine.node_ids(), nearness, answers: situation.answers.clone() });
    (0..count).map(|at| PciProvider { field: Rc::clone(&field), at }).collect()
}

/// A class that is asked for and that there is not, in words.
pub fn unknown_class(request: &Request, config: &Config) -> Option<(String, String)> {
    let unknown = request.devices.iter().find(|device| Class::named(&device.class, config).is_none())?;
    let message =
        format!("--device {}: there is no such class (there are {})", unknown.class, class::names(config).join(", "));
    Some((unknown.label(), message))
}

/// True for devices among which links besides PCIe make a difference.
pub fn may_be_linked(request: &Request, config: &Config) -> bool {
    let class = |device: &DeviceRequest| Some(Class::named(&device.class, config)?.taste());
    request.devices.iter().any(|device| class(device) == Some(Taste::Switched))
}

/// The functions that a request may get, and those that they hang on. Drivers
/// and interfaces may have changed since the machine was read: a class that
/// goes by them may hold any function.
pub fn concerned(request: &Request, config: &Config, machine: &Machine) -> BTreeSet<Bdf> {
    let classes: Vec<Class<'_>> =
        request.devices.iter().filter_map(|device| Class::named(&device.class, config)).collect();
    let held = machine
        .pci
        .iter()
        .filter(|function| classes.iter().any(|class| class.has_patterns() || class.holds(function, machine)));
    held.flat_map(|function| [Some(function.bdf), function.physical_function]).flatten().collect()
}

impl PciProvider {
    fn demand(&self) -> &Demand {
        &self.field.demands[self.at]
    }

    /// What all requests wish for by these numbers.
    fn wishes(&self, units: &Units) -> Vec<Wish> {
        let wish = |demand: &Demand| Wish::Counts(units.get(&demand.label).cloned().unwrap_or_default());
        self.field.demands.iter().map(wish).collect()
    }

    /// What was asked for from where it is wished; `wishes` are those of all requests.
    ///
    /// # Errors
    /// The requests together want more than there is.
    pub fn allocate_as(&self, wishes: &[Wish]) -> Result<Allocation, Shortage> {
        let Chosen { devices, advice, question, warning } = self.field.chosen(wishes)?.swap_remove(self.at);
        let mut per_node = BTreeMap::new();
        devices.iter().filter_map(|device| device.node).for_each(|node| *per_node.entry(node).or_default() += 1);
        let unknown = devices.iter().filter(|device| device.node.is_none()).count() as u64;
        let DeviceRequest { class, name, settings, .. } = self.demand().request.clone();
        let granted = Granted::Devices(Grant { class, name, devices, settings, advice, question, warning });
        Ok(Allocation { resource: self.demand().label.clone(), per_node, unknown, granted })
    }
}

impl HintProvider for PciProvider {
    fn name(&self) -> &str {
        &self.demand().label
    }

    fn wanted(&self) -> u64 {
        self.demand().wanted() as u64
    }

    fn offer(&self) -> Result<Offer, Shortage> {
        self.field.shortage(self.at).map_or_else(|| Ok(self.field.offer(self.at)), Err)
    }

    fn allocate(&self, affinity: Option<&NodeMask>) -> Result<Allocation, Shortage> {
        self.allocate_as(&vec![Wish::Mask(affinity.cloned()); self.field.demands.len()])
    }

    fn counts(&self) -> Counts {
        let supply = self.demand().candidates.iter().map(|candidate| Supply {
            nodes: candidate.lead().into_iter().collect(),
            free: u64::from(candidate.state == DeviceState::Free),
            total: 1,
        });
        Counts::of(Kind::Devices, &Amount { wanted: self.wanted(), supply: supply.collect() })
    }

    fn allocate_on(&self, units: &Units) -> Result<Allocation, Shortage> {
        self.allocate_as(&self.wishes(units))
    }

    fn preference(&self) -> Option<Preference<'_>> {
        let rater = self.field.rater()?;
        Some(Box::new(move |units| self.field.rating(&rater, &self.wishes(units))))
    }

    fn smaller(&self) -> Vec<u64> {
        let free = self.demand().free().count() as u64;
        (1..=free.min(self.wanted().saturating_sub(1))).rev().collect()
    }

    fn option(&self, units: u64) -> String {
        self.demand().option(units)
    }

    fn left_out(&self) -> Vec<String> {
        let class = &self.demand().request.class;
        self.demand().left_out.iter().map(|(bdf, reason)| format!("{class} {bdf} {reason}")).collect()
    }
}
