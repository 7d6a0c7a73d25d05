//! Virtual functions outlive the launch that made them while another one has
//! some of them: the last of these removes them.

use super::record::Event;
use super::{Entry, Ledger, Life};
use crate::fault;
use crate::host::sriov;
use crate::step::Undo;
use crate::topology::Bdf;
use std::path::Path;

/// Hands what removes virtual functions on to another lease that holds one of
/// them. Returns its name.
pub fn of(undo: &Undo, file: &Path) -> Option<String> {
    let Undo::RemoveVfs(remove) = undo else { return None };
    let leases = file.parent()?;
    let ledger = Ledger::find(Some(leases.parent()?), leases);
    let own = file.file_stem()?.to_str()?;
    let entries = ledger.entries().ok()?;
    let heirs = || entries.iter().filter(|entry| entry.id != own && holds_one(entry, remove.port));
    let heir = heirs().find(|entry| has(entry, remove.port)).or_else(|| heirs().next())?;
    if !has(heir, remove.port) {
        ledger.note(&heir.id, &Event::Undo(undo.clone())).ok()?;
        fault::point("heir.told");
    }
    Some(heir.id.clone())
}

/// Only root's leases hold devices. One that is kept for a restart holds them too.
fn holds_one(entry: &Entry, port: Bdf) -> bool {
    let Ok(lease) = &entry.lease else { return false };
    let holds = entry.life == Life::Alive || lease.waits(0) || lease.stuck.is_some();
    let of_the_port = |device: &Bdf| sriov::port_of(*device) == Some(port);
    entry.user == 0 && holds && !lease.ending && lease.header.held.devices.iter().any(of_the_port)
}

fn has(entry: &Entry, port: Bdf) -> bool {
    let removes = |undo: &Undo| matches!(undo, Undo::RemoveVfs(other) if other.port == port);
    entry.lease.as_ref().is_ok_and(|lease| lease.journal.iter().any(removes))
}
