//! All device requests of a launch together: they may draw from the same
//! devices, and no device serves two of them.

use super::choose::{self, Candidate};
use super::demand::Demand;
use crate::hint::{Amount, Capacity, Supply};
use crate::resource::prefer::{Advice, Answers, Nearness, Question};
use crate::resource::{Device, Offer, Shortage};
use crate::topology::{Bdf, NodeMask};
use std::collections::{BTreeMap, BTreeSet};

/// Groups of overlapping requests up to which each union of them is hinted.
const GROUPS: usize = 6;

/// The device requests of a launch.
#[derive(Debug)]
pub struct Field {
    /// Each with the devices that would serve it.
    pub demands: Vec<Demand>,
    /// The machine's nodes.
    pub nodes: NodeMask,
    /// How near devices are to each other.
    pub nearness: Nearness,
    /// What plugins have answered.
    pub answers: Answers,
}

/// The devices of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The devices, in the order of choice.
    pub devices: Vec<Device>,
    /// What a preference changed.
    pub advice: Option<Advice>,
    /// What its plugin is still to be asked.
    pub question: Option<Box<Question>>,
    /// What was wrong with its plugin's answer.
    pub warning: Option<String>,
}

/// Where the devices of one request are to come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// From these nodes as far as they have some; none: from anywhere.
    Mask(Option<NodeMask>),
    /// So many from each locality; what is missing from anywhere.
    Counts(BTreeMap<u32, u64>),
}

impl Wish {
    /// How far a device is from the wish for one more: 0 is as wished.
    pub(super) fn rank(&self, candidate: &Candidate<Device>, place: Option<u32>) -> usize {
        let lead = candidate.lead();
        match (self, lead) {
            (Wish::Mask(Some(mask)), Some(lead)) => usize::from(!mask.contains(lead)),
            (Wish::Mask(None), Some(_)) => 0,
            (Wish::Counts(_), Some(lead)) => usize::from(place != Some(lead)),
            (_, None) => 2,
        }
    }

    /// A place for each device wanted.
    fn places(&self, wanted: usize) -> Vec<Option<u32>> {
        let mut places: Vec<Option<u32>> = match self {
            Wish::Mask(_) => Vec::new(),
            Wish::Counts(counts) => {
                counts.iter().flat_map(|(&node, &count)| (0..count).map(move |_| Some(node))).collect()
            }
        };
        places.resize(wanted, None);
        places
    }
}

impl Field {
    /// Chosen devices for each request, in the order of the requests: from
    /// where they are wished, as far as all can be served.
    ///
    /// # Errors
    /// Some requests together want more than there is.
    pub fn chosen(&self, wishes: &[Wish]) -> Result<Vec<Chosen>, Shortage> {
        Ok(self.preferred(wishes, self.plain(wishes)?))
    }

    /// The same without any preference.
    pub(super) fn plain(&self, wishes: &[Wish]) -> Result<Vec<Vec<Device>>, Shortage> {
        let mut matching = Matching::new(self, wishes);
        match matching.fill() {
            Some(unserved) => Err(self.together(&matching.rivals(unserved))),
            None => Ok(matching.devices()),
        }
    }

    /// Too few for this request, alone or beside the others.
    pub fn shortage(&self, at: usize) -> Option<Shortage> {
        let anywhere = vec![Wish::Mask(None); self.demands.len()];
        self.demands[at].shortage().or_else(|| {
            let mut matching = Matching::new(self, &anywhere);
            let rivals = matching.fill().map(|unserved| matching.rivals(unserved))?;
            rivals.contains(&at).then(|| self.together(&rivals))
        })
    }

    fn together(&self, rivals: &BTreeSet<usize>) -> Shortage {
        let demands: Vec<&Demand> = rivals.iter().map(|&at| &self.demands[at]).collect();
        if let [alone] = demands[..]
            && let Some(shortage) = alone.shortage()
        {
            return shortage;
        }
        let free: BTreeSet<Bdf> =
            demands.iter().flat_map(|demand| demand.free()).map(|candidate| candidate.device.bdf).collect();
        let wanted: usize = demands.iter().map(|demand| demand.wanted()).sum();
        let labels: Vec<&str> = demands.iter().map(|demand| demand.label.as_str()).collect();
        let message = format!(
            "not enough for {} together: {wanted} wanted, {} free that would do",
            labels.join(" and "),
            free.len()
        );
        let resource = demands.first().map(|demand| demand.label.clone()).unwrap_or_default();
        Shortage { resource, wanted: wanted as u64, free: free.len() as u64, message }
    }

