//! What launches left that are no more: their steps are undone, their leases taken out.

use super::belief::{Moment, is_believed};
use super::bell::Bell;
use super::claim::Claim;
use super::journal::take_back;
use super::record::Event;
use super::{Entry, Lease, Ledger, LedgerError, Life, Locked};
use crate::assume::Holdings;
use crate::fault;
use crate::host::audit::TARGET;
use crate::host::cgroup;
use crate::host::undo::undo;
use crate::step::Undo;
use nix::unistd::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

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
    /// Leases whose workload has ended while somebody undoes what their launches did: soon nothing holds it.
    pub fn ending(&self) -> Vec<String> {
        // Of another user's, that would be but a word to have us wait.
        let ending = self.live.iter().filter(|lease| is_believed(lease.user) && lease.ending && lease.stuck.is_none());
        ending.map(|lease| lease.header.lease.clone()).collect()
    }

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

/// Whether what did not come back from the kernel once is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// No: a launch has others to start.
    Once,
    /// Yes: that is what was asked for.
    Again,
}

/// How long all that may block may take together.
const LIMIT: Duration = Duration::from_secs(20);

/// Puts everything right that can be put right by this user, and comes back
/// with the ledger locked. What may block in the kernel is undone while the
/// ledger is not locked, by who has claimed its lease.
///
/// # Errors
/// The ledger cannot be locked or read.
pub fn settle<'a>(ledger: &'a Ledger, effort: Effort, discard: Option<&str>) -> Result<Settled<'a>, LedgerError> {
    these(ledger, effort, discard, &|_| true)
}

/// The ledger with its lock, and what was found in it.
pub type Settled<'a> = (Locked<'a>, Recovered);

/// The same for some of the leases. The one to be discarded is not kept for a restart.
///
/// # Errors
/// The ledger cannot be locked or read.
pub fn these<'a>(
    ledger: &'a Ledger,
    effort: Effort,
    discard: Option<&str>,
    meant: &dyn Fn(&Entry) -> bool,
) -> Result<Settled<'a>, LedgerError> {
    let end = Instant::now() + LIMIT;
    let mut round = Round {
        effort,
        discard,
        tried: BTreeSet::new(),
        names: Vec::new(),
        locks: BTreeSet::new(),
        remarks: Vec::new(),
    };
    loop {
        let locked = ledger.lock(LOCK_LIMIT)?;
        let (mut recovered, claims) = round.look(&locked, meant)?;
        if claims.is_empty() {
            locked.sweep(&round.names, &round.locks);
            recovered.remarks.splice(..0, round.remarks);
            return Ok((locked, recovered));
        }
        round.remarks.append(&mut recovered.remarks);
        drop(locked);
        fault::point("recover.unlocked");
        // Those that time does not reach are dead as before.
        for claim in claims.into_iter().take_while(|_| Instant::now() < end) {
            claim.undo(end, &mut |remark| round.remarks.push(remark));
            fault::point("recover.undone");
        }
    }
}

/// How long is waited for another launch that is being made.
pub const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// One look at the ledger after the other, until nothing is left to be done outside of its lock.
struct Round<'a> {
    effort: Effort,
    discard: Option<&'a str>,
    /// Leases that were claimed before.
    tried: BTreeSet<String>,
    /// All that is in the ledger's folder.
    names: Vec<String>,
    /// Locks of all leases.
    locks: BTreeSet<String>,
    remarks: Vec<String>,
}

