//! What holds for all device requests, whatever they are.

#![allow(clippy::unwrap_used, reason = "tests fail where they cannot go on")]

use numa_run::assume::{Assume, Holdings};
use numa_run::config::Config;
use numa_run::hint::policy::Policy;
use numa_run::plan::{self, Facts, Plan, Surroundings};
use numa_run::request::device::told_apart;
use numa_run::request::{DeviceRequest, Request, Settable};
use numa_run::resource::{Grant, Granted};
use numa_run::topology::{Bdf, Cpu, CpuSet, Machine, Node, PciFunction};
use proptest::prelude::*;
use std::collections::BTreeSet;

const VENDORS: [u16; 3] = [0x15b3, 0x8086, 0x14e4];

fn machine(functions: &[(usize, Option<u32>)]) -> Machine {
    let node = |id: u32| {
        let cpus: CpuSet = [id].into_iter().collect();
        Node { id, local_cpus: cpus.clone(), cpus, memory_kib: 1 << 20, ..Node::default() }
    };
    let cpu = |id: u32| Cpu { id, online: true, node: Some(id), core: id, socket: id, ..Cpu::default() };
    let pci = functions.iter().enumerate().map(|(at, &(vendor, node))| PciFunction {
        bdf: Bdf { bus: at as u8, ..Bdf::default() },
        class: 0x020000,
        vendor: VENDORS[vendor],
        node,
        ..PciFunction::default()
    });
    Machine {
        nodes: (0..3).map(node).collect(),
        cpus: (0..3).map(cpu).collect(),
        distances: vec![vec![10, 21, 21], vec![21, 10, 21], vec![21, 21, 10]],
        pci: pci.collect(),
        ..Machine::default()
    }
}

/// Which functions would do: all, those of a vendor, that of the first bus.
fn like(kind: usize) -> (String, fn(usize, &PciFunction) -> bool) {
    match kind {
        0 => (String::new(), |_, _| true),
        1 => (":vendor=mellanox".into(), |_, function| function.vendor == VENDORS[0]),
        2 => (":vendor=intel".into(), |_, function| function.vendor == VENDORS[1]),
        _ => (":address=0000:00:*".into(), |at, _| at == 0),
    }
}

type World = (Vec<(usize, Option<u32>)>, Vec<(usize, u32)>, BTreeSet<usize>, Policy);

fn world() -> impl Strategy<Value = World> {
    let node = prop_oneof![4 => (0u32..3).prop_map(Some), 1 => Just(None)];
    let functions = prop::collection::vec((0usize..3, node), 1..10);
    let requests = prop::collection::vec((0usize..4, 1u32..4), 1..4);
    let held = prop::collection::btree_set(0usize..10, 0..3);
    let policy = prop_oneof![
        Just(Policy::None),
        Just(Policy::BestEffort),
        Just(Policy::Restricted),
        Just(Policy::SingleNumaNode)
    ];
    (functions, requests, held, policy)
}

fn planned((functions, requests, held, policy): &World) -> (Machine, Plan) {
    let machine = machine(functions);
    let one = |&(kind, count): &(usize, u32)| {
        DeviceRequest::parse("nic", &format!("{count}{}", like(kind).0), Settable::Nothing).unwrap()
    };
    let devices = told_apart(requests.iter().map(one).collect()).unwrap();
    let request = Request { devices, policy: *policy, ..Request::default() };
    let holdings = Holdings {
        devices: held.iter().filter_map(|&at| Some(machine.pci.get(at)?.bdf)).collect(),
        ..Holdings::default()
    };
    let (config, assume, surroundings) = (Config::default(), Assume::default(), Surroundings::default());
    let facts =
        Facts { machine: &machine, config: &config, assume: &assume, holdings: &holdings, surroundings: &surroundings };
    let plan = plan::plan(&request, &facts);
    (machine, plan)
}

/// Tries all ways to give each request its devices, one after the other.
fn possible(machine: &Machine, wanted: &[usize], taken: &mut BTreeSet<usize>) -> bool {
    let Some((&kind, rest)) = wanted.split_first() else { return true };
    let fits = like(kind).1;
    (0..machine.pci.len()).any(|at| {
        if taken.contains(&at) || !fits(at, &machine.pci[at]) {
            return false;
        }
        taken.insert(at);
        let done = possible(machine, rest, taken);
        taken.remove(&at);
        done
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_get_different_devices_that_are_as_asked_whenever_there_are_some(world in world()) {
        let (machine, plan) = planned(&world);
        let (_, requests, held, policy) = &world;
        let singles: Vec<usize> =
            requests.iter().flat_map(|&(kind, count)| std::iter::repeat_n(kind, count as usize)).collect();
        let can = singles.len() <= machine.pci.len() && possible(&machine, &singles, &mut held.clone());
        if matches!(policy, Policy::None | Policy::BestEffort) {
            prop_assert_eq!(plan.admitted, can, "{:?}", plan.refusal);
        }
        prop_assert!(can || !plan.admitted);
        if plan.admitted {
            let mut all = BTreeSet::new();
            for (allocation, &(kind, count)) in plan.allocations.iter().zip(requests) {
                let Granted::Devices(Grant { devices, .. }) = &allocation.granted else { panic!("{plan:?}") };
                prop_assert_eq!(devices.len(), count as usize);
                for device in devices {
                    let at = machine.pci.iter().position(|function| function.bdf == device.bdf).unwrap();
                    prop_assert!(like(kind).1(at, &machine.pci[at]) && !held.contains(&at));
                    prop_assert!(all.insert(device.bdf), "given twice");
                }
            }
            // What the policy promised is what was given.
            if *policy == Policy::SingleNumaNode && plan.allocations.iter().all(|given| given.unknown == 0) {
                prop_assert!(plan.span.len() <= 1, "{:?}", plan);
            }
        }
    }
}
