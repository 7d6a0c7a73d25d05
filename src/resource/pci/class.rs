//! Classes of devices: a row for each built-in one, and those of the configuration.

use super::gpu;
use crate::config::{ClassConfig, Config, Handling, Placing};
use crate::request::{DeviceRequest, Settable};
use crate::resource::Device;
use crate::resource::prefer::Taste;
use crate::topology::{Bdf, Machine, PciFunction};
use std::collections::BTreeMap;
use std::path::Path;

/// A built-in class.
#[derive(Debug)]
pub struct Row {
    /// The word for it, on the command line and in plans.
    pub name: &'static str,
    /// The word for several in sentences; empty: the name.
    pub many: &'static str,
    /// One line of help; none for what has no option of its own.
    pub about: Option<&'static str>,
    /// Whether a function belongs to it by itself.
    pub holds: fn(&PciFunction) -> bool,
    /// What becomes of its devices' driver.
    pub handling: Handling,
    /// Which of its devices go well together.
    pub taste: Taste,
    /// What a request may say.
    pub settable: Settable,
    /// What the runtimes of such devices are told, whichever class they were asked for as.
    pub variables: fn(&[&Device], &Told<'_>) -> Variables,
}

/// Names and values.
pub type Variables = Vec<(String, String)>;

/// What there is to tell a runtime.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Names by which runtimes know devices, where a driver tells.
    pub uuids: &'a BTreeMap<Bdf, String>,
}

const ROW: Row = Row {
    name: "",
    many: "",
    about: None,
    holds: |_| false,
    handling: Handling::Native,
    taste: Taste::Plain,
    settable: Settable::Nothing,
    variables: |_, _| Vec::new(),
};

/// The classes that are built in.
pub const CLASSES: &[Row] = &[
    Row {
        name: "gpu",
        many: "GPUs",
        about: Some("GPUs of NVIDIA, AMD and Intel; no management graphics"),
        holds: gpu::is_gpu,
        taste: Taste::Switched,
        variables: gpu::variables,
        ..ROW
    },
    Row { name: "nic", many: "NICs", about: Some("Network controllers; no virtual functions"), holds: is_nic, ..ROW },
    Row {
        name: "vf",
        many: "VFs",
        about: Some("Virtual functions of network controllers; also vlan, mac, trust, spoofchk, rate"),
        holds: is_vf,
        handling: Handling::Vfio,
        taste: Taste::Packed,
        settable: Settable::VirtualFunctions,
        ..ROW
    },
    Row {
        name: "nvme",
        many: "NVMe disks",
        about: Some("NVMe disks, whole controllers"),
        holds: |f| f.class >> 8 == 0x0108,
        ..ROW
    },
];

/// Any function that can be handed out, for those that are named by address.
pub const FUNCTION: Row = Row { name: "pci", holds: |function| function.class >> 16 != BRIDGE, ..ROW };

const BRIDGE: u32 = 0x06;
const NETWORK: u32 = 0x02;

fn is_nic(function: &PciFunction) -> bool {
    function.class >> 16 == NETWORK && function.physical_function.is_none()
}

fn is_vf(function: &PciFunction) -> bool {
    function.class >> 16 == NETWORK && function.physical_function.is_some()
}

/// A class as it is on this host: its row, and what the configuration says of it.
#[derive(Clone, Copy, Debug)]
pub struct Class<'a> {
    /// The word for it.
    pub name: &'a str,
    row: &'static Row,
    config: &'a Config,
}

