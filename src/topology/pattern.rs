//! What a PCI function must be like: patterns of the command line and of the configuration.

use super::{Bdf, Machine, PciFunction};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// What a function must be like. What is left out may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Pattern {
    /// In the order in which they were written.
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    key: Key,
    /// As it was written.
    text: String,
    /// Number, for ids.
    id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Vendor,
    Device,
    Class,
    Driver,
    PhysicalFunction,
    Interface,
    Address,
}

/// The words for the keys of a pattern.
pub const KEYS: [&str; 7] = ["vendor", "device", "class", "driver", "pf", "interface", "address"];

const ORDER: [Key; 7] =
    [Key::Vendor, Key::Device, Key::Class, Key::Driver, Key::PhysicalFunction, Key::Interface, Key::Address];

/// Vendors by the names that people use.
const VENDORS: [(&str, u32); 9] = [
    ("nvidia", 0x10de),
    ("amd", 0x1002),
    ("intel", 0x8086),
    ("mellanox", 0x15b3),
    ("broadcom", 0x14e4),
    ("xilinx", 0x10ee),
    ("samsung", 0x144d),
    ("solarflare", 0x1924),
    ("virtio", 0x1af4),
];

/// Why a text is no part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// No such key.
    #[error("`{0}` is no key: there are {keys}", keys = KEYS.join(", "))]
    Key(String),
    /// A key without a value.
    #[error("`{0}` needs a value: {0}=...")]
    Empty(String),
    /// No vendor.
    #[error("`{0}` is no vendor: write 4 hexadecimal digits or one of {names}", names = vendor_names())]
    Vendor(String),
    /// No device id.
    #[error("`{0}` is no device id: write 4 hexadecimal digits")]
    Device(String),
    /// No class code.
    #[error("`{0}` is no PCI class: write 2, 4 or 6 hexadecimal digits, such as 0108")]
    Class(String),
    /// The same key again.
    #[error("`{0}` is given twice")]
    Twice(&'static str),
}

fn vendor_names() -> String {
    VENDORS.map(|(name, _)| name).join(", ")
}

impl Key {
    fn name(self) -> &'static str {
        KEYS[ORDER.iter().position(|key| *key == self).unwrap_or_default()]
    }

    fn named(text: &str) -> Option<Key> {
        KEYS.iter().position(|key| *key == text).map(|at| ORDER[at])
    }
}

impl Pattern {
    /// The very function at this address.
    pub fn address(bdf: Bdf) -> Pattern {
        Pattern { parts: vec![Part { key: Key::Address, text: bdf.to_string(), id: 0 }] }
    }

    /// Anything that has an interface of this name; `*` and `?` stand for any letters and any letter.
    pub fn interface(name: &str) -> Pattern {
        Pattern { parts: vec![Part { key: Key::Interface, text: name.to_owned(), id: 0 }] }
    }

    /// True when anything matches.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds what one key must be.
    ///
    /// # Errors
    /// No such key, or no such value of it.
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), PatternError> {
        let key = Key::named(key).ok_or_else(|| PatternError::Key(key.to_owned()))?;
        if self.parts.iter().any(|part| part.key == key) {
            return Err(PatternError::Twice(key.name()));
        }
        let text = value.trim().to_owned();
        if text.is_empty() {
            return Err(PatternError::Empty(key.name().to_owned()));
        }
        let id = match key {
            Key::Vendor => vendor(&text).ok_or_else(|| PatternError::Vendor(text.clone()))?,
            Key::Device => hex(&text, &[4]).ok_or_else(|| PatternError::Device(text.clone()))?,
            Key::Class => hex(&text, &[2, 4, 6]).ok_or_else(|| PatternError::Class(text.clone()))?,
            _ => 0,
        };
        self.parts.push(Part { key, text, id });
        Ok(())
    }

    /// True when the function is like that.
    pub fn matches(&self, function: &PciFunction, machine: &Machine) -> bool {
        self.parts.iter().all(|part| part.matches(function, machine))
    }

    /// Names that were written without a wildcard for interfaces and physical functions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let named = |part: &&Part| matches!(part.key, Key::PhysicalFunction | Key::Interface);
        self.parts.iter().filter(named).map(|part| part.text.as_str())
    }
}

