//! Where each CPU is: its core, L3 cache, node and socket, worked out once so
//! that choosing needs no more than counters.

use super::groups::{Groups, LEVELS, Level};
use crate::topology::{Cpu, CpuSet, Machine, NodeMask};
use std::collections::BTreeMap;

/// Where one CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// The kernel's id.
    pub cpu: u32,
    /// The lowest CPU of its core.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
    /// Its node; none where the description lost it.
    pub node: Option<u32>,
    /// Its L3 cache; none: all of the socket counts as one.
    pub l3: Option<u32>,
}

/// The CPUs that may be used, grouped at four levels.
#[derive(Clone, Debug)]
pub struct CpuLayout {
    places: Vec<CpuPlace>,
    cpus: CpuSet,
    /// By CPU id: its index among `places`, or `NONE`.
    index: Vec<u32>,
    levels: [Groups; 4],
    /// By group of cores: threads that a whole core has, offline ones included.
    threads: Vec<u32>,
    /// Every online CPU of the machine, usable or not, and its core.
    core_of: BTreeMap<u32, u32>,
    uniform: bool,
}

const NONE: u32 = u32::MAX;

impl CpuLayout {
    /// A layout of these CPUs, of a machine with so many more that are offline.
    pub fn new(places: &[CpuPlace], offline: usize) -> Self {
        let cores = places.iter().map(|place| (place.cpu, place.core)).collect();
        let threads = nominal_threads(places.iter().map(|place| (place.core, None)), offline);
        CpuLayout::build(places.to_vec(), threads, cores)
    }

    /// The layout of those online CPUs of a machine that may be used. Cores
    /// keep the threads that may not, so that a core of which only a part may
    /// be used is never a whole one.
    pub fn of(machine: &Machine, usable: &CpuSet) -> Self {
        let online = || machine.cpus.iter().filter(|cpu| cpu.online);
        let offline = machine.cpus.len() - online().count();
        let threads = nominal_threads(online().map(|cpu| (cpu.core, cpu.kind.as_deref())), offline);
        let cores = online().map(|cpu| (cpu.id, cpu.core)).collect();
        let places = online().filter(|cpu| usable.contains(cpu.id)).map(CpuPlace::from).collect();
        CpuLayout::build(places, threads, cores)
    }

    fn build(mut places: Vec<CpuPlace>, threads: BTreeMap<u32, u32>, core_of: BTreeMap<u32, u32>) -> Self {
        places.sort_by_key(|place| place.cpu);
        places.dedup_by_key(|place| place.cpu);
        let cpus: CpuSet = places.iter().map(|place| place.cpu).collect();
        let mut index = vec![NONE; cpus.last().map_or(0, |last| last as usize + 1)];
        places.iter().enumerate().for_each(|(at, place)| index[place.cpu as usize] = at as u32);
        let mut levels = LEVELS.map(|level| Groups::new(&places, level));
        let of_cpu = LEVELS.map(|level| levels[level as usize].of_cpu.clone());
        levels.iter_mut().for_each(|groups| groups.link(&of_cpu));
        let cores = &levels[Level::Core as usize].cpus;
        let threads: Vec<u32> = cores.iter().map(|cpus| threads[&places[cpus[0] as usize].core]).collect();
        let whole = |core: usize| cores[core].len() == threads[core] as usize;
        let uniform = (0..threads.len()).all(|core| whole(core) && threads[core] == threads[0]);
        CpuLayout { places, cpus, index, levels, threads, core_of, uniform }
    }

    /// All CPUs that may be used.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Where the CPUs are, in ascending order of their ids.
    pub fn places(&self) -> &[CpuPlace] {
        &self.places
    }

    /// Where this CPU is; none when it may not be used.
    pub fn place(&self, cpu: u32) -> Option<&CpuPlace> {
        self.position(cpu).map(|index| &self.places[index as usize])
    }

    /// Sockets with CPUs that may be used.
    pub fn socket_count(&self) -> usize {
        self.levels[Level::Socket as usize].cpus.len()
    }

    /// Nodes with CPUs that may be used; CPUs of unknown node do not count.
    pub fn node_count(&self) -> usize {
        self.nodes().len()
    }

    /// Cores with CPUs that may be used.
    pub fn core_count(&self) -> usize {
        self.threads.len()
    }

    /// Nodes with CPUs that may be used.
    pub fn nodes(&self) -> NodeMask {
        let groups = &self.levels[Level::Node as usize].cpus;
        groups.iter().filter_map(|cpus| self.places[cpus[0] as usize].node).collect()
    }

    /// CPUs of these nodes.
    pub fn cpus_on(&self, nodes: &NodeMask) -> CpuSet {
        self.where_group(Level::Node, |place| place.node.is_some_and(|node| nodes.contains(node)))
    }

    /// CPUs of the sockets that these nodes have CPUs on.
    pub fn cpus_on_sockets_of(&self, nodes: &NodeMask) -> CpuSet {
        let sockets = self.sockets_of(nodes);
        self.where_group(Level::Socket, |place| sockets.contains(&place.socket))
    }

