//! Capabilities by name: what of root's power a program has (capabilities(7)).

use caps::{Capability, CapsHashSet};
use std::fmt;
use std::str::FromStr;

/// A set of capabilities, as the kernel prints it: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

/// A word that names no capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no capability: write names like net_raw,ipc_lock (capabilities(7) lists them), or none")]
pub struct CapabilityError(String);

impl Capabilities {
    /// Those of these that are not in the other set.
    pub fn minus(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & !other.0)
    }

    /// True when there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their names in lower case, without `cap_`.
    pub fn names(self) -> Vec<String> {
        let mut known: Vec<Capability> = self.known().into_iter().collect();
        known.sort_by_key(Capability::index);
        known.iter().map(|capability| capability.to_string().to_lowercase().replacen("cap_", "", 1)).collect()
    }

    /// As the `caps` crate takes them.
    pub fn known(self) -> CapsHashSet {
        caps::all().into_iter().filter(|capability| self.0 & capability.bitmask() != 0).collect()
    }
}

impl FromStr for Capabilities {
    type Err = CapabilityError;

    /// Reads `net_raw,ipc_lock`, also `CAP_NET_RAW`, and `none`.
    fn from_str(text: &str) -> Result<Capabilities, CapabilityError> {
        if text.trim() == "none" {
            return Ok(Capabilities::default());
        }
        let one = |word: &str| {
            let name = caps::to_canonical(word.trim());
            name.parse::<Capability>().map(|known| known.bitmask()).map_err(|_| CapabilityError(word.to_owned()))
        };
        text.split(',').map(one).try_fold(0, |set, bit| Ok(set | bit?)).map(Capabilities)
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => write!(out, "none"),
            false => write!(out, "{}", self.names().join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_in_either_spelling_and_printed_in_one() {
        for text in ["net_raw,ipc_lock", "CAP_IPC_LOCK,CAP_NET_RAW", "Net_Raw, cap_ipc_lock,net_raw"] {
            let set: Capabilities = text.parse().unwrap();
            assert_eq!((set.0, set.to_string().as_str()), (1 << 13 | 1 << 14, "net_raw,ipc_lock"), "{text}");
        }
        assert_eq!("none".parse(), Ok(Capabilities::default()));
        assert_eq!(Capabilities::default().to_string(), "none");
        for text in ["", "net_raw,", "all", "+net_raw", "none,net_raw"] {
            assert!(text.parse::<Capabilities>().is_err(), "{text}");
        }
    }
}
