//! What launches hold, for people and for scripts.

use super::{printable, table, text as lines};
use crate::lease::drift::drift;
use crate::lease::{Entry, Held, Lease, Ledger, Life};
use crate::request::{Mib, PageSize};
use serde_json::{Value, json};

/// A table, a lease on each line.
pub fn text(ledger: &Ledger, entries: &[Entry]) -> String {
    if entries.is_empty() {
        return format!("nothing is held ({})\n", ledger.folder().display());
    }
    let mut table =
        table(&["lease", "name", "user", "pid", "state", "cpus", "memory", "hugepages", "devices", "command"]);
    for entry in entries {
        // What another user has written is shown on our terminal.
        table.add_row(row(entry).iter().map(|cell| printable(cell).replace('\n', " ")));
    }
    let stuck = entries.iter().filter_map(|entry| Some((&entry.id, entry.lease.as_ref().ok()?.stuck.as_ref()?)));
    let reasons = stuck
        .map(|(id, reason)| format!("lease {id} is stuck: {}; `numa-run gc` tries again\n", reason.replace('\n', " ")));
    let drifts = entries.iter().filter_map(|entry| Some((&entry.id, drift(entry)?)));
    let drifts = drifts.map(|(id, drift)| format!("lease {id} has drifted: {drift}\n"));
    lines(&table) + &printable(&reasons.chain(drifts).collect::<String>())
}

fn row(entry: &Entry) -> Vec<String> {
    let Ok(lease) = &entry.lease else {
        let mut row = vec![entry.id.clone(), String::new(), entry.user.to_string(), String::new(), "damaged".into()];
        row.resize(10, String::new());
        return row;
    };
    let header = &lease.header;
    let held = &header.held;
    let memory = held.memory.iter().map(|(node, &mib)| format!("{node}:{}", Mib(mib)));
    let devices = held.devices.iter().map(ToString::to_string);
    vec![
        entry.id.clone(),
        header.name.clone().unwrap_or_default(),
        entry.user.to_string(),
        header.owner.pid.to_string(),
        state(lease, entry.life).to_owned(),
        held.cpus.to_string(),
        memory.collect::<Vec<_>>().join(" "),
        pages(held),
        devices.collect::<Vec<_>>().join(" "),
        header.command.clone(),
    ]
}

fn pages(held: &Held) -> String {
    let of_size = held.pages.iter().flat_map(|(&kib, nodes)| {
        nodes.iter().map(move |(node, count)| format!("{node}:{}x{count}", PageSize::from_kib(kib)))
    });
    of_size.collect::<Vec<_>>().join(" ")
}

fn state(lease: &Lease, life: Life) -> &'static str {
    match life {
        _ if lease.stuck.is_some() => "stuck",
        Life::Alive if lease.ending => "ending",
        Life::Alive if lease.running => "running",
        Life::Alive => "starting",
        Life::Dead => "ended",
    }
}

/// The same as data.
pub fn json(ledger: &Ledger, entries: &[Entry]) -> Value {
    json!({
        "version": 1,
        "folder": ledger.folder(),
        "leases": entries.iter().map(one).collect::<Vec<_>>(),
    })
}

fn one(entry: &Entry) -> Value {
    match &entry.lease {
        Ok(lease) => {
            let header = &lease.header;
            json!({
                "lease": entry.id, "user": entry.user, "state": state(lease, entry.life), "name": header.name,
                "pid": header.owner.pid, "since": header.since, "command": header.command,
                "stuck": lease.stuck, "drift": drift(entry), "group": header.group, "parent": header.parent, "held": header.held,
                "to_undo": lease.journal.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        }
        Err(damage) => {
            json!({"lease": entry.id, "user": entry.user, "state": "damaged", "reason": damage.to_string()})
        }
    }
}
