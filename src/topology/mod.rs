//! What the machine is: nodes, CPUs, page pools, distances and PCI functions.
//!
//! A [`Machine`] is read once and then immutable. The caller's own cpuset is
//! not in it; what else moves between two launches (pages, memory, drivers) is
//! as it was then, and [`sysfs`] reads it again.

pub mod bdf;
pub mod mask;

pub mod caller;
pub mod cgroup;
mod check;
pub mod child;
pub mod gpu;
#[cfg(feature = "probe")]
pub mod hwloc;
pub mod pattern;
pub mod probe;
pub mod snapshot;
mod source;
pub mod sysfs;
pub mod usage;

pub use bdf::Bdf;
pub use mask::{CpuSet, NodeMask};
pub use source::TopologySource;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A host, or a description of one, as one value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Where this description came from, in words: `this host`, a file name, `synthetic`.
    pub source: String,
    /// Version of libhwloc that read it, such as `2.9.0`; none when it was not asked.
    pub hwloc: Option<String>,
    /// The file that this libhwloc was loaded from.
    pub hwloc_library: Option<PathBuf>,
    /// Online nodes in ascending order of their kernel ids, which may have gaps.
    pub nodes: Vec<Node>,
    /// Present CPUs in ascending order of their kernel (physical) ids.
    pub cpus: Vec<Cpu>,
    /// SLIT distances: row and column `i` belong to `nodes[i]`. Empty when unknown.
    pub distances: Vec<Vec<u32>>,
    /// Free hugepages that are promised to mappings which have not touched them
    /// yet, by page size in KiB. Only the system as a whole counts them.
    pub promised_pages: BTreeMap<u64, u64>,
    /// PCI functions in ascending order of their addresses.
    pub pci: Vec<PciFunction>,
    /// Links between devices besides PCIe, such as NVLink and xGMI.
    pub links: Vec<Link>,
    /// What was odd about the description, one sentence each.
    pub warnings: Vec<String>,
    /// Why it was read without libhwloc, where that was wanted and failed.
    pub unprobed: Option<String>,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The kernel's id.
    pub id: u32,
    /// Online CPUs that belong to this node; empty for memory-only nodes.
    pub cpus: CpuSet,
    /// Online CPUs that the firmware or hwloc calls nearest to a node without
    /// CPUs of its own; equal to `cpus` on others.
    pub local_cpus: CpuSet,
    /// All memory of the node, hugepages included, in KiB; 0 for a node without memory.
    pub memory_kib: u64,
    /// What the memory is made of.
    pub memory: MemoryKind,
    /// Hugepage pools, ascending by page size. A size that the machine knows is
    /// listed on every node.
    pub pages: Vec<PagePool>,
}

/// What a node's memory is made of.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// Ordinary memory; also what is not known to be anything else.
    #[default]
    Dram,
    /// High-bandwidth memory.
    Hbm,
    /// Memory behind CXL, or another slower tier.
    Cxl,
    /// Persistent memory used as RAM.
    Pmem,
    /// Memory of a GPU that the kernel shows as a node.
    Gpu,
}

/// Hugepages of one size on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePool {
    /// Size of one page in KiB.
    pub size_kib: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages that nobody has touched when the machine was read; none where the
    /// description does not say (an hwloc export).
    pub free: Option<u64>,
}

/// One logical CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The kernel's id.
    pub id: u32,
    /// False for a CPU that is present and offline; the places below are then unknown (0 or none).
    pub online: bool,
    /// Node; none where the description lost it (hwloc 2 drops nodes without memory).
    pub node: Option<u32>,
    /// Physical package id.
    pub socket: u32,
    /// The lowest present CPU of the same core, which is unique on the machine.
    pub core: u32,
    /// L3 id: the lowest CPU of the group that shares the cache; none without an L3.
    pub l3: Option<u32>,
    /// True for a CPU of `isolcpus` or `nohz_full`.
    pub isolated: bool,
    /// Kind on a hybrid machine, such as `P` or `E`; none where all CPUs are alike or kinds are unknown.
    pub kind: Option<String>,
}

/// One PCI function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// Address.
    pub bdf: Bdf,
    /// Class code, 24 bits: 0x030200 is a 3D controller.
    pub class: u32,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Node; none when the locality is unknown.
    pub node: Option<u32>,
    /// Driver that it is bound to, if that is known.
    pub driver: Option<String>,
    /// Names of its network interfaces, sorted.
    pub interfaces: Vec<String>,
    /// For an SR-IOV virtual function: its physical function.
    pub physical_function: Option<Bdf>,
    /// For a function that can have virtual functions: how many, and where they appear.
    pub sriov: Option<Sriov>,
    /// Bridges on the way to it, from its root port down.
    pub above: Vec<Bdf>,
    /// True for a display device that has a render node.
    pub render_node: bool,
    /// True for the display device that the firmware booted on.
    pub boot_vga: bool,
}

/// What a function says of the virtual functions that it has or may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sriov {
    /// As many as it can have; 0 where its firmware forbids them.
    pub total: u16,
    /// As many as it has now.
    pub made: u16,
    /// How far the first one's routing id is from its own; 0 where that is not known beforehand.
    pub offset: u16,
    /// How far the others are from each other.
    pub stride: u16,
    /// Their PCI device id.
    pub device: u16,
}

/// A link between two devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: Bdf,
    /// The other.
    pub b: Bdf,
    /// Bandwidth in MB/s, or any other weight: more is closer.
    pub weight: u32,
}

impl Machine {
    /// The node with this kernel id.
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok().map(|index| &self.nodes[index])
    }

    /// The CPU with this kernel id.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.cpus[index])
    }

    /// The function at this address.
    pub fn pci(&self, bdf: Bdf) -> Option<&PciFunction> {
        self.pci.binary_search_by_key(&bdf, |function| function.bdf).ok().map(|index| &self.pci[index])
    }

    /// All online CPUs.
    pub fn online(&self) -> CpuSet {
        self.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect()
    }

    /// Ids of all nodes.
    pub fn node_ids(&self) -> NodeMask {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// Ids of the nodes that have online CPUs.
    pub fn cpu_nodes(&self) -> NodeMask {
        self.nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id).collect()
    }

    /// The kernel's distance from one node to another. The table is indexed by
    /// the position of a node among the online ones, never by its id.
    pub fn distance(&self, from: u32, to: u32) -> Option<u32> {
        let column = |id: u32| self.nodes.binary_search_by_key(&id, |node| node.id).ok();
        self.distances.get(column(from)?)?.get(column(to)?).copied()
    }

    /// The node with CPUs whose locality this node belongs to: itself, or for
    /// a node without CPUs the nearest one that has some (ties: lowest id).
    pub fn locality(&self, id: u32) -> Option<u32> {
        let node = self.node(id)?;
        if !node.cpus.is_empty() {
            return Some(id);
        }
        let shares = |other: &Node| !node.local_cpus.is_disjoint(&other.cpus);
        self.nodes
            .iter()
            .filter(|other| !other.cpus.is_empty())
            .min_by_key(|other| (self.distance(id, other.id), !shares(other), other.id))
            .map(|other| other.id)
    }
}
