//! Facts that a plan takes for granted: what is held, what is offline, which
//! devices and pages there are. They come from a file and replace what the
//! machine says.

use crate::request::{PageSize, SizeError};
use crate::resource::{Allocation, Granted};
use crate::topology::{Bdf, CpuSet, Link, Machine, PagePool};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What other launches hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// CPUs that are held exclusively.
    pub cpus: CpuSet,
    /// CPUs that some share.
    pub shared: CpuSet,
    /// MiB by node.
    pub memory: BTreeMap<u32, u64>,
    /// Hugepages by size in KiB and node.
    pub pages: BTreeMap<(u64, u32), u64>,
    /// Devices.
    pub devices: std::collections::BTreeSet<Bdf>,
}

impl Holdings {
    /// These and others. What both of two hold of something countable is added up.
    pub fn plus(mut self, other: &Holdings) -> Holdings {
        self.cpus = self.cpus.or(&other.cpus);
        self.shared = self.shared.or(&other.shared);
        other.memory.iter().for_each(|(&node, &mib)| add(self.memory.entry(node).or_default(), mib));
        other.pages.iter().for_each(|(&place, &count)| add(self.pages.entry(place).or_default(), count));
        self.devices.extend(&other.devices);
        self
    }

    /// What is held when this is granted too.
    pub fn with(&self, granted: &[Allocation]) -> Holdings {
        let mut held = self.clone();
        for Allocation { per_node, granted, .. } in granted {
            match granted {
                Granted::Cpus(cpus) => held.cpus = held.cpus.or(cpus),
                Granted::Mib(_) => {
                    per_node.iter().for_each(|(&node, mib)| *held.memory.entry(node).or_default() += mib);
                }
                Granted::Pages { size, .. } => {
                    let pools = per_node.iter().map(|(&node, pages)| ((size.kib(), node), pages));
                    pools.for_each(|(pool, pages)| *held.pages.entry(pool).or_default() += pages);
                }
                Granted::Devices(grant) => held.devices.extend(grant.devices.iter().map(|device| device.bdf)),
            }
        }
        held
    }
}

/// A file may say any number.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Pages by size and node.
pub type Pages = BTreeMap<PageSize, BTreeMap<u32, u64>>;

/// An assumption file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Assume {
    /// CPUs that other launches hold.
    pub held_cpus: CpuSet,
    /// CPUs that are offline.
    pub offline: CpuSet,
    /// CPUs that launches may use, as if inherited.
    pub allowed: Option<CpuSet>,
    /// Memory that other launches hold, in MiB by node.
    pub held_memory: BTreeMap<u32, u64>,
    /// Pages that other launches hold: size, then node, then pages.
    #[serde(deserialize_with = "pages")]
    pub held_pages: Pages,
    /// Devices, which the topology need not have.
    pub device: Vec<AssumedDevice>,
    /// Links between devices, besides those that the topology has.
    pub link: Vec<Link>,
    /// Free pages: size, then node, then pages.
    #[serde(deserialize_with = "pages")]
    pub pages: Pages,
}

/// A device that is taken for granted.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct AssumedDevice {
    /// Name of its class.
    pub class: String,
    /// Its address.
    pub pci: Bdf,
    /// Its node; none or -1: unknown.
    #[serde(default, deserialize_with = "node")]
    pub node: Option<u32>,
    /// Free unless said otherwise.
    #[serde(default)]
    pub state: State,
}

/// Whether a device can be had.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nobody holds it.
    #[default]
    Free,
    /// Another launch holds it.
    Held,
    /// The host itself uses it.
    Used,
}

impl Assume {
    /// What other launches hold according to the file.
    pub fn holdings(&self) -> Holdings {
        let held = self.device.iter().filter(|device| device.state == State::Held);
        let pages = self
            .held_pages
            .iter()
            .flat_map(|(size, counts)| counts.iter().map(move |(&node, &pages)| ((size.kib(), node), pages)));
        Holdings {
            cpus: self.held_cpus.clone(),
            shared: CpuSet::new(),
            memory: self.held_memory.clone(),
            pages: pages.collect(),
            devices: held.map(|device| device.pci).collect(),
        }
    }

    /// The machine as the file has it: CPUs offline, pages as counted.
    pub fn on(&self, mut machine: Machine) -> Machine {
        for cpu in machine.cpus.iter_mut().filter(|cpu| self.offline.contains(cpu.id)) {
            cpu.online = false;
        }
        for node in &mut machine.nodes {
            node.cpus = node.cpus.minus(&self.offline);
            node.local_cpus = node.local_cpus.minus(&self.offline);
        }
        machine.links.extend(&self.link);
        for (size, counts) in &self.pages {
            counts.iter().for_each(|(&node, &pages)| assume_pages(&mut machine, node, size.kib(), pages));
        }
        machine
    }
}

fn assume_pages(machine: &mut Machine, node: u32, size_kib: u64, pages: u64) {
    let Some(node) = machine.nodes.iter_mut().find(|known| known.id == node) else { return };
    let pool = PagePool { size_kib, total: pages, free: Some(pages) };
    match node.pages.iter_mut().find(|pool| pool.size_kib == size_kib) {
        Some(known) => *known = pool,
        None => node.pages.push(pool),
    }
    node.pages.sort_by_key(|pool| pool.size_kib);
}

fn node<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let number = i64::deserialize(deserializer)?;
    match u32::try_from(number) {
        Ok(node) => Ok(Some(node)),
        Err(_) if number == -1 => Ok(None),
        Err(_) => Err(serde::de::Error::custom(format!("{number} is no node; -1 is for unknown"))),
    }
}

pub(crate) fn pages<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Pages, D::Error> {
    let named = BTreeMap::<String, BTreeMap<u32, u64>>::deserialize(deserializer)?;
    let sized = |(size, counts): (String, BTreeMap<u32, u64>)| Ok((size.parse::<PageSize>()?, counts));
    named.into_iter().map(sized).collect::<Result<Pages, SizeError>>().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assumption_file_is_read() {
        let text = "held_cpus = \"0-3\"\noffline = \"5\"\n[[device]]\nclass = \"gpu\"\npci = \"0000:3b:00.0\"\nnode = 1\n\
                    state = \"held\"\n[[device]]\nclass = \"nic\"\npci = \"3c:00.0\"\nnode = -1\n[pages.2M]\n0 = 512\n\
                    [held_pages.2048kB]\n1 = 3\n";
        let assume = toml::from_str::<Assume>(text).unwrap();
        assert_eq!(assume.device[0].node, Some(1));
        assert_eq!(assume.device[1].node, None);
        assert_eq!(assume.pages[&PageSize::from_kib(2048)][&0], 512);
        assert_eq!(assume.holdings().devices.len(), 1);
        assert_eq!(assume.holdings().pages, BTreeMap::from([((2048, 1), 3)]));
        let error = toml::from_str::<Assume>("[held_pages.2]\n0 = 1\n").unwrap_err().to_string();
        assert!(error.contains("has no unit"), "{error}");
    }
}
