//! Network ports that carry the host's own traffic.

use super::{Files, InUse};
use crate::topology::PciFunction;
use std::collections::{BTreeMap, BTreeSet};

const NET: &str = "sys/class/net";

/// The functions whose interfaces are used.
pub(super) fn used(files: &Files, functions: &[&PciFunction], addressed: &BTreeSet<String>) -> InUse {
    let interfaces = functions.iter().flat_map(|function| function.interfaces.iter().map(|name| (function.bdf, name)));
    let mut interfaces = interfaces.peekable();
    if interfaces.peek().is_none() {
        return InUse::new();
    }
    let traffic = traffic(files, addressed);
    interfaces.filter_map(|(bdf, name)| Some((bdf, reason(files, name, &traffic)?))).collect()
}

/// Interfaces that have addresses or routes, and which of the two, in words.
fn traffic(files: &Files, addressed: &BTreeSet<String>) -> BTreeMap<String, &'static str> {
    let mut traffic: BTreeMap<String, &str> = BTreeMap::new();
    let mut routed = |name: &str, default: bool| {
        let words = if default { "carries the default route" } else { "has a route" };
        let known = traffic.entry(name.to_owned()).or_insert(words);
        if default {
            *known = words;
        }
    };
    let table = files.text("proc/net/route").unwrap_or_default();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [name, destination, _, _, _, _, _, mask, ..] = fields[..] {
            routed(name, destination == "00000000" && mask == "00000000");
        }
    }
    let table = files.text("proc/net/ipv6_route").unwrap_or_default();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [destination, length, .., name] = fields[..]
            && !is_everybodys(destination)
        {
            routed(name, length == "00");
        }
    }
    // The kernel's own catch-all that rejects is there too.
    traffic.remove("lo");
    let listed = files.text("proc/net/if_inet6").unwrap_or_default();
    let global = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Each interface that is up has an address of scope link (20).
    let global = global.filter(|fields| fields.get(3).is_some_and(|scope| *scope == "00"));
    let global: Vec<String> = global.filter_map(|fields| Some((*fields.get(5)?).to_owned())).collect();
    for name in addressed.iter().cloned().chain(global) {
        let known = traffic.entry(name).or_insert("has an address");
        if *known == "has a route" {
            *known = "has an address";
        }
    }
    traffic
}

/// Multicast and link-local routes: each interface that is up has them.
fn is_everybodys(destination: &str) -> bool {
    destination.starts_with("ff") || destination.starts_with("fe80")
}

fn reason(files: &Files, name: &str, traffic: &BTreeMap<String, &'static str>) -> Option<String> {
    let folder = format!("{NET}/{name}");
    if let Some(words) = traffic.get(name) {
        return Some(format!("{name} {words}"));
    }
    if let Some(master) = files.link(format!("{folder}/master")) {
        let master = master.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        return Some(format!("{name} is a port of {master}"));
    }
    for (file, what) in [("brport", "a bridge"), ("bonding_slave", "a bond")] {
        if files.exists(format!("{folder}/{file}")) {
            return Some(format!("{name} is a port of {what}"));
        }
    }
    let uppers = files.names(&folder);
    let upper = uppers.iter().find_map(|entry| entry.strip_prefix("upper_"))?;
    Some(format!("{name} carries {upper}"))
}
