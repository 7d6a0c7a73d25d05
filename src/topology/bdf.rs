//! PCI addresses.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Address of a PCI function: domain (up to 32 bits: VMD and Hyper-V use more
/// than 16), bus, device, function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    /// Domain, also called segment.
    pub domain: u32,
    /// Bus, 0 to 0xff.
    pub bus: u8,
    /// Device (slot), 0 to 0x1f.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl Bdf {
    /// The function whose routing id (bus, device and function as one number)
    /// is so much higher; none beyond the last bus.
    pub fn beyond(self, distance: u32) -> Option<Bdf> {
        let own = u32::from(self.bus) << 8 | u32::from(self.device) << 3 | u32::from(self.function);
        let id = u16::try_from(own.checked_add(distance)?).ok()?;
        let (bus, device) = ((id >> 8) as u8, (id >> 3 & 0x1f) as u8);
        Some(Bdf { bus, device, function: (id & 7) as u8, ..self })
    }
}

/// Why a text is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no PCI address: write 3b:00.0 or 0000:3b:00.0")]
pub struct BdfError(pub String);

impl FromStr for Bdf {
    type Err = BdfError;

    /// Reads `3b:00.0`, `0000:3b:00.0`, `10000:e1:00.0` or `00000000:3B:00.0`.
    fn from_str(text: &str) -> Result<Bdf, BdfError> {
        parse(text).ok_or_else(|| BdfError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Bdf> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    Some(Bdf {
        domain: hex(domain, 8, u32::MAX)?,
        bus: u8::try_from(hex(bus, 2, 0xff)?).ok()?,
        device: u8::try_from(hex(device, 2, 0x1f)?).ok()?,
        function: u8::try_from(hex(function, 1, 7)?).ok()?,
    })
}

fn hex(text: &str, digits: usize, max: u32) -> Option<u32> {
    let plain = !text.is_empty() && text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = plain.then(|| u32::from_str_radix(text, 16).ok())??;
    (value <= max).then_some(value)
}

impl fmt::Display for Bdf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl Serialize for Bdf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bdf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bdf, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_address_is_read_and_printed_alike() {
        for text in ["3b:00.0", "0000:3b:00.0", "0000:3B:00.0", "00000000:3B:00.0"] {
            assert_eq!(text.parse::<Bdf>().unwrap().to_string(), "0000:3b:00.0");
        }
        assert_eq!("10001:80:05.0".parse::<Bdf>().unwrap().domain, 0x10001);
        assert_eq!("5d0505:01:00.0".parse::<Bdf>().unwrap().to_string(), "5d0505:01:00.0");
    }

    #[test]
    fn a_routing_id_counts_through_devices_and_buses_and_ends_with_the_last_one() {
        let beyond = |text: &str, distance| text.parse::<Bdf>().unwrap().beyond(distance).map(|bdf| bdf.to_string());
        assert_eq!(beyond("0000:21:00.0", 128).unwrap(), "0000:21:10.0");
        assert_eq!(beyond("10001:21:00.1", 7).unwrap(), "10001:21:01.0");
        assert_eq!(beyond("0000:21:1f.7", 1).unwrap(), "0000:22:00.0");
        assert_eq!(beyond("0000:ff:1f.6", 1).unwrap(), "0000:ff:1f.7");
        assert_eq!(beyond("0000:ff:1f.6", 2), None);
        assert_eq!(beyond("0000:ff:1f.6", u32::MAX), None);
    }

    #[test]
    fn an_address_out_of_range_is_refused() {
        for text in [
            "0000:3b:20.0",
            "0000:3b:00.8",
            "100000000:00:00.0",
            "",
            "3b:00",
            "3b.00.0",
            "+3:00.0",
            ":3b:00.0",
            "a:b:c:d.0",
        ] {
            assert!(text.parse::<Bdf>().is_err(), "{text}");
        }
    }
}
