//! CPUs: which ones a request gets, chosen as the kubelet's static CPU
//! manager chooses them.
//!
//! Reading order:
//! - [`options`]: what the user may ask for beyond a number.
//! - [`layout`]: which core, cache, node and socket each CPU belongs to.
//! - [`mod@take`]: the choice of `n` CPUs among free ones; `distribute`, `l3` and
//!   `whole` are its parts.
//! - [`mod@alloc`]: a whole allocation (nodes first, then anywhere) and the
//!   reservation.
//! - [`mod@capacity`]: what CPUs say about nodes before anything is chosen.
//! - [`smt`]: what happens to the other threads of a core in use.
//!
//! Where the kubelet works with averages (CPUs by cores, CPUs by sockets) the
//! real cores and sockets count here, so that hybrid machines, offline CPUs
//! and uneven sockets are right; on uniform machines that is the same.

pub mod alloc;
pub mod capacity;
#[cfg(test)]
mod cases;
mod distribute;
mod explicit;
mod groups;
mod l3;
pub mod layout;
pub mod options;
mod provider;
pub mod smt;
pub mod take;
mod whole;

pub use alloc::{Ask, Grant, Reserved, alloc, reserve, shared_pool};
pub use capacity::{Stock, capacity};
pub use layout::{CpuLayout, CpuPlace};
pub use options::{CpuOptions, OptionError};
pub use provider::{CpuProvider, shared};
pub use smt::{SmtMode, exclusive_free, first_threads_of_free_cores, one_per_core};
pub use take::take;

/// Why CPUs cannot be handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// Fewer CPUs are free than asked for.
    #[error("not enough cpus: {wanted} wanted, {free} free")]
    NotEnough {
        /// CPUs asked for.
        wanted: usize,
        /// CPUs free.
        free: usize,
    },
    /// `full-cores` and a number that leaves part of a core over.
    #[error("{wanted} is not a multiple of {threads} threads per core")]
    NotAMultiple {
        /// CPUs asked for.
        wanted: usize,
        /// Threads of each core.
        threads: usize,
    },
    /// `full-cores` on cores of different widths, none of whose sums is the number.
    #[error("{wanted} cpus are no sum of whole cores: this machine's have {widths} threads")]
    NoSumOfCores {
        /// CPUs asked for.
        wanted: usize,
        /// The widths that there are, such as `1 or 2`.
        widths: String,
    },
    /// `full-cores` and fewer CPUs on cores without a reserved CPU than asked for.
    #[error("not enough cpus on whole cores: {wanted} wanted, {free} free on cores without a reserved cpu")]
    NotEnoughFreeCores {
        /// CPUs asked for.
        wanted: usize,
        /// CPUs free on cores without a reserved CPU.
        free: usize,
    },
}

impl CpuError {
    /// The error's name in test vectors and in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            CpuError::NotEnough { .. } => "not-enough-cpus",
            CpuError::NotAMultiple { .. } | CpuError::NoSumOfCores { .. } => "smt-not-a-multiple",
            CpuError::NotEnoughFreeCores { .. } => "smt-not-enough-free-cores",
        }
    }
}
