//! Preferred allocation, the last filter after NUMA: how many devices come
//! from which node stands; which ones they are is chosen here, or by the plugin
//! of a class, whose answers are advice.

mod nearness;
mod question;
mod search;
mod verdict;
mod worth;

pub use nearness::{Nearness, Spot};
pub use question::{Place, Question};
pub use verdict::{Answers, Cost, Preferred, Verdict};
pub use worth::Rater;

use super::Device;
use crate::topology::Bdf;
use search::Choice;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What makes a set of devices of one class better than another, besides links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taste {
    /// Nothing.
    #[default]
    Plain,
    /// A PCIe switch in common.
    Switched,
    /// Few physical functions.
    Packed,
    /// Many physical functions.
    Spread,
}

/// A locality, and whether devices have to be made there; none: any that is unknown.
pub type Group = Option<(bool, u32)>;

/// One request's part of the question.
#[derive(Clone, Debug, Default)]
pub struct Party {
    /// Its taste.
    pub taste: Taste,
    /// Devices that nobody holds, each with the group that it counts for: only
    /// devices of a group may stand in for each other.
    pub free: Vec<(Device, Group)>,
    /// Devices that it gets without any preference.
    pub chosen: Vec<Device>,
}

/// What a preference did to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What the request would have got.
    pub instead_of: Vec<Device>,
    /// Why the others are better.
    pub because: Because,
}

/// Why a preference took other devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// What is built in rates them higher.
    BuiltIn(&'static str),
    /// A plugin says so; it may have named the same ones.
    Plugin(Plugin),
}

/// What a plugin said for its set of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The plugin.
    pub program: PathBuf,
    /// Its cost for them.
    pub cost: Cost,
    /// Its name for what they have in common.
    pub resource_domain: Option<String>,
}

impl Plugin {
    /// Its words: `cost 0 in island 1`.
    pub fn terms(&self) -> String {
        let domain = self.resource_domain.iter().map(|domain| format!(" in {domain}"));
        format!("cost {}{}", self.cost, domain.collect::<String>())
    }
}

/// Criteria, the most important first. Sums over a set; more is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score([i64; CRITERIA]);

const CRITERIA: usize = 7;
/// Bandwidth between the devices of the launch.
const LINKS: usize = 0;
/// Closeness by PCIe to the launch's other devices.
const BESIDE: usize = 1;
/// Pairs on one physical function, or on two.
const FUNCTIONS: usize = 2;
/// Closeness by PCIe within the set.
const SWITCH: usize = 3;
/// Bandwidth to devices that stay free, which is lost to the next launch.
const LINKS_LEFT: usize = 4;
/// Devices that stay free on the physical functions.
const FUNCTIONS_LEFT: usize = 5;
/// Closeness to devices that stay free.
const SWITCH_LEFT: usize = 6;

impl Score {
    fn of(criterion: usize, value: i64) -> Score {
        let mut score = Score::default();
        score.0[criterion] = value;
        score
    }

    fn plus(mut self, other: Score) -> Score {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
        self
    }

    fn minus(mut self, other: Score) -> Score {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own -= other);
        self
    }

    /// Why this one is better, in words.
    fn because(&self, other: &Score, taste: Taste) -> &'static str {
        let first = self.0.iter().zip(other.0).position(|(own, other)| *own != other);
        match (first, taste) {
            (Some(LINKS), _) => "more bandwidth between them",
            (Some(BESIDE), _) => "behind one PCIe switch with the other devices",
            (Some(FUNCTIONS), Taste::Spread) => "on more physical functions",
            (Some(FUNCTIONS), _) => "on fewer physical functions",
            (Some(SWITCH), _) => "behind one PCIe switch",
            (Some(LINKS_LEFT), _) => "linked devices stay together for others",
            (Some(FUNCTIONS_LEFT), Taste::Spread) => "on the emptiest physical function",
            (Some(FUNCTIONS_LEFT), _) => "on the fullest physical function",
            _ => "devices behind one PCIe switch stay together for others",
        }
    }
}

/// Rounds after which parties stop giving way to each other.
const ROUNDS: usize = 3;

/// Chooses for all parties of a launch. Each gets as many devices of each
/// group as it had; no device is given to two.
pub fn preferred(parties: &[Party], nearness: &Nearness) -> Vec<(Vec<Device>, Option<Advice>)> {
    let mut chosen: Vec<Vec<Device>> = parties.iter().map(|party| party.chosen.clone()).collect();
    let mut order: Vec<usize> = (0..parties.len()).collect();
    // Who has the least choice goes first; the others come to it.
    order.sort_by_key(|&at| parties[at].free.len());
    let mut settled: Vec<bool> = parties.iter().map(|party| party.free.len() == party.chosen.len()).collect();
    for _ in 0..ROUNDS {
        let before = chosen.clone();
        for &at in &order {
            chosen[at] = better(parties, nearness, &chosen, &settled, at);
            settled[at] = true;
        }
        if before == chosen {
            break;
        }
    }
    let told = parties.iter().enumerate().map(|(at, party)| {
        let advice = advice(parties, nearness, &chosen, at);
        // In the order of choice: nodes and addresses, as it was.
        let mut devices = chosen[at].clone();
        if advice.is_none() {
            devices = party.chosen.clone();
        }
        (devices, advice)
    });
    told.collect()
}

