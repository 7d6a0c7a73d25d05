//! What the workload is told: variables, and templates in its arguments.

use crate::plan::Plan;
use crate::resource::pci::{AMD, INTEL, NVIDIA};
use crate::resource::{Allocation, Device, Granted};
use crate::topology::{Bdf, CpuSet, Machine};
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
    set.push(("NUMA_RUN_ALLOC_NODES".into(), plan.span.to_string()));
    if !plan.shared_cpus.is_empty() {
        set.push(("NUMA_RUN_ALLOC_SHARED_CPUS".into(), plan.shared_cpus.to_string()));
    }
    for allocation in &plan.allocations {
        match &allocation.granted {
            Granted::Cpus(cpus) => set.extend(cpu_variables(cpus, start)),
            Granted::Mib(mib) => set.push(("NUMA_RUN_ALLOC_MEMORY".into(), format!("{mib}M"))),
            Granted::Pages { size, count } => {
                set.push((format!("NUMA_RUN_ALLOC_HUGEPAGES_{size}"), count.to_string()));
            }
            Granted::Devices(devices) => set.extend(device_variables(allocation, devices, machine, start)),
        }
    }
    set.into_iter().map(|(name, value)| (name, value.into())).collect()
}

fn cpu_variables(cpus: &CpuSet, start: &Start) -> Vec<(String, String)> {
    let mut set = vec![("NUMA_RUN_ALLOC_CPUS".to_owned(), cpus.to_string())];
    let places = cpus.iter().map(|cpu| format!("{{{cpu}}}")).collect::<Vec<_>>().join(",");
    let usual = [("OMP_NUM_THREADS", cpus.len().to_string()), ("OMP_PLACES", places)];
    let unset = |name: &str| !start.inherited.iter().any(|inherited| inherited == name);
    set.extend(usual.into_iter().filter(|(name, _)| unset(name)).map(|(name, value)| (name.to_owned(), value)));
    set
}

fn device_variables(
    allocation: &Allocation,
    devices: &[Device],
    machine: &Machine,
    start: &Start,
) -> Vec<(String, String)> {
    let class = allocation.resource.to_uppercase().replace('-', "_");
    let addresses = devices.iter().map(|device| device.bdf.to_string()).collect::<Vec<_>>().join(",");
    let info: BTreeMap<String, serde_json::Value> = devices.iter().enumerate().map(info).collect();
    let info = serde_json::to_string(&info).unwrap_or_default();
    let mut set = vec![
        (format!("NUMA_RUN_ALLOC_{class}"), addresses.clone()),
        (format!("PCIDEVICE_{class}"), addresses),
        (format!("PCIDEVICE_{class}_INFO"), info),
    ];
    let each = devices.iter().enumerate();
    set.extend(each.map(|(name, device)| (format!("NUMA_RUN_ALLOC_{class}_{name}"), device.bdf.to_string())));
    if allocation.resource == "gpu" {
        set.extend(gpu_variables(devices, machine, start));
    }
    set
}

fn info((name, device): (usize, &Device)) -> (String, serde_json::Value) {
    let generic = serde_json::json!({"deviceID": device.bdf, "name": name.to_string(), "node": device.node});
    (device.bdf.to_string(), serde_json::json!({ "generic": generic }))
}

fn gpu_variables(devices: &[Device], machine: &Machine, start: &Start) -> Vec<(String, String)> {
    let of = |vendor: u16| -> Option<String> {
        let these: Vec<&Device> = devices.iter().filter(|device| device.vendor == vendor).collect();
        (!these.is_empty()).then(|| visible(vendor, &these, machine, start))
    };
    let mut set = Vec::new();
    if let Some(list) = of(NVIDIA) {
        // An index means the PCI order only together with this; CUDA's own order is fastest first.
        set.push(("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()));
        set.push(("CUDA_VISIBLE_DEVICES".to_owned(), list));
    }
    set.extend(of(AMD).map(|list| ("ROCR_VISIBLE_DEVICES".to_owned(), list)));
    set.extend(of(INTEL).map(|list| ("ZE_AFFINITY_MASK".to_owned(), list)));
    set
}

/// UUIDs where all are known, else positions among the vendor's GPUs in PCI order.
fn visible(vendor: u16, devices: &[&Device], machine: &Machine, start: &Start) -> String {
    let uuids: Option<Vec<String>> = devices.iter().map(|device| start.gpu_uuids.get(&device.bdf).cloned()).collect();
    if let Some(uuids) = uuids.filter(|_| vendor != INTEL) {
        return uuids.join(",");
    }
    let holds = crate::resource::pci::class("gpu").map(|class| class.holds);
    let all =
        machine.pci.iter().filter(|function| function.vendor == vendor && holds.is_some_and(|holds| holds(function)));
    let all: Vec<Bdf> = all.map(|function| function.bdf).collect();
    let position = |device: &&Device| all.iter().position(|bdf| *bdf == device.bdf).map(|index| index.to_string());
    devices.iter().filter_map(position).collect::<Vec<_>>().join(",")
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

fn device(name: &str, plan: &Plan, start: &Start) -> Option<String> {
    let mut parts = name.split('.');
    let (class, index, field) = (parts.next()?, parts.next()?, parts.next());
    let allocation = plan.allocations.iter().find(|allocation| allocation.resource == class)?;
    let Granted::Devices(devices) = &allocation.granted else { return None };
    let device = devices.get(index.parse::<usize>().ok()?)?;
    match (field, parts.next()) {
        (None, None) => Some(device.bdf.to_string()),
        (Some("uuid"), None) => start.gpu_uuids.get(&device.bdf).cloned(),
        (Some("node"), None) => device.node.map(|node| node.to_string()),
        _ => None,
    }
}
