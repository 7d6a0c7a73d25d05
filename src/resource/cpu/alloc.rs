//! A whole allocation: the nodes of the merged hint first, then anywhere.

use super::groups::Level;
use super::{CpuError, CpuLayout, CpuOptions, take, whole};
use crate::topology::{CpuSet, NodeMask};

/// What an allocation starts from.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// CPUs wanted.
    pub wanted: usize,
    /// Nodes of the merged hint; none: anywhere.
    pub mask: Option<NodeMask>,
    /// The shared pool: CPUs that nobody holds exclusively, reserved ones among them.
    pub shared: CpuSet,
    /// CPUs that are never handed out.
    pub reserved: CpuSet,
    /// CPUs held already by what this allocation takes the place of.
    pub reusable: CpuSet,
}

/// CPUs handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The CPUs.
    pub cpus: CpuSet,
    /// The shared pool without them.
    pub shared_after: CpuSet,
    /// True when all of them are under one L3 cache.
    pub l3_aligned: bool,
}

/// CPUs set aside for the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The CPUs.
    pub cpus: CpuSet,
    /// The same with the other threads of their cores.
    pub cores: CpuSet,
}

/// Chooses CPUs for a request. The free ones are the shared pool less the
/// reserved ones, and the reusable ones.
pub fn alloc(layout: &CpuLayout, ask: &Ask, options: &CpuOptions) -> Result<Grant, CpuError> {
    if options.full_cores {
        check_full_cores(layout, ask)?;
    }
    let whole_only = options.full_cores && !layout.is_uniform();
    let mut free = ask.shared.minus(&ask.reserved).or(&ask.reusable).and(layout.cpus());
    if whole_only {
        free = layout.whole_cores(&free);
    }
    let near = match &ask.mask {
        Some(mask) if options.align_socket => free.and(&layout.cpus_on_sockets_of(mask)),
        Some(mask) => free.and(&layout.cpus_on(mask)),
        None => CpuSet::new(),
    };
    let from_near = match whole_only {
        true => most_in_whole_cores(layout, &near, &free.minus(&near), ask.wanted),
        false => ask.wanted.min(near.len()),
    };
    let aligned = take(layout, &near, from_near, options)?;
    let others = take(layout, &free.minus(&aligned), ask.wanted - aligned.len(), options)?;
    let cpus = aligned.or(&others);
    Ok(Grant { shared_after: ask.shared.minus(&cpus), l3_aligned: layout.share_l3(&cpus), cpus })
}

/// Chooses CPUs of an idle machine to set aside for the system.
pub fn reserve(layout: &CpuLayout, count: usize, options: &CpuOptions) -> Result<Reserved, CpuError> {
    let cpus = take(layout, layout.cpus(), count, options)?;
    Ok(Reserved { cores: layout.with_siblings(&cpus), cpus })
}

/// The shared pool of an idle machine: all CPUs; with `strict-reservation`
/// without the reserved ones.
pub fn shared_pool(layout: &CpuLayout, reserved: &CpuSet, options: &CpuOptions) -> CpuSet {
    if options.strict_reservation { layout.cpus().minus(reserved) } else { layout.cpus().clone() }
}

/// Refuses what cannot be whole cores. Where all cores are alike this is the
/// kubelet's check, which counts CPUs; where they differ, whole cores must add up.
fn check_full_cores(layout: &CpuLayout, ask: &Ask) -> Result<(), CpuError> {
    let wanted = ask.wanted;
    let untouched = ask.shared.minus(&layout.with_siblings(&ask.reserved)).and(layout.cpus());
    if layout.is_uniform() {
        let threads = layout.threads_per_core();
        return match untouched.len() {
            _ if !wanted.is_multiple_of(threads) => Err(CpuError::NotAMultiple { wanted, threads }),
            free if free < wanted => Err(CpuError::NotEnoughFreeCores { wanted, free }),
            _ => Ok(()),
        };
    }
    let widths = core_widths(layout, layout.cpus());
    if !adds_up(&widths, wanted) {
        return Err(no_sum(wanted, widths));
    }
    let free = layout.whole_cores(&untouched);
    match free.len() < wanted || !adds_up(&core_widths(layout, &free), wanted) {
        true => Err(CpuError::NotEnoughFreeCores { wanted, free: free.len() }),
        false => Ok(()),
    }
}

/// How many CPUs to take near, so that these are whole cores and the rest can be.
fn most_in_whole_cores(layout: &CpuLayout, near: &CpuSet, far: &CpuSet, wanted: usize) -> usize {
    let [near, far] = [near, far].map(|cpus| whole::sums(core_widths(layout, cpus), wanted));
    (0..=wanted).rev().find(|&count| near[count] && far[wanted - count]).unwrap_or(0)
}

/// True when some of these cores have so many threads together, or when the
/// machine is too small and other such cores could.
fn adds_up(widths: &[usize], wanted: usize) -> bool {
    match widths {
        [first, rest @ ..] if rest.iter().all(|width| width == first) => wanted.is_multiple_of(*first),
        _ => wanted > widths.iter().sum::<usize>() || whole::sums(widths.iter().copied(), wanted)[wanted],
    }
}

/// Threads of each core that is wholly in the set.
fn core_widths(layout: &CpuLayout, cpus: &CpuSet) -> Vec<usize> {
    let whole = layout.whole_cores(cpus);
    let firsts =
        layout.indexes(&whole).filter(|&cpu| layout.members(Level::Core, layout.group_of(Level::Core, cpu))[0] == cpu);
    firsts.map(|cpu| layout.whole_size(Level::Core, layout.group_of(Level::Core, cpu))).collect()
}

fn no_sum(wanted: usize, mut widths: Vec<usize>) -> CpuError {
    widths.sort_unstable();
    widths.dedup();
    if let [threads] = widths[..] {
        return CpuError::NotAMultiple { wanted, threads };
    }
    let widths: Vec<String> = widths.iter().map(usize::to_string).collect();
    CpuError::NoSumOfCores { wanted, widths: widths.join(" or ") }
}
