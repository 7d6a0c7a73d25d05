//! Placements that are equally good for the nodes are told apart by how well
//! their devices go together: compared with every placement and every set of
//! devices, rated by rules that are written down here again.

#![allow(clippy::unwrap_used, reason = "tests fail where they cannot go on")]

mod brute_force;

use numa_run::assume::{Assume, Holdings};
use numa_run::config::Config;
use numa_run::hint::policy::Policy;
use numa_run::hint::relative::{Kind, Other, Preference, Problem, Rating, Resource};
use numa_run::plan::{Facts, Plan, Surroundings, plan};
use numa_run::request::{CpuChoice, CpuRequest, DeviceRequest, Request};
use numa_run::resource::cpu::{CpuOptions, SmtMode};
use numa_run::resource::prefer::Answers;
use numa_run::topology::{Bdf, Cpu, CpuSet, Link, Machine, Node, PciFunction};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// A device as it is drawn: node, switch, physical function, whether somebody holds it.
type Drawn = (usize, u8, u8, bool);

#[derive(Clone, Debug)]
struct World {
    nodes: usize,
    near: bool,
    policy: Policy,
    gpus: Vec<Drawn>,
    functions: Vec<Drawn>,
    disks: Vec<usize>,
    links: Vec<(usize, usize, u32)>,
    cpus: u64,
    wanted: (u64, u64),
    spread: bool,
}

const CPUS: u32 = 4;
const GPU: u8 = 0x10;
const FUNCTION: u8 = 0x40;

fn at(bus: u8) -> Bdf {
    Bdf { bus, ..Bdf::default() }
}

fn world(two_classes: bool) -> impl Strategy<Value = World> {
    let device = |nodes: usize| (0..nodes, 0u8..3, 0u8..3, prop::bool::weighted(0.15));
    (2usize..=3).prop_flat_map(move |nodes| {
        let gpus = prop::collection::vec(device(nodes), 2..=6);
        let functions = prop::collection::vec(device(nodes), 1..=5);
        let disks = prop::collection::vec(0..nodes, 0..=2);
        let links = prop::collection::vec((0usize..6, 0usize..6, 1u32..4), 0..=8);
        let wanted = (0u64..=3, if two_classes { 1u64..=2 } else { 0u64..=3 });
        let policies = prop::sample::select(vec![Policy::BestEffort, Policy::Restricted]);
        (gpus, functions, disks, links, 0u64..=6, wanted, any::<(bool, bool)>(), policies).prop_map(
            move |(gpus, functions, disks, links, cpus, (first, second), (near, spread), policy)| World {
                nodes,
                near,
                policy,
                gpus,
                functions,
                disks,
                links,
                cpus,
                wanted: if two_classes || first == 0 { (first, second) } else { (first, 0) },
                spread,
            },
        )
    })
}

