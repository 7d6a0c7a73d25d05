//! The four ways to group CPUs: by core, L3 cache, node and socket.

use super::CpuPlace;
use std::collections::{BTreeMap, BTreeSet};

/// A way to group CPUs. The names are ordered from narrow to wide, as usual machines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Core,
    L3,
    Node,
    Socket,
}

pub(super) const LEVELS: [Level; 4] = [Level::Core, Level::L3, Level::Node, Level::Socket];

/// The groups of one level, in ascending order of their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// By CPU index: its group.
    pub of_cpu: Vec<u32>,
    /// By group: indexes of its CPUs, ascending.
    pub cpus: Vec<Vec<u32>>,
    /// By level and group: groups of that level that share a CPU with this one, ascending.
    pub inner: [Vec<Vec<u32>>; 4],
}

impl Groups {
    pub fn new(places: &[CpuPlace], level: Level) -> Self {
        let keys: BTreeSet<(u32, u32)> = places.iter().map(|place| place.key(level)).collect();
        let numbers: BTreeMap<(u32, u32), u32> = keys.into_iter().zip(0..).collect();
        let of_cpu: Vec<u32> = places.iter().map(|place| numbers[&place.key(level)]).collect();
        let mut cpus = vec![Vec::new(); numbers.len()];
        of_cpu.iter().zip(0..).for_each(|(&group, cpu)| cpus[group as usize].push(cpu));
        Groups { of_cpu, cpus, inner: Default::default() }
    }

    /// Works out `inner` from the groups that each CPU is in.
    pub fn link(&mut self, of_cpu: &[Vec<u32>; 4]) {
        self.inner = LEVELS.map(|inner| {
            let inner = &of_cpu[inner as usize];
            let groups = |cpus: &Vec<u32>| {
                let mut groups: Vec<u32> = cpus.iter().map(|&cpu| inner[cpu as usize]).collect();
                groups.sort_unstable();
                groups.dedup();
                groups
            };
            self.cpus.iter().map(groups).collect()
        });
    }
}

impl CpuPlace {
    /// The id of this CPU's group, unknown ones after the known.
    fn key(&self, level: Level) -> (u32, u32) {
        match level {
            Level::Core => (0, self.core),
            Level::L3 => self.l3.map_or((1, self.socket), |l3| (0, l3)),
            Level::Node => self.node.map_or((1, 0), |node| (0, node)),
            Level::Socket => (0, self.socket),
        }
    }
}
