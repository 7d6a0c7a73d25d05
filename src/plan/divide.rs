//! Parts of what was granted, one for each of its members: ranks, or processes of a spec.
//!
//! - Each member gets as much as every other; of what does not divide, the
//!   first ones get one unit more.
//! - A member's part comes from a single node wherever one has all of it left,
//!   the lowest one first; else from where the resources-relative merge would
//!   put it. So as many members as can be are on one node each.
//! - Which CPUs and devices of a node a member gets is chosen as for a launch:
//!   whole cores, linked devices, those behind one switch.

use crate::config::Config;
use crate::hint::policy::Policy;
use crate::hint::relative::{Kind, Problem, Resource, solve};
use crate::resource::cpu::{CpuLayout, CpuOptions, take};
use crate::resource::pci::class::Class;
use crate::resource::prefer::{self, Group, Nearness, Party};
use crate::resource::{Allocation, Device, Grant, Granted};
use crate::topology::{CpuSet, Machine, NodeMask};
use std::collections::BTreeMap;

/// What is granted, and what matters for dividing it.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The configuration, which says which devices of a class go well together.
    pub config: &'a Config,
    /// How CPUs are picked within a node.
    pub options: CpuOptions,
    /// What is to be divided.
    pub granted: &'a [Allocation],
}

/// Units of one resource by locality; none: those of unknown locality.
type Units = BTreeMap<Option<u32>, u64>;

impl Whole<'_> {
    /// The parts of so many members.
    pub fn parts(&self, members: u32) -> Vec<Vec<Allocation>> {
        let mut rest = Rest::of(self);
        (0..members).map(|member| rest.take(member, members)).collect()
    }

    /// The part of one of so many members, such as an MPI rank among those of this host.
    pub fn part(&self, member: u32, members: u32) -> Vec<Allocation> {
        let mut rest = Rest::of(self);
        (0..member).for_each(|before| drop(rest.take(before, members)));
        rest.take(member, members)
    }
}

/// What no member has yet.
struct Rest<'a> {
    whole: &'a Whole<'a>,
    layout: CpuLayout,
    nearness: Nearness,
    left: Vec<Allocation>,
}

