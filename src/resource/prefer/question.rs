//! What the plugin of a class is asked about one request.

use crate::resource::Device;
use crate::topology::Bdf;
use std::collections::BTreeSet;

/// A question to a plugin. The same request on the same machine asks the same,
/// so that an answer is found again by what was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Name of the class.
    pub class: String,
    /// What the request is called.
    pub request: String,
    /// Devices of the class that the launch has by other requests: an address
    /// that was typed, a request that was served before.
    pub beside: Vec<Device>,
    /// Devices of its own that there is no choice about.
    pub certain: Vec<Device>,
    /// Where there is a choice.
    pub places: Vec<Place>,
}

/// So many devices of some that are equally good for the nodes: those of one
/// locality where the counts by node are settled, else those within the
/// affinity, those outside it, those of unknown locality.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// How many are taken.
    pub count: usize,
    /// Of which.
    pub from: Vec<Device>,
}

impl Place {
    /// The nodes of its devices; none where they are unknown.
    pub fn nodes(&self) -> BTreeSet<u32> {
        self.from.iter().filter_map(|device| device.node).collect()
    }
}

impl Question {
    /// Devices that every answer has.
    pub fn must_include(&self) -> Vec<Bdf> {
        sorted(self.beside.iter().chain(&self.certain))
    }

    /// All devices that an answer may have.
    pub fn available(&self) -> Vec<Bdf> {
        let open = self.places.iter().flat_map(|place| &place.from);
        sorted(self.beside.iter().chain(&self.certain).chain(open))
    }

    /// How many devices an answer has.
    pub fn size(&self) -> usize {
        let open: usize = self.places.iter().map(|place| place.count).sum();
        self.beside.len() + self.certain.len() + open
    }

    /// The devices of an answer that are the request's own.
    pub fn own(&self, answer: &[Bdf]) -> Vec<Device> {
        let chosen = |place: &Place| -> Vec<Device> {
            place.from.iter().filter(|device| answer.contains(&device.bdf)).cloned().collect()
        };
        self.certain.iter().cloned().chain(self.places.iter().flat_map(chosen)).collect()
    }
}

/// By node, then address.
fn sorted<'a>(devices: impl Iterator<Item = &'a Device>) -> Vec<Bdf> {
    let mut devices: Vec<&Device> = devices.collect();
    devices.sort();
    devices.into_iter().map(|device| device.bdf).collect()
}