    /// Sockets that these nodes have CPUs on, ascending.
    pub fn sockets_of(&self, nodes: &NodeMask) -> Vec<u32> {
        let on_nodes = |place: &&CpuPlace| place.node.is_some_and(|node| nodes.contains(node));
        let mut sockets: Vec<u32> = self.places.iter().filter(on_nodes).map(|place| place.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        sockets
    }

    /// The usable CPUs of every core that one of these CPUs is on. The CPUs
    /// themselves need not be usable.
    pub fn with_siblings(&self, cpus: &CpuSet) -> CpuSet {
        let cores: CpuSet = cpus.iter().filter_map(|cpu| self.core_of.get(&cpu).copied()).collect();
        self.where_group(Level::Core, |place| cores.contains(place.core))
    }

    /// The CPUs of those cores of which every thread is in the set. A core of
    /// which a thread is offline, or may not be used, is none of these.
    pub fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let ids = |core: u32| self.members(Level::Core, core).iter().map(|&cpu| self.id(cpu));
        let whole = |&core: &u32| {
            let size = self.whole_size(Level::Core, core);
            ids(core).filter(|&cpu| cpus.contains(cpu)).count() == size
        };
        (0..self.core_count() as u32).filter(whole).flat_map(ids).collect()
    }

    /// True when these CPUs are all under one L3 cache.
    pub fn share_l3(&self, cpus: &CpuSet) -> bool {
        let mut caches = self.indexes(cpus).map(|cpu| self.group_of(Level::L3, cpu));
        let first = caches.next();
        caches.all(|cache| Some(cache) == first)
    }

    /// Threads of the widest core.
    pub fn threads_per_core(&self) -> usize {
        self.threads.iter().max().map_or(1, |&threads| threads as usize)
    }

    /// True when all cores have the same number of threads and all of these may be used.
    pub fn is_uniform(&self) -> bool {
        self.uniform
    }

    /// A layout with the lowest usable CPU of each core only, each a core of its own.
    pub fn first_threads(&self) -> CpuLayout {
        let first = |cpus: &Vec<u32>| self.places[cpus[0] as usize];
        let places: Vec<_> = self.levels[Level::Core as usize].cpus.iter().map(first).collect();
        CpuLayout::new(&places, 0)
    }

    fn where_group(&self, level: Level, wanted: impl Fn(&CpuPlace) -> bool) -> CpuSet {
        let groups = self.levels[level as usize].cpus.iter();
        let wanted = groups.filter(|cpus| wanted(&self.places[cpus[0] as usize]));
        wanted.flatten().map(|&cpu| self.places[cpu as usize].cpu).collect()
    }
}

/// What choosing works with: indexes instead of ids.
impl CpuLayout {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn id(&self, cpu: u32) -> u32 {
        self.places[cpu as usize].cpu
    }

    /// Indexes of those of these CPUs that may be used, ascending.
    pub(super) fn indexes<'a>(&'a self, cpus: &'a CpuSet) -> impl Iterator<Item = u32> + 'a {
        cpus.iter().filter_map(|cpu| self.position(cpu))
    }

    fn position(&self, cpu: u32) -> Option<u32> {
        self.index.get(cpu as usize).copied().filter(|&index| index != NONE)
    }

    pub(super) fn group_count(&self, level: Level) -> usize {
        self.levels[level as usize].cpus.len()
    }

    pub(super) fn group_of(&self, level: Level, cpu: u32) -> u32 {
        self.levels[level as usize].of_cpu[cpu as usize]
    }

    /// Indexes of a group's CPUs.
    pub(super) fn members(&self, level: Level, group: u32) -> &[u32] {
        &self.levels[level as usize].cpus[group as usize]
    }

    /// Groups of one level that share a CPU with a group of another.
    pub(super) fn inside(&self, outer: Level, group: u32, inner: Level) -> &[u32] {
        &self.levels[outer as usize].inner[inner as usize][group as usize]
    }

    pub(super) fn is_unknown_node(&self, group: u32) -> bool {
        self.places[self.members(Level::Node, group)[0] as usize].node.is_none()
    }

    /// How many CPUs a group must have free to be whole.
    pub(super) fn whole_size(&self, level: Level, group: u32) -> usize {
        match level {
            Level::Core => self.threads[group as usize] as usize,
            _ => self.members(level, group).len(),
        }
    }
}

impl From<&Cpu> for CpuPlace {
    fn from(cpu: &Cpu) -> Self {
        CpuPlace { cpu: cpu.id, core: cpu.core, socket: cpu.socket, node: cpu.node, l3: cpu.l3 }
    }
}

/// How many threads each core has, offline ones included.
///
/// The kernel does not say which core an offline CPU is of. Cores with fewer
/// threads than the widest of their kind are taken for the ones that miss some
/// when there are enough offline CPUs to explain all of them; else they are
/// narrow by nature, like the efficient cores of a hybrid machine.
fn nominal_threads<'a>(cpus: impl Iterator<Item = (u32, Option<&'a str>)>, offline: usize) -> BTreeMap<u32, u32> {
    let mut cores: BTreeMap<u32, (u32, Option<&str>)> = BTreeMap::new();
    cpus.for_each(|(core, kind)| cores.entry(core).or_insert((0, kind)).0 += 1);
    let mut widest: BTreeMap<Option<&str>, u32> = BTreeMap::new();
    for (threads, kind) in cores.values() {
        let entry = widest.entry(*kind).or_default();
        *entry = (*threads).max(*entry);
    }
    let missing: u32 = cores.values().map(|(threads, kind)| widest[kind] - threads).sum();
    let explained = missing as usize <= offline;
    let nominal = |(threads, kind)| if explained { widest[&kind] } else { threads };
    cores.into_iter().map(|(core, seen)| (core, nominal(seen))).collect()
}

/// A regular machine: siblings are numbered half a machine apart.
#[cfg(test)]
pub(crate) fn grid(sockets: u32, nodes: u32, cores: u32, threads: u32) -> Vec<CpuPlace> {
    let part = |core: u32, parts: u32| core * parts / cores;
    let place = |cpu: u32| {
        let core = cpu % cores;
        CpuPlace { cpu, core, socket: part(core, sockets), node: Some(part(core, nodes)), l3: None }
    };
    (0..cores * threads).map(place).collect()
}
