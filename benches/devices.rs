//! What it costs to choose devices, by how many there are.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use numa_run::assume::{Assume, Holdings};
use numa_run::config::Config;
use numa_run::plan::{Facts, Surroundings, plan};
use numa_run::request::{DeviceRequest, Request};
use numa_run::resource::prefer::Answers;
use numa_run::topology::{Bdf, Cpu, CpuSet, Link, Machine, Node, PciFunction};
use std::hint::black_box;

/// Two nodes with as many devices each. GPUs are linked two by two and a
/// little to all others; eight virtual functions share a physical one.
fn machine(class: u32, count: u16) -> Machine {
    let node = |id: u32| {
        let cpus: CpuSet = [id].into_iter().collect();
        Node { id, local_cpus: cpus.clone(), cpus, memory_kib: 1 << 20, ..Node::default() }
    };
    let address = |at: u16| Bdf { bus: (at >> 3) as u8, device: 1, function: (at & 7) as u8, ..Bdf::default() };
    let parent = |at: u16| (class == 0x020000).then(|| Bdf { bus: (at >> 3) as u8, ..Bdf::default() });
    let function = |at: u16| PciFunction {
        bdf: address(at),
        class,
        vendor: 0x10de,
        node: Some(u32::from(at >= count / 2)),
        physical_function: parent(at),
        above: vec![Bdf { bus: (at >> 2) as u8, device: 31, ..Bdf::default() }],
        ..PciFunction::default()
    };
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    let link = |(a, b): (u16, u16)| Link {
        a: address(a),
        b: address(b),
        weight: if a / 2 == b / 2 { 50_000 } else { u32::from(a ^ b) },
    };
    Machine {
        nodes: (0..2).map(node).collect(),
        cpus: (0..2).map(|id| Cpu { id, online: true, node: Some(id), core: id, ..Cpu::default() }).collect(),
        distances: vec![vec![10, 21], vec![21, 10]],
        links: if class == 0x030200 { pairs.map(link).collect() } else { Vec::new() },
        pci: (0..count).map(function).collect(),
        ..Machine::default()
    }
}

fn choosing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("devices");
    let cases = [("gpu", 16, 2), ("gpu", 16, 8), ("gpu", 16, 12), ("gpu", 64, 32), ("vf", 256, 4), ("vf", 256, 128)];
    for (name, count, wanted) in cases {
        let machine = machine(if name == "gpu" { 0x030200 } else { 0x020000 }, count);
        let request = Request { devices: vec![DeviceRequest::of(name, wanted)], ..Request::default() };
        let (config, assume, holdings) = (Config::default(), Assume::default(), Holdings::default());
        let (surroundings, answers) = (Surroundings::default(), Answers::default());
        let facts = Facts {
            machine: &machine,
            config: &config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
            answers: &answers,
        };
        assert!(plan(&request, &facts).admitted);
        group.bench_function(BenchmarkId::new(name, format!("{wanted} of {count}")), |bencher| {
            bencher.iter(|| plan(black_box(&request), &facts));
        });
    }
    group.finish();
}

criterion_group!(benches, choosing);
criterion_main!(benches);
