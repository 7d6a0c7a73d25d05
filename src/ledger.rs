//! What is done about leases by hand: `status`, `release`, `gc`.

use crate::cli::{LedgerArgs, ReleaseArgs, StatusArgs};
use crate::host::units;
use crate::launch::LOCK_LIMIT;
use crate::lease::{Entry, Life, ledger, recover};
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
    let locked = ledger.lock(LOCK_LIMIT)?;
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
    let mut done = recover::Recovered::default();
    let keep = arguments.unit && units::restarts(&arguments.lease);
    let leases =
        entries.into_iter().filter(|entry| called(entry, &arguments.lease)).filter_map(|entry| entry.lease.ok());
    match keep {
        // Its end is written down, and the time runs for which it is kept.
        true => done = recover::these(&locked, |entry| called(entry, &arguments.lease))?,
        false => leases.for_each(|lease| recover::end(&locked, lease, &mut done)),
    }
    recovered(&done)
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
    let locked = ledger.lock(LOCK_LIMIT)?;
    recovered(&recover::recover(&locked)?)
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
