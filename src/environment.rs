//! What the workload is told: variables, and templates in its arguments.

use crate::plan::Plan;
use crate::resource::pci::class::{self, Told};
use crate::resource::{Allocation, Device, Grant, Granted};
use crate::topology::{Bdf, Machine};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Facts about this start that are not in the plan.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Names this launch: unique among the live ones, and safe in a path.
    pub lease: String,
    /// Names by which the runtimes of GPUs know them, where a driver tells.
    pub gpu_uuids: BTreeMap<Bdf, String>,
    /// Names of variables that the caller has set.
    pub inherited: Vec<String>,
}

/// The variables to set.
pub fn variables(plan: &Plan, machine: &Machine, start: &Start) -> Vec<(String, OsString)> {
    let mut set: Vec<(String, String)> = vec![("NUMA_RUN_ALLOC_LEASE".into(), start.lease.clone())];
    let bound = || plan.memory.as_ref().map(|binding| binding.nodes.clone()).unwrap_or_default();
    let nodes = if plan.span.is_empty() { bound() } else { plan.span.clone() };
    if !nodes.is_empty() {
        set.push(("NUMA_RUN_ALLOC_NODES".into(), nodes.to_string()));
    }
    if !plan.shared_cpus.is_empty() {
        set.push(("NUMA_RUN_ALLOC_SHARED_CPUS".into(), plan.shared_cpus.to_string()));
    }
    set.extend(amounts("NUMA_RUN_ALLOC_", &plan.allocations));
    set.extend(openmp(plan, start));
    set.extend(members(plan));
    set.extend(device_variables(&grants(&plan.allocations), machine, start));
    set.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// CPUs, memory and pages, by themselves.
fn amounts(prefix: &str, granted: &[Allocation]) -> Vec<(String, String)> {
    let amount = |allocation: &Allocation| match &allocation.granted {
        Granted::Cpus(cpus) => Some((format!("{prefix}CPUS"), cpus.to_string())),
        Granted::Mib(mib) => Some((format!("{prefix}MEMORY"), format!("{mib}M"))),
        Granted::Pages { size, count } => Some((format!("{prefix}HUGEPAGES_{size}"), count.to_string())),
        Granted::Devices(_) => None,
    };
    granted.iter().filter_map(amount).collect()
}

/// What OpenMP goes by. Members are processes of their own: each has its number
/// of threads, and no places that are the same for all.
fn openmp(plan: &Plan, start: &Start) -> Vec<(String, String)> {
    let (Some(all), member) = (plan.cpus(), plan.members.first().and_then(Plan::cpus)) else { return Vec::new() };
    let places = all.iter().map(|cpu| format!("{{{cpu}}}")).collect::<Vec<_>>().join(",");
    let places = member.is_none().then_some(("OMP_PLACES", places));
    let usual = [("OMP_NUM_THREADS", member.unwrap_or(all).len().to_string())].into_iter().chain(places);
    let unset = |name: &str| !start.inherited.iter().any(|inherited| inherited == name);
    usual.filter(|(name, _)| unset(name)).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What each member is to have of it.
fn members(plan: &Plan) -> Vec<(String, String)> {
    let count = plan.members.len();
    let mut set: Vec<(String, String)> =
        (count > 0).then(|| ("NUMA_RUN_ALLOC_MEMBERS".to_owned(), count.to_string())).into_iter().collect();
    for (number, member) in plan.members.iter().enumerate() {
        let prefix = format!("NUMA_RUN_ALLOC_MEMBER_{number}_");
        set.push((format!("{prefix}NODES"), member.span.to_string()));
        set.extend(amounts(&prefix, &member.allocations));
        let grants = grants(&member.allocations);
        set.extend(by_class(&grants).into_iter().map(|(class, of_class)| {
            (format!("{prefix}{}", word(class)), joined(of_class.iter().flat_map(|grant| &grant.devices)))
        }));
    }
    set
}

fn by_class<'a>(grants: &[&'a Grant]) -> Vec<(&'a str, Vec<&'a Grant>)> {
    let mut classes: Vec<&str> = grants.iter().map(|grant| grant.class.as_str()).collect();
    classes.dedup();
    let of = |class: &str| grants.iter().filter(|grant| grant.class == class).copied().collect();
    classes.into_iter().map(|class| (class, of(class))).collect()
}

/// The devices of each class, and each by its number and its name.
fn device_variables(grants: &[&Grant], machine: &Machine, start: &Start) -> Vec<(String, String)> {
    let mut set: Vec<(String, String)> = Vec::new();
    for (class, of_class) in by_class(grants) {
        set.extend(class_variables(class, &of_class));
    }
    let all: Vec<&Device> = grants.iter().flat_map(|grant| &grant.devices).collect();
    set.extend(class::variables(&all, &Told { machine, uuids: &start.gpu_uuids }));
    set
}

