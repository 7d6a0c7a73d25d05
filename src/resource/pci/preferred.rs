//! Preferences among the devices of all requests: what is built in first, then
//! the plugins, one after the other; after each the others look again.

use super::choose::{self, Candidate, DeviceState};
use super::demand::Demand;
use super::field::{Chosen, Field, Wish};
use crate::hint::relative::Rating;
use crate::resource::Device;
use crate::resource::prefer::{self, Advice, Because, Party, Place, Plugin, Preferred, Question, Rater};
use std::collections::{BTreeMap, BTreeSet};

/// A choice that is being made.
struct Draft<'a> {
    field: &'a Field,
    wishes: &'a [Wish],
    /// Devices without any preference, but for those that plugins have settled.
    plain: Vec<Vec<Device>>,
    /// What plugins have settled.
    settled: Vec<Option<Advice>>,
}

impl Field {
    /// Chooses for all requests, each as many from where it has them `plain`ly.
    /// Comes to an end at the first question that has no answer yet: further
    /// ones depend on it.
    pub(super) fn preferred(&self, wishes: &[Wish], plain: Vec<Vec<Device>>) -> Vec<Chosen> {
        let settled = vec![None; plain.len()];
        let mut draft = Draft { field: self, wishes, plain, settled };
        let mut chosen = draft.chosen();
        let (mut open, mut warnings) = (None, BTreeMap::new());
        for (at, demand) in self.demands.iter().enumerate() {
            let Some((program, question)) = demand.plugin.as_ref().zip(draft.question(at)) else { continue };
            let Some(verdict) = self.answers.get(&question) else {
                open = Some((at, question));
                break;
            };
            let warning = |wrong: &str| format!("plugin {} for {}: {wrong}", program.display(), demand.label);
            warnings.extend(verdict.wrong().map(|wrong| (at, warning(wrong))));
            if let Some(preferred) = verdict.best() {
                let Preferred { devices, resource_domain, cost } = preferred.clone();
                let because = Because::Plugin(Plugin { program: program.clone(), cost, resource_domain });
                let instead_of = std::mem::take(&mut chosen[at].devices);
                draft.settle(at, question.own(&devices), Advice { instead_of, because });
                chosen = draft.chosen();
            }
        }
        for (at, warning) in warnings {
            chosen[at].warning = Some(warning);
        }
        if let Some((at, question)) = open {
            chosen[at].question = Some(Box::new(question));
        }
        chosen
    }

    /// Rates what is built in; none where that makes no device better than another.
    pub(super) fn rater(&self) -> Option<Rater<'_>> {
        let party = |demand: &Demand| (demand.taste, demand.free().map(|candidate| candidate.device.bdf).collect());
        let parties: Vec<_> = self.demands.iter().filter(|demand| demand.wanted() > 0).map(party).collect();
        Rater::new(&parties, &self.nearness)
    }

    /// How good the devices are that come of these wishes, plugins left out.
    pub(super) fn rating(&self, rater: &Rater<'_>, wishes: &[Wish]) -> Option<Rating> {
        let plain = self.plain(wishes).ok()?;
        rater.rating(&self.parties(wishes, &plain))
    }

    /// Without an affinity all known devices may stand in for each other, else those of one locality.
    fn parties(&self, wishes: &[Wish], chosen: &[Vec<Device>]) -> Vec<Party> {
        let party = |((demand, wish), chosen): ((&Demand, &Wish), &Vec<Device>)| {
            // What is there is taken before anything is made for it.
            let group = |candidate: &Candidate<Device>| {
                let lead = candidate.lead().map(|lead| if *wish == Wish::Mask(None) { 0 } else { lead });
                lead.map(|lead| (candidate.device.made_by.is_some(), lead))
            };
            let free = demand.free().map(|candidate| (candidate.device.clone(), group(candidate)));
            Party { taste: demand.taste, free: free.collect(), chosen: chosen.clone() }
        };
        self.demands.iter().zip(wishes).zip(chosen).map(party).collect()
    }

    /// The kubelet's order of choice has the last word: advice counts within the affinity.
    fn within_affinity(&self, at: usize, wish: &Wish, advice: &[Device], all: &[Vec<Device>]) -> Vec<Device> {
        let Wish::Mask(mask) = wish else { return advice.to_vec() };
        let elsewhere =
            |device: &Device| all.iter().enumerate().any(|(other, devices)| other != at && devices.contains(device));
        let candidates = self.demands[at].candidates.iter().map(|candidate| match elsewhere(&candidate.device) {
            true => Candidate { state: DeviceState::Taken, ..candidate.clone() },
            false => candidate.clone(),
        });
        let candidates: Vec<Candidate<Device>> = candidates.collect();
        let choice = choose::choose(&candidates, mask.as_ref(), advice.len(), Some(advice));
        choice.map_or_else(|_| advice.to_vec(), |choice| choice.devices)
    }
}

