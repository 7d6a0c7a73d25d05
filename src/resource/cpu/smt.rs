//! What happens to the other threads of a core in use.

use super::{CpuError, CpuLayout, CpuOptions, take};
use crate::topology::CpuSet;

/// How the threads of a core may be shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SmtMode {
    /// A core never serves two exclusive holders: threads left over stay idle.
    #[default]
    ExclusiveCore,
    /// Threads are handed out like CPUs of their own.
    Share,
    /// Numbers count cores; the first thread of each is handed out.
    OnePerCore,
}

/// The CPUs of the pool that another exclusive holder may get: not the held
/// ones and, unless threads are shared, none on a core with a held one. Held
/// CPUs count even where they are outside the pool.
pub fn exclusive_free(layout: &CpuLayout, pool: &CpuSet, held: &CpuSet, mode: SmtMode) -> CpuSet {
    let free = pool.and(layout.cpus()).minus(held);
    match mode {
        SmtMode::Share => free,
        SmtMode::ExclusiveCore | SmtMode::OnePerCore => free.minus(&layout.with_siblings(held)),
    }
}

/// The lowest usable CPU of each core of which all usable CPUs are free: with
/// [`CpuLayout::first_threads`] what `one-per-core` counts and chooses from.
pub fn first_threads_of_free_cores(layout: &CpuLayout, free: &CpuSet) -> CpuSet {
    let broken = layout.with_siblings(&layout.cpus().minus(free));
    layout.first_threads().cpus().minus(&broken)
}

/// Chooses whole free cores in the order of [`take()`] and returns the first
/// thread of each. A core whose other threads are offline is a free one.
pub fn one_per_core(layout: &CpuLayout, free: &CpuSet, cores: usize, options: &CpuOptions) -> Result<CpuSet, CpuError> {
    take(&layout.first_threads(), &first_threads_of_free_cores(layout, free), cores, options)
}
