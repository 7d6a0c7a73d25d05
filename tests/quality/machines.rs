//! Four machines, and what is launched on each of them. Shapes, distances and
//! the nodes of GPUs are those of real machines; the mixes are made up.

use numa_run::topology::{Bdf, Cpu, CpuSet, Machine, MemoryKind, Node, PagePool, PciFunction};

/// A machine and its mix of launches.
pub struct Model {
    /// What it is, for a table.
    pub name: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The mix.
    pub kinds: &'static [Kind],
}

/// Launches that differ only in how large they are.
pub struct Kind {
    /// How often it comes, beside the others.
    pub weight: u64,
    /// The fewest and the most CPUs.
    pub cpus: (u32, u32),
    /// Memory for each CPU.
    pub gib_per_cpu: u64,
    /// Hugepages of 2M.
    pub pages: u64,
    /// Devices by class.
    pub devices: Devices,
}

type Devices = &'static [(&'static str, u64)];

const fn kind(weight: u64, cpus: (u32, u32), gib_per_cpu: u64, pages: u64, devices: Devices) -> Kind {
    Kind { weight, cpus, gib_per_cpu, pages, devices }
}

/// All of them.
pub fn models() -> [Model; 4] {
    [two_nodes(), epyc(), dgx(), gh200()]
}

/// Two packages, each with GPUs, NICs and NVMe disks.
fn two_nodes() -> Model {
    const KINDS: &[Kind] = &[
        kind(4, (2, 16), 2, 0, &[]),
        kind(2, (16, 40), 4, 0, &[]),
        kind(3, (4, 12), 4, 0, &[("gpu", 1)]),
        kind(2, (8, 16), 4, 0, &[("gpu", 1), ("nic", 1)]),
        kind(1, (16, 24), 4, 0, &[("gpu", 2)]),
        kind(3, (2, 8), 2, 2048, &[("nic", 1)]),
        kind(1, (4, 8), 2, 0, &[("nvme", 1)]),
        kind(1, (66, 96), 4, 0, &[("gpu", 3)]),
    ];
    let mut machine = machine(2, Shape { cores: 32, threads: 2, gib: 256, pages: 16384, nodes_per_socket: 1 });
    machine.distances = distances(2, |_, _| 21);
    fit(&mut machine, &[("gpu", &[0, 0, 1, 1]), ("nic", &[0, 0, 1, 1]), ("nvme", &[0, 0, 1, 1])]);
    Model { name: "2 nodes: 4 GPUs, 4 NICs, 4 NVMe", machine, kinds: KINDS }
}

/// Two EPYC packages as four nodes each: NICs on one node of each package, disks on others.
fn epyc() -> Model {
    const KINDS: &[Kind] = &[
        kind(4, (2, 12), 2, 0, &[]),
        kind(2, (12, 32), 2, 0, &[]),
        kind(1, (34, 56), 4, 0, &[]),
        kind(4, (2, 6), 2, 1024, &[("vf", 2)]),
        kind(2, (4, 12), 1, 2048, &[("vf", 4)]),
        kind(3, (4, 8), 4, 0, &[("nvme", 1)]),
        kind(1, (8, 16), 2, 0, &[("nvme", 2)]),
    ];
    let mut machine = machine(8, Shape { cores: 16, threads: 2, gib: 128, pages: 8192, nodes_per_socket: 4 });
    machine.distances = distances(8, |a, b| if a / 4 == b / 4 { 12 } else { 32 });
    fit(&mut machine, &[("nic", &[1, 5]), ("vf", &[1; 16]), ("vf", &[5; 16]), ("nvme", &[0, 0, 3, 3, 4, 4, 7, 7])]);
    Model { name: "EPYC NPS4, 8 nodes: 32 VFs, 8 NVMe", machine, kinds: KINDS }
}

/// A DGX A100: eight nodes, of which four have two GPUs and two NICs each.
fn dgx() -> Model {
    const KINDS: &[Kind] = &[
        kind(4, (2, 16), 4, 0, &[]),
        kind(1, (16, 32), 4, 0, &[]),
        kind(4, (4, 16), 4, 0, &[("gpu", 1)]),
        kind(2, (8, 16), 4, 0, &[("gpu", 1), ("nic", 1)]),
        kind(2, (16, 32), 4, 0, &[("gpu", 2), ("nic", 2)]),
        kind(1, (36, 64), 8, 0, &[("gpu", 4), ("nic", 4)]),
    ];
    let mut machine = machine(8, Shape { cores: 16, threads: 2, gib: 256, pages: 0, nodes_per_socket: 4 });
    machine.distances = distances(8, |a, b| if a / 4 == b / 4 { 12 } else { 32 });
    fit(&mut machine, &[("gpu", &[3, 3, 1, 1, 7, 7, 5, 5]), ("nic", &[3, 3, 1, 1, 5, 5, 7, 7])]);
    Model { name: "DGX A100, 8 nodes: 8 GPUs, 8 NICs", machine, kinds: KINDS }
}

