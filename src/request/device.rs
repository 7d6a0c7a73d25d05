//! Devices asked for: `2`, `n3=1:pf=ens1f0,vlan=100`.

use super::FunctionName;
use crate::topology::pattern::{KEYS, Pattern, PatternError};
use std::fmt;
use std::str::FromStr;

/// Devices of one class asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Name of the class, such as `gpu`.
    pub class: String,
    /// The user's name for them, such as `n3`.
    pub name: Option<String>,
    /// Which request of its class this is, where several have no name.
    pub turn: usize,
    /// How many.
    pub count: u32,
    /// What they must be like.
    pub like: Pattern,
    /// How virtual functions are to be set up.
    pub settings: VfSettings,
}

/// How virtual functions are to be set up before they are handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VfSettings {
    /// VLAN id; 0 for none.
    pub vlan: Option<u16>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Whether it may change its own address and listen to others' traffic.
    pub trust: Option<bool>,
    /// Whether packets of another source address are dropped.
    pub spoofchk: Option<bool>,
    /// Limit in Mbit/s.
    pub rate: Option<u32>,
}

/// The words for the settings.
pub const SETTINGS: [&str; 5] = ["vlan", "mac", "trust", "spoofchk", "rate"];

/// A hardware address of an interface, one that a function may have for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

/// What a class lets a request say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settable {
    /// What its devices must be like.
    Nothing,
    /// Also how they are to be set up.
    VirtualFunctions,
}

/// Why a text asks for no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No count.
    #[error("`{0}` is no count of devices: write [NAME=]COUNT[:KEY=VALUE,...], such as 2 or n3=1:vendor=intel")]
    Count(String),
    /// No class.
    #[error("`{0}` names no class: write CLASS=COUNT, such as gpu=2")]
    Class(String),
    /// A count of none.
    #[error("a count of 0 asks for nothing: leave it out")]
    None,
    /// A name that cannot be told from a number, or not be part of a variable.
    #[error("`{0}` is no name: write letters, digits, - and _, at least one letter")]
    Name(String),
    /// No key with a value.
    #[error("`{0}` is no KEY=VALUE")]
    Part(String),
    /// A key that there is not.
    #[error("`{0}` is no key: there are {1}")]
    Key(String, String),
    /// A pattern that is none.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A setting's value.
    #[error("{0}={1}: {2}")]
    Setting(&'static str, String, &'static str),
    /// One hardware address for several functions.
    #[error("mac={mac} is for one function, and {count} are asked for: ask for each by itself")]
    OneMac {
        /// The address.
        mac: Mac,
        /// Functions.
        count: u32,
    },
    /// Neither an address nor an interface.
    #[error("`{0}` is neither a PCI address nor an interface")]
    Function(String),
}

impl DeviceRequest {
    /// So many of a class, whichever.
    pub fn of(class: &str, count: u32) -> DeviceRequest {
        DeviceRequest { class: class.to_owned(), count, ..DeviceRequest::default() }
    }

