//! Launches in the order in which they come, the same in every run.

use super::machines::{Kind, Model};
use super::play::decide;
use super::stock::{Stock, everything};
use numa_run::assume::Holdings;
use numa_run::hint::policy::Policy;
use numa_run::request::{
    CpuChoice, CpuRequest, DeviceRequest, HugepageRequest, MemoryRequest, Merge, PageAmount, PageSize, Request,
};
use numa_run::resource::cpu::{CpuOptions, SmtMode};

/// Launches of a stream; a run that nothing is refused in ends with them.
pub const LENGTH: usize = 400;

/// One launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What it asks for.
    pub request: Request,
    /// It ends when this one's turn comes, whatever has been refused until then.
    pub end: usize,
}

/// Streams of a model's launches. Kinds that a merge refuses even on the idle
/// machine are left out: no run is to end at a rule.
pub struct Source {
    kinds: Vec<&'static Kind>,
    policy: Policy,
    /// The most launches that come while one lives.
    longest: u64,
}

impl Source {
    /// Streams for this policy.
    pub fn new(model: &Model, policy: Policy) -> Source {
        let suits = |kind: &&Kind| {
            let request = request(kind, kind.cpus.1, policy);
            let admits = |merge| decide(&model.machine, &Holdings::default(), &request, merge).admitted;
            admits(Merge::Kubelet) && admits(Merge::Relative)
        };
        let kinds: Vec<&Kind> = model.kinds.iter().filter(suits).collect();
        Source { longest: 2 * mean_life(&kinds, &everything(&model.machine)), kinds, policy }
    }

    /// The stream of this number.
    pub fn stream(&self, seed: u64) -> Vec<Launch> {
        let mut numbers = Numbers(seed);
        let launch = |at: usize| {
            let (kind, cpus) = drawn(&self.kinds, &mut numbers);
            Launch { request: request(kind, cpus, self.policy), end: at + 1 + numbers.below(self.longest) as usize }
        };
        (0..LENGTH).map(launch).collect()
    }
}

/// How many launches come while one lives, on average: so many that they would
/// need all there is of what is scarcest.
fn mean_life(kinds: &[&Kind], everything: &Stock) -> u64 {
    let weights: u64 = kinds.iter().map(|kind| kind.weight).sum();
    let mean = |name: &str| {
        let needs = |kind: &&Kind| kind.needs((kind.cpus.0 + kind.cpus.1) / 2).get(name).copied().unwrap_or(0);
        kinds.iter().map(|kind| needs(kind) * kind.weight).sum::<u64>() as f64 / weights as f64
    };
    let there = everything.iter().filter(|(_, units)| **units > 0);
    let scarcest = there.map(|(name, units)| mean(name) / *units as f64).fold(0.0, f64::max);
    (1.0 / scarcest).ceil() as u64
}

/// A kind, and how many CPUs this one has.
fn drawn(kinds: &[&'static Kind], numbers: &mut Numbers) -> (&'static Kind, u32) {
    let mut ticket = numbers.below(kinds.iter().map(|kind| kind.weight).sum());
    let mut kinds = kinds.iter();
    let mut kind = kinds.next().expect("a mix has kinds");
    while ticket >= kind.weight {
        ticket -= kind.weight;
        kind = kinds.next().expect("a ticket is less than all weights together");
    }
    let (fewest, most) = kind.cpus;
    (kind, fewest + numbers.below(u64::from(most - fewest) + 1) as u32)
}

fn request(kind: &Kind, cpus: u32, policy: Policy) -> Request {
    let needs = kind.needs(cpus);
    let choice = CpuChoice::Count(cpus, None);
    let (options, smt) = (CpuOptions::default(), SmtMode::ExclusiveCore);
    let pages = HugepageRequest { size: PageSize::from_kib(2048), amount: PageAmount::Pages(kind.pages) };
    Request {
        cpus: Some(CpuRequest { choice, options, smt, kind: None }),
        memory: Some(MemoryRequest { mib: Some(needs["memory"]), ..MemoryRequest::default() }),
        hugepages: [pages].into_iter().filter(|pages| pages.pages() > 0).collect(),
        devices: kind.devices.iter().map(|&(class, count)| DeviceRequest::of(class, count as u32)).collect(),
        policy,
        ..Request::default()
    }
}

/// Numbers that look random (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