    /// Which nodes could serve a request. One that shares devices with others
    /// is hinted with them: a mask has to hold what they want together.
    pub fn offer(&self, at: usize) -> Offer {
        let own = self.offer_alone(at);
        let rivals = self.overlapping(at);
        let Offer::Capacity(mut capacity) = own else { return own };
        if rivals.len() < 2 {
            return Offer::Capacity(capacity);
        }
        for &rival in &rivals {
            if let Offer::Capacity(Capacity { domain, .. }) = self.offer_alone(rival) {
                capacity.domain = capacity.domain.or(&domain);
            }
        }
        capacity.amounts.extend(self.unions(at, &rivals));
        Offer::Capacity(capacity)
    }

    fn offer_alone(&self, at: usize) -> Offer {
        let demand = &self.demands[at];
        choose::offer(&demand.candidates, &self.nodes, demand.wanted() as u64)
    }

    fn addresses(&self, at: usize) -> BTreeSet<Bdf> {
        self.demands[at].candidates.iter().map(|candidate| candidate.device.bdf).collect()
    }

    /// The requests that share devices with this one, be it over others; itself too.
    fn overlapping(&self, at: usize) -> BTreeSet<usize> {
        let sets: Vec<BTreeSet<Bdf>> = (0..self.demands.len()).map(|at| self.addresses(at)).collect();
        let mut inside = BTreeSet::from([at]);
        loop {
            let reached = |other: &usize| inside.iter().any(|&one| !sets[one].is_disjoint(&sets[*other]));
            let wider: BTreeSet<usize> =
                (0..sets.len()).filter(|other| inside.contains(other) || reached(other)).collect();
            if wider == inside {
                return inside;
            }
            inside = wider;
        }
    }

    /// What this request and others want together, for each set of others that matters (Hall's theorem).
    fn unions(&self, at: usize, rivals: &BTreeSet<usize>) -> Vec<Amount> {
        // Requests for the same devices count as one.
        let mut groups: BTreeMap<BTreeSet<Bdf>, Vec<usize>> = BTreeMap::new();
        rivals.iter().for_each(|&rival| groups.entry(self.addresses(rival)).or_default().push(rival));
        let groups: Vec<Vec<usize>> = groups.into_values().collect();
        let all = (1usize << groups.len().min(GROUPS + 1)) - 1;
        let sets: Vec<usize> = if groups.len() > GROUPS { vec![all] } else { (1..=all).collect() };
        let members = |set: usize| -> Vec<usize> {
            let inside = |index: usize| groups.len() > GROUPS || set >> index & 1 == 1;
            groups.iter().enumerate().filter(|(index, _)| inside(*index)).flat_map(|(_, group)| group.clone()).collect()
        };
        let sets = sets.into_iter().map(members).filter(|members| members.len() > 1 && members.contains(&at));
        sets.map(|members| self.union(&members)).collect()
    }

    fn union(&self, members: &[usize]) -> Amount {
        let candidates = members.iter().flat_map(|&member| &self.demands[member].candidates);
        let known =
            candidates.filter_map(|candidate| Some((candidate.device.bdf, (candidate.lead()?, candidate.state))));
        let known: BTreeMap<Bdf, (u32, choose::DeviceState)> = known.collect();
        let supply = known.values().map(|&(lead, state)| Supply {
            nodes: NodeMask::one(lead),
            free: u64::from(state == choose::DeviceState::Free),
            total: 1,
        });
        let wanted = members.iter().map(|&member| self.demands[member].wanted() as u64).sum();
        Amount { wanted, supply: supply.collect() }
    }
}

