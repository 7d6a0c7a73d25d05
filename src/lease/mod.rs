//! Who holds what: one file for each lease in one ledger for the host.
//!
//! Reading order: `identity` says which process is meant, `record` is the
//! file's format, `belief` says how far another user's is believed, `life` judges
//! whether a lease's workload still runs, `rebuild` what a damaged one holds,
//! `ledger` is the folder (`folder` makes it safe, `listing` reads it) with its lock (`holder` has it,
//! `patience` waits for it), `journal` writes what undoes a step before the step
//! is done (`log` appends it), `heir` is the lease that such a step is handed on to, `recover` puts right what a launch left that is no
//! more, with `claim` where that may take its time, `watch` waits for its end,
//! `guardian` is who does, `nest` finds the lease that we are in, `queue` is who
//! waits for others, and `bell` wakes them.
//!
//! What keeps this true whatever happens:
//! - Free is derived, never stored: what no live lease holds.
//! - A lease appears by one rename and goes by one unlink. Its file is only ever
//!   appended to; a last line that is torn counts as not written.
//! - A lease is alive while somebody has its lock: an open file that the
//!   workload and its children inherit. The kernel drops it with the last of them.
//! - Others can read a lease and cannot open its lock: nobody can keep another
//!   user's lease alive.
#![allow(clippy::disallowed_methods)] // The ledger is written here.

pub mod belief;
pub mod bell;
pub mod claim;
pub mod drift;
pub mod folder;
pub mod guardian;
mod heir;
pub mod holder;
pub mod identity;
pub mod journal;
pub mod ledger;
pub mod life;
mod listing;
pub mod log;
pub mod nest;
mod patience;
pub mod queue;
pub mod rebuild;
pub mod record;
pub mod recover;
pub mod watch;

pub use identity::Identity;
pub use ledger::{Entry, Ledger, LedgerError, Locked};
pub use life::Life;

use crate::assume::Holdings;
use crate::plan::Plan;
use crate::request::{Mib, PageSize};
use crate::resource::Granted;
use crate::step::Undo;
use crate::topology::{Bdf, CpuSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// A launch and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// What every version can read.
    pub header: Header,
    /// The user whose file it is.
    pub user: u32,
    /// What undoes what the launch did to the host, in the order in which it was done.
    pub journal: Vec<Undo>,
    /// Whether the launch has come to its workload.
    pub running: bool,
    /// Whether what it did is being undone, or was when that was interrupted.
    pub ending: bool,
    /// What of it does not come back from the kernel; tried again by hand and by the timer only.
    pub stuck: Option<String>,
    /// When its end was first seen, in seconds since the boot.
    pub ended: Option<u64>,
    /// What tells its request from others, for a restart under the same name.
    pub request: String,
}

/// The first line of a lease: the same in all versions, which only add to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Format of the lines that follow.
    pub version: u32,
    /// Names the lease; its file is called like it.
    pub lease: String,
    /// The user's name for the launch.
    pub name: Option<String>,
    /// The process that launched, and after exec is the workload.
    pub owner: Identity,
    /// Inode of the lock.
    pub lock: u64,
    /// What the lock's file is called; none: like the lease.
    pub lock_file: Option<String>,
    /// What it holds.
    pub held: Held,
    /// Folder of its cgroup.
    pub group: Option<PathBuf>,
    /// The lease that it was taken out of.
    pub parent: Option<String>,
    /// Seconds for which what it held is kept for a restart under its name.
    pub grace: u64,
    /// When it began, in seconds since 1970, for people.
    pub since: u64,
    /// The workload's program, for people.
    pub command: String,
}

/// Format of the lines after the header.
pub const VERSION: u32 = 1;

/// What a lease holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// CPUs of its own.
    pub cpus: CpuSet,
    /// CPUs that it uses together with others.
    pub shared: CpuSet,
    /// MiB by node.
    pub memory: BTreeMap<u32, u64>,
    /// Hugepages by size in KiB, then node.
    pub pages: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// Devices.
    pub devices: BTreeSet<Bdf>,
}

impl fmt::Display for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.cpus.is_empty() {
            parts.push(format!("cpus {}", self.cpus));
        }
        if !self.shared.is_empty() {
            parts.push(format!("a share of cpus {}", self.shared));
        }
        parts.extend(self.memory.iter().map(|(node, &mib)| format!("{} on node {node}", Mib(mib))));
        for (&kib, nodes) in &self.pages {
            let size = PageSize::from_kib(kib);
            parts.extend(nodes.iter().map(|(node, count)| format!("{count} pages of {size} on node {node}")));
        }
        parts.extend(self.devices.iter().map(Bdf::to_string));
        out.write_str(&if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") })
    }
}

impl Held {
    /// What a plan takes.
    pub fn by(plan: &Plan) -> Held {
        let mut held = Held { shared: plan.shared_cpus.clone(), ..Held::default() };
        for allocation in &plan.allocations {
            match &allocation.granted {
                Granted::Cpus(cpus) => held.cpus = held.cpus.or(cpus),
                Granted::Mib(_) => held.memory.extend(&allocation.per_node),
                Granted::Pages { size, .. } => {
                    held.pages.entry(PageSize::kib(*size)).or_default().extend(&allocation.per_node);
                }
                Granted::Devices(grant) => held.devices.extend(grant.devices.iter().map(|device| device.bdf)),
            }
        }
        held
    }

    /// True where there is nothing to keep others from.
    pub fn is_empty(&self) -> bool {
        *self == Held::default()
    }
}

impl Lease {
    /// True while what it held is kept for a restart under its name.
    pub fn waits(&self, now: u64) -> bool {
        self.header.grace > 0 && self.ended.is_none_or(|ended| now < ended.saturating_add(self.header.grace))
    }

    /// What it keeps others from. Only root's leases hold devices: others may not use them by a lease of their own.
    pub fn holdings(&self) -> Holdings {
        let held = &self.header.held;
        let pages = held.pages.iter().flat_map(|(&kib, nodes)| nodes.iter().map(move |(&n, &count)| ((kib, n), count)));
        Holdings {
            cpus: held.cpus.clone(),
            shared: held.shared.clone(),
            memory: held.memory.clone(),
            pages: pages.collect(),
            devices: if self.user == 0 { held.devices.clone() } else { BTreeSet::new() },
        }
    }
}

/// What all of these leases keep others from. A lease that was taken out of
/// another of them holds nothing that the other does not hold already.
pub fn holdings<'a>(leases: impl IntoIterator<Item = &'a Lease>) -> Holdings {
    let leases: Vec<&Lease> = leases.into_iter().collect();
    let ids: BTreeSet<&str> = leases.iter().map(|lease| lease.header.lease.as_str()).collect();
    let part = |lease: &&&Lease| lease.header.parent.as_deref().is_some_and(|parent| ids.contains(parent));
    let whole = leases.iter().filter(|lease| !part(lease));
    whole.fold(Holdings::default(), |sum, lease| sum.plus(&lease.holdings()))
}