    /// Reads `[NAME=]COUNT[:KEY=VALUE,...]`.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(class: &str, text: &str, settable: Settable) -> Result<DeviceRequest, DeviceError> {
        let (head, rest) = text.split_once(':').map_or((text, None), |(head, rest)| (head, Some(rest)));
        let (name, count) = named(head)?;
        let count = count.trim().parse::<u32>().map_err(|_| DeviceError::Count(text.to_owned()))?;
        let mut request = DeviceRequest { name, ..DeviceRequest::of(class, count) };
        if count == 0 {
            return Err(DeviceError::None);
        }
        rest.into_iter().flat_map(|rest| rest.split(',')).try_for_each(|part| request.part(part, settable))?;
        match request.settings.mac {
            Some(mac) if count > 1 => Err(DeviceError::OneMac { mac, count }),
            _ => Ok(request),
        }
    }

    /// Reads `[NAME=]ADDRESS` or `[NAME=]INTERFACE`: that very function.
    ///
    /// # Errors
    /// It is none.
    pub fn parse_function(class: &str, text: &str) -> Result<DeviceRequest, DeviceError> {
        let (name, function) = named(text)?;
        let like = match function.parse()? {
            FunctionName::Address(bdf) => Pattern::address(bdf),
            FunctionName::Interface(name) => Pattern::interface(&name),
        };
        Ok(DeviceRequest { name, like, ..DeviceRequest::of(class, 1) })
    }

    fn part(&mut self, part: &str, settable: Settable) -> Result<(), DeviceError> {
        let (key, value) = part.split_once('=').ok_or_else(|| DeviceError::Part(part.to_owned()))?;
        let key = key.trim();
        let setting = SETTINGS.iter().find(|setting| **setting == key);
        match (setting, settable) {
            (Some(setting), Settable::VirtualFunctions) => self.settings.set(setting, value.trim()),
            _ if KEYS.contains(&key) => Ok(self.like.add(key, value)?),
            _ => Err(DeviceError::Key(key.to_owned(), keys(settable))),
        }
    }

    /// What it is called in plans and refusals: `gpu`, `vf.n3`, `gpu#2`.
    pub fn label(&self) -> String {
        match (&self.name, self.turn) {
            (Some(name), _) => format!("{}.{name}", self.class),
            (None, 0) => self.class.clone(),
            (None, turn) => format!("{}#{}", self.class, turn + 1),
        }
    }

    /// The request with another count, as it would be typed behind the class's option.
    pub fn typed(&self, count: u64) -> String {
        let name = self.name.as_ref().map(|name| format!("{name}=")).unwrap_or_default();
        let parts = [self.like.to_string(), self.settings.to_string()];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let parts = if parts.is_empty() { String::new() } else { format!(":{}", parts.join(",")) };
        format!("{name}{count}{parts}")
    }
}

/// Numbers the requests of each class that have no name.
///
/// # Errors
/// A name that is given twice within a class; it is returned as `class.name`.
pub fn told_apart(mut requests: Vec<DeviceRequest>) -> Result<Vec<DeviceRequest>, String> {
    for at in 0..requests.len() {
        let (before, own) = (&requests[..at], &requests[at]);
        let same = before.iter().filter(|other| other.class == own.class && key(other) == key(own)).count();
        if same > 0 && own.name.is_some() {
            return Err(own.label());
        }
        requests[at].turn = same;
    }
    Ok(requests)
}

/// Names become parts of variables, where case and hyphens are lost.
fn key(request: &DeviceRequest) -> Option<String> {
    request.name.as_ref().map(|name| name.to_uppercase().replace('-', "_"))
}

fn keys(settable: Settable) -> String {
    let settings: &[&str] = if settable == Settable::VirtualFunctions { &SETTINGS } else { &[] };
    KEYS.iter().chain(settings).copied().collect::<Vec<_>>().join(", ")
}

fn named(text: &str) -> Result<(Option<String>, &str), DeviceError> {
    let Some((name, rest)) = text.split_once('=') else { return Ok((None, text.trim())) };
    let name = name.trim();
    let letters = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let good = name.chars().all(letters) && name.chars().any(|letter| letter.is_ascii_alphabetic());
    if good { Ok((Some(name.to_owned()), rest.trim())) } else { Err(DeviceError::Name(name.to_owned())) }
}

impl VfSettings {
    /// True when nothing is to be set up.
    pub fn is_empty(&self) -> bool {
        *self == VfSettings::default()
    }

    fn set(&mut self, setting: &'static str, value: &str) -> Result<(), DeviceError> {
        let wrong = |what| DeviceError::Setting(setting, value.to_owned(), what);
        let twice = || wrong("this is given twice");
        let fresh = match setting {
            "vlan" => {
                let vlan = value.parse().ok().filter(|&vlan| vlan < 4095).ok_or_else(|| wrong("write 0 to 4094"))?;
                self.vlan.replace(vlan).is_none()
            }
            "mac" => {
                let mac = value.parse().map_err(|()| wrong("write the address of one interface, 02:00:00:00:00:01"))?;
                self.mac.replace(mac).is_none()
            }
            "rate" => {
                let rate = value.parse().map_err(|_| wrong("write Mbit/s"))?;
                self.rate.replace(rate).is_none()
            }
            switch => {
                let on = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(wrong("write on or off")),
                };
                let place = if switch == "trust" { &mut self.trust } else { &mut self.spoofchk };
                place.replace(on).is_none()
            }
        };
        if fresh { Ok(()) } else { Err(twice()) }
    }
}