fn better(parties: &[Party], nearness: &Nearness, chosen: &[Vec<Device>], settled: &[bool], at: usize) -> Vec<Device> {
    let party = &parties[at];
    let elsewhere = chosen.iter().enumerate().filter(|(other, _)| *other != at);
    let taken: BTreeSet<Bdf> = elsewhere.flat_map(|(_, devices)| devices).map(|device| device.bdf).collect();
    let available: Vec<&(Device, Group)> =
        party.free.iter().filter(|(device, _)| !taken.contains(&device.bdf)).collect();
    if available.len() <= chosen[at].len() {
        return chosen[at].clone();
    }
    let groups: BTreeMap<Bdf, Group> = available.iter().map(|(device, group)| (device.bdf, *group)).collect();
    let mut wanted: BTreeMap<Group, usize> = BTreeMap::new();
    for device in &chosen[at] {
        *wanted.entry(groups.get(&device.bdf).copied().flatten()).or_default() += 1;
    }
    // Only devices of groups that something is wanted of can be chosen.
    let open: Vec<&(Device, Group)> = available.into_iter().filter(|(_, group)| wanted.contains_key(group)).collect();
    let spots: Vec<Spot<'_>> = open.iter().map(|(device, _)| nearness.spot(device.bdf)).collect();
    let free: Vec<Spot<'_>> = party.free.iter().map(|(device, _)| nearness.spot(device.bdf)).collect();
    let others = others(parties, nearness, chosen, settled, at);
    let singles: Vec<Score> = spots.iter().map(|spot| single(party.taste, &free, &others, spot)).collect();
    let pairs = !nearness.is_bare() || party.taste != Taste::Plain;
    let pair = |a: usize, b: usize| match pairs {
        true => pair(party.taste, &spots[a], &spots[b]),
        false => Score::default(),
    };
    let groups = wanted.iter().map(|(group, &count)| {
        let members = open.iter().enumerate().filter(|(_, (_, other))| other == group).map(|(at, _)| at);
        (members.collect(), count)
    });
    let choice = Choice::new(groups.collect(), singles, pair);
    choice.best().into_iter().map(|index| open[index].0.clone()).collect()
}

/// The devices that each other party has; before it has chosen, those that it could have.
fn others<'a>(
    parties: &[Party],
    nearness: &'a Nearness,
    chosen: &[Vec<Device>],
    settled: &[bool],
    at: usize,
) -> Vec<(bool, Vec<Spot<'a>>)> {
    let spot = |device: &Device| nearness.spot(device.bdf);
    let other = parties.iter().enumerate().filter(|(other, _)| *other != at);
    other
        .map(|(other, party)| match settled[other] {
            true => (true, chosen[other].iter().map(spot).collect()),
            false => {
                let nodes: BTreeSet<Option<u32>> = chosen[other].iter().map(|device| device.node).collect();
                let possible = party.free.iter().map(|(device, _)| device);
                (false, possible.filter(|device| nodes.contains(&device.node)).map(spot).collect())
            }
        })
        .collect()
}

/// What a device is worth by itself, beside what is `free` for its party and what the others have.
fn single(taste: Taste, free: &[Spot<'_>], others: &[(bool, Vec<Spot<'_>>)], device: &Spot<'_>) -> Score {
    let mut score = Score::default();
    for (settled, devices) in others {
        let near = devices.iter().map(|other| device.switch(other)).max().unwrap_or(0);
        let links = devices.iter().map(|other| device.link(other));
        let links: i64 = if *settled { links.sum() } else { links.max().unwrap_or(0) };
        score = score.plus(Score::of(BESIDE, near)).plus(Score::of(LINKS, links));
    }
    // Within the set this counts the other way round and is outweighed.
    free.iter()
        .filter(|other| other.bdf != device.bdf)
        .fold(score, |score, other| score.plus(lost(taste, device, other)))
}

/// What two devices are worth together.
fn pair(taste: Taste, a: &Spot<'_>, b: &Spot<'_>) -> Score {
    let mut score = Score::of(LINKS, a.link(b));
    match taste {
        Taste::Plain => {}
        Taste::Switched => score.0[SWITCH] = a.switch(b),
        Taste::Packed => score.0[FUNCTIONS] = i64::from(a.siblings(b)),
        Taste::Spread => score.0[FUNCTIONS] = -i64::from(a.siblings(b)),
    }
    score
}

/// What is lost to the next launch when one of two devices is taken and the other stays free.
fn lost(taste: Taste, taken: &Spot<'_>, left: &Spot<'_>) -> Score {
    let pair = pair(taste, taken, left);
    let mut score = Score::default();
    score.0[LINKS_LEFT] = -pair.0[LINKS];
    score.0[FUNCTIONS_LEFT] = -pair.0[FUNCTIONS];
    score.0[SWITCH_LEFT] = -pair.0[SWITCH];
    score
}

