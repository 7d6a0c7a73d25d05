//! Which node a PCI function is on, and when nobody knows.

use crate::topology::{Bdf, CpuSet, Machine, NodeMask, PciFunction};
use std::collections::BTreeMap;

/// What the tree says about one function's place.
pub(super) struct Locality {
    /// `numa_node`, where it names one.
    pub node: Option<u32>,
    /// `local_cpulist`, where there is one.
    pub cpus: Option<CpuSet>,
    /// The VMD device above.
    pub above: Option<Bdf>,
}

/// What the tree says about all functions' places, to be judged together.
pub(super) struct Localities {
    nodes: NodeMask,
    cpu_nodes: NodeMask,
    online: CpuSet,
    noted: BTreeMap<Bdf, Locality>,
    nameless: Vec<Bdf>,
    nowhere: Vec<Bdf>,
    everywhere: Vec<Bdf>,
}

impl Localities {
    /// None yet, for the functions of this machine.
    pub(super) fn new(machine: &Machine) -> Self {
        Localities {
            nodes: machine.node_ids(),
            cpu_nodes: machine.cpu_nodes(),
            online: machine.online(),
            noted: BTreeMap::new(),
            nameless: Vec::new(),
            nowhere: Vec::new(),
            everywhere: Vec::new(),
        }
    }

    /// Takes down what one function's files say.
    pub(super) fn note(&mut self, bdf: Bdf, locality: Locality) {
        self.noted.insert(bdf, locality);
    }

    /// Gives each function its node. Where one node has all CPUs, everything is on it.
    pub(super) fn settle(&mut self, functions: &mut [PciFunction]) {
        let only = self.cpu_nodes.first().filter(|_| self.cpu_nodes.len() == 1);
        for function in functions {
            function.node = self.judge(function.bdf).or(only);
        }
    }

    fn judge(&mut self, bdf: Bdf) -> Option<u32> {
        let locality = self.noted.get(&bdf)?;
        // The kernel gives a VMD's children no node: they are where it is.
        let inherited = || self.noted.get(&locality.above?)?.node;
        let Some(node) = locality.node.or_else(inherited) else {
            self.nameless.push(bdf);
            return None;
        };
        if !self.nodes.contains(node) {
            self.nowhere.push(bdf);
            return None;
        }
        // Near to all CPUs says nothing; a hypervisor made it up.
        let all = |cpus: &CpuSet| self.online.is_subset(cpus);
        if self.cpu_nodes.len() > 1 && locality.node.is_some() && locality.cpus.as_ref().is_some_and(all) {
            self.everywhere.push(bdf);
            return None;
        }
        Some(node)
    }

    /// One sentence for each way not to know, where it matters.
    pub(super) fn warnings(&self) -> Vec<String> {
        let reasons = [
            (&self.nameless, "name no node"),
            (&self.nowhere, "name a node that does not exist"),
            (&self.everywhere, "claim to be near to all CPUs"),
        ];
        let matters = self.cpu_nodes.len() > 1;
        let told = reasons.iter().filter(|(functions, _)| matters && !functions.is_empty());
        told.map(|(functions, reason)| {
            format!("{} PCI functions {reason} (first {}): locality unknown", functions.len(), functions[0])
        })
        .collect()
    }
}