impl<'a> Rest<'a> {
    fn of(whole: &'a Whole<'a>) -> Rest<'a> {
        let devices = whole.granted.iter().any(|allocation| matches!(allocation.granted, Granted::Devices(_)));
        Rest {
            whole,
            layout: CpuLayout::of(whole.machine, &whole.machine.online()),
            nearness: if devices { Nearness::of(whole.machine) } else { Nearness::default() },
            left: whole.granted.to_vec(),
        }
    }

    /// Takes the next member's part.
    fn take(&mut self, member: u32, members: u32) -> Vec<Allocation> {
        let count = u64::from(members);
        let size = |granted: &Allocation| {
            let all = units(granted);
            all / count + u64::from(u64::from(member) < all % count)
        };
        let sizes: Vec<u64> = self.whole.granted.iter().map(size).collect();
        let left: Vec<Units> = self.left.iter().map(|allocation| self.by_lead(allocation)).collect();
        let units = self.on_one_node(&left, &sizes).unwrap_or_else(|| self.on_several(&left, &sizes));
        let devices = self.devices(&units);
        let parts: Vec<Allocation> = self
            .left
            .iter()
            .zip(&units)
            .zip(devices)
            .map(|((left, units), devices)| self.part(left, units, devices))
            .collect();
        self.left.iter_mut().zip(&parts).for_each(|(left, part)| remove(left, part));
        parts
    }

    fn by_lead(&self, allocation: &Allocation) -> Units {
        let mut units = Units::new();
        for (&node, count) in &allocation.per_node {
            *units.entry(Some(self.lead(node))).or_default() += count;
        }
        units.insert(None, allocation.unknown);
        units
    }

    fn lead(&self, node: u32) -> u32 {
        self.whole.machine.locality(node).unwrap_or(node)
    }

    fn on_one_node(&self, left: &[Units], sizes: &[u64]) -> Option<Vec<Units>> {
        let has = |units: &Units, node: u32, size: u64| {
            size == 0 || units.get(&Some(node)).is_some_and(|&units| units >= size)
        };
        let node =
            leads(left).iter().find(|&node| left.iter().zip(sizes).all(|(units, &size)| has(units, node, size)))?;
        Some(sizes.iter().map(|&size| Units::from([(Some(node), size)])).collect())
    }

    /// As the merge would place it; where known localities do not suffice, the rest is of unknown locality.
    fn on_several(&self, left: &[Units], sizes: &[u64]) -> Vec<Units> {
        let nodes: Vec<u32> = leads(left).iter().collect();
        let scale = |((left, units), &size): ((&Allocation, &Units), &u64)| self.unit(left, units, size);
        let scales: Vec<u64> = self.left.iter().zip(left).zip(sizes).map(scale).collect();
        let resource = |((left, units), (&size, &scale)): ((&Allocation, &Units), (&u64, &u64))| {
            let free: Vec<u64> =
                nodes.iter().map(|&node| units.get(&Some(node)).copied().unwrap_or(0) / scale).collect();
            let wanted = (size / scale).min(free.iter().sum());
            Resource {
                name: left.resource.clone(),
                kind: kind(left),
                units: wanted,
                unknown: 0,
                total: free.clone(),
                free,
            }
        };
        let resources: Vec<Resource> =
            self.left.iter().zip(left).zip(sizes.iter().zip(&scales)).map(resource).collect();
        let machine = self.whole.machine;
        let row = |from: &u32| nodes.iter().map(|to| machine.distance(*from, *to)).collect::<Option<Vec<u32>>>();
        let distances = nodes.iter().map(row).collect::<Option<Vec<_>>>().unwrap_or_default();
        let problem = Problem { nodes, distances, resources, policy: Policy::BestEffort, ..Problem::default() };
        let x = solve(&problem).map(|solution| solution.x).unwrap_or_default();
        let placed = |((row, &size), scale): ((Vec<u64>, &u64), &u64)| {
            let mut units: Units =
                problem.nodes.iter().zip(&row).map(|(&node, units)| (Some(node), units * scale)).collect();
            units.insert(None, size - units.values().sum::<u64>());
            units
        };
        x.into_iter().zip(sizes).zip(&scales).map(placed).collect()
    }

    /// How many CPUs go together where only whole cores are handed out.
    fn unit(&self, left: &Allocation, units: &Units, size: u64) -> u64 {
        let threads = self.layout.threads_per_core() as u64;
        let whole = units.values().chain([&size]).all(|units| units.is_multiple_of(threads));
        let wanted = self.whole.options.full_cores && self.layout.is_uniform();
        if kind(left) == Kind::Cpus && wanted && whole { threads } else { 1 }
    }

    /// The devices of each resource: those that go well together.
    fn devices(&self, units: &[Units]) -> Vec<Vec<Device>> {
        let party = |(left, units): (&Allocation, &Units)| {
            let Granted::Devices(grant) = &left.granted else { return Party::default() };
            let lead = |device: &Device| device.node.map(|node| self.lead(node));
            // Whether they have to be made makes no difference any more: all of them are granted.
            let group = |device: &Device| lead(device).map(|lead| (false, lead));
            let free: Vec<(Device, Group)> =
                grant.devices.iter().map(|device| (device.clone(), group(device))).collect();
            let of = |(lead, &count): (&Option<u32>, &u64)| {
                let group = lead.map(|lead| (false, lead));
                let here = free.iter().filter(move |(_, other)| *other == group).map(|(device, _)| device.clone());
                here.take(count as usize).collect::<Vec<_>>()
            };
            let chosen = units.iter().flat_map(of).collect();
            let taste = Class::named(&grant.class, self.whole.config).map(|class| class.taste()).unwrap_or_default();
            Party { taste, free, chosen }
        };
        let parties: Vec<Party> = self.left.iter().zip(units).map(party).collect();
        prefer::preferred(&parties, &self.nearness).into_iter().map(|(devices, _)| devices).collect()
    }

    fn part(&self, left: &Allocation, units: &Units, devices: Vec<Device>) -> Allocation {
        match &left.granted {
            Granted::Cpus(cpus) => self.cpus(left, cpus, units),
            Granted::Devices(grant) => {
                let nodes = devices.iter().map(|device| device.node).collect::<Vec<_>>();
                let granted = Granted::Devices(Grant { devices, advice: None, ..grant.clone() });
                counted(&left.resource, granted, nodes)
            }
            Granted::Mib(_) => {
                let per_node = self.amount(left, units);
                let granted = Granted::Mib(per_node.values().sum());
                Allocation { resource: left.resource.clone(), per_node, unknown: 0, granted }
            }
            Granted::Pages { size, .. } => {
                let per_node = self.amount(left, units);
                let granted = Granted::Pages { size: *size, count: per_node.values().sum() };
                Allocation { resource: left.resource.clone(), per_node, unknown: 0, granted }
            }
        }
    }

    fn cpus(&self, left: &Allocation, cpus: &CpuSet, units: &Units) -> Allocation {
        let node = |cpu: u32| self.layout.place(cpu).and_then(|place| place.node);
        let options = CpuOptions { spread_nodes: false, ..self.whole.options };
        let taken = units.iter().fold(CpuSet::new(), |taken, (lead, &count)| {
            let here = cpus.iter().filter(|&cpu| node(cpu) == *lead).collect();
            taken.or(&take(&self.layout, &here, count as usize, &options).unwrap_or_default())
        });
        let nodes = taken.iter().map(node).collect();
        counted(&left.resource, Granted::Cpus(taken), nodes)
    }

    /// So much from each locality, from its nodes the lowest one first.
    fn amount(&self, left: &Allocation, units: &Units) -> BTreeMap<u32, u64> {
        let mut wanted = units.clone();
        let take = |(&node, &has): (&u32, &u64)| {
            let wanted = wanted.get_mut(&Some(self.lead(node)))?;
            let units = has.min(*wanted);
            *wanted -= units;
            (units > 0).then_some((node, units))
        };
        left.per_node.iter().filter_map(take).collect()
    }
}