/// Devices given to requests, so that each place has one (augmenting paths).
struct Matching<'a> {
    field: &'a Field,
    wishes: &'a [Wish],
    /// Each device wanted: whose, and on which node.
    places: Vec<(usize, Option<u32>)>,
    /// Which place has a device.
    owner: BTreeMap<Bdf, usize>,
    /// What each place has.
    given: Vec<Option<Device>>,
}

impl<'a> Matching<'a> {
    fn new(field: &'a Field, wishes: &'a [Wish]) -> Matching<'a> {
        let mut order: Vec<usize> = (0..field.demands.len()).collect();
        // The most constrained choose first.
        order.sort_by_key(|&at| field.demands[at].free().count());
        let places = order.into_iter().flat_map(|at| {
            let places = wishes[at].places(field.demands[at].wanted());
            places.into_iter().map(move |place| (at, place))
        });
        let places: Vec<(usize, Option<u32>)> = places.collect();
        Matching { field, wishes, given: vec![None; places.len()], places, owner: BTreeMap::new() }
    }

    /// Serves all places, as wished first; the first that cannot be served.
    fn fill(&mut self) -> Option<usize> {
        for worst in 0..=2 {
            for place in 0..self.places.len() {
                if self.given[place].is_none() {
                    self.serve(place, worst, &mut BTreeSet::new());
                }
            }
        }
        self.given.iter().position(Option::is_none)
    }

    /// Gives a place a device that is free, or one whose owner finds another.
    fn serve(&mut self, place: usize, worst: usize, seen: &mut BTreeSet<Bdf>) -> bool {
        let devices = self.within(place, worst);
        let free = devices.iter().find(|device| !self.owner.contains_key(&device.bdf));
        if let Some(device) = free {
            self.give(place, device.clone());
            return true;
        }
        for device in devices {
            if !seen.insert(device.bdf) {
                continue;
            }
            let Some(&other) = self.owner.get(&device.bdf) else { continue };
            // Places of one request that wish alike have nothing to swap.
            if self.places[other] != self.places[place] && self.serve(other, worst, seen) {
                self.give(place, device);
                return true;
            }
        }
        false
    }

    fn give(&mut self, place: usize, device: Device) {
        self.owner.insert(device.bdf, place);
        self.given[place] = Some(device);
    }

    fn within(&self, place: usize, worst: usize) -> Vec<Device> {
        let (at, node) = self.places[place];
        let rank = |candidate: &&Candidate<Device>| self.wishes[at].rank(candidate, node);
        let mut devices: Vec<&Candidate<Device>> =
            self.field.demands[at].free().filter(|candidate| rank(candidate) <= worst).collect();
        devices.sort_by_key(rank);
        devices.into_iter().map(|candidate| candidate.device.clone()).collect()
    }

    /// The requests that want the same devices as a place that could not be served.
    fn rivals(&self, place: usize) -> BTreeSet<usize> {
        let mut rivals = BTreeSet::from([self.places[place].0]);
        loop {
            let devices = rivals.iter().flat_map(|&at| self.field.demands[at].free());
            let owners = devices.filter_map(|candidate| self.owner.get(&candidate.device.bdf));
            let wider: BTreeSet<usize> = owners.map(|&owner| self.places[owner].0).chain(rivals.clone()).collect();
            if wider == rivals {
                return rivals;
            }
            rivals = wider;
        }
    }

    fn devices(&self) -> Vec<Vec<Device>> {
        let mut devices = vec![Vec::new(); self.field.demands.len()];
        for (&(at, place), given) in self.places.iter().zip(&self.given) {
            let candidate = |device: &Device| {
                let known = self.field.demands[at].candidates.iter().find(|candidate| candidate.device == *device);
                known.map_or(2, |candidate| self.wishes[at].rank(candidate, place))
            };
            devices[at].extend(given.iter().map(|device| (candidate(device), device.clone())));
        }
        devices.iter_mut().for_each(|chosen: &mut Vec<(usize, Device)>| chosen.sort());
        devices.into_iter().map(|chosen| chosen.into_iter().map(|(_, device)| device).collect()).collect()
    }
}