fn advice(parties: &[Party], nearness: &Nearness, chosen: &[Vec<Device>], at: usize) -> Option<Advice> {
    let party = &parties[at];
    let sorted = |devices: &[Device]| {
        let mut devices = devices.to_vec();
        devices.sort();
        devices
    };
    if sorted(&party.chosen) == sorted(&chosen[at]) {
        return None;
    }
    let others = others(parties, nearness, chosen, &vec![true; parties.len()], at);
    let free: Vec<Spot<'_>> = party.free.iter().map(|(device, _)| nearness.spot(device.bdf)).collect();
    let score = |devices: &[Device]| {
        let spots: Vec<Spot<'_>> = devices.iter().map(|device| nearness.spot(device.bdf)).collect();
        let alone = spots.iter().map(|spot| single(party.taste, &free, &others, spot));
        let pairs =
            spots.iter().enumerate().flat_map(|(index, a)| spots[..index].iter().map(move |b| pair(party.taste, a, b)));
        alone.chain(pairs).fold(Score::default(), Score::plus)
    };
    let (ours, theirs) = (score(&chosen[at]), score(&party.chosen));
    // Another party took what this one had: the change is no preference of its own.
    (ours > theirs
        || party
            .chosen
            .iter()
            .any(|device| others.iter().any(|(_, taken)| taken.iter().any(|spot| spot.bdf == device.bdf))))
    .then(|| Advice { instead_of: party.chosen.clone(), because: Because::BuiltIn(ours.because(&theirs, party.taste)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Link, Machine, PciFunction};

    /// Numbers that look random and are the same each time.
    struct Noise(u64);

    impl Noise {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % bound
        }
    }

    fn machine(noise: &mut Noise, count: u8) -> Machine {
        let address = |bus: u8| Bdf { bus, ..Bdf::default() };
        let pci = (0..count).map(|bus| PciFunction {
            bdf: address(bus),
            physical_function: Some(address(200 + noise.below(4) as u8)),
            above: vec![address(210 + noise.below(3) as u8), address(220 + noise.below(3) as u8)],
            ..PciFunction::default()
        });
        let pci = pci.collect();
        let links = (0..noise.below(30)).map(|_| Link {
            a: address(noise.below(count.into()) as u8),
            b: address(noise.below(count.into()) as u8),
            weight: noise.below(9) as u32,
        });
        Machine { links: links.collect(), pci, ..Machine::default() }
    }

    /// Up to three parties that draw from overlapping devices and have different ones.
    fn parties(noise: &mut Noise, machine: &Machine) -> Vec<Party> {
        let mut taken = BTreeSet::new();
        let tastes = [Taste::Plain, Taste::Switched, Taste::Packed, Taste::Spread];
        let party = |_| {
            let device = |function: &PciFunction| {
                let node = Some(u32::from(function.bdf.bus) % 3).filter(|node| *node < 2);
                (Device { node, bdf: function.bdf, vendor: 0, made_by: None }, node.map(|node| (false, node)))
            };
            let mut free: Vec<(Device, Group)> = machine.pci.iter().map(device).collect();
            free.retain(|_| noise.below(4) > 0);
            free.sort();
            let wanted = noise.below(6) as usize;
            let own: Vec<Device> = free.iter().map(|(device, _)| device.clone()).collect();
            let chosen = own.into_iter().filter(|device| taken.insert(device.bdf)).take(wanted).collect();
            Party { taste: tastes[noise.below(4) as usize], free, chosen }
        };
        (0..3).map(party).collect()
    }

    #[test]
    fn a_preference_changes_neither_how_many_nor_from_where_and_gives_no_device_twice() {
        let mut noise = Noise(5);
        let mut changed = 0;
        for round in 0..200 {
            let machine = machine(&mut noise, 4 + (round % 20) as u8);
            let parties = parties(&mut noise, &machine);
            let nearness = Nearness::of(&machine);
            let answers = preferred(&parties, &nearness);
            assert_eq!(answers, preferred(&parties, &nearness), "the same each time");
            let mut all = BTreeSet::new();
            for (party, (devices, advice)) in parties.iter().zip(&answers) {
                let nodes = |devices: &[Device]| {
                    let mut nodes: Vec<Option<u32>> = devices.iter().map(|device| device.node).collect();
                    nodes.sort();
                    nodes
                };
                assert_eq!(nodes(devices), nodes(&party.chosen));
                assert!(devices.iter().all(|device| party.free.iter().any(|(free, _)| free == device)));
                assert!(devices.iter().all(|device| all.insert(device.bdf)), "given twice");
                assert_eq!(advice.is_none(), *devices == party.chosen);
                changed += usize::from(advice.is_some());
            }
        }
        assert!(changed > 50, "only {changed} preferences made a difference");
    }
}
