//! What launches left that are no more: their steps are undone, their leases taken out.

use super::identity::uptime;
use super::journal::take_back;
use super::record::Event;
use super::{Entry, Lease, LedgerError, Life, Locked};
use crate::assume::Holdings;
use crate::host::audit::TARGET;
use crate::step::Undo;
use nix::unistd::geteuid;
use std::path::Path;

/// What was found and done.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Leases that live.
    pub live: Vec<Lease>,
    /// Leases of named launches that are kept for their restart.
    pub waiting: Vec<Lease>,
    /// Leases that were taken out.
    pub ended: Vec<Lease>,
    /// Leases of dead launches that hold on, because something could not be undone here.
    pub stuck: Vec<Lease>,
    /// What is to be said, one sentence each.
    pub remarks: Vec<String>,
}

impl Recovered {
    /// What a launch must keep off now.
    pub fn holdings(&self) -> Holdings {
        super::holdings(self.live.iter().chain(&self.waiting).chain(&self.stuck))
    }
}

/// Puts everything right that can be put right by this user.
///
/// # Errors
/// The ledger cannot be read.
pub fn recover(locked: &Locked<'_>) -> Result<Recovered, LedgerError> {
    let recovered = these(locked, |_| true)?;
    locked.sweep();
    Ok(recovered)
}

/// The same for some of the leases.
///
/// # Errors
/// The ledger cannot be read.
pub fn these(locked: &Locked<'_>, meant: impl Fn(&Entry) -> bool) -> Result<Recovered, LedgerError> {
    let mut recovered = Recovered::default();
    let now = uptime(Path::new("/"));
    for entry in locked.ledger().entries()?.into_iter().filter(meant) {
        match entry.lease {
            Ok(lease) if entry.life == Life::Alive => recovered.live.push(lease),
            Ok(lease) if is_kept(locked, &lease, now) => recovered.waiting.push(lease),
            Ok(lease) => end(locked, lease, &mut recovered),
            Err(ref damage) => {
                let said = damaged(locked, &entry, &damage.to_string());
                recovered.remarks.push(format!("lease {}: {said}", entry.id));
            }
        }
    }
    Ok(recovered)
}

/// Whether a lease is kept for a restart; its end is written down when it is first seen.
fn is_kept(locked: &Locked<'_>, lease: &Lease, now: u64) -> bool {
    if !lease.waits(now) || lease.header.owner.boot != super::identity::boot(Path::new("/")) {
        return false;
    }
    lease.ended.is_some() || locked.ledger().note(&lease.header.lease, &Event::Ended(now)).is_ok() || lease.user == 0
}

/// Undoes what a dead launch did, and takes its lease out.
pub fn end(locked: &Locked<'_>, lease: Lease, recovered: &mut Recovered) {
    let id = lease.header.lease.clone();
    let mut tell = |remark: String| recovered.remarks.push(format!("lease {id}: {remark}"));
    let own = lease.user == geteuid().as_raw();
    // Of somebody else's lease, nothing is believed that he could not do himself: it just ends.
    if own && take_back(&lease.journal, &mut tell).is_err() {
        recovered.stuck.push(lease);
        return;
    }
    if own || geteuid().is_root() {
        if let Err(error) = locked.remove(&id) {
            tell(format!("cannot be removed: {error}"));
        }
    } else if lease.user == 0 && lease.journal.iter().any(Undo::is_host_wide) {
        // What root's launch did to the host stands until root puts it right.
        recovered.stuck.push(lease);
        return;
    }
    tracing::info!(target: TARGET, lease = %id, "released: {}", lease.header.held);
    recovered.ended.push(lease);
}

fn damaged(locked: &Locked<'_>, entry: &Entry, damage: &str) -> String {
    if entry.user != geteuid().as_raw() && !geteuid().is_root() {
        return format!("{damage}: it is user {}'s, and holds nothing", entry.user);
    }
    match locked.set_aside(&entry.id) {
        Ok(aside) => format!("{damage}: set aside as {}", aside.display()),
        Err(error) => format!("{damage}, and it cannot be set aside: {error}"),
    }
}
