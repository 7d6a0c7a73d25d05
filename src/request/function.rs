//! A PCI function as a person names it.

use super::DeviceError;
use crate::topology::{Bdf, Machine};
use std::fmt;
use std::str::FromStr;

/// A function by its address, or by the name of one of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionName {
    /// `0000:3b:00.0`.
    Address(Bdf),
    /// `ens1f0`.
    Interface(String),
}

impl FunctionName {
    /// The function's address; none where the machine has no such interface.
    pub fn address(&self, machine: &Machine) -> Option<Bdf> {
        match self {
            FunctionName::Address(bdf) => Some(*bdf),
            FunctionName::Interface(name) => {
                machine.pci.iter().find(|function| function.interfaces.contains(name)).map(|function| function.bdf)
            }
        }
    }
}

impl FromStr for FunctionName {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<FunctionName, DeviceError> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:@".contains(letter);
        match text.parse::<Bdf>() {
            Ok(bdf) => Ok(FunctionName::Address(bdf)),
            // An interface's name has no colon: what has one is a mistyped address.
            Err(_) if text.is_empty() || text.contains(':') || !text.chars().all(plain) => {
                Err(DeviceError::Function(text.to_owned()))
            }
            Err(_) => Ok(FunctionName::Interface(text.to_owned())),
        }
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionName::Address(bdf) => write!(out, "{bdf}"),
            FunctionName::Interface(name) => out.write_str(name),
        }
    }
}
