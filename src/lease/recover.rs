//! What launches left that are no more: their steps are undone, their leases taken out.

use super::belief::Moment;
use super::identity::uptime;
use super::journal::take_back;
use super::record::Event;
use super::{Entry, Lease, LedgerError, Life, Locked};
use crate::assume::Holdings;
use crate::host::audit::TARGET;
use nix::unistd::geteuid;
use std::collections::BTreeMap;
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

impl Recovered {
    /// Leaves out live leases that say what cannot be.
    pub fn disbelieve(&mut self, is_impossible: impl Fn(&Lease) -> bool) {
        for lease in self.live.extract_if(.., |lease| is_impossible(lease)) {
            let id = &lease.header.lease;
            let said =
                format!("lease {id}: no launch of user {} was given what it names: it holds nothing", lease.user);
            self.remarks.push(said);
        }
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
    let (moment, now) = (Moment::now(Path::new("/")), uptime(Path::new("/")));
    let mut junk = Junk::default();
    for entry in locked.ledger().entries()?.into_iter().filter(meant) {
        if let (Ok(lease), Some(damage)) = (&entry.lease, &entry.damage) {
            let cpus = &lease.header.held.cpus;
            recovered.remarks.push(format!("lease {}: {damage}: it holds CPUs {cpus}, as its cgroup does", entry.id));
        }
        match entry.lease {
            Ok(lease) if entry.life == Life::Alive => recovered.live.push(lease),
            Ok(lease) if moment.is_left_alone(&lease) => {}
            Ok(lease) if moment.is_unknown(&lease) => {
                let version = lease.header.version;
                let of_another =
                    format!("lease {}: a numa-run with ledger version {version} has to put it right", entry.id);
                recovered.remarks.push(of_another);
                recovered.stuck.push(lease);
            }
            Ok(lease) if moment.waits(&lease) && is_kept(locked, &lease, now) => recovered.waiting.push(lease),
            Ok(lease) => end(locked, lease, &mut recovered),
            Err(ref damage) => junk.found(&entry, damaged(locked, &entry, &damage.to_string())),
        }
    }
    recovered.remarks.extend(junk.remarks());
    Ok(recovered)
}

/// What is no lease, so that somebody who leaves much of it is not heard all the time.
#[derive(Debug, Default)]
struct Junk(BTreeMap<u32, Vec<String>>);

impl Junk {
    /// So many of a user's are said one by one.
    const SAID: usize = 3;

    fn found(&mut self, entry: &Entry, said: String) {
        self.0.entry(entry.user).or_default().push(format!("lease {}: {said}", entry.id));
    }

    fn remarks(self) -> impl Iterator<Item = String> {
        self.0.into_iter().flat_map(|(user, mut said)| {
            let more = said.len().saturating_sub(Self::SAID);
            said.truncate(Self::SAID);
            let rest = (more > 0).then(|| format!("{more} more files of user {user} are no leases either"));
            said.into_iter().chain(rest)
        })
    }
}

/// Whether a lease is kept for a restart; its end is written down when it is first seen.
fn is_kept(locked: &Locked<'_>, lease: &Lease, now: u64) -> bool {
    let own = lease.user == geteuid().as_raw();
    let noted = || own && locked.ledger().note(&lease.header.lease, &Event::Ended(now)).is_ok();
    lease.ended.is_some() || noted() || lease.user == 0
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
        tracing::info!(target: TARGET, lease = %id, "released: {}", lease.header.held);
    } else if lease.user == 0 && !lease.journal.is_empty() {
        // What root's launch did to the host stands until root puts it right.
        recovered.stuck.push(lease);
        return;
    }
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