/// Devices that may stand in for each other under a wish: where counts by node
/// are wished, those of one locality, else those that are equally far from it;
/// either all are there, or all have to be made.
type Group = (usize, Option<u32>, bool);

impl Draft<'_> {
    /// What is built in chooses for all that no plugin has settled.
    fn chosen(&self) -> Vec<Chosen> {
        let mut parties = self.field.parties(self.wishes, &self.plain);
        for (party, settled) in parties.iter_mut().zip(&self.settled) {
            if settled.is_some() {
                party.free.retain(|(device, _)| party.chosen.contains(device));
            }
        }
        let preferred = prefer::preferred(&parties, &self.field.nearness);
        let devices: Vec<Vec<Device>> = preferred.iter().map(|(devices, _)| devices.clone()).collect();
        let chosen = preferred.into_iter().zip(&self.settled).enumerate().map(|(at, ((own, advice), settled))| {
            let (devices, advice) = match settled {
                Some(_) => (own, settled.clone()),
                None => (self.field.within_affinity(at, &self.wishes[at], &own, &devices), advice),
            };
            Chosen { devices, advice, ..Chosen::default() }
        });
        chosen.collect()
    }

    /// What the plugin of a request is to be asked; none where there is nothing to choose.
    fn question(&self, at: usize) -> Option<Question> {
        let demand = &self.field.demands[at];
        let own = &self.plain[at];
        let beside: Vec<Device> = (0..self.plain.len())
            .filter(|&other| other != at && self.is_settled(other))
            .flat_map(|other| self.plain[other].clone())
            .filter(|device| demand.free().any(|candidate| candidate.device == *device))
            .collect();
        let mut places: BTreeMap<Group, Place> = BTreeMap::new();
        for candidate in demand.free().filter(|candidate| self.offered(at, &candidate.device)) {
            let place = places.entry(self.group(at, candidate)).or_default();
            place.count += usize::from(own.contains(&candidate.device));
            place.from.push(candidate.device.clone());
        }
        let (certain, open): (Vec<Place>, Vec<Place>) =
            places.into_values().filter(|place| place.count > 0).partition(|place| place.count == place.from.len());
        (!open.is_empty()).then(|| Question {
            class: demand.request.class.clone(),
            request: demand.label.clone(),
            beside,
            certain: certain.into_iter().flat_map(|place| place.from).collect(),
            places: open,
        })
    }

    /// True for a request that can get no other devices.
    fn is_settled(&self, at: usize) -> bool {
        self.settled[at].is_some() || self.field.demands[at].free().count() == self.plain[at].len()
    }

    /// True for a device that the request may have without taking it from one
    /// that could not do with another in its place.
    fn offered(&self, at: usize, device: &Device) -> bool {
        let owner = (0..self.plain.len()).find(|&other| self.plain[other].contains(device));
        owner.is_none_or(|owner| owner == at || !self.is_settled(owner) && self.alike(at, owner))
    }

    /// True for requests that the same devices would serve.
    fn alike(&self, one: usize, other: usize) -> bool {
        let devices = |at: usize| self.field.demands[at].free().map(|candidate| candidate.device.bdf);
        devices(one).collect::<BTreeSet<_>>() == devices(other).collect()
    }

    fn group(&self, at: usize, candidate: &Candidate<Device>) -> Group {
        let lead = candidate.lead();
        let place = lead.filter(|_| matches!(self.wishes[at], Wish::Counts(_)));
        (self.wishes[at].rank(candidate, lead), place, candidate.device.made_by.is_some())
    }

    fn group_of(&self, at: usize, device: &Device) -> Option<Group> {
        let candidate = self.field.demands[at].free().find(|candidate| candidate.device == *device)?;
        Some(self.group(at, candidate))
    }

    /// Gives a request other devices. Who had them gets, for each, one of those
    /// that are left behind, of the same group.
    fn settle(&mut self, at: usize, devices: Vec<Device>, advice: Advice) {
        let old = std::mem::replace(&mut self.plain[at], devices);
        let mut left: Vec<Device> = old.into_iter().filter(|device| !self.plain[at].contains(device)).collect();
        for other in (0..self.plain.len()).filter(|&other| other != at) {
            for index in 0..self.plain[other].len() {
                let lost = &self.plain[other][index];
                let group = self.group_of(at, lost);
                let instead = left.iter().position(|device| self.group_of(at, device) == group);
                if let Some(instead) = instead.filter(|_| self.plain[at].contains(lost)) {
                    self.plain[other][index] = left.remove(instead);
                }
            }
        }
        (0..self.plain.len()).for_each(|at| self.sort(at));
        self.settled[at] = Some(advice);
    }

    /// The order of choice: as wished, then by node and address.
    fn sort(&mut self, at: usize) {
        let mut devices = std::mem::take(&mut self.plain[at]);
        devices.sort_by_key(|device| (self.group_of(at, device).map(|group| group.0), device.clone()));
        self.plain[at] = devices;
    }
}
