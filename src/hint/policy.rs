//! Who is admitted: the four policies of placement, and of nothing else.

use std::fmt;
use std::str::FromStr;

/// What has to hold for a placement to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// No alignment is sought.
    None,
    /// The best placement found, whatever it is.
    #[default]
    BestEffort,
    /// Only a preferred placement.
    Restricted,
    /// Only a placement on one node.
    SingleNumaNode,
}

/// A word that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no policy: choose none, best-effort, restricted or single-numa-node")]
pub struct UnknownPolicy(String);

impl Policy {
    /// Every policy, the most lenient first.
    pub const ALL: [Policy; 4] = [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode];

    /// The name, as the kubelet spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::BestEffort => "best-effort",
            Policy::Restricted => "restricted",
            Policy::SingleNumaNode => "single-numa-node",
        }
    }

    /// True when nodes are chosen for what they hold together.
    pub const fn seeks_alignment(self) -> bool {
        !matches!(self, Policy::None)
    }

    /// True when a merged hint that is, or is not, preferred is let through.
    pub const fn admits(self, preferred: bool) -> bool {
        match self {
            Policy::None | Policy::BestEffort => true,
            Policy::Restricted | Policy::SingleNumaNode => preferred,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let named = Policy::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_printed() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "strict".parse::<Policy>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`strict` is no policy: choose none, best-effort, restricted or single-numa-node"
        );
    }

    #[test]
    fn only_restricted_and_single_numa_node_insist_on_a_preferred_answer() {
        let insists = Policy::ALL.map(|policy| !policy.admits(false));
        assert_eq!(insists, [false, false, true, true]);
        assert!(Policy::ALL.iter().all(|policy| policy.admits(true)));
    }
}
