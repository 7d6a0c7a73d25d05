//! The choice of `n` CPUs among free ones, widest parts first: whole sockets
//! and nodes, then L3 groups when asked for, whole cores, single CPUs. Among
//! equals the one with the fewest free CPUs comes first, so that what is
//! already broken is filled up before something whole is broken.

use super::groups::{LEVELS, Level};
use super::{CpuError, CpuLayout, CpuOptions, distribute, whole};
use crate::topology::CpuSet;

/// Chooses `wanted` of the free CPUs. The same arguments give the same CPUs.
///
/// With `full-cores` on a machine whose cores differ, only whole cores are
/// chosen wherever some of the free ones add up to the number.
pub fn take(layout: &CpuLayout, free: &CpuSet, wanted: usize, options: &CpuOptions) -> Result<CpuSet, CpuError> {
    let picker = Picker::new(layout, free, wanted);
    if picker.free < wanted {
        return Err(CpuError::NotEnough { wanted, free: picker.free });
    }
    let taken = match options.spread_nodes {
        true => distribute::take(layout, free, wanted, options),
        false => picker.packed(options),
    };
    if options.full_cores && !layout.is_uniform() && layout.whole_cores(&taken) != taken {
        return Ok(whole_cores_only(layout, free, wanted).unwrap_or(taken));
    }
    Ok(taken)
}

/// The first whole free cores that add up to exactly so many CPUs.
fn whole_cores_only(layout: &CpuLayout, free: &CpuSet, wanted: usize) -> Option<CpuSet> {
    let mut picker = Picker::new(layout, free, wanted);
    picker.take_whole_cores();
    (picker.needed == 0).then_some(picker.taken)
}

/// A choice being made.
pub(super) struct Picker<'a> {
    pub layout: &'a CpuLayout,
    /// CPUs still to choose.
    pub needed: usize,
    taken: CpuSet,
    is_free: Vec<bool>,
    free: usize,
    /// By level and group: CPUs that are still free.
    counts: [Vec<u32>; 4],
}

impl<'a> Picker<'a> {
    pub fn new(layout: &'a CpuLayout, free: &CpuSet, needed: usize) -> Self {
        let mut is_free = vec![false; layout.len()];
        let mut counts = LEVELS.map(|level| vec![0; layout.group_count(level)]);
        for cpu in layout.indexes(free) {
            is_free[cpu as usize] = true;
            LEVELS.iter().for_each(|&level| counts[level as usize][layout.group_of(level, cpu) as usize] += 1);
        }
        let free = is_free.iter().filter(|&&free| free).count();
        Picker { layout, needed, taken: CpuSet::new(), is_free, free, counts }
    }

    /// Chooses by the rules of a single list of nodes. There must be enough free CPUs.
    pub fn packed(mut self, options: &CpuOptions) -> CpuSet {
        let wide = if self.nodes_first() { [Level::Node, Level::Socket] } else { [Level::Socket, Level::Node] };
        wide.into_iter().for_each(|level| self.take_whole(level));
        if options.prefer_l3 {
            self.take_l3();
        }
        if !options.spread_cores {
            self.take_whole_cores();
        }
        self.take_singles(options);
        self.taken
    }

    /// Takes every group that is wholly free, as long as it is not too large.
    /// The order is worked out once, before anything is taken.
    pub fn take_whole(&mut self, level: Level) {
        for group in self.whole_groups(level) {
            if self.needed >= self.layout.whole_size(level, group) {
                self.take_group(level, group);
            }
        }
    }

    fn take_whole_cores(&mut self) {
        if self.layout.is_uniform() {
            return self.take_whole(Level::Core);
        }
        let cores = self.whole_groups(Level::Core);
        let sizes: Vec<usize> = cores.iter().map(|&core| self.layout.whole_size(Level::Core, core)).collect();
        for chosen in whole::choose(&sizes, self.needed) {
            self.take_group(Level::Core, cores[chosen]);
        }
    }

    fn take_singles(&mut self, options: &CpuOptions) {
        let level = if options.spread_cores { Level::Socket } else { Level::Core };
        for group in self.order(level) {
            for &cpu in self.layout.members(level, group) {
                if self.needed == 0 {
                    return;
                }
                self.take_cpu(cpu);
            }
        }
    }

    fn take_group(&mut self, level: Level, group: u32) {
        let layout = self.layout;
        layout.members(level, group).iter().for_each(|&cpu| self.take_cpu(cpu));
    }

    /// Takes a CPU unless it is gone already.
    pub fn take_cpu(&mut self, cpu: u32) {
        if std::mem::take(&mut self.is_free[cpu as usize]) {
            let layout = self.layout;
            LEVELS.iter().for_each(|&level| self.counts[level as usize][layout.group_of(level, cpu) as usize] -= 1);
            self.taken.insert(layout.id(cpu));
            self.needed -= 1;
        }
    }
}

/// What is free, and in which order.
impl Picker<'_> {
    pub fn is_free(&self, cpu: u32) -> bool {
        self.is_free[cpu as usize]
    }

    pub fn count(&self, level: Level, group: u32) -> usize {
        self.counts[level as usize][group as usize] as usize
    }

    fn whole_groups(&self, level: Level) -> Vec<u32> {
        let mut groups = self.order(level);
        groups.retain(|&group| self.count(level, group) == self.layout.whole_size(level, group));
        groups
    }

    /// True where sockets do not hold several nodes.
    fn nodes_first(&self) -> bool {
        self.layout.group_count(Level::Socket) >= self.layout.group_count(Level::Node)
    }

    /// The groups with free CPUs: within each group of the level around them,
    /// fewest free CPUs first, then lowest id.
    pub fn order(&self, level: Level) -> Vec<u32> {
        let outer = match (level, self.nodes_first()) {
            (Level::Node, true) | (Level::Socket, false) => {
                return self.sorted((0..).take(self.layout.group_count(level)), level);
            }
            (Level::Socket, true) | (Level::L3, _) | (Level::Core, false) => Level::Node,
            (Level::Node, false) | (Level::Core, true) => Level::Socket,
        };
        let inside = |outer_group| self.layout.inside(outer, outer_group, level).iter().copied();
        let groups = self.order(outer).into_iter().flat_map(|outer_group| self.sorted(inside(outer_group), level));
        // What lies in two outer groups, such as a node on two sockets, counts where it comes first.
        let mut seen = vec![false; self.layout.group_count(level)];
        groups.filter(|&group| !std::mem::replace(&mut seen[group as usize], true)).collect()
    }

    fn sorted(&self, groups: impl Iterator<Item = u32>, level: Level) -> Vec<u32> {
        let mut groups: Vec<u32> = groups.filter(|&group| self.count(level, group) > 0).collect();
        // CPUs of unknown node come last: nothing can be said to be near them.
        let unknown = |group| level == Level::Node && self.layout.is_unknown_node(group);
        groups.sort_by_key(|&group| (unknown(group), self.count(level, group), group));
        groups
    }
}
