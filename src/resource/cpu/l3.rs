//! CPUs that share an L3 cache: whole groups first, then one group that holds
//! all of the rest.

use super::groups::Level;
use super::take::Picker;

impl Picker<'_> {
    /// Takes whole free L3 groups, then looks for one that can hold the rest.
    pub fn take_l3(&mut self) {
        let order = self.order(Level::L3);
        self.take_whole(Level::L3);
        for l3 in order {
            if self.needed == 0 {
                return;
            }
            let part = self.part_of_l3(l3);
            if part.len() == self.needed {
                part.into_iter().for_each(|cpu| self.take_cpu(cpu));
            }
        }
    }

    /// Free CPUs of the lowest cores of the group, as many cores as the rest
    /// would fill. Of a core too many, the highest CPU is left out.
    fn part_of_l3(&self, l3: u32) -> Vec<u32> {
        let layout = self.layout;
        let cores = layout.inside(Level::L3, l3, Level::Core);
        let threads = cores.iter().map(|&core| layout.whole_size(Level::Core, core)).max().unwrap_or(1);
        let with_free = cores.iter().filter(|&&core| self.count(Level::Core, core) > 0);
        let chosen = with_free.take(self.needed.div_ceil(threads));
        let cpus = chosen.flat_map(|&core| layout.members(Level::Core, core)).copied();
        let mut cpus: Vec<u32> = cpus.filter(|&cpu| self.is_free(cpu)).collect();
        cpus.sort_unstable();
        if self.needed % 2 == 1 && threads > 1 && cpus.len() > self.needed {
            cpus.pop();
        }
        cpus
    }
}
