//! What holds for all device requests, whatever they are.

#![allow(clippy::unwrap_used, reason = "tests fail where they cannot go on")]

use numa_run::assume::{Assume, Holdings};
use numa_run::config::Config;
use numa_run::hint::policy::Policy;
use numa_run::plan::{self, Facts, Plan, Surroundings};
use numa_run::request::device::told_apart;
use numa_run::request::{DeviceRequest, Merge, Request, Settable};
use numa_run::resource::prefer::{Answers, Place, Question, Verdict};
use numa_run::resource::{Allocation, Grant, Granted};
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

fn planned(world: &World) -> (Machine, Plan) {
    let (machine, mut plans) = asked(world, Merge::Relative, &Config::default(), |_| String::new());
    (machine, plans.remove(0))
}

/// The plan of a world, and those that follow when what it asks is answered, until nothing is asked.
fn asked(
    (functions, requests, held, policy): &World,
    merge: Merge,
    config: &Config,
    mut answer: impl FnMut(&Question) -> String,
) -> (Machine, Vec<Plan>) {
    let machine = machine(functions);
    let one = |&(kind, count): &(usize, u32)| {
        DeviceRequest::parse("nic", &format!("{count}{}", like(kind).0), Settable::Nothing).unwrap()
    };
    let devices = told_apart(requests.iter().map(one).collect()).unwrap();
    let request = Request { devices, policy: *policy, merge, ..Request::default() };
    let holdings = Holdings {
        devices: held.iter().filter_map(|&at| Some(machine.pci.get(at)?.bdf)).collect(),
        ..Holdings::default()
    };
    let (assume, surroundings, mut answers) = (Assume::default(), Surroundings::default(), Answers::default());
    let mut plans = Vec::new();
    loop {
        let facts = Facts {
            machine: &machine,
            config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
            answers: &answers,
        };
        plans.push(plan::plan(&request, &facts));
        let questions = plans.last().map(|plan| plan.questions.clone()).unwrap_or_default();
        if questions.is_empty() {
            return (machine, plans);
        }
        for question in questions {
            let verdict = Verdict::of(&question, answer(&question).as_bytes());
            assert_eq!(answers.insert(question, verdict), None, "asked twice");
        }
    }
}

/// Numbers that look random and are the same each time.
fn below(seed: &mut u64, bound: usize) -> usize {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*seed >> 33) as usize % bound
}

/// Any set: one that is as asked, one that may be, or nonsense.
fn any_answer(seed: &mut u64, question: &Question) -> (bool, String) {
    let mut draw = |mut from: Vec<Bdf>, count: usize| -> Vec<Bdf> {
        while from.len() > count {
            from.remove(below(seed, from.len()));
        }
        from
    };
    let own = |place: &Place| place.from.iter().map(|device| device.bdf).collect();
    let chosen: Vec<Bdf> = question.places.iter().flat_map(|place| draw(own(place), place.count)).collect();
    let good = [question.must_include(), chosen].concat();
    let other = draw(question.available(), question.size());
    let set = |set: &[Bdf]| serde_json::json!({"preferred": [{"devices": set, "cost": 1}]}).to_string();
    match below(seed, 4) {
        0 => (false, set(&other)),
        1 => (false, "{}".into()),
        _ => (true, set(&good)),
    }
}

fn devices(plan: &Plan) -> Vec<Vec<Bdf>> {
    plan.devices().map(|grant| grant.devices.iter().map(|device| device.bdf).collect()).collect()
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

    #[test]
    fn a_plugin_changes_which_devices_and_nothing_else_whatever_it_answers(
        world in world(),
        kubelet in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let merge = if kubelet { Merge::Kubelet } else { Merge::Relative };
        let config: Config = toml::from_str("[class.nic]\nprefer = \"/plugin\"").unwrap();
        let (_, plain) = asked(&world, merge, &Config::default(), |_| unreachable!("nobody is asked"));
        let run = || {
            let (mut seed, mut followed) = (seed, Vec::new());
            let answers = |question: &Question| {
                let (good, answer) = any_answer(&mut seed, question);
                let verdict = Verdict::of(question, answer.as_bytes());
                assert!(!good || verdict.wrong().is_none(), "{verdict:?} {question:?}");
                followed.extend(verdict.best().map(|best| (question.request.clone(), best.devices.clone())));
                answer
            };
            let (_, plans) = asked(&world, merge, &config, answers);
            (plans, followed)
        };
        let ((plans, followed), again) = (run(), run());
        let (first, last) = (&plans[0], &plans[plans.len() - 1]);
        prop_assert_eq!(devices(last), devices(&again.0[again.0.len() - 1]), "the same each time");
        prop_assert!(plans.len() <= world.1.len() + 1, "each request is asked about once");
        prop_assert_eq!(devices(first), devices(&plain[0]), "until there are answers, nothing is different");
        prop_assert_eq!((last.admitted, &last.affinity), (plain[0].admitted, &plain[0].affinity));
        let granted: Vec<Bdf> = devices(last).concat();
        prop_assert_eq!(granted.iter().collect::<BTreeSet<_>>().len(), granted.len(), "given twice");
        for (ours, plain) in last.allocations.iter().zip(&plain[0].allocations) {
            let within = |allocation: &Allocation| -> u64 {
                let inside = |node: u32| last.affinity.as_ref().is_none_or(|mask| mask.contains(node));
                allocation.per_node.iter().filter(|(node, _)| inside(**node)).map(|(_, units)| units).sum()
            };
            prop_assert_eq!((within(ours), ours.unknown), (within(plain), plain.unknown));
            if !kubelet && world.3 != Policy::None {
                prop_assert_eq!(&ours.per_node, &plain.per_node, "the counts by node stand");
            }
            for (request, set) in followed.iter().filter(|(request, _)| *request == ours.resource) {
                let Granted::Devices(Grant { devices, .. }) = &ours.granted else { panic!("{ours:?}") };
                prop_assert!(devices.iter().all(|device| set.contains(&device.bdf)), "{request} follows {set:?}");
            }
        }
    }
}