impl Part {
    fn matches(&self, function: &PciFunction, machine: &Machine) -> bool {
        let interface = |function: &PciFunction| function.interfaces.iter().any(|name| glob(&self.text, name));
        match self.key {
            Key::Vendor => u32::from(function.vendor) == self.id,
            Key::Device => u32::from(function.device) == self.id,
            Key::Class => function.class >> (24 - 4 * self.text.trim_start_matches("0x").len()) == self.id,
            Key::Driver => function.driver.as_deref().is_some_and(|driver| glob(&self.text, driver)),
            Key::Interface => interface(function),
            Key::Address => address(&self.text, function.bdf),
            Key::PhysicalFunction => function
                .physical_function
                .is_some_and(|parent| address(&self.text, parent) || machine.pci(parent).is_some_and(interface)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(|part| format!("{}={}", part.key.name(), part.text)).collect();
        out.write_str(&parts.join(","))
    }
}

impl TryFrom<BTreeMap<String, String>> for Pattern {
    type Error = PatternError;

    fn try_from(parts: BTreeMap<String, String>) -> Result<Pattern, PatternError> {
        let mut pattern = Pattern::default();
        parts.iter().try_for_each(|(key, value)| pattern.add(key, value))?;
        Ok(pattern)
    }
}

fn vendor(text: &str) -> Option<u32> {
    let named = VENDORS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map(|(_, id)| *id).or_else(|| hex(text, &[4]))
}

fn hex(text: &str, lengths: &[usize]) -> Option<u32> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let plain = lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// An address, or a pattern for its usual form; the domain may be left out where it is 0.
fn address(pattern: &str, bdf: Bdf) -> bool {
    if let Ok(exact) = pattern.parse::<Bdf>() {
        return exact == bdf;
    }
    let (pattern, text) = (pattern.to_ascii_lowercase(), bdf.to_string());
    glob(&pattern, &text) || text.strip_prefix("0000:").is_some_and(|short| glob(&pattern, short))
}

/// `*` stands for any letters, `?` for one.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut inside) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while inside < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, inside));
                at += 1;
            }
            Some(&letter) if letter == '?' || letter == text[inside] => (at, inside) = (at + 1, inside + 1),
            // The last star takes one letter more.
            _ => match &mut star {
                Some((before, taken)) => {
                    *taken += 1;
                    (at, inside) = (*before + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&letter| letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(parts: &[(&str, &str)]) -> Pattern {
        let mut pattern = Pattern::default();
        parts.iter().for_each(|(key, value)| pattern.add(key, value).unwrap());
        pattern
    }

    fn machine() -> Machine {
        let parent = PciFunction {
            bdf: "3b:00.0".parse().unwrap(),
            class: 0x020000,
            vendor: 0x15b3,
            device: 0x1017,
            driver: Some("mlx5_core".into()),
            interfaces: vec!["ens1f0".into()],
            ..PciFunction::default()
        };
        let child = PciFunction {
            bdf: "3b:02.1".parse().unwrap(),
            physical_function: Some(parent.bdf),
            device: 0x1018,
            interfaces: Vec::new(),
            driver: None,
            ..parent.clone()
        };
        Machine { pci: vec![parent, child], ..Machine::default() }
    }

    #[test]
    fn a_function_matches_when_all_parts_do() {
        let machine = machine();
        let matching = |parts: &[(&str, &str)]| {
            machine.pci.iter().map(|function| pattern(parts).matches(function, &machine)).collect::<Vec<_>>()
        };
        assert_eq!(matching(&[]), [true, true]);
        assert_eq!(matching(&[("vendor", "Mellanox"), ("device", "1018")]), [false, true]);
        assert_eq!(matching(&[("vendor", "0x15b3"), ("class", "02")]), [true, true]);
        assert_eq!(matching(&[("class", "020000")]), [true, true]);
        assert_eq!(matching(&[("class", "0280")]), [false, false]);
        assert_eq!(matching(&[("driver", "mlx?_core")]), [true, false]);
        assert_eq!(matching(&[("interface", "ens*")]), [true, false]);
        assert_eq!(matching(&[("pf", "ens1f0")]), [false, true]);
        assert_eq!(matching(&[("pf", "3B:00.0")]), [false, true]);
        assert_eq!(matching(&[("address", "3b:02.*")]), [false, true]);
        assert_eq!(matching(&[("address", "0000:3B:0?.0")]), [true, false]);
    }

    #[test]
    fn stars_match_any_letters() {
        for (pattern, text) in [("*", ""), ("*a*b", "xaxxbab"), ("a**", "a"), ("?*", "x"), ("*.0", "0000:3b:00.0")] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("?", ""), ("a*b", "abc"), ("a", "A")] {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_mistake_in_a_pattern_says_what_there_is() {
        let error = |key: &str, value: &str| Pattern::default().add(key, value).unwrap_err().to_string();
        assert!(error("vendr", "x").contains("there are vendor, device"));
        assert!(error("vendor", "acme").contains("nvidia"));
        assert!(error("device", "12").contains("4 hexadecimal"));
        assert!(error("class", "123").contains("0108"));
        assert!(error("pf", "").contains("needs a value"));
        let mut twice = pattern(&[("pf", "a")]);
        assert_eq!(twice.add("pf", "b"), Err(PatternError::Twice("pf")));
    }
}