impl World {
    fn machine(&self) -> Machine {
        let node = |id: u32| {
            let cpus: CpuSet = (id * CPUS..(id + 1) * CPUS).collect();
            Node { id, local_cpus: cpus.clone(), cpus, memory_kib: 1 << 20, ..Node::default() }
        };
        let cpu = |id: u32| Cpu { id, online: true, node: Some(id / CPUS), core: id, ..Cpu::default() };
        let function = |bus: u8, class: u32, node: usize| PciFunction {
            bdf: at(bus),
            class,
            vendor: 0x10de,
            node: Some(node as u32),
            ..PciFunction::default()
        };
        let (gpus, functions) = (self.gpus.iter().zip(GPU..), self.functions.iter().zip(FUNCTION..));
        // Each node has its own switches; a physical function may have children anywhere.
        let above = |node: usize, switch: u8| vec![at(0x80 + node as u8), at(0x90 + 4 * node as u8 + switch)];
        let gpus = gpus.map(|(&(node, switch, _, _), bus)| PciFunction {
            above: above(node, switch),
            ..function(bus, 0x030200, node)
        });
        let functions = functions.map(|(&(node, switch, parent, _), bus)| PciFunction {
            above: above(node, switch),
            physical_function: Some(at(0xa0 + parent)),
            ..function(bus, 0x020000, node)
        });
        let disks = self.disks.iter().zip(0x60..).map(|(&node, bus)| function(bus, 0x010802, node));
        let ends = self.links.iter().filter(|(a, b, _)| a != b && *a.max(b) < self.gpus.len());
        // One weight for two ends, whichever comes first.
        let links: BTreeMap<(usize, usize), u32> = ends.map(|&(a, b, weight)| ((a.min(b), a.max(b)), weight)).collect();
        let bus = |gpu: usize| at(GPU + gpu as u8);
        Machine {
            nodes: (0..self.nodes as u32).map(node).collect(),
            cpus: (0..self.nodes as u32 * CPUS).map(cpu).collect(),
            distances: self.distances(),
            links: links.into_iter().map(|((a, b), weight)| Link { a: bus(a), b: bus(b), weight }).collect(),
            pci: gpus.chain(functions).chain(disks).collect(),
            ..Machine::default()
        }
    }

    fn distances(&self) -> Vec<Vec<u32>> {
        let far = |a: usize, b: usize| match (a == b, self.near && a.max(b) < 2) {
            (true, _) => 10,
            (_, true) => 12,
            _ => 21,
        };
        (0..self.nodes).map(|a| (0..self.nodes).map(|b| far(a, b)).collect()).collect()
    }

    fn held(&self) -> BTreeSet<Bdf> {
        let of = |devices: &[Drawn], first: u8| -> Vec<Bdf> {
            devices.iter().zip(first..).filter(|(device, _)| device.3).map(|(_, bus)| at(bus)).collect()
        };
        [of(&self.gpus, GPU), of(&self.functions, FUNCTION)].concat().into_iter().collect()
    }

    fn request(&self) -> Request {
        let some = |class: &str, count: u64| (count > 0).then(|| DeviceRequest::of(class, count as u32));
        let cpus = (self.cpus > 0).then(|| CpuRequest {
            choice: CpuChoice::Count(self.cpus as u32, None),
            options: CpuOptions::default(),
            smt: SmtMode::default(),
            kind: None,
        });
        Request {
            cpus,
            devices: some("gpu", self.wanted.0).into_iter().chain(some("vf", self.wanted.1)).collect(),
            policy: self.policy,
            ..Request::default()
        }
    }

    fn planned(&self) -> Plan {
        let (machine, assume, surroundings, answers) =
            (self.machine(), Assume::default(), Surroundings::default(), Answers::default());
        let taste = if self.spread { "spread" } else { "pack" };
        let config: Config = toml::from_str(&format!("[class.vf]\nspread = \"{taste}\"")).unwrap();
        let holdings = Holdings { devices: self.held(), ..Holdings::default() };
        let facts = Facts {
            machine: &machine,
            config: &config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
            answers: &answers,
        };
        plan(&self.request(), &facts)
    }

    /// Devices that are free: GPUs, or virtual functions.
    fn free(&self, class: usize) -> Vec<(usize, Bdf)> {
        let (devices, first) = if class == 0 { (&self.gpus, GPU) } else { (&self.functions, FUNCTION) };
        devices.iter().zip(first..).filter(|(device, _)| !device.3).map(|(device, bus)| (device.0, at(bus))).collect()
    }

