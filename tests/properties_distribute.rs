//! What holds for every plan with `--distribute`, under both merges: it hands
//! out what was asked for, evenly as far as what is free allows, and refuses
//! nothing that would be admitted without.

#![allow(clippy::unwrap_used, reason = "a plan that lacks what it must have is a failed test")]

use numa_run::assume::{Assume, AssumedDevice, Holdings, State};
use numa_run::config::Config;
use numa_run::hint::policy::Policy;
use numa_run::plan::{Facts, Plan, Surroundings, plan};
use numa_run::request::{
    CpuChoice, CpuRequest, DeviceRequest, HugepageRequest, MemoryRequest, Merge, PageAmount, PageSize, Request,
};
use numa_run::topology::{Bdf, Cpu, CpuSet, Machine, Node, PagePool};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// CPUs, MiB, pages and GPUs that are free on a node of ten CPUs, 4096 MiB and 40 pages.
type Free = (u32, u64, u64, u8);

#[derive(Clone, Debug)]
struct World {
    free: Vec<Free>,
    request: Request,
}

impl World {
    fn plan(&self, request: &Request) -> Plan {
        let (mut machine, mut assume, mut holdings) = (Machine::default(), Assume::default(), Holdings::default());
        for (node, &(cpus, mib, pages, gpus)) in (0..).zip(&self.free) {
            let own: CpuSet = (10 * node..10 * node + 10).collect();
            let place = |id: u32| Cpu { id, online: true, node: Some(node), socket: node, core: id, ..Cpu::default() };
            machine.cpus.extend(own.iter().map(place));
            let pool = PagePool { size_kib: 2048, total: 40, free: Some(pages) };
            // The pool takes its 80 MiB out of the node's memory.
            let memory_kib = (4096 + 80) * 1024;
            machine.nodes.push(Node {
                id: node,
                local_cpus: own.clone(),
                cpus: own.clone(),
                memory_kib,
                pages: vec![pool],
                ..Node::default()
            });
            holdings.cpus = holdings.cpus.or(&own.iter().skip(cpus as usize).collect());
            holdings.memory.insert(node, 4096 - mib);
            assume.device.extend((0..gpus).map(|number| AssumedDevice {
                class: "gpu".to_owned(),
                pci: Bdf { domain: 0, bus: node as u8 + 1, device: number, function: 0 },
                node: Some(node),
                state: State::Free,
            }));
        }
        let row = |from: usize| (0..self.free.len()).map(|to| if from == to { 10 } else { 20 }).collect();
        machine.distances = (0..self.free.len()).map(row).collect();
        let (config, surroundings) = (Config::default(), Surroundings::default());
        let facts = Facts {
            machine: &machine,
            config: &config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
        };
        plan(request, &facts)
    }

    /// What is free of a resource on each node.
    fn free_of(&self, resource: &str) -> Vec<u64> {
        let of = |&(cpus, mib, pages, _): &Free| match resource {
            "cpu" => cpus.into(),
            "memory" => mib,
            _ => pages,
        };
        self.free.iter().map(of).collect()
    }
}

prop_compose! {
    fn world()(
        free in prop::collection::vec((0..=10u32, 0..=4096u64, 0..=40u64, 0..3u8), 1..5),
        cpus in prop::option::weighted(0.8, 1..25u32),
        mib in prop::option::weighted(0.6, 1..9000u64),
        pages in prop::option::weighted(0.6, 1..90u64),
        gpus in 0..4u32,
        policy in prop::sample::select(Policy::ALL.to_vec()),
        merge in prop::sample::select(vec![Merge::Relative, Merge::Kubelet]),
    ) -> World {
        let cpus = cpus.map(|count| CpuRequest {
            choice: CpuChoice::Count(count, None),
            options: Default::default(),
            smt: Default::default(),
            kind: None,
        });
        let size = PageSize::from_kib(2048);
        let request = Request {
            cpus,
            memory: mib.map(|mib| MemoryRequest { mib: Some(mib), ..MemoryRequest::default() }),
            hugepages: pages.map(|pages| HugepageRequest { size, amount: PageAmount::Pages(pages) }).into_iter().collect(),
            devices: (gpus > 0).then(|| DeviceRequest::of("gpu", gpus)).into_iter().collect(),
            policy,
            merge,
            distribute: true,
            ..Request::default()
        };
        World { free, request }
    }
}

/// No node gives more than one unit more than another that has more free, and the lowest ids the one.
fn is_even(world: &World, plan: &Plan, resource: &str, per_node: &BTreeMap<u32, u64>) {
    let free = world.free_of(resource);
    let given = |node: u32| per_node.get(&node).copied().unwrap_or(0);
    for low in plan.span.iter().filter(|&node| given(node) < free[node as usize]) {
        for high in plan.span.iter() {
            assert!(given(high) <= given(low) + 1, "{resource} {plan:?}");
            assert!(given(high) <= given(low) || high < low, "{resource} {plan:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_distributed_is_all_of_it_and_as_even_as_can_be(world in world()) {
        let plan = world.plan(&world.request);
        let without = world.plan(&Request { distribute: false, ..world.request.clone() });
        prop_assert_eq!(plan.admitted, plan.refusal.is_none());
        prop_assert!(plan.admitted || !without.admitted, "{:?}", plan.refusal);
        if plan.admitted {
            for (said, granted) in plan.resources.iter().zip(&plan.allocations) {
                prop_assert_eq!(granted.per_node.values().sum::<u64>() + granted.unknown, said.wanted);
                let free = world.free_of(&granted.resource);
                if granted.resource != "gpu" {
                    prop_assert!(granted.per_node.iter().all(|(&node, &units)| units <= free[node as usize]));
                    is_even(&world, &plan, &granted.resource, &granted.per_node);
                }
            }
            prop_assert!(without.admitted && plan.span.len() <= without.span.len());
        }
    }
}