impl<'a> Class<'a> {
    /// The class with this name, if there is one.
    pub fn named(name: &'a str, config: &'a Config) -> Option<Class<'a>> {
        let built_in = CLASSES.iter().chain([&FUNCTION]).find(|row| row.name == name);
        let row = built_in.or(config.class.get(name).map(|_| &ROW))?;
        Some(Class { name, row, config })
    }

    /// True for a function that belongs to it. Those that the configuration
    /// lists for a class belong to that one alone; any can be named by address.
    pub fn holds(&self, function: &PciFunction, machine: &Machine) -> bool {
        let listed = self.config.class_of(function.vendor, function.device);
        match listed.filter(|_| self.name != FUNCTION.name) {
            Some(class) => class == self.name,
            None => (self.row.holds)(function) || self.is_like(function, machine),
        }
    }

    fn is_like(&self, function: &PciFunction, machine: &Machine) -> bool {
        self.own().is_some_and(|class| class.like.iter().any(|pattern| pattern.matches(function, machine)))
    }

    /// True where the configuration adds what is like something.
    pub fn has_patterns(&self) -> bool {
        self.own().is_some_and(|class| !class.like.is_empty())
    }

    /// What the configuration says of it.
    fn own(&self) -> Option<&'a ClassConfig> {
        self.config.class.get(self.name)
    }

    /// What becomes of its devices' driver.
    pub fn handling(&self) -> Handling {
        if self.config.vfio.contains(self.name) {
            return Handling::Vfio;
        }
        self.own().and_then(|config| config.handling).unwrap_or(self.row.handling)
    }
}

/// How many virtual functions a class wants a function to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// As many as the function can have of those.
    pub count: u16,
    /// As many as the configuration says, which allows making them.
    pub configured: Option<u16>,
}

impl Class<'_> {
    /// How many virtual functions it wants this function to have; none where
    /// that is none of its business. Without a configured number all that there
    /// can be, of network controllers only.
    pub fn makes(&self, function: &PciFunction) -> Option<Number> {
        let sriov = function.sriov.filter(|_| self.name != FUNCTION.name)?;
        match self.own().and_then(|config| config.create) {
            Some(0) => None,
            Some(number) => Some(Number { count: number.min(sriov.total), configured: Some(number) }),
            None => is_nic(function).then_some(Number { count: sriov.total, configured: None }),
        }
    }

    /// Which of its devices go well together.
    pub fn taste(&self) -> Taste {
        match self.own().and_then(|config| config.spread) {
            Some(Placing::Pack) => Taste::Packed,
            Some(Placing::Spread) => Taste::Spread,
            None => self.row.taste,
        }
    }
}

impl<'a> Class<'a> {
    /// The program that is asked which of its devices to take.
    pub fn plugin(&self) -> Option<&'a Path> {
        self.own().and_then(|config| config.prefer.as_deref())
    }
}

/// The names of all classes that can be asked for.
pub fn names(config: &Config) -> Vec<&str> {
    let own = config.class.keys().map(String::as_str).filter(|name| built_in(name).is_none());
    CLASSES.iter().map(|row| row.name).chain(own).collect()
}

/// The word for several devices of a class.
pub fn plural(name: &str) -> &str {
    built_in(name).map(|row| row.many).filter(|many| !many.is_empty()).unwrap_or(name)
}

/// The built-in class that a function belongs to first.
pub fn of(function: &PciFunction) -> Option<&'static Row> {
    CLASSES.iter().find(|row| (row.holds)(function))
}

/// True for a class that there is without any configuration.
pub fn is_built_in(name: &str) -> bool {
    built_in(name).is_some()
}

fn built_in(name: &str) -> Option<&'static Row> {
    CLASSES.iter().find(|row| row.name == name)
}

/// What a request of this class may say.
pub fn settable(name: &str) -> Settable {
    built_in(name).map_or(Settable::Nothing, |row| row.settable)
}

/// The option that asks for this again, with another count.
pub fn option(request: &DeviceRequest, count: u64) -> String {
    match (built_in(&request.class), request.class == FUNCTION.name) {
        (Some(_), _) => format!("--{} {}", request.class, request.typed(count)),
        (None, true) => format!("--{} {}", FUNCTION.name, request.like),
        (None, false) => format!("--device {}={}", request.class, request.typed(count)),
    }
}

/// What the runtimes of all these devices are told.
pub fn variables(devices: &[&Device], told: &Told<'_>) -> Variables {
    let known = |device: &&&Device| told.machine.pci(device.bdf);
    let of_row = |row: &Row| -> Vec<&Device> {
        // An assumed device is known by its class alone.
        devices.iter().filter(|device| known(device).is_some_and(|function| (row.holds)(function))).copied().collect()
    };
    let told = CLASSES.iter().flat_map(|row| match of_row(row) {
        these if these.is_empty() => Vec::new(),
        these => (row.variables)(&these, told),
    });
    told.collect()
}
