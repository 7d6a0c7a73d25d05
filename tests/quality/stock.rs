//! What is free on a node and what a launch needs, by the same names; and from
//! the two, which devices are stranded.

use super::machines::{Kind, Model};
use numa_run::assume::Holdings;
use numa_run::resource::{memory, pci::class};
use numa_run::topology::{Machine, Node};
use std::collections::{BTreeMap, BTreeSet};

/// CPUs, MiB of memory, pages, devices of each class.
pub type Stock = BTreeMap<&'static str, u64>;

/// What is free on a node. Only CPUs of cores that nobody holds a part of count.
pub fn free(machine: &Machine, holdings: &Holdings, node: &Node) -> Stock {
    let core = |cpu: u32| machine.cpu(cpu).map(|cpu| cpu.core);
    let held: BTreeSet<_> = holdings.cpus.iter().map(core).collect();
    let cpus = node.cpus.iter().filter(|cpu| !held.contains(&core(*cpu))).count();
    let pool = node.pages.first().copied().unwrap_or_default();
    let mib = memory::allocatable(node.memory_kib >> 10, (pool.total * pool.size_kib) >> 10, 0);
    let mut stock = Stock::from([
        ("cpu", cpus as u64),
        ("memory", mib - holdings.memory.get(&node.id).unwrap_or(&0)),
        ("pages", pool.total - holdings.pages.get(&(pool.size_kib, node.id)).unwrap_or(&0)),
    ]);
    let here = machine.pci.iter().filter(|function| function.node == Some(node.id));
    for row in here.filter(|function| !holdings.devices.contains(&function.bdf)).filter_map(class::of) {
        *stock.entry(row.name).or_default() += 1;
    }
    stock
}

/// What the nodes with CPUs hold together when nothing is held.
pub fn everything(machine: &Machine) -> Stock {
    let mut all = Stock::new();
    for node in machine.nodes.iter().filter(|node| !node.cpus.is_empty()) {
        free(machine, &Holdings::default(), node)
            .iter()
            .for_each(|(name, units)| *all.entry(name).or_default() += units);
    }
    all
}

impl Kind {
    /// What a launch of so many CPUs needs.
    pub fn needs(&self, cpus: u32) -> Stock {
        let memory = u64::from(cpus) * self.gib_per_cpu * 1024;
        let mut stock = Stock::from([("cpu", u64::from(cpus)), ("memory", memory), ("pages", self.pages)]);
        stock.extend(self.devices.iter().copied());
        stock
    }
}

/// Free devices whose node has no room for any launch of the mix that asks for
/// one of their class, be it the smallest one.
pub fn stranded(model: &Model, holdings: &Holdings) -> u64 {
    let on = |node: &Node| {
        let stock = free(&model.machine, holdings, node);
        let room = |kind: &&Kind| {
            let mut needs = kind.needs(kind.cpus.0).into_iter();
            needs.all(|(name, units)| stock.get(name).copied().unwrap_or(0) >= units)
        };
        let useful = classes(model.kinds.iter().filter(room));
        let useless = &classes(model.kinds.iter()) - &useful;
        useless.iter().filter_map(|class| stock.get(class)).sum::<u64>()
    };
    model.machine.nodes.iter().map(on).sum()
}

/// Classes that these ask for.
fn classes<'a>(kinds: impl Iterator<Item = &'a Kind>) -> BTreeSet<&'static str> {
    kinds.flat_map(|kind| kind.devices).map(|(class, _)| *class).collect()
}
