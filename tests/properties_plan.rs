//! What holds for every plan, on any machine: a placement holds exactly what
//! was asked for and nobody else has, and a refusal hands out nothing.

#![allow(clippy::unwrap_used, reason = "a plan that lacks what it must have is a failed test")]

use numa_run::assume::{Assume, AssumedDevice, Holdings, State};
use numa_run::config::{Config, Reserved};
use numa_run::hint::policy::Policy;
use numa_run::plan::{Facts, Plan, Surroundings, plan};
use numa_run::request::{CpuChoice, CpuRequest, DeviceRequest, MemoryRequest, Request};
use numa_run::resource::cpu::{CpuOptions, SmtMode};
use numa_run::resource::prefer::Answers;
use numa_run::resource::{Allocation, Grant, Granted};
use numa_run::topology::{Bdf, Cpu, CpuSet, Machine, Node};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Everything that a plan depends on.
#[derive(Clone, Debug)]
struct World {
    machine: Machine,
    config: Config,
    assume: Assume,
    holdings: Holdings,
    surroundings: Surroundings,
    request: Request,
}

impl World {
    fn plan(&self) -> Plan {
        self.plan_for(&self.request)
    }

    fn plan_for(&self, request: &Request) -> Plan {
        let World { machine, config, assume, holdings, surroundings, .. } = self;
        plan(request, &Facts { machine, config, assume, holdings, surroundings, answers: &Answers::default() })
    }
}

/// Cores of `threads` threads, some on each node.
fn machine(cores: &[u32], mib: &[u64], threads: u32) -> Machine {
    let total: u32 = cores.iter().sum();
    let mut machine = Machine::default();
    let mut core = 0;
    for (id, (&count, &mib)) in cores.iter().zip(mib).enumerate() {
        let id = id as u32;
        let first: CpuSet = (core..core + count).collect();
        let cpus: CpuSet = (0..threads).flat_map(|thread| first.iter().map(move |cpu| cpu + thread * total)).collect();
        let place =
            |cpu: u32| Cpu { id: cpu, online: true, node: Some(id), socket: id, core: cpu % total, ..Cpu::default() };
        machine.cpus.extend(cpus.iter().map(place));
        machine.nodes.push(Node { id, local_cpus: cpus.clone(), cpus, memory_kib: mib * 1024, ..Node::default() });
        core += count;
    }
    machine.cpus.sort_by_key(|cpu| cpu.id);
    let row = |from: usize| (0..cores.len()).map(|to| if from == to { 10 } else { 20 }).collect();
    machine.distances = (0..cores.len()).map(row).collect();
    machine
}

prop_compose! {
    fn world()(
        shape in prop::collection::vec((1..6u32, 0..4u64), 1..5),
        threads in 1..3u32,
        held in any::<u64>(),
        held_too in any::<u64>(),
        reserved in any::<u64>(),
        few in 0..3u8,
        devices in prop::collection::vec((prop::option::of(0..6u32), any::<bool>(), any::<bool>()), 0..6),
        cpus in prop::option::weighted(0.8, 1..9u32),
        mib in prop::option::weighted(0.4, 1..5u64),
        gpus in prop::sample::select(vec![0, 0, 0, 1, 2]),
        nics in prop::sample::select(vec![0, 0, 0, 1]),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        smt in prop::sample::select(vec![SmtMode::ExclusiveCore, SmtMode::Share, SmtMode::OnePerCore]),
        option in 0..5u8,
        prefer_closest in any::<bool>(),
    ) -> World {
        let (cores, mib_of): (Vec<u32>, Vec<u64>) = shape.iter().map(|&(cores, half)| (cores, half * 512)).unzip();
        let machine = machine(&cores, &mib_of, threads);
        let online = machine.online();
        let held = if few == 0 { CpuSet::new() } else { CpuSet::from_bits(held & held_too).and(&online) };
        let reserved = if few == 1 { CpuSet::from_bits(reserved & held_too).and(&online) } else { CpuSet::new() };
        let device = |(index, &(node, gpu, taken)): (usize, &(Option<u32>, bool, bool))| AssumedDevice {
            class: if gpu { "gpu" } else { "nic" }.to_owned(),
            pci: Bdf { domain: 0, bus: 16 + index as u8, device: 0, function: 0 },
            node: node.filter(|&node| (node as usize) < cores.len()),
            state: if taken && few == 2 { State::Held } else { State::Free },
        };
        let assume = Assume { device: devices.iter().enumerate().map(device).collect(), ..Assume::default() };
        let holdings = Holdings { cpus: held.minus(&reserved), ..assume.holdings() };
        let options = CpuOptions {
            full_cores: option == 1 && smt != SmtMode::OnePerCore,
            spread_nodes: option == 2,
            spread_cores: option == 3,
            prefer_l3: option == 4,
            ..CpuOptions::default()
        };
        let asked = [("gpu", gpus), ("nic", nics)].into_iter().filter(|(_, count)| *count > 0);
        let cpus = cpus.map(|count| CpuRequest { choice: CpuChoice::Count(count, None), options, smt, kind: None });
        let request = Request {
            cpus,
            memory: mib.map(|mib| MemoryRequest { mib: Some(mib * 200), ..MemoryRequest::default() }),
            devices: asked.map(|(class, count)| DeviceRequest::of(class, count)).collect(),
            policy,
            prefer_closest,
            ..Request::default()
        };
        let config = Config { reserved: Reserved { cpus: reserved, memory: None }, ..Config::default() };
        World { machine, config, assume, holdings, surroundings: Surroundings::default(), request }
    }
}

