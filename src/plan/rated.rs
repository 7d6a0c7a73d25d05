//! How good numbers by node are for the preferences among devices: step 8 of
//! the order, asked of the providers and remembered.

use super::Plan;
use crate::hint::relative::{Kind, Rating};
use crate::resource::{HintProvider, Preference, Units};
use std::cell::RefCell;
use std::collections::HashMap;

/// What numbers are worth, as far as it was asked.
pub struct Rated<'a> {
    preference: Preference<'a>,
    /// Names of the resources that are rated, with their places.
    names: Vec<(usize, String)>,
    nodes: Vec<u32>,
    known: RefCell<HashMap<Vec<u64>, Option<Rating>>>,
}

impl<'a> Rated<'a> {
    /// None where no provider prefers anything: then there is nothing to ask.
    pub fn new(providers: &'a [Box<dyn HintProvider>], kinds: &[Kind], plan: &Plan) -> Option<Rated<'a>> {
        let devices = (0..kinds.len()).filter(|&at| kinds[at] == Kind::Devices);
        let names: Vec<(usize, String)> = devices.map(|at| (at, plan.resources[at].resource.clone())).collect();
        let preference = providers.iter().find_map(|provider| provider.preference()).filter(|_| !names.is_empty())?;
        Some(Rated { preference, names, nodes: plan.candidates.iter().collect(), known: RefCell::default() })
    }

    /// Of units by resource and node. The same numbers are asked for once.
    pub fn rating(&self, counts: &[Vec<u64>]) -> Option<Rating> {
        let key: Vec<u64> = self.names.iter().flat_map(|(at, _)| counts[*at].iter().copied()).collect();
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let by_node =
            |row: &[u64]| self.nodes.iter().copied().zip(row.iter().copied()).filter(|pair| pair.1 > 0).collect();
        let units: Units = self.names.iter().map(|(at, name)| (name.clone(), by_node(&counts[*at]))).collect();
        let rating = (self.preference)(&units);
        self.known.borrow_mut().insert(key, rating.clone());
        rating
    }
}
