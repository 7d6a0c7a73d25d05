//! Virtual functions that are not there, and that a class may have made.

use super::class::Class;
use crate::config::Config;
use crate::request::Request;
use crate::resource::{Grant, Granted, Situation};
use crate::topology::{Bdf, Machine, PciFunction};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Virtual functions that a launch needs to be made first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creation {
    /// The function that is to make them.
    pub physical_function: Bdf,
    /// Names of its network interfaces.
    pub interfaces: Vec<String>,
    /// Its node.
    pub node: Option<u32>,
    /// All that it would have then, in their order.
    pub virtual_functions: Vec<Bdf>,
    /// As many as the configuration wants, where that is more than it can have.
    pub configured: Option<u16>,
}

impl fmt::Display for Creation {
    /// `4 VFs on 0000:3b:00.0 (ens1f0), node 1`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.virtual_functions.len();
        write!(out, "{count} {} on {}", if count == 1 { "VF" } else { "VFs" }, self.physical_function)?;
        if !self.interfaces.is_empty() {
            write!(out, " ({})", self.interfaces.join(", "))?;
        }
        match self.node {
            Some(node) => write!(out, ", node {node}")?,
            None => out.write_str(", node unknown")?,
        }
        self.configured.map_or(Ok(()), |wanted| write!(out, " (of {wanted} configured, it can have no more)"))
    }
}

/// What a class could have made for a request.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    /// Virtual functions, as they would be.
    pub functions: Vec<PciFunction>,
    /// Physical functions that make none, and why not.
    pub barred: BTreeMap<Bdf, String>,
    /// How many more there could be if making them were allowed.
    pub with_permission: u64,
}

/// What a class could have made, of what `alike` wants.
pub fn outlook(class: &Class<'_>, situation: &Situation<'_>, alike: impl Fn(&PciFunction) -> bool) -> Outlook {
    let mut outlook = Outlook::default();
    let wanted = |function: &PciFunction| class.holds(function, situation.machine) && alike(function);
    for parent in &situation.machine.pci {
        let Some(number) = class.makes(parent) else { continue };
        if !wanted(&virtual_function(parent, 0)) {
            continue;
        }
        let allowed = number.configured.is_some() || situation.create_vfs;
        match (why_not(parent, number.count, situation), allowed) {
            (None, true) => outlook.functions.extend(virtual_functions(parent, number.count, situation)),
            (None, false) => outlook.with_permission += u64::from(number.count),
            (Some(Bar::Told(reason)), true) => {
                outlook.barred.insert(parent.bdf, format!("makes no virtual functions: {reason}"));
            }
            (Some(_), _) => {}
        }
    }
    outlook
}

/// Functions on which the classes of a request could have some made. Patterns
/// may go by interfaces, which move.
pub fn makers(request: &Request, config: &Config, machine: &Machine) -> BTreeSet<Bdf> {
    let classes = request.devices.iter().filter_map(|device| Class::named(&device.class, config));
    let classes: Vec<Class<'_>> = classes.collect();
    let could = |parent: &&PciFunction| {
        let none = parent.sriov.is_some_and(|sriov| sriov.made == 0);
        let holds = |class: &Class<'_>| class.has_patterns() || class.holds(&virtual_function(parent, 0), machine);
        none && classes.iter().any(|class| class.makes(parent).is_some() && holds(class))
    };
    machine.pci.iter().filter(could).map(|parent| parent.bdf).collect()
}

/// What keeps a function from making some.
enum Bar {
    /// Nothing that needs to be said: it has them.
    Done,
    /// This.
    Told(String),
}

fn why_not(parent: &PciFunction, count: u16, situation: &Situation<'_>) -> Option<Bar> {
    let sriov = parent.sriov?;
    if sriov.made > 0 && (sriov.made >= count || sriov.made == sriov.total) {
        return Some(Bar::Done);
    }
    let covered = || situation.config.protect.iter().any(|protected| protected.covers(parent, situation.machine));
    let reason = if sriov.made > 0 {
        format!("it has {}, and more can be made from none only", sriov.made)
    } else if sriov.total == 0 {
        "its firmware forbids them (sriov_totalvfs is 0)".to_owned()
    } else if sriov.offset == 0 || count > 1 && sriov.stride == 0 {
        "their addresses cannot be told beforehand (sriov_offset or sriov_stride is 0)".to_owned()
    } else if covered() {
        "it is protected by the configuration".to_owned()
    } else if situation.holdings.devices.contains(&parent.bdf) {
        "it is held by another launch".to_owned()
    } else {
        situation.no_vfs.get(&parent.bdf)?.clone()
    };
    Some(Bar::Told(reason))
}

/// The first so many that a function would have, but for those whose address is taken.
fn virtual_functions(parent: &PciFunction, count: u16, situation: &Situation<'_>) -> Vec<PciFunction> {
    let taken = |bdf: Bdf| {
        situation.machine.pci(bdf).is_some() || situation.assume.device.iter().any(|device| device.pci == bdf)
    };
    let functions = addresses(parent, count).into_iter().filter(|bdf| !taken(*bdf));
    functions.map(|bdf| PciFunction { bdf, ..virtual_function(parent, 0) }).collect()
}

/// One that a function would have. Its driver and interfaces are whatever comes.
fn virtual_function(parent: &PciFunction, index: u16) -> PciFunction {
    PciFunction {
        bdf: address(parent, index).unwrap_or_default(),
        class: parent.class,
        vendor: parent.vendor,
        device: parent.sriov.unwrap_or_default().device,
        node: parent.node,
        physical_function: Some(parent.bdf),
        above: parent.above.clone(),
        ..PciFunction::default()
    }
}

fn address(parent: &PciFunction, index: u16) -> Option<Bdf> {
    let sriov = parent.sriov?;
    parent.bdf.beyond(u32::from(sriov.offset) + u32::from(sriov.stride) * u32::from(index))
}

fn addresses(parent: &PciFunction, count: u16) -> Vec<Bdf> {
    (0..count).map_while(|index| address(parent, index)).collect()
}

/// What has to be made for all that is granted, by physical function.
pub fn creations<'a>(granted: impl IntoIterator<Item = &'a Granted>, situation: &Situation<'_>) -> Vec<Creation> {
    let mut creations: BTreeMap<Bdf, Creation> = BTreeMap::new();
    for granted in granted {
        let Granted::Devices(Grant { class, devices, .. }) = granted else { continue };
        let class = Class::named(class, situation.config);
        for device in devices {
            let parent = device.made_by.and_then(|parent| situation.machine.pci(parent));
            let Some((parent, number)) = parent.and_then(|parent| Some((parent, class?.makes(parent)?))) else {
                continue;
            };
            // Several classes may draw from one: it makes as many as the largest wants.
            let known = creations.entry(parent.bdf).or_default();
            if known.virtual_functions.len() < usize::from(number.count) {
                *known = Creation {
                    physical_function: parent.bdf,
                    interfaces: parent.interfaces.clone(),
                    node: device.node,
                    virtual_functions: addresses(parent, number.count),
                    configured: number.configured.filter(|wanted| *wanted > number.count),
                };
            }
        }
    }
    creations.into_values().collect()
}