impl fmt::Display for VfSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |name: &str, on: Option<bool>| on.map(|on| format!("{name}={}", if on { "on" } else { "off" }));
        let parts = [
            self.vlan.map(|vlan| format!("vlan={vlan}")),
            self.mac.map(|mac| format!("mac={mac}")),
            switch("trust", self.trust),
            switch("spoofchk", self.spoofchk),
            self.rate.map(|rate| format!("rate={rate}")),
        ];
        out.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Mac {
    type Err = ();

    /// Reads six bytes parted by colons. All zeros, and addresses of groups, are none of a function.
    fn from_str(text: &str) -> Result<Mac, ()> {
        let plain = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let byte = |part: &str| plain(part).then(|| u8::from_str_radix(part, 16).ok()).flatten();
        let bytes = text.split(':').map(byte).collect::<Option<Vec<u8>>>().ok_or(())?;
        let bytes: [u8; 6] = bytes.try_into().map_err(|_| ())?;
        if bytes == [0; 6] || bytes[0] & 1 == 1 { Err(()) } else { Ok(Mac(bytes)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vf(text: &str) -> Result<DeviceRequest, DeviceError> {
        DeviceRequest::parse("vf", text, Settable::VirtualFunctions)
    }

    #[test]
    fn a_request_is_typed_as_it_is_read() {
        for text in [
            "2",
            "n3=1:pf=ens1f0",
            "2:vendor=nvidia,address=0000:3b:*",
            "a=1:vlan=100,mac=02:00:00:00:00:01,trust=on,spoofchk=off,rate=1000",
        ] {
            let request = vf(text).unwrap();
            assert_eq!(request.typed(request.count.into()), text);
        }
    }

    #[test]
    fn a_wrong_request_says_what_to_type() {
        for (text, part) in [
            ("x", "is no count"),
            ("-1", "is no count"),
            ("0", "asks for nothing"),
            ("n=0", "asks for nothing"),
            ("3=1", "is no name"),
            ("a.b=1", "is no name"),
            ("=1", "is no name"),
            ("1:pf", "is no KEY=VALUE"),
            ("1:", "is no KEY=VALUE"),
            ("1:colour=red", "there are vendor, device, class, driver, pf, interface, address, vlan, mac"),
            ("1:vlan=4095", "write 0 to 4094"),
            ("1:trust=yes", "write on or off"),
            ("1:vlan=1,vlan=2", "given twice"),
            ("1:mac=00:00:00:00:00:00", "address of one interface"),
            ("1:mac=01:00:5e:00:00:01", "address of one interface"),
            ("2:mac=02:00:00:00:00:01", "ask for each by itself"),
        ] {
            let error = vf(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = DeviceRequest::parse("gpu", "1:vlan=1", Settable::Nothing).unwrap_err().to_string();
        assert!(error.ends_with("there are vendor, device, class, driver, pf, interface, address"), "{error}");
    }

    #[test]
    fn a_function_is_named_by_its_address_or_its_interface() {
        let like = |text: &str| DeviceRequest::parse_function("pci", text).map(|request| request.like.to_string());
        assert_eq!(like("3B:00.0").unwrap(), "address=0000:3b:00.0");
        assert_eq!(like("fast=ens1f0").unwrap(), "interface=ens1f0");
        for text in ["", "3b:20.0", "3b:00", "ens*", "a b"] {
            assert!(like(text).is_err(), "{text}");
        }
    }

    #[test]
    fn requests_without_names_are_numbered_and_names_are_not_given_twice() {
        let labels = |texts: &[&str]| {
            let requests = texts.iter().map(|text| vf(text).unwrap()).collect();
            told_apart(requests).map(|requests| requests.iter().map(DeviceRequest::label).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(labels(&["1", "a=1", "2"]).unwrap(), "vf vf.a vf#2");
        assert_eq!(labels(&["a-b=1", "A_B=1"]).unwrap_err(), "vf.A_B");
    }
}
