//! How good the devices of a launch are for each other, all requests together:
//! by this, numbers of devices by node are compared.

use super::{BESIDE, Group, LINKS, Nearness, Party, Score, Spot, Taste, lost, pair, preferred};
use crate::hint::relative::Rating;
use crate::resource::Device;
use crate::topology::Bdf;
use std::cell::Cell;
use std::collections::BTreeSet;

/// Comparisons of two devices that may be made for one placement, all ratings
/// together: some milliseconds.
const COMPARISONS: u64 = 1_000_000;
/// Comparisons for one set that a choice looks at, about.
const A_SET: u64 = 4;

/// Rates choices until it has compared as much as it may.
#[derive(Debug)]
pub struct Rater<'a> {
    nearness: &'a Nearness,
    left: Cell<u64>,
}

impl<'a> Rater<'a> {
    /// None where no choice among these devices is better than another.
    pub fn new(parties: &[(Taste, Vec<Bdf>)], nearness: &'a Nearness) -> Option<Rater<'a>> {
        matters(parties, nearness).then(|| Rater { nearness, left: Cell::new(COMPARISONS) })
    }

    /// How good the devices are that are preferred for these parties; none
    /// where it would take too long to find out.
    pub fn rating(&self, parties: &[Party]) -> Option<Rating> {
        self.left.set(self.left.get().checked_sub(comparisons(parties))?);
        let chosen: Vec<Vec<Device>> =
            preferred(parties, self.nearness).into_iter().map(|(devices, _)| devices).collect();
        Some(worth(parties, self.nearness, &chosen).0.to_vec())
    }
}

/// True where devices are linked, behind one bridge, or of one physical
/// function, as far as their parties care.
fn matters(parties: &[(Taste, Vec<Bdf>)], nearness: &Nearness) -> bool {
    let mut bridges: BTreeSet<(Bdf, usize)> = BTreeSet::new();
    let mut functions: BTreeSet<(Bdf, usize)> = BTreeSet::new();
    for (party, (taste, devices)) in parties.iter().enumerate() {
        for spot in devices.iter().map(|&bdf| nearness.spot(bdf)) {
            let (bridge, function) = spot.places();
            let again = |places: &mut BTreeSet<(Bdf, usize)>, place: Option<Bdf>| {
                place.is_some_and(|place| !places.insert((place, party)))
            };
            let beside = bridge.is_some_and(|bridge| (0..party).any(|other| bridges.contains(&(bridge, other))));
            let switched = again(&mut bridges, bridge) && *taste == Taste::Switched;
            let siblings = again(&mut functions, function) && matches!(taste, Taste::Packed | Taste::Spread);
            if spot.is_linked() || beside || switched || siblings {
                return true;
            }
        }
    }
    false
}

/// About how much is compared to choose and to rate.
fn comparisons(parties: &[Party]) -> u64 {
    let all: u64 = parties.iter().map(|party| party.free.len() as u64).sum();
    let groups = |party: &Party| {
        let group =
            |device: &Device| party.free.iter().find(|(other, _)| other == device).and_then(|(_, group)| *group);
        let wanted: BTreeSet<Group> = party.chosen.iter().map(group).collect();
        party.free.iter().filter(|(_, group)| wanted.contains(group)).count() as u64
    };
    parties.iter().map(|party| groups(party) * (all + A_SET * party.chosen.len() as u64)).sum::<u64>() + all
}

/// What devices are worth. Each pair of them counts once.
fn worth(parties: &[Party], nearness: &Nearness, chosen: &[Vec<Device>]) -> Score {
    let spots = |devices: &[Device]| devices.iter().map(|device| nearness.spot(device.bdf)).collect();
    let chosen: Vec<Vec<Spot<'_>>> = chosen.iter().map(|devices| spots(devices)).collect();
    let taken: BTreeSet<Bdf> = chosen.iter().flatten().map(|spot| spot.bdf).collect();
    let mut sum = Score::default();
    for (at, (party, own)) in parties.iter().zip(&chosen).enumerate() {
        let free = party.free.iter().map(|(device, _)| device.bdf).filter(|bdf| !taken.contains(bdf));
        let left: Vec<Spot<'_>> = free.map(|bdf| nearness.spot(bdf)).collect();
        for (index, device) in own.iter().enumerate() {
            let within = own[..index].iter().map(|other| pair(party.taste, device, other));
            let across = chosen[..at].iter().flatten().map(|other| Score::of(LINKS, device.link(other)));
            let others = chosen.iter().enumerate().filter(|(other, _)| *other != at);
            let nearest = others.filter_map(|(_, devices)| devices.iter().map(|other| device.switch(other)).max());
            let beside = nearest.map(|near| Score::of(BESIDE, near));
            let left = left.iter().map(|other| lost(party.taste, device, other));
            sum = within.chain(across).chain(beside).chain(left).fold(sum, Score::plus);
        }
    }
    sum
}