impl Round<'_> {
    fn look(
        &mut self,
        locked: &Locked<'_>,
        meant: &dyn Fn(&Entry) -> bool,
    ) -> Result<(Recovered, Vec<Claim>), LedgerError> {
        let (mut recovered, mut claims) = (Recovered::default(), Vec::new());
        let moment = Moment::read(Path::new("/"));
        let mut junk = Junk::default();
        let (entries, names) = locked.ledger().everything()?;
        self.names = names;
        let leases = entries.iter().filter_map(|entry| entry.lease.as_ref().ok());
        self.locks = leases.map(|lease| Ledger::lock_name(&lease.header).into_owned()).collect();
        for entry in entries.into_iter().filter(meant) {
            recovered.remarks.extend(rebuilt(&entry));
            match entry.lease {
                // Who hangs in the kernel with it keeps it alive.
                Ok(lease) if entry.life == Life::Alive && lease.stuck.is_some() => recovered.stuck.push(lease),
                Ok(lease) if entry.life == Life::Alive => recovered.live.push(lease),
                Ok(lease) if moment.is_left_alone(&lease) => {}
                Ok(lease) if moment.is_unknown(&lease) => {
                    recovered.remarks.push(of_another_version(&lease));
                    recovered.stuck.push(lease);
                }
                Ok(lease) if self.keeps(&lease) && moment.waits(&lease) && is_kept(locked, &lease, moment.now()) => {
                    recovered.waiting.push(lease);
                }
                Ok(lease) if is_own(&lease) && Claim::is_needed(&lease) => {
                    claims.extend(self.claim(locked, lease, &mut recovered));
                }
                Ok(lease) => end(locked, lease, &mut recovered),
                Err(ref damage) => junk.found(&entry, damaged(locked, &entry, &damage.to_string())),
            }
        }
        recovered.remarks.extend(junk.remarks());
        Ok((recovered, claims))
    }

    fn keeps(&self, lease: &Lease) -> bool {
        self.discard != Some(&lease.header.lease)
    }

    /// None where it is not to be tried, again or at all.
    fn claim(&mut self, locked: &Locked<'_>, lease: Lease, recovered: &mut Recovered) -> Option<Claim> {
        let tired = lease.stuck.is_some() && self.effort == Effort::Once;
        if tired || !self.tried.insert(lease.header.lease.clone()) {
            recovered.stuck.push(lease);
            return None;
        }
        let claim = Claim::take(locked, lease.clone());
        if let Err(error) = &claim {
            recovered.remarks.push(format!("lease {}: cannot be ended: {error}", lease.header.lease));
            recovered.stuck.push(lease);
        }
        claim.ok()
    }
}

/// What is said of a damaged lease whose cgroup still tells what it holds.
fn rebuilt(entry: &Entry) -> Option<String> {
    let (Ok(lease), Some(damage)) = (&entry.lease, &entry.damage) else { return None };
    let cpus = &lease.header.held.cpus;
    Some(format!("lease {}: {damage}: it holds CPUs {cpus}, as its cgroup does", entry.id))
}

fn of_another_version(lease: &Lease) -> String {
    let (id, version) = (&lease.header.lease, lease.header.version);
    format!("lease {id}: a numa-run with ledger version {version} has to put it right")
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

/// Waits until nobody undoes what these launches did, as long as one who undoes has time for it.
pub fn wait_for(ledger: &Ledger, ending: &[String]) {
    let (bell, end) = (Bell::of(&ledger.leases()), Instant::now() + LIMIT);
    let goes_on = |id: &String| {
        let entry = ledger.look_up(id).filter(|entry| entry.life == Life::Alive);
        entry.is_some_and(|entry| entry.lease.is_ok_and(|lease| lease.stuck.is_none()))
    };
    while ending.iter().any(goes_on) && bell.wait(end) {}
}

/// Whether a lease is kept for a restart; its end is written down when it is first seen.
fn is_kept(locked: &Locked<'_>, lease: &Lease, now: u64) -> bool {
    let noted = || is_own(lease) && locked.ledger().note(&lease.header.lease, &Event::Ended(now)).is_ok();
    lease.ended.is_some() || noted() || lease.user == 0
}

fn is_own(lease: &Lease) -> bool {
    lease.user == geteuid().as_raw()
}

/// Undoes what a dead launch did, and takes its lease out.
fn end(locked: &Locked<'_>, lease: Lease, recovered: &mut Recovered) {
    let id = lease.header.lease.clone();
    let mut tell = |remark: String| recovered.remarks.push(format!("lease {id}: {remark}"));
    let own = is_own(&lease);
    // Of somebody else's lease, nothing is believed that he could not do himself: it just ends.
    if own && take_back(&lease.journal, &mut undo, &mut tell).is_err() {
        recovered.stuck.push(lease);
        return;
    }
    if own || geteuid().is_root() {
        if let Err(error) = locked.remove(&lease) {
            tell(format!("cannot be removed: {error}"));
        }
        tracing::info!(target: TARGET, lease = %id, "released: {}", lease.header.held);
    } else if lease.user == 0 && lease.journal.iter().any(Undo::is_host_wide) {
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
    let own = entry.user == geteuid().as_raw();
    // Nothing else knows of it any more.
    let group = entry.group.as_ref().filter(|_| own).map(|group| (group, cgroup::remove(group)));
    let stays = match group {
        Some((group, Err(error))) => format!("; its cgroup {} stays: {error}", group.display()),
        _ => String::new(),
    };
    match locked.set_aside(&entry.id) {
        Ok(aside) => format!("{damage}: set aside as {}{stays}", aside.display()),
        Err(error) => format!("{damage}, and it cannot be set aside: {error}"),
    }
}
