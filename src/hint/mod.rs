//! Which sets of nodes could serve a request, and how several such answers
//! become one.

pub mod kubelet;
pub mod list;
pub mod policy;
pub mod relative;

use crate::topology::NodeMask;
use std::collections::BTreeSet;

/// One way to serve a request for one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyHint {
    /// Nodes that together can serve it; none: any nodes will do.
    pub affinity: Option<NodeMask>,
    /// True when no idle machine of this shape could do with fewer nodes.
    pub preferred: bool,
}

/// What a resource says about nodes, without listing every mask: units that
/// are free and that exist, and how many are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Nodes that a mask of this resource may hold.
    pub domain: NodeMask,
    /// Nodes that every mask must hold (where reusable units are).
    pub must_hold: NodeMask,
    /// What has to fit, all of it in the same mask. More than one for memory
    /// and pages, which are hinted together.
    pub amounts: Vec<Amount>,
    /// Also preferred: masks that span no more sockets than needed.
    pub sockets: Option<Sockets>,
}

/// A number of units wanted, and where there are some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Units wanted.
    pub wanted: u64,
    /// Units by place.
    pub supply: Vec<Supply>,
}

/// Units that a mask holds when it holds any of these nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// One node, but for devices that are near to several.
    pub nodes: NodeMask,
    /// Units free now.
    pub free: u64,
    /// Units with everything allocatable free.
    pub total: u64,
}

/// The socket rule of `align-socket`: which socket each node is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// For each node of the domain, in ascending order, the sockets of its CPUs.
    pub of_node: Vec<(u32, Vec<u32>)>,
    /// Sockets that the narrowest mask of an idle machine spans.
    pub least: usize,
}

impl Capacity {
    /// True when the mask's free units serve every amount.
    pub fn holds(&self, mask: &NodeMask) -> bool {
        self.must_hold.is_subset(mask) && self.amounts.iter().all(|amount| amount.free(mask) >= amount.wanted)
    }

    /// True when the mask could serve every amount with everything allocatable free.
    pub fn could_hold(&self, mask: &NodeMask) -> bool {
        self.amounts.iter().all(|amount| amount.total(mask) >= amount.wanted)
    }
}

impl Sockets {
    /// True when the mask spans exactly as many sockets as the narrowest one:
    /// on uneven machines fewer do not count, as in the kubelet.
    pub fn spans_least(&self, mask: &NodeMask) -> bool {
        let inside = self.of_node.iter().filter(|(node, _)| mask.contains(*node));
        inside.flat_map(|(_, sockets)| sockets).collect::<BTreeSet<_>>().len() == self.least
    }
}

impl Amount {
    /// Free units in a mask.
    pub fn free(&self, mask: &NodeMask) -> u64 {
        self.in_mask(mask).map(|supply| supply.free).sum()
    }

    /// Units in a mask with everything allocatable free.
    pub fn total(&self, mask: &NodeMask) -> u64 {
        self.in_mask(mask).map(|supply| supply.total).sum()
    }

    fn in_mask<'a>(&'a self, mask: &'a NodeMask) -> impl Iterator<Item = &'a Supply> {
        self.supply.iter().filter(|supply| !supply.nodes.is_disjoint(mask))
    }
}