    /// By the rules: the best of all sets that have so many of each class on each node.
    fn best(&self, counts: [&[u64]; 2]) -> Rating {
        let sets = |class: usize| {
            let free = self.free(class);
            let fits = |set: &Vec<Bdf>| {
                (0..self.nodes).all(|node| {
                    let here = free.iter().filter(|(on, bdf)| *on == node && set.contains(bdf)).count() as u64;
                    here == counts[class].get(node).copied().unwrap_or(0)
                })
            };
            let all = (0..1u32 << free.len()).map(|bits| {
                (0..free.len()).filter(|bit| bits >> bit & 1 == 1).map(|bit| free[bit].1).collect::<Vec<_>>()
            });
            all.filter(fits).collect::<Vec<_>>()
        };
        let (first, second) = (sets(0), sets(1));
        let pairs = first.iter().flat_map(|gpus| second.iter().map(move |functions| (gpus, functions)));
        pairs.map(|(gpus, functions)| self.rated(gpus, functions)).max().unwrap()
    }

    /// Bandwidth; closeness of one class to the other; pairs on one physical
    /// function; closeness of GPUs; and for the last three, what is lost to others.
    fn rated(&self, gpus: &[Bdf], functions: &[Bdf]) -> Rating {
        let machine = self.machine();
        let weight = |a: Bdf, b: Bdf| {
            let link = machine.links.iter().find(|link| (link.a, link.b) == (a, b) || (link.b, link.a) == (a, b));
            link.map_or(0, |link| i64::from(link.weight))
        };
        let close = |a: Bdf, b: Bdf| {
            let above = |bdf| &machine.pci(bdf).unwrap().above;
            let same = (0..2).take_while(|&level| above(a)[level] == above(b)[level]).count() as i64;
            if same == 0 { 0 } else { 1000 - 2 * (2 - same) }
        };
        let parent = |bdf: Bdf| machine.pci(bdf).unwrap().physical_function;
        let sign = if self.spread { -1 } else { 1 };
        let siblings = |a: Bdf, b: Bdf| if parent(a) == parent(b) { sign } else { 0 };
        let nearest = |from: &[Bdf], to: &[Bdf]| -> i64 {
            from.iter().map(|&a| to.iter().map(|&b| close(a, b)).max().unwrap_or(0)).sum()
        };
        let within = |set: &[Bdf], worth: &dyn Fn(Bdf, Bdf) -> i64| -> i64 {
            (0..set.len()).flat_map(|b| (0..b).map(move |a| (a, b))).map(|(a, b)| worth(set[a], set[b])).sum()
        };
        let left = |class: usize, set: &[Bdf], worth: &dyn Fn(Bdf, Bdf) -> i64| -> i64 {
            let stays: Vec<Bdf> =
                self.free(class).into_iter().map(|free| free.1).filter(|b| !set.contains(b)).collect();
            set.iter().flat_map(|&a| stays.iter().map(move |&b| (a, b))).map(|(a, b)| worth(a, b)).sum()
        };
        vec![
            within(gpus, &weight),
            nearest(gpus, functions) + nearest(functions, gpus),
            within(functions, &siblings),
            within(gpus, &close),
            -left(0, gpus, &weight),
            -left(1, functions, &siblings),
            -left(0, gpus, &close),
        ]
    }

    fn resource(&self, kind: Kind, name: &str, units: u64, devices: &[Drawn]) -> Resource {
        let on = |node: usize, free: bool| {
            devices.iter().filter(|device| device.0 == node && !(free && device.3)).count() as u64
        };
        Resource {
            name: name.to_owned(),
            kind,
            units,
            unknown: 0,
            free: (0..self.nodes).map(|node| on(node, true)).collect(),
            total: (0..self.nodes).map(|node| on(node, false)).collect(),
        }
    }

