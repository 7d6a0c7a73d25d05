//! A machine described in a few lines of TOML, written out as a /sys tree.

use super::{NodeRow, Tree, each};
use numa_run::topology::CpuSet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A machine. Unless told otherwise each CPU is a core of its own and each
/// node a package.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Described {
    /// Nodes, ascending.
    node: Vec<Node>,
    /// A core's threads are this far apart: 56 makes 0 and 56, 1 and 57, … siblings.
    siblings_apart: Option<u32>,
    /// Cores that are no single CPUs, each a list.
    cores: Vec<String>,
    /// CPUs of package 0, 1, ….
    packages: Vec<String>,
    /// CPUs that share an L3.
    l3: Vec<String>,
    /// CPUs that are present and offline.
    offline: CpuSet,
    /// CPUs of isolcpus.
    isolated: String,
    /// CPUs by kind, as the performance counters of hybrid machines tell it: `core`, `atom`.
    kinds: BTreeMap<String, String>,
    /// Nodes by memory tier: 4 is ordinary memory, less is faster.
    tiers: BTreeMap<String, String>,
    /// Nodes that are possible, where that is more than those online.
    possible_nodes: Option<String>,
    /// PCI functions.
    pci: Vec<Function>,
    /// Other files below /sys, and what they hold.
    files: BTreeMap<String, String>,
    /// Links below /sys, and where they point.
    links: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    id: u32,
    #[serde(default)]
    cpus: CpuSet,
    mib: u64,
    distances: String,
    /// All and free 2M pages.
    pages_2m: Option<(u64, u64)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    at: String,
    /// Class, vendor and device: `0302 10de:20b0`.
    is: String,
    node: i64,
    /// CPUs that it calls near, where that is more than those of its node.
    near: Option<String>,
    /// What else its folder holds: names of folders, such as `drm/renderD128`.
    #[serde(default)]
    holds: Vec<String>,
    /// Bridges above it, from its root port down, parted by slashes.
    below: Option<String>,
    /// The firmware booted on it.
    #[serde(default)]
    boot_vga: bool,
}

impl Described {
    /// The machine's tree.
    pub fn tree(&self) -> Tree {
        let online = |node: &Node| node.cpus.minus(&self.offline).to_string();
        let cpus: Vec<String> = self.node.iter().map(online).collect();
        let rows = self.node.iter().zip(&cpus);
        let rows: Vec<NodeRow<'_>> =
            rows.map(|(node, cpus)| (node.id, cpus.as_str(), node.mib, node.distances.as_str())).collect();
        let tree = Tree::of(&rows);
        let present: CpuSet = self.node.iter().flat_map(|node| node.cpus.iter()).collect();
        tree.file("devices/system/cpu/present", &present.or(&self.offline).to_string());
        self.cpus(&tree, &present.minus(&self.offline));
        self.nodes(&tree);
        self.pci.iter().for_each(|function| self.function(&tree, function));
        for (path, text) in &self.files {
            tree.file(path, text);
        }
        for (path, target) in &self.links {
            tree.link(path, target);
        }
        tree
    }

    fn cpus(&self, tree: &Tree, online: &CpuSet) {
        if let Some(apart) = self.siblings_apart {
            let threads =
                |cpu: u32| online.iter().filter(move |other| other % apart == cpu % apart).collect::<CpuSet>();
            online.iter().for_each(|cpu| tree.topology(cpu, "thread_siblings_list", &threads(cpu).to_string()));
        }
        for core in &self.cores {
            tree.core(&core.parse::<CpuSet>().unwrap().and(online).to_string());
        }
        for (package, cpus) in self.packages.iter().enumerate() {
            each(cpus, |cpu| tree.topology(cpu, "physical_package_id", &package.to_string()));
        }
        for cpus in &self.l3 {
            tree.l3(cpus);
        }
        for (kind, cpus) in &self.kinds {
            tree.file(&format!("devices/cpu_{kind}/cpus"), cpus);
        }
        tree.file("devices/system/cpu/isolated", &self.isolated);
    }

    fn nodes(&self, tree: &Tree) {
        if let Some(possible) = &self.possible_nodes {
            tree.file("devices/system/node/possible", possible);
        }
        for (tier, nodes) in &self.tiers {
            tree.file(&format!("devices/virtual/memory_tiering/memory_tier{tier}/nodelist"), nodes);
        }
        for node in &self.node {
            if let Some((total, free)) = node.pages_2m {
                tree.pages(node.id, 2048, total, free);
            }
        }
    }

    fn function(&self, tree: &Tree, function: &Function) {
        let local = self.node.iter().find(|node| i64::from(node.id) == function.node);
        let local = local.map(|node| node.cpus.to_string()).unwrap_or_default();
        let domain = function.at.split(':').next().unwrap_or_default();
        let (class, ids) = function.is.split_once(' ').expect("class and ids, parted by a blank");
        let (vendor, device) = ids.split_once(':').expect("vendor and device, parted by a colon");
        let below = function.below.as_ref().map(|bridges| format!("/{bridges}")).unwrap_or_default();
        let above = format!("pci{domain}:00{below}");
        tree.pci(
            &above,
            &function.at,
            &format!("0x{class}00"),
            function.node,
            function.near.as_ref().unwrap_or(&local),
        );
        let folder = format!("devices/{above}/{}", function.at);
        tree.file(&format!("{folder}/vendor"), &format!("0x{vendor}"));
        tree.file(&format!("{folder}/device"), &format!("0x{device}"));
        tree.file(&format!("{folder}/boot_vga"), if function.boot_vga { "1" } else { "0" });
        for name in &function.holds {
            tree.file(&format!("{folder}/{name}/uevent"), "");
        }
    }
}

/// Copies a tree so that each folder's entries are made, and so listed, the
/// other way round than in a tree copied with the opposite order.
pub fn copied(from: &Path, to: &Path, backwards: bool) {
    fs::create_dir_all(to).unwrap();
    let mut names: Vec<_> = fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    if backwards {
        names.reverse();
    }
    for name in names {
        let (from, to) = (from.join(&name), to.join(&name));
        match fs::symlink_metadata(&from).unwrap() {
            about if about.is_symlink() => symlink(fs::read_link(&from).unwrap(), to).unwrap(),
            about if about.is_dir() => copied(&from, &to, backwards),
            _ => assert!(fs::copy(&from, &to).is_ok(), "{} can be copied", from.display()),
        }
    }
}
