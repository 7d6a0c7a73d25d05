//! CPUs: which are there, and which core, package and L3 each belongs to.

use super::{SysfsError, Tree, present};
use crate::topology::{Cpu, CpuSet, Node};
use std::collections::BTreeMap;

const CPUS: &str = "devices/system/cpu";

/// The CPUs that are online.
pub(super) fn online(tree: &Tree) -> Result<CpuSet, SysfsError> {
    let path = tree.sys.join(CPUS).join("online");
    let online: CpuSet = match tree.text(format!("{CPUS}/online")) {
        Some(text) => text.parse().map_err(|reason| SysfsError::List { path: path.clone(), reason })?,
        // A captured tree may lack the list and still have the CPUs.
        None => tree.numbered(CPUS, "cpu"),
    };
    if online.is_empty() { Err(SysfsError::Empty(path)) } else { Ok(online) }
}

/// All present CPUs.
pub(super) fn read(tree: &mut Tree, nodes: &[Node], online: &CpuSet) -> Vec<Cpu> {
    let present = present(tree, online);
    let isolated = isolated(tree);
    let caches = last_level(tree, online);
    let place = |id: u32| nodes.iter().find(|node| node.cpus.contains(id)).map(|node| node.id);
    present
        .iter()
        .map(|id| match online.contains(id) {
            false => Cpu { id, core: id, isolated: isolated.contains(id), ..Cpu::default() },
            true => Cpu {
                id,
                online: true,
                node: place(id),
                socket: socket(tree, id),
                core: core(tree, id, &present),
                l3: caches.get(&id).copied(),
                isolated: isolated.contains(id),
                kind: None,
            },
        })
        .collect()
}

/// CPUs without load balancing (`isolcpus`) or without a tick (`nohz_full`).
fn isolated(tree: &mut Tree) -> CpuSet {
    let mut list = |name: &str| tree.list::<CpuSet>(format!("{CPUS}/{name}")).unwrap_or_default();
    list("isolated").or(&list("nohz_full"))
}

fn socket(tree: &Tree, id: u32) -> u32 {
    // Where the firmware names no package, sysfs prints -1.
    let package: Option<i64> = tree.number(format!("{CPUS}/cpu{id}/topology/physical_package_id"));
    package.and_then(|package| u32::try_from(package).ok()).unwrap_or(0)
}

/// The core's lowest present CPU. A core id is unique in its package only and
/// so is no name for a core.
fn core(tree: &mut Tree, id: u32, present: &CpuSet) -> u32 {
    ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|name| tree.list::<CpuSet>(format!("{CPUS}/cpu{id}/topology/{name}")))
        .filter(|siblings| siblings.contains(id))
        .and_then(|siblings| siblings.and(present).first())
        .unwrap_or(id)
}

/// For each CPU that has an L3, the lowest CPU of the group that shares it.
fn last_level(tree: &mut Tree, online: &CpuSet) -> BTreeMap<u32, u32> {
    let mut groups = BTreeMap::new();
    for id in online.iter() {
        // One read describes the whole group: thousands of CPUs share tens of caches.
        if groups.contains_key(&id) {
            continue;
        }
        if let Some(group) = third_level(tree, id).filter(|group| group.contains(id)) {
            let lowest = group.first().unwrap_or(id);
            groups.extend(group.iter().map(|cpu| (cpu, lowest)));
        }
    }
    groups
}

fn third_level(tree: &mut Tree, id: u32) -> Option<CpuSet> {
    let caches = format!("{CPUS}/cpu{id}/cache");
    let third = |name: &String| tree.number::<u32>(format!("{caches}/{name}/level")) == Some(3);
    let index = tree.names(&caches).into_iter().find(third)?;
    tree.list(format!("{caches}/{index}/shared_cpu_list"))
}