    fn problem<'a>(&self, rate: &'a dyn Fn(&[Vec<u64>]) -> Option<Rating>) -> Problem<'a> {
        let cpus = vec![u64::from(CPUS); self.nodes];
        let cpus = Resource {
            name: "cpu".into(),
            units: self.cpus,
            free: cpus.clone(),
            total: cpus,
            ..self.resource(Kind::Cpus, "", 0, &[])
        };
        let gpus = self.resource(Kind::Devices, "gpu", self.wanted.0, &self.gpus);
        let functions = self.resource(Kind::Devices, "vf", self.wanted.1, &self.functions);
        let disks: Vec<Drawn> = self.disks.iter().map(|&node| (node, 0, 0, false)).collect();
        let disks = self.resource(Kind::Devices, "nvme", 0, &disks);
        let unasked = [&gpus, &functions, &disks].into_iter().filter(|resource| resource.units == 0);
        let others = unasked.map(|resource| Other { free: resource.free.clone(), elsewhere: 0 }).collect();
        Problem {
            nodes: (0..self.nodes as u32).collect(),
            distances: self.distances(),
            resources: vec![cpus, gpus, functions],
            policy: self.policy,
            others,
            preference: Some(Preference(rate)),
        }
    }
}

/// What came of the rating of devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    /// The placement would be the same without it.
    Nothing,
    /// It decided.
    Decided,
    /// Other devices would go better together.
    NotBest,
}

fn compared(world: &World) -> Result<Came, TestCaseError> {
    let known = RefCell::new(BTreeMap::new());
    let rate = |counts: &[Vec<u64>]| {
        let found = |world: &World| world.best([&counts[1], &counts[2]]);
        Some(known.borrow_mut().entry(counts[1..].to_vec()).or_insert_with(|| found(world)).clone())
    };
    let problem = world.problem(&rate);
    let plan = world.planned();
    let Some(best) = brute_force::best(&problem) else {
        prop_assert!(!plan.admitted);
        return Ok(Came::Nothing);
    };
    if !plan.admitted {
        prop_assert!(world.policy == Policy::Restricted);
        return Ok(Came::Nothing);
    }
    prop_assert!(plan.proven);
    let named = |name: &str| plan.allocations.iter().find(|allocation| allocation.resource == name);
    let row = |name: &str| -> Vec<u64> {
        let units = |node: u32| named(name).and_then(|given| given.per_node.get(&node)).copied().unwrap_or(0);
        (0..world.nodes as u32).map(units).collect()
    };
    let ours = ["cpu", "gpu", "vf"].map(row);
    let unrated = brute_force::best(&Problem { preference: None, ..problem.clone() }).unwrap();
    if ours[..] == best.rounded[..] {
        return Ok(if unrated.x == best.x { Came::Nothing } else { Came::Decided });
    }
    let exact =
        ours.map(|row| row.into_iter().map(|units| brute_force::Fraction::from_integer(units.into())).collect());
    let key = brute_force::key(&problem, &exact);
    let first = |key: &brute_force::Key| (key.0, key.1, key.2, key.3, key.4, key.5, key.6);
    prop_assert_eq!(first(&key), first(&best.key));
    Ok(Came::NotBest)
}

/// So many cases, or as many as `PROPTEST_CASES` says; one in so many is decided by its devices at least.
fn deciding(two_classes: bool, one_in: u32) -> (u32, u32) {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = asked.unwrap_or(600);
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let (decided, not_best) = (Cell::new(0), Cell::new(0));
    let test = |world: World| {
        let came = compared(&world)?;
        decided.set(decided.get() + u32::from(came == Came::Decided));
        not_best.set(not_best.get() + u32::from(came == Came::NotBest));
        Ok(())
    };
    runner.run(&world(two_classes), test).unwrap_or_else(|error| panic!("{error}"));
    assert!(decided.get() * one_in > cases, "only {} of {cases} were decided by their devices", decided.get());
    (cases, not_best.get())
}

#[test]
fn devices_of_one_class_are_where_they_go_best_together() {
    assert_eq!(deciding(false, 30).1, 0);
}

/// Requests choose one after the other, a few rounds: now and then others would go a little better together.
#[test]
fn devices_of_two_classes_are_where_they_go_best_together_but_for_a_few() {
    let (cases, not_best) = deciding(true, 60);
    assert!(not_best * 50 <= cases, "{not_best} of {cases}");
}