fn sum(allocation: &Allocation) -> u64 {
    allocation.per_node.values().sum::<u64>() + allocation.unknown
}

fn granted<'a>(plan: &'a Plan, resource: &str) -> &'a Allocation {
    plan.allocations.iter().find(|allocation| allocation.resource == resource).unwrap()
}

fn cpus_are_right(world: &World, plan: &Plan, asked: &CpuRequest) {
    let allocation = granted(plan, "cpu");
    let (CpuChoice::Count(count, _), Granted::Cpus(cpus)) = (&asked.choice, &allocation.granted) else {
        panic!("{plan:?}")
    };
    assert_eq!(cpus.len(), *count as usize);
    assert_eq!(sum(allocation), u64::from(*count));
    assert!(cpus.is_subset(&world.machine.online()));
    assert!(cpus.is_disjoint(&world.config.reserved.cpus) && cpus.is_disjoint(&world.holdings.cpus));
    let core = |cpu: u32| world.machine.cpu(cpu).unwrap().core;
    let held: BTreeSet<u32> = world.holdings.cpus.iter().map(core).collect();
    let cores: BTreeSet<u32> = cpus.iter().map(core).collect();
    assert!(asked.smt == SmtMode::Share || held.is_disjoint(&cores), "a core serves one holder");
    assert!(asked.smt != SmtMode::OnePerCore || cores.len() == cpus.len(), "one thread of each core");
    let threads = world.machine.cpus.iter().filter(|cpu| cores.contains(&cpu.core)).count();
    assert!(!asked.options.full_cores || threads == cpus.len(), "whole cores");
}

fn devices_are_right(world: &World, plan: &Plan, asked: &DeviceRequest) {
    let allocation = granted(plan, &asked.class);
    let Granted::Devices(Grant { devices, .. }) = &allocation.granted else { panic!("{plan:?}") };
    let distinct: BTreeSet<Bdf> = devices.iter().map(|device| device.bdf).collect();
    assert_eq!(distinct.len(), asked.count as usize);
    assert_eq!(sum(allocation), u64::from(asked.count));
    assert!(distinct.is_disjoint(&world.holdings.devices));
}

fn memory_is_right(world: &World, plan: &Plan, mib: u64) {
    let allocation = granted(plan, "memory");
    assert_eq!(sum(allocation), mib);
    let fits = |(&node, &taken): (&u32, &u64)| taken <= world.machine.node(node).unwrap().memory_kib / 1024;
    assert!(allocation.per_node.iter().all(fits));
    assert_eq!(plan.memory.as_ref().unwrap().nodes, allocation.nodes());
}

/// The request with the amounts that a refusal recommends.
fn recommended(world: &World, message: &str) -> Option<Request> {
    let (_, tail) = message.rsplit_once("; ")?;
    let options = tail.strip_suffix(" would be admitted now")?;
    let mut less = world.request.clone();
    let words: Vec<&str> = options.split(' ').collect();
    for pair in words.chunks(2) {
        let amount = |unit: u64| pair[1].trim_end_matches(['M', 'G']).parse::<u64>().unwrap() * unit;
        match pair[0] {
            "--cpus" => less.cpus.as_mut()?.choice = CpuChoice::Count(amount(1) as u32, None),
            "--memory" => less.memory.as_mut()?.mib = Some(amount(if pair[1].ends_with('G') { 1024 } else { 1 })),
            class => less.devices.iter_mut().find(|device| device.class == class[2..])?.count = amount(1) as u32,
        }
    }
    Some(less)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_admitted_plan_holds_exactly_what_was_asked_for(world in world()) {
        let plan = world.plan();
        prop_assert_eq!(plan.admitted, plan.refusal.is_none());
        if plan.admitted {
            world.request.cpus.iter().for_each(|asked| cpus_are_right(&world, &plan, asked));
            world.request.devices.iter().for_each(|asked| devices_are_right(&world, &plan, asked));
            world.request.memory.iter().for_each(|asked| memory_is_right(&world, &plan, asked.mib.unwrap()));
            prop_assert!(plan.preferred || matches!(world.request.policy, Policy::None | Policy::BestEffort));
            let unknown = plan.allocations.iter().any(|allocation| allocation.unknown > 0);
            prop_assert!(world.request.policy != Policy::SingleNumaNode || unknown || plan.aligned, "{:?}", plan);
            prop_assert_eq!(plan.aligned, plan.remarks.iter().all(|remark| !remark.starts_with("not aligned")));
        } else {
            prop_assert!(plan.allocations.is_empty() && plan.span.is_empty() && plan.memory.is_none());
            prop_assert!(!plan.refusal.as_ref().unwrap().message.is_empty());
        }
    }

    #[test]
    fn what_a_refusal_recommends_is_admitted(world in world()) {
        let refusal = world.plan().refusal.map(|refusal| refusal.message).unwrap_or_default();
        if let Some(less) = recommended(&world, &refusal) {
            prop_assert!(world.plan_for(&less).admitted, "{}", refusal);
        }
    }

    #[test]
    fn stricter_policies_admit_less_and_the_same_facts_give_the_same_plan(world in world()) {
        prop_assert_eq!(format!("{:?}", world.plan()), format!("{:?}", world.plan()));
        let admits = Policy::ALL.map(|policy| world.plan_for(&Request { policy, ..world.request.clone() }).admitted);
        prop_assert_eq!(admits[0], admits[1], "best-effort admits whatever can be met");
        prop_assert!(admits[1] || !admits[2]);
        prop_assert!(admits[2] || !admits[3], "{:?}", admits);
    }
}
