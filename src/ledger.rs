//! What is done about leases by hand: `status`, `release`, `gc`.

use crate::cli::{LedgerArgs, ReleaseArgs, StatusArgs};
use crate::host::units;
use crate::lease::recover::{self, Effort};
use crate::lease::{Entry, Life, guardian, ledger};
use crate::{observe, report};
use anyhow::{Context, bail};

/// `numa-run status`.
///
/// # Errors
/// The ledger cannot be read, or no such lease is in it.
pub fn status(arguments: &StatusArgs) -> anyhow::Result<u8> {
    let ledger = observe::ledger(arguments.ledger.run_dir.as_deref());
    let mut entries = ledger.entries()?;
    if let Some(lease) = &arguments.lease {
        entries.retain(|entry| called(entry, lease));
        if entries.is_empty() {
            bail!("no lease is called `{lease}` in {}: `numa-run status` lists them", ledger.folder().display());
        }
    }
    let text = match arguments.json {
        true => format!("{}\n", report::status::json(&ledger, &entries)),
        false => report::status::text(&ledger, &entries),
    };
    report::answer(&text).context("cannot write the answer")?;
    Ok(0)
}

/// `numa-run release`: what a unit does when its program has ended.
///
/// # Errors
/// The launch still runs, or something could not be put right.
pub fn release(arguments: &ReleaseArgs) -> anyhow::Result<u8> {
    let ledger = observe::ledger(arguments.ledger.run_dir.as_deref());
    let entries = ledger.entries()?;
    let mut meant = entries.iter().filter(|entry| called(entry, &arguments.lease)).peekable();
    if meant.peek().is_none() {
        // It may have been put right already, by a launch or by the timer.
        report::say(format!("numa-run: no lease is called `{}`: nothing to release\n", arguments.lease));
        return Ok(0);
    }
    if let Some(alive) = meant.find(|entry| entry.life == Life::Alive) {
        let pid = alive.lease.as_ref().map_or(0, |lease| lease.header.owner.pid);
        bail!("lease {} is in use (process {pid}): end the workload first", alive.id);
    }
    let meant = |entry: &Entry| called(entry, &arguments.lease);
    // Where it is about to restart, its end is written down, and the time runs for which it is kept.
    let keep = arguments.unit && units::restarts(&arguments.lease);
    let discard = entries.iter().find(|entry| meant(entry)).map(|entry| entry.id.as_str()).filter(|_| !keep);
    recovered(&recover::these(&ledger, Effort::Again, discard, &meant)?.1)
}

/// `numa-run gc`.
///
/// # Errors
/// Something could not be put right.
pub fn gc(arguments: &LedgerArgs) -> anyhow::Result<u8> {
    let ledger = observe::ledger(arguments.run_dir.as_deref());
    if !ledger.leases().exists() {
        return Ok(0);
    }
    let (locked, mut found) = recover::settle(&ledger, Effort::Again, None)?;
    let ending = found.ending();
    if !ending.is_empty() {
        // Somebody else puts them right at this moment: afterwards they are, or are ours.
        drop(locked);
        recover::wait_for(&ledger, &ending);
        let mut again = recover::settle(&ledger, Effort::Again, None)?.1;
        again.remarks.splice(..0, found.remarks);
        found = again;
    }
    recovered(&found)
}

/// `numa-run guard`, which launches start by themselves.
///
/// # Errors
/// The lease could not be waited for or put right.
pub fn guard(arguments: &ReleaseArgs) -> anyhow::Result<u8> {
    let ledger = observe::ledger(arguments.ledger.run_dir.as_deref());
    guardian::guard(&ledger, &arguments.lease)?;
    Ok(0)
}

fn recovered(recovered: &recover::Recovered) -> anyhow::Result<u8> {
    recovered.remarks.iter().for_each(|remark| report::say(format!("numa-run: {remark}\n")));
    let stuck: Vec<&str> = recovered.stuck.iter().map(|lease| lease.header.lease.as_str()).collect();
    match stuck.is_empty() {
        true => Ok(0),
        false => bail!("not put right: {}", stuck.join(", ")),
    }
}

/// Names are each user's own. Another's lease is meant by its id, which he
/// cannot have made the name of a launch of ours.
fn called(entry: &Entry, name: &str) -> bool {
    let own = entry.user == nix::unistd::geteuid().as_raw();
    let named = || entry.lease.as_ref().is_ok_and(|lease| lease.header.name.as_deref() == Some(name));
    entry.id == name && (own || ledger::is_made_id(name)) || own && named()
}
