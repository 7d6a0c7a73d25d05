//! Which devices of one class: the kubelet's order of choice, with a fixed
//! order inside each pool where the kubelet picks at random.

use crate::hint::{Amount, Capacity, Supply};
use crate::resource::Offer;
use crate::topology::NodeMask;

/// A device that may be chosen; `D` orders the devices of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<D> {
    /// The device itself.
    pub device: D,
    /// Nodes that it is near to; none, or an empty list: its locality is
    /// unknown. Node -1 is one that no mask holds, which is something else.
    pub nodes: Option<Vec<i64>>,
    /// Whether it can be had.
    pub state: DeviceState,
}

/// Whether a device can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// Nobody holds it.
    Free,
    /// Somebody else holds it.
    Taken,
    /// It is out of order.
    Sick,
    /// The asker holds it already and may use it again.
    Reuse,
}

/// The free devices by their place relative to the merged hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools<D> {
    /// Near to a node of the hint.
    pub aligned: Vec<D>,
    /// Near to other nodes only.
    pub unaligned: Vec<D>,
    /// Of unknown locality; everything, where there is no hint.
    pub no_affinity: Vec<D>,
}

/// What a preference is asked: which devices there are, which it must include, how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question<D> {
    /// Devices to choose from.
    pub available: Vec<D>,
    /// Devices that are chosen already.
    pub must_include: Vec<D>,
    /// Devices in the whole answer.
    pub size: usize,
}

/// Chosen devices, and what a preference was asked on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice<D> {
    /// The devices, in the order of choice.
    pub devices: Vec<D>,
    /// The question, if the preference had a say.
    pub asked: Option<Question<D>>,
}

/// Why no devices could be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceError {
    /// Every device is out of order.
    NoHealthy,
    /// Fewer are free than wanted.
    NotEnough,
}

impl<D> Candidate<D> {
    /// True when nodes are named, be it only node -1.
    fn has_topology(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty())
    }

    /// Its node, where it is near to a single one that is known.
    pub fn lead(&self) -> Option<u32> {
        self.known().next()
    }

    fn near(&self, mask: &NodeMask) -> bool {
        self.known().any(|node| mask.contains(node))
    }

    fn known(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.iter().flatten().filter_map(|&node| u32::try_from(node).ok())
    }
}

/// Which of the machine's nodes could serve `wanted` devices.
pub fn offer<D>(candidates: &[Candidate<D>], nodes: &NodeMask, wanted: u64) -> Offer {
    if !candidates.iter().any(Candidate::has_topology) {
        return Offer::NoPreference;
    }
    let usable = |state| matches!(state, DeviceState::Free | DeviceState::Reuse);
    if (candidates.iter().filter(|candidate| usable(candidate.state)).count() as u64) < wanted {
        return Offer::CannotBeMet;
    }
    let supply = |candidate: &Candidate<D>| Supply {
        nodes: candidate.known().collect::<NodeMask>().and(nodes),
        free: u64::from(usable(candidate.state)),
        total: 1,
    };
    let known = candidates.iter().filter(|candidate| candidate.nodes.is_some());
    let devices = Amount { wanted, supply: known.map(supply).collect() };
    let domain: NodeMask = candidates.iter().flat_map(Candidate::known).collect();
    let domain = domain.and(nodes);
    let amounts = std::iter::once(devices).chain(held_again(candidates, &domain)).collect();
    Offer::Capacity(Capacity { domain, amounts, ..Capacity::default() })
}

/// Every reusable device of known locality must be near to the mask, which
/// has no say in how wide an idle machine's mask would be.
fn held_again<D>(candidates: &[Candidate<D>], domain: &NodeMask) -> Option<Amount> {
    let held = candidates.iter().filter(|candidate| candidate.state == DeviceState::Reuse && candidate.nodes.is_some());
    let mut supply: Vec<Supply> =
        held.map(|candidate| Supply { nodes: candidate.known().collect(), free: 1, total: 0 }).collect();
    let wanted = supply.len() as u64;
    supply.push(Supply { nodes: domain.clone(), free: 0, total: wanted });
    (wanted > 0).then_some(Amount { wanted, supply })
}

