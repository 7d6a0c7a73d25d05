//! What libhwloc sees, as a [`Machine`].

use super::{devices, links};
use crate::topology::mask::{Cpus, IdSet, MAX_ID};
use crate::topology::{Cpu, CpuSet, Machine, MemoryKind, Node, NodeMask, PagePool};
use hwlocality::Topology;
use hwlocality::bitmap::BitmapIndex;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::Distances;
use hwlocality::object::types::ObjectType;
use std::collections::BTreeSet;

/// The base page of some architectures is this large; hugepages of this size
/// exist where the base page is smaller.
const LARGEST_BASE_PAGE: u64 = 64 << 10;

/// All that libhwloc says. Its devices are only those that the topology kept.
pub(super) fn machine(topology: &Topology) -> Machine {
    let online = ids(topology.cpuset().iter_set());
    let nodes = nodes(topology, &online);
    let mut machine = Machine { cpus: cpus(topology, &online, &nodes), nodes, ..Machine::default() };
    kinds(topology, &mut machine.cpus);
    machine.distances = distances(topology, &machine.nodes);
    machine.pci = devices::functions(topology, &machine);
    machine.links = links::links(topology, &machine.pci);
    machine.warnings.extend(dropped(topology));
    machine
}

/// Ids of a bitmap. One without an end is cut: no machine has such ids.
pub(super) fn ids<K>(bitmap: impl Iterator<Item = BitmapIndex>) -> IdSet<K> {
    let number = |index: BitmapIndex| u32::try_from(usize::from(index)).ok();
    bitmap.map_while(number).take_while(|&id| id <= MAX_ID).collect()
}

pub(super) fn cpus_of(object: &TopologyObject) -> CpuSet {
    object.cpuset().map(|set| ids(set.iter_set())).unwrap_or_default()
}

fn id(object: &TopologyObject) -> Option<u32> {
    object.os_index().and_then(|index| u32::try_from(index).ok()).filter(|&id| id <= MAX_ID)
}

fn nodes(topology: &Topology, online: &CpuSet) -> Vec<Node> {
    let objects = topology.objects_with_type(ObjectType::NUMANode);
    let mut nodes: Vec<Node> = objects.filter_map(node).collect();
    nodes.sort_unstable_by_key(|node| node.id);
    share_out(&mut nodes, online);
    let sizes: BTreeSet<u64> = nodes.iter().flat_map(|node| &node.pages).map(|pool| pool.size_kib).collect();
    for node in &mut nodes {
        let known = std::mem::take(&mut node.pages);
        let pool = |size_kib| known.iter().find(|pool| pool.size_kib == size_kib).copied();
        let empty = |size_kib| PagePool { size_kib, ..PagePool::default() };
        node.pages = sizes.iter().map(|&size| pool(size).unwrap_or_else(|| empty(size))).collect();
    }
    nodes
}

fn node(object: &TopologyObject) -> Option<Node> {
    let mut node = Node { id: id(object)?, local_cpus: cpus_of(object), memory: memory(object), ..Node::default() };
    if let Some(ObjectAttributes::NUMANode(attributes)) = object.attributes() {
        node.memory_kib = attributes.local_memory().map_or(0, |bytes| bytes.get() / 1024);
        let mut pages: Vec<(u64, u64)> = attributes.page_types().iter().map(|t| (t.size().get(), t.count())).collect();
        pages.sort_unstable();
        let base = pages.first().filter(|&&(size, _)| size <= LARGEST_BASE_PAGE).copied();
        pages.retain(|&page| Some(page) != base);
        node.pages = pages.iter().map(|&(size, total)| PagePool { size_kib: size / 1024, total, free: None }).collect();
    }
    Some(node)
}

fn memory(object: &TopologyObject) -> MemoryKind {
    let told = |key: &str| object.info(key).map(|text| text.to_string_lossy().into_owned());
    let subtype = object.subtype().map(|text| text.to_string_lossy().into_owned());
    let words = [subtype, told("MemoryTier"), told("DAXType"), told("DAXParent")];
    let kind = |word: &String| match word.as_str() {
        "MCDRAM" | "HBM" => Some(MemoryKind::Hbm),
        "GPUMemory" => Some(MemoryKind::Gpu),
        "NVM" => Some(MemoryKind::Pmem),
        word if word.starts_with("CXL") || word.contains("cxl") => Some(MemoryKind::Cxl),
        word if word.contains("ndbus") => Some(MemoryKind::Pmem),
        _ => None,
    };
    words.iter().flatten().find_map(kind).unwrap_or_default()
}

