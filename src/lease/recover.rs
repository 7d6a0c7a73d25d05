//! What launches left that are no more: their steps are undone, their leases taken out.

use super::journal::take_back;
use super::{Entry, Lease, LedgerError, Life, Locked};
use crate::assume::Holdings;
use crate::step::Undo;
use nix::unistd::geteuid;

/// What was found and done.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Leases that live.
    pub live: Vec<Lease>,
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
        super::holdings(self.live.iter().chain(&self.stuck))
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
    for entry in locked.ledger().entries()?.into_iter().filter(meant) {
        one(locked, entry, &mut recovered);
    }
    Ok(recovered)
}

fn one(locked: &Locked<'_>, entry: Entry, recovered: &mut Recovered) {
    let own = entry.user == geteuid().as_raw();
    let may = own || geteuid().is_root();
    let mut tell = |remark: String| recovered.remarks.push(format!("lease {}: {remark}", entry.id));
    match entry.lease {
        Ok(lease) if entry.life == Life::Alive => recovered.live.push(lease),
        // Of somebody else's lease, nothing is believed that he could not do himself: it just ends.
        Ok(lease) => match lease.journal.is_empty() || !own || take_back(&lease.journal, &mut tell).is_ok() {
            true => {
                if may && let Err(error) = locked.remove(&entry.id) {
                    tell(format!("cannot be removed: {error}"));
                }
                // What root's launch did to the host stands until root puts it right.
                let holds_on = !may && lease.user == 0 && lease.journal.iter().any(Undo::is_of_the_host);
                if holds_on { recovered.stuck.push(lease) } else { recovered.ended.push(lease) }
            }
            false => recovered.stuck.push(lease),
        },
        Err(damage) if may => match locked.set_aside(&entry.id) {
            Ok(aside) => tell(format!("{damage}: set aside as {}", aside.display())),
            Err(error) => tell(format!("{damage}, and it cannot be set aside: {error}")),
        },
        Err(damage) => tell(format!("{damage}: it is user {}'s, and holds nothing", entry.user)),
    }
}