/// Splits the free devices by the merged hint.
pub fn pools<D: Clone + Ord>(candidates: &[Candidate<D>], affinity: Option<&NodeMask>) -> Pools<D> {
    let mut pools = Pools { aligned: Vec::new(), unaligned: Vec::new(), no_affinity: Vec::new() };
    let known = candidates.iter().any(Candidate::has_topology);
    for candidate in candidates.iter().filter(|candidate| candidate.state == DeviceState::Free) {
        let pool = match affinity.filter(|_| known) {
            Some(mask) if candidate.near(mask) => &mut pools.aligned,
            Some(_) if candidate.known().next().is_some() => &mut pools.unaligned,
            _ => &mut pools.no_affinity,
        };
        pool.push(candidate.device.clone());
    }
    [&mut pools.aligned, &mut pools.unaligned, &mut pools.no_affinity].into_iter().for_each(|pool| pool.sort());
    pools
}

/// Chooses `wanted` devices: those that the asker holds, then aligned ones,
/// then others, then those of unknown locality; `preference` has a say within that.
pub fn choose<D: Clone + Ord>(
    candidates: &[Candidate<D>],
    affinity: Option<&NodeMask>,
    wanted: usize,
    preference: Option<&[D]>,
) -> Result<Choice<D>, ChoiceError> {
    let healthy = |candidate: &Candidate<D>| candidate.state != DeviceState::Sick;
    if !candidates.iter().any(healthy) {
        return Err(ChoiceError::NoHealthy);
    }
    let pools = pools(candidates, affinity);
    let mut taking = Taking { wanted, devices: Vec::new() };
    taking.from(&in_state(candidates, DeviceState::Reuse));
    let needed = wanted - taking.devices.len();
    let free = in_state(candidates, DeviceState::Free);
    if free.len() < needed {
        return Err(ChoiceError::NotEnough);
    }
    let asked = if needed == 0 { None } else { taking.by_preference(&pools, &free, preference) };
    Ok(Choice { devices: taking.devices, asked })
}

fn in_state<D: Clone + Ord>(candidates: &[Candidate<D>], state: DeviceState) -> Vec<D> {
    let these = candidates.iter().filter(|candidate| candidate.state == state);
    let mut devices: Vec<D> = these.map(|candidate| candidate.device.clone()).collect();
    devices.sort();
    devices
}

struct Taking<D> {
    wanted: usize,
    devices: Vec<D>,
}

impl<D: Clone + Ord> Taking<D> {
    fn full(&self) -> bool {
        self.devices.len() == self.wanted
    }

    fn from(&mut self, pool: &[D]) {
        for device in pool {
            if !self.full() && !self.devices.contains(device) {
                self.devices.push(device.clone());
            }
        }
    }

    /// Advice counts only as far as it names devices of the pool.
    fn advised(&mut self, pool: &[D], preference: Option<&[D]>) -> Option<Question<D>> {
        let advice = preference?;
        let mut available = [pool, &self.devices].concat();
        available.sort();
        available.dedup();
        let mut must_include = self.devices.clone();
        must_include.sort();
        let question = Question { available, must_include, size: self.wanted };
        let within: Vec<D> = advice.iter().filter(|device| pool.contains(device)).cloned().collect();
        self.from(&within);
        Some(question)
    }

    fn by_preference(&mut self, pools: &Pools<D>, free: &[D], preference: Option<&[D]>) -> Option<Question<D>> {
        if self.wanted - self.devices.len() < pools.aligned.len() {
            let asked = self.advised(&pools.aligned, preference);
            self.from(&pools.aligned);
            return asked;
        }
        self.from(&pools.aligned);
        if self.full() {
            return None;
        }
        let asked = self.advised(free, preference);
        self.from(&pools.unaligned);
        self.from(&pools.no_affinity);
        asked
    }
}