fn class_variables(class: &str, grants: &[&Grant]) -> Vec<(String, String)> {
    let word = word(class);
    let devices: Vec<(Option<&str>, &Device)> =
        grants.iter().flat_map(|grant| grant.devices.iter().map(|device| (grant.name.as_deref(), device))).collect();
    let list = joined(devices.iter().map(|(_, device)| *device));
    let info: BTreeMap<String, serde_json::Value> = devices.iter().enumerate().map(info).collect();
    let mut set = vec![
        (format!("NUMA_RUN_ALLOC_{word}"), list.clone()),
        (format!("PCIDEVICE_{word}"), list),
        (format!("PCIDEVICE_{word}_INFO"), serde_json::to_string(&info).unwrap_or_default()),
    ];
    let each = devices.iter().enumerate();
    set.extend(each.map(|(number, (_, device))| (format!("NUMA_RUN_ALLOC_{word}_{number}"), device.bdf.to_string())));
    let named = grants.iter().filter_map(|grant| Some((grant.name.as_deref()?, grant)));
    set.extend(
        named.map(|(name, grant)| (format!("NUMA_RUN_ALLOC_{word}_{}", self::word(name)), joined(&grant.devices))),
    );
    set
}

/// As part of a variable's name.
fn word(text: &str) -> String {
    text.to_uppercase().replace('-', "_")
}

fn joined<'a>(devices: impl IntoIterator<Item = &'a Device>) -> String {
    devices.into_iter().map(|device| device.bdf.to_string()).collect::<Vec<_>>().join(",")
}

fn info((number, (name, device)): (usize, &(Option<&str>, &Device))) -> (String, serde_json::Value) {
    let name = name.map_or_else(|| number.to_string(), str::to_owned);
    let generic = serde_json::json!({"deviceID": device.bdf, "name": name, "node": device.node});
    (device.bdf.to_string(), serde_json::json!({ "generic": generic }))
}

/// The value of a template such as `cpus` or `gpu.0.uuid`.
pub fn template(name: &str, plan: &Plan, start: &Start) -> Option<String> {
    match name {
        "cpus" | "lcores" => Some(plan.cpus()?.to_string()),
        "shared-cpus" => (!plan.shared_cpus.is_empty()).then(|| plan.shared_cpus.to_string()),
        "nodes" => Some(plan.span.to_string()),
        "lease" => Some(start.lease.clone()),
        "numa-mem" => numa_memory(plan),
        _ => device(name, plan, start),
    }
}

/// MiB by node, as DPDK's --socket-mem takes them: `0,1024`.
fn numa_memory(plan: &Plan) -> Option<String> {
    let granted = plan.allocations.iter().find(|allocation| matches!(allocation.granted, Granted::Mib(_)))?;
    let last = granted.nodes().last()?;
    let amount = |node: u32| granted.per_node.get(&node).copied().unwrap_or(0).to_string();
    Some((0..=last).map(amount).collect::<Vec<_>>().join(","))
}

/// `vf.0` counts within the class, `vf.n3` is what the user named, `vf.n3.1` one of several;
/// behind it may come what is to be told of it.
fn device(name: &str, plan: &Plan, start: &Start) -> Option<String> {
    let mut parts = name.split('.').peekable();
    let class = parts.next()?;
    let grants = grants(&plan.allocations).into_iter().filter(|grant| grant.class == class);
    let grants: Vec<&Grant> = grants.collect();
    let which = parts.next()?;
    let devices: Vec<&Device> = match which.parse::<usize>() {
        Ok(index) => vec![*grants.iter().flat_map(|grant| &grant.devices).collect::<Vec<_>>().get(index)?],
        Err(_) => {
            let named = &grants.iter().find(|grant| grant.name.as_deref() == Some(which))?.devices;
            match parts.peek().and_then(|part| part.parse::<usize>().ok()) {
                Some(index) => vec![parts.next().and_then(|_| named.get(index))?],
                None => named.iter().collect(),
            }
        }
    };
    let field = parts.next();
    let told = |device: &&Device| match field {
        None => Some(device.bdf.to_string()),
        Some("uuid") => start.gpu_uuids.get(&device.bdf).cloned(),
        Some("node") => device.node.map(|node| node.to_string()),
        Some(_) => None,
    };
    let values = devices.iter().map(told).collect::<Option<Vec<String>>>()?;
    parts.next().is_none().then(|| values.join(","))
}

fn grants(allocations: &[Allocation]) -> Vec<&Grant> {
    let grants = allocations.iter().filter_map(|allocation| match &allocation.granted {
        Granted::Devices(grant) => Some(grant),
        _ => None,
    });
    grants.collect()
}