/// Four GH200: four nodes with CPUs, each with a GPU whose memory is eight more nodes.
fn gh200() -> Model {
    const KINDS: &[Kind] = &[
        kind(4, (2, 16), 4, 0, &[]),
        kind(2, (16, 40), 4, 0, &[]),
        kind(3, (8, 32), 4, 0, &[("gpu", 1)]),
        kind(2, (16, 48), 4, 0, &[("gpu", 1), ("nic", 1)]),
        kind(2, (2, 8), 2, 0, &[("nic", 1)]),
        kind(1, (74, 130), 7, 0, &[("gpu", 2), ("nic", 4)]),
    ];
    let mut machine = machine(4, Shape { cores: 72, threads: 1, gib: 480, pages: 0, nodes_per_socket: 1 });
    for id in 4..36 {
        let local_cpus = machine.nodes[(id as usize - 4) / 8].cpus.clone();
        // Only the first of the eight holds memory; the others are for parts of the GPU.
        let memory_kib = if id % 8 == 4 { 96 << 20 } else { 0 };
        machine.nodes.push(Node { id, local_cpus, memory_kib, memory: MemoryKind::Gpu, ..Node::default() });
    }
    machine.distances = distances(36, |a, b| match (a.min(b), a.max(b)) {
        (_, 0..4) => 40,
        (4.., _) => 255,
        (cpus, gpu) if (gpu - 4) / 8 == cpus => 80,
        _ => 120,
    });
    fit(&mut machine, &[("gpu", &[0, 1, 2, 3]), ("nic", &[0, 0, 1, 1, 2, 2, 3, 3])]);
    Model { name: "4 GH200, 36 nodes: 4 GPUs, 8 NICs", machine, kinds: KINDS }
}

/// What each node with CPUs has.
struct Shape {
    cores: u32,
    /// Of each core.
    threads: u32,
    /// Memory.
    gib: u64,
    /// Hugepages of 2M, which come out of the memory.
    pages: u64,
    nodes_per_socket: u32,
}

fn machine(nodes: u32, shape: Shape) -> Machine {
    let all = nodes * shape.cores;
    let cpu = |id: u32| {
        let (core, node) = (id % all, id % all / shape.cores);
        Cpu { id, online: true, node: Some(node), socket: node / shape.nodes_per_socket, core, ..Cpu::default() }
    };
    let cpus: Vec<Cpu> = (0..all * shape.threads).map(cpu).collect();
    let node = |id: u32| {
        let own: CpuSet = cpus.iter().filter(|cpu| cpu.node == Some(id)).map(|cpu| cpu.id).collect();
        let pool = PagePool { size_kib: 2048, total: shape.pages, free: Some(shape.pages) };
        let pages = if shape.pages > 0 { vec![pool] } else { Vec::new() };
        Node { id, local_cpus: own.clone(), cpus: own, memory_kib: shape.gib << 20, pages, ..Node::default() }
    };
    Machine { nodes: (0..nodes).map(node).collect(), cpus, ..Machine::default() }
}

fn distances(nodes: u32, between: impl Fn(u32, u32) -> u32) -> Vec<Vec<u32>> {
    let row = |a: u32| (0..nodes).map(|b| if a == b { 10 } else { between(a, b) }).collect();
    (0..nodes).map(row).collect()
}

/// Adds devices: a class, and the node of each one.
fn fit(machine: &mut Machine, devices: &[(&str, &[u32])]) {
    for (class, nodes) in devices {
        for &node in *nodes {
            machine.pci.push(function(machine, class, node));
        }
    }
}

fn function(machine: &Machine, class: &str, node: u32) -> PciFunction {
    // A virtual function belongs to the NIC of its own node.
    let nic = machine.pci.iter().find(|function| function.node == Some(node)).map(|function| function.bdf);
    let (code, vendor) = match class {
        "gpu" => (0x030200, 0x10de),
        "nvme" => (0x010802, 0x144d),
        _ => (0x020000, 0x15b3),
    };
    PciFunction {
        bdf: Bdf { bus: machine.pci.len() as u8, ..Bdf::default() },
        class: code,
        vendor,
        node: Some(node),
        physical_function: nic.filter(|_| class == "vf"),
        ..PciFunction::default()
    }
}
