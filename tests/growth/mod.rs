//! Large machines and many leases, for what measures or guards how long
//! deciding takes.

use numa_run::assume::{Assume, Holdings};
use numa_run::config::Config;
use numa_run::hint::policy::Policy;
use numa_run::hint::relative::{Kind, Problem, Resource};
use numa_run::lease::{self, Header, Held, Lease};
use numa_run::plan::{Facts, Plan, Surroundings, plan};
use numa_run::request::{
    CpuChoice, CpuRequest, DeviceRequest, HugepageRequest, MemoryRequest, PageAmount, PageSize, Request,
};
use numa_run::resource::cpu::{CpuOptions, SmtMode};
use numa_run::resource::prefer::Answers;
use numa_run::topology::{Bdf, Cpu, CpuSet, Machine, Node, PagePool, PciFunction};

/// Kind, name and what each node has.
const KINDS: [(Kind, &str, u64); 8] = [
    (Kind::Cpus, "cpu", 32),
    (Kind::Memory, "memory", 256 << 10),
    (Kind::Devices, "gpu", 4),
    (Kind::Pages, "hugepages-2M", 4096),
    (Kind::Devices, "nic", 2),
    (Kind::Devices, "vf", 8),
    (Kind::Devices, "nvme", 4),
    (Kind::Pages, "hugepages-1G", 32),
];

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A request for about so many hundredths of what is free of each resource.
pub fn problem(nodes: usize, resources: usize, busy: bool, hundredths: u64) -> Problem<'static> {
    let mut numbers = Numbers(7);
    let mut resource = |&(kind, name, each): &(Kind, &str, u64)| {
        let free: Vec<u64> = (0..nodes).map(|_| if busy { numbers.below(each + 1) } else { each }).collect();
        let all: u64 = free.iter().sum();
        let units = (all * hundredths / 100).clamp(1, all.max(1));
        Resource { name: name.to_owned(), kind, units, free, total: vec![each; nodes], ..Resource::default() }
    };
    let far = |a: usize, b: usize| match (a == b, a / 4 == b / 4) {
        (true, _) => 10,
        (_, true) => 12,
        _ => 32,
    };
    Problem {
        nodes: (0..nodes as u32).collect(),
        distances: (0..nodes).map(|a| (0..nodes).map(|b| far(a, b)).collect()).collect(),
        resources: KINDS[..resources].iter().map(&mut resource).collect(),
        policy: Policy::Restricted,
        ..Problem::default()
    }
}

/// A host of 1,024 CPUs.
#[derive(Clone, Copy)]
pub struct Fleet {
    /// Its nodes, which share the CPUs.
    pub nodes: u32,
    /// Virtual functions, 32 of each port at most.
    pub functions: u32,
    /// Leases: each holds memory and pages, most also a core, some a function.
    pub leases: u32,
}

const CPUS: u32 = 1024;

impl Fleet {
    /// Two threads a core, a port for 32 functions.
    pub fn machine(&self) -> Machine {
        let (nodes, each) = (self.nodes, CPUS / self.nodes);
        let node = |id: u32| {
            let cpus: CpuSet = (id * each..(id + 1) * each).collect();
            let pages = vec![PagePool { size_kib: 2048, total: 65536, free: Some(65536) }];
            Node { id, local_cpus: cpus.clone(), cpus, memory_kib: 1 << 30, pages, ..Node::default() }
        };
        let cpu = |id: u32| Cpu {
            id,
            online: true,
            node: Some(id / each),
            socket: id / each,
            core: id & !1,
            l3: Some(id & !15),
            ..Cpu::default()
        };
        let far = |a: u32, b: u32| match (a == b, a / 4 == b / 4) {
            (true, _) => 10,
            (_, true) => 12,
            _ => 32,
        };
        let port = |number: u32| PciFunction { physical_function: None, ..self.function(number * 32, 0) };
        let mut pci: Vec<PciFunction> = (0..self.functions.div_ceil(32)).map(port).collect();
        pci.extend((0..self.functions).map(|number| self.function(number, number % 32 + 1)));
        pci.sort_by_key(|function| function.bdf);
        Machine {
            nodes: (0..nodes).map(node).collect(),
            cpus: (0..each * nodes).map(cpu).collect(),
            distances: (0..nodes).map(|a| (0..nodes).map(|b| far(a, b)).collect()).collect(),
            pci,
            ..Machine::default()
        }
    }

    /// Of the port of the function with this number.
    fn function(&self, number: u32, slot: u32) -> PciFunction {
        let port = number / 32;
        let at = |slot: u32| Bdf {
            bus: 0x10 + port as u8,
            device: (slot >> 3) as u8,
            function: (slot & 7) as u8,
            ..Bdf::default()
        };
        PciFunction {
            bdf: at(slot),
            class: 0x020000,
            vendor: 0x8086,
            node: Some(port % self.nodes),
            physical_function: Some(at(0)),
            above: vec![Bdf { bus: 0x80, device: port as u8 & 31, ..Bdf::default() }],
            ..PciFunction::default()
        }
    }

    /// What others hold.
    pub fn leases(&self) -> Vec<Lease> {
        let lease = |number: u32| {
            let core = (number * 2 < CPUS * 3 / 4).then(|| [number * 2, number * 2 + 1]);
            let function = (number * 4 < self.functions).then(|| self.function(number * 4, (number * 4) % 32 + 1).bdf);
            let node = number % self.nodes;
            let held = Held {
                cpus: core.into_iter().flatten().collect(),
                memory: [(node, 64)].into(),
                pages: [(2048, [(node, 16)].into())].into(),
                devices: function.into_iter().collect(),
                ..Held::default()
            };
            Lease { header: Header { lease: format!("lease-{number}"), held, ..Header::default() }, ..Lease::default() }
        };
        (0..self.leases).map(lease).collect()
    }

    /// Sums up what is held and plans a launch that asks for some of everything.
    pub fn plan(&self, machine: &Machine, leases: &[Lease]) -> Plan {
        let size = |text: &str| text.parse().unwrap();
        let request = Request {
            cpus: Some(CpuRequest {
                choice: CpuChoice::Count(16, None),
                options: CpuOptions::default(),
                smt: SmtMode::default(),
                kind: None,
            }),
            memory: Some(MemoryRequest { mib: Some(8 << 10), ..MemoryRequest::default() }),
            hugepages: vec![HugepageRequest { size: PageSize::from_kib(2048), amount: PageAmount::Memory(size("1G")) }],
            devices: vec![DeviceRequest::of("vf", 2)],
            ..Request::default()
        };
        let (config, assume) = (Config::default(), Assume::default());
        let (surroundings, answers) = (Surroundings::default(), Answers::default());
        let holdings: Holdings = lease::holdings(leases);
        let facts = Facts {
            machine,
            config: &config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
            answers: &answers,
        };
        plan(&request, &facts)
    }
}