fn counted(resource: &str, granted: Granted, nodes: Vec<Option<u32>>) -> Allocation {
    let mut per_node = BTreeMap::new();
    nodes.iter().flatten().for_each(|&node| *per_node.entry(node).or_default() += 1);
    let unknown = nodes.iter().filter(|node| node.is_none()).count() as u64;
    Allocation { resource: resource.to_owned(), per_node, unknown, granted }
}

fn units(allocation: &Allocation) -> u64 {
    allocation.per_node.values().sum::<u64>() + allocation.unknown
}

fn kind(allocation: &Allocation) -> Kind {
    match allocation.granted {
        Granted::Cpus(_) => Kind::Cpus,
        Granted::Mib(_) => Kind::Memory,
        Granted::Pages { .. } => Kind::Pages,
        Granted::Devices(_) => Kind::Devices,
    }
}

/// Localities that have something left.
fn leads(left: &[Units]) -> NodeMask {
    let some = left.iter().flatten().filter(|(_, units)| **units > 0);
    some.filter_map(|(node, _)| *node).collect()
}

fn remove(left: &mut Allocation, part: &Allocation) {
    for (node, units) in &part.per_node {
        left.per_node.entry(*node).and_modify(|left| *left -= units);
    }
    left.unknown -= part.unknown;
    match (&mut left.granted, &part.granted) {
        (Granted::Cpus(left), Granted::Cpus(part)) => *left = left.minus(part),
        (Granted::Devices(left), Granted::Devices(part)) => {
            left.devices.retain(|device| !part.devices.contains(device));
        }
        (Granted::Mib(left), Granted::Mib(part)) => *left -= part,
        (Granted::Pages { count: left, .. }, Granted::Pages { count: part, .. }) => *left -= part,
        _ => {}
    }
}
