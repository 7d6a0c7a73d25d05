//! A machine of nodes that are alike but for what is free on them, and a request for it.

use numa_run::assume::{Assume, AssumedDevice, Holdings, State};
use numa_run::config::Config;
use numa_run::hint::policy::Policy;
use numa_run::plan::{Facts, Plan, Surroundings, plan};
use numa_run::request::{
    CpuChoice, CpuRequest, DeviceRequest, HugepageRequest, MemoryRequest, Merge, PageAmount, PageSize, Request,
};
use numa_run::resource::prefer::Answers;
use numa_run::topology::{Bdf, Cpu, CpuSet, Machine, Node, PagePool};
use proptest::prelude::*;

/// CPUs, MiB, pages and GPUs that are free on a node of ten CPUs, 4096 MiB and 40 pages.
pub type Free = (u32, u64, u64, u8);

/// Everything that a plan depends on.
#[derive(Clone, Debug)]
pub struct World {
    pub free: Vec<Free>,
    pub request: Request,
}

impl World {
    pub fn machine(&self) -> Machine {
        let mut machine = Machine::default();
        for node in 0..self.free.len() as u32 {
            let cpus = cpus(node);
            let place = |id: u32| Cpu { id, online: true, node: Some(node), socket: node, core: id, ..Cpu::default() };
            machine.cpus.extend(cpus.iter().map(place));
            let pages = self.free[node as usize].2;
            let pages = vec![PagePool { size_kib: 2048, total: 40, free: Some(pages) }];
            // The pool takes its 80 MiB out of the node's memory.
            let memory_kib = (4096 + 80) * 1024;
            machine.nodes.push(Node { id: node, local_cpus: cpus.clone(), cpus, memory_kib, pages, ..Node::default() });
        }
        let row = |from: usize| (0..self.free.len()).map(|to| if from == to { 10 } else { 20 }).collect();
        machine.distances = (0..self.free.len()).map(row).collect();
        machine
    }

    pub fn plan(&self, request: &Request) -> Plan {
        let (mut assume, mut holdings) = (Assume::default(), Holdings::default());
        for (node, &(free, mib, _, gpus)) in (0..).zip(&self.free) {
            holdings.cpus = holdings.cpus.or(&cpus(node).iter().skip(free as usize).collect());
            holdings.memory.insert(node, 4096 - mib);
            assume.device.extend((0..gpus).map(|number| AssumedDevice {
                class: "gpu".to_owned(),
                pci: Bdf { domain: 0, bus: node as u8 + 1, device: number, function: 0 },
                node: Some(node),
                state: State::Free,
            }));
        }
        let (config, surroundings, answers) = (Config::default(), Surroundings::default(), Answers::default());
        let facts = Facts {
            machine: &self.machine(),
            config: &config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
            answers: &answers,
        };
        plan(request, &facts)
    }

    /// What is free of a resource on each node.
    pub fn free_of(&self, resource: &str) -> Vec<u64> {
        let of = |&(cpus, mib, pages, gpus): &Free| match resource {
            "cpu" => cpus.into(),
            "memory" => mib,
            "gpu" => gpus.into(),
            _ => pages,
        };
        self.free.iter().map(of).collect()
    }
}

fn cpus(node: u32) -> CpuSet {
    (10 * node..10 * node + 10).collect()
}

prop_compose! {
    /// A world, and a request for up to so many CPUs, MiB, pages and GPUs.
    pub fn world(most: Free)(
        free in prop::collection::vec((0..=10u32, 0..=4096u64, 0..=40u64, 0..4u8), 1..5),
        cpus in prop::option::weighted(0.8, 1..=most.0),
        mib in prop::option::weighted(0.6, 1..=most.1),
        pages in prop::option::weighted(0.6, 1..=most.2),
        gpus in 0..=u32::from(most.3),
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
            ..Request::default()
        };
        World { free, request }
    }
}