/// libhwloc gives a node without CPUs those that it is near to. Here each CPU
/// has one node: ordinary memory first, then the one that is nearest to it.
fn share_out(nodes: &mut [Node], online: &CpuSet) {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&index| (nodes[index].memory, nodes[index].local_cpus.len(), index));
    let mut left = online.clone();
    for index in order {
        nodes[index].cpus = nodes[index].local_cpus.and(&left);
        left = left.minus(&nodes[index].cpus);
    }
    for node in nodes {
        if !node.cpus.is_empty() {
            node.local_cpus = node.cpus.clone();
        } else if online.is_subset(&node.local_cpus) {
            // Near to all says nothing.
            node.local_cpus = CpuSet::new();
        }
    }
}

fn cpus(topology: &Topology, online: &CpuSet, nodes: &[Node]) -> Vec<Cpu> {
    let present = ids(topology.complete_cpuset().iter_set()).or(online);
    let place = |id: u32| nodes.iter().find(|node| node.cpus.contains(id)).map(|node| node.id);
    let mut cpus: Vec<Cpu> = present.minus(online).iter().map(|id| Cpu { id, core: id, ..Cpu::default() }).collect();
    cpus.extend(topology.objects_with_type(ObjectType::PU).filter_map(|unit| cpu(unit, place)));
    cpus.sort_unstable_by_key(|cpu| cpu.id);
    cpus
}

fn cpu(unit: &TopologyObject, place: impl Fn(u32) -> Option<u32>) -> Option<Cpu> {
    let own = id(unit)?;
    let above = |kind| unit.ancestors().find(|object| object.object_type() == kind);
    let lowest = |kind| above(kind).and_then(|object| cpus_of(object).first());
    Some(Cpu {
        id: own,
        online: true,
        node: place(own),
        socket: above(ObjectType::Package).and_then(id).unwrap_or(0),
        core: lowest(ObjectType::Core).unwrap_or(own),
        l3: lowest(ObjectType::L3Cache),
        isolated: false,
        kind: None,
    })
}

/// Kinds that libhwloc has a name for. Frequencies alone make no kind.
fn kinds(topology: &Topology, cpus: &mut [Cpu]) {
    let mut named = Vec::new();
    for kind in topology.cpu_kinds().into_iter().flatten() {
        let told = |key: &str| kind.infos.iter().find(|info| info.name().to_bytes() == key.as_bytes());
        let value = |key: &str| told(key).map(|info| info.value().to_string_lossy().into_owned());
        let name = value("CoreType").map(core_type).or(value("LinuxCapacity").map(|text| format!("capacity-{text}")));
        named.extend(name.map(|name| (ids::<Cpus>(kind.cpuset.iter_set()), name)));
    }
    let names: BTreeSet<&String> = named.iter().map(|(_, name)| name).collect();
    if names.len() < 2 {
        return;
    }
    for cpu in cpus {
        cpu.kind = named.iter().find(|(set, _)| set.contains(cpu.id)).map(|(_, name)| name.clone());
    }
}

fn core_type(text: String) -> String {
    match text.as_str() {
        "IntelCore" => "P".to_owned(),
        "IntelAtom" => "E".to_owned(),
        _ => text,
    }
}

/// The kernel's distances. Those of an export of hwloc 1 have no name.
fn distances(topology: &Topology, nodes: &[Node]) -> Vec<Vec<u32>> {
    let tables = topology.distances_with_type(None, ObjectType::NUMANode).unwrap_or_default();
    let latency = |table: &&Distances<'_>| table.name().is_none_or(|name| name == c"NUMALatency");
    tables.iter().filter(latency).find_map(|table| matrix(table, nodes)).unwrap_or_default()
}

fn matrix(table: &Distances<'_>, nodes: &[Node]) -> Option<Vec<Vec<u32>>> {
    let objects: Vec<Option<u32>> = table.objects().map(|object| id(object?)).collect();
    let column = |node: &Node| objects.iter().position(|&object| object == Some(node.id));
    let columns: Vec<usize> = nodes.iter().map(column).collect::<Option<_>>()?;
    let value = |row: usize, column: usize| u32::try_from(*table.distances().get(row * objects.len() + column)?).ok();
    columns.iter().map(|&row| columns.iter().map(|&column| value(row, column)).collect()).collect()
}

/// hwloc 2 keeps only the ids of nodes without memory.
fn dropped(topology: &Topology) -> Option<String> {
    let all: NodeMask = ids(topology.complete_nodeset().iter_set());
    let dropped = all.minus(&ids(topology.nodeset().iter_set()));
    (!dropped.is_empty()).then(|| format!("libhwloc left out nodes {dropped}, which have no memory or are not online"))
}
