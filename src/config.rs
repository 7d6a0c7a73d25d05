//! The configuration file: what is reserved, what the pool is, which devices
//! a class holds besides its own rule, where devices are.

use crate::assume::Pages;
use crate::request::Size;
use crate::topology::pattern::Pattern;
use crate::topology::{Bdf, CpuSet, Machine, PciFunction};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the configuration is when `--config` names no other file.
pub const PATH: &str = "/etc/numa-run/config.toml";

/// A configuration. Everything in it may be left out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// CPUs that launches may use, in place of the inherited affinity.
    pub pool: Option<CpuSet>,
    /// What launches never get.
    pub reserved: Reserved,
    /// Device classes by name: the built-in ones, and further ones.
    pub class: BTreeMap<String, ClassConfig>,
    /// Devices that are never handed out, whatever a command line says.
    pub protect: Vec<Protected>,
    /// Nodes of devices whose firmware does not say.
    pub device_node: BTreeMap<Bdf, u32>,
    /// What is to be there from the boot on.
    pub boot: Boot,
    /// Classes that the command line has bound to vfio-pci.
    #[serde(skip)]
    pub vfio: BTreeSet<String>,
}

/// What `numa-run up` makes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Boot {
    /// Hugepages: size, then node, then how many there are at least.
    #[serde(deserialize_with = "crate::assume::pages")]
    pub hugepages: Pages,
    /// How many virtual functions a port has.
    pub vfs: BTreeMap<Bdf, u32>,
}

/// What is kept for the host itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Reserved {
    /// CPUs.
    pub cpus: CpuSet,
    /// Memory on every node.
    #[serde(deserialize_with = "size")]
    pub memory: Option<u64>,
}

/// What a configuration says of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ClassConfig {
    /// Devices that belong to the class as well, as `vendor:device` in hexadecimal.
    pub devices: Vec<VendorDevice>,
    /// Devices that belong to the class as well: those that are like one of these.
    #[serde(rename = "match")]
    pub like: Vec<Pattern>,
    /// Whether its devices keep their driver; none: as the class is built in, else `native`.
    pub handling: Option<Handling>,
    /// Virtual functions that may be made on each physical function that has none.
    pub create: Option<u16>,
    /// Whether virtual functions come from few physical functions or from many; none: as the class is built in.
    pub spread: Option<Placing>,
    /// A program that is asked which of its devices go best together.
    #[serde(deserialize_with = "program")]
    pub prefer: Option<PathBuf>,
    /// How long it may think.
    #[serde(deserialize_with = "seconds")]
    pub prefer_seconds: Option<Duration>,
}

impl ClassConfig {
    /// How long the program that is asked may think.
    pub fn prefer_within(&self) -> Duration {
        self.prefer_seconds.unwrap_or(PREFER_WITHIN)
    }
}

/// A launch waits no longer for a program that is asked for advice, unless told otherwise.
const PREFER_WITHIN: Duration = Duration::from_secs(1);
/// Nobody waits longer for mere advice.
const LONGEST: f64 = 60.0;

/// How virtual functions are placed on physical functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placing {
    /// On few.
    Pack,
    /// On many.
    Spread,
}

/// What becomes of a device's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Handling {
    /// The device keeps it.
    #[default]
    Native,
    /// The device is bound to vfio-pci.
    Vfio,
}

impl Handling {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Handling::Native => "native",
            Handling::Vfio => "vfio",
        }
    }
}

/// A device that is never handed out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Protected {
    /// Pattern of its address, or of its interface.
    Named(String),
    /// What it is like.
    Like(Pattern),
}

impl Protected {
    /// True for a device that is meant.
    pub fn covers(&self, function: &PciFunction, machine: &Machine) -> bool {
        match self {
            Protected::Like(pattern) => pattern.matches(function, machine),
            Protected::Named(name) => ["address", "interface"].iter().any(|key| {
                let mut pattern = Pattern::default();
                pattern.add(key, name).is_ok() && pattern.matches(function, machine)
            }),
        }
    }
}

/// A vendor and device id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct VendorDevice {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
}

impl TryFrom<String> for VendorDevice {
    type Error = String;

    fn try_from(text: String) -> Result<VendorDevice, String> {
        let id = |digits: &str| (digits.len() == 4).then(|| u16::from_str_radix(digits, 16).ok()).flatten();
        let pair = text.split_once(':').and_then(|(vendor, device)| Some((id(vendor)?, id(device)?)));
        let (vendor, device) = pair.ok_or_else(|| format!("`{text}` is no vendor:device: write 10de:20b0"))?;
        Ok(VendorDevice { vendor, device })
    }
}

/// Why a file of ours cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {message}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
}

impl Config {
    /// The class that this file puts such devices into.
    pub fn class_of(&self, vendor: u16, device: u16) -> Option<&str> {
        let id = VendorDevice { vendor, device };
        let lists = |class: &ClassConfig| class.devices.contains(&id);
        self.class.iter().find(|(_, class)| lists(class)).map(|(name, _)| name.as_str())
    }

    /// A device that two classes claim.
    pub fn claimed_twice(&self) -> Option<VendorDevice> {
        let claims = self.class.iter().flat_map(|(name, class)| class.devices.iter().map(move |id| (name, id)));
        let other = |(name, id): &(&String, &VendorDevice)| self.class_of(id.vendor, id.device) != Some(name.as_str());
        claims.clone().find(other).map(|(_, id)| *id)
    }

    /// Reads the file that was named, else the usual one if there is one.
    pub fn load(named: Option<&Path>) -> Result<Config, FileError> {
        match named {
            Some(file) => read(file),
            None if Path::new(PATH).exists() => read(Path::new(PATH)),
            None => Ok(Config::default()),
        }
    }
}

/// Reads a TOML file.
pub fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, FileError> {
    let text = text(file).map_err(|source| FileError::Read { file: file.into(), source })?;
    let message = |error: toml::de::Error| error.to_string().trim_end().to_owned();
    toml::from_str(&text).map_err(|error| FileError::Syntax { file: file.into(), message: message(error) })
}

/// A configuration of thousands of devices is a tenth of this.
const LARGEST: u64 = 4 << 20;
/// How long a pipe may keep a launch waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// The text of a file. A pipe that nobody writes to, or a device without an
/// end, must not hold up a launch for good.
fn text(file: &Path) -> io::Result<String> {
    if std::fs::metadata(file)?.is_file() {
        return bounded(file);
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let pipe = file.to_owned();
    // Nobody listens after the limit.
    std::thread::spawn(move || drop(sender.send(bounded(&pipe))));
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no end of it within {} s", PATIENCE.as_secs()));
    receiver.recv_timeout(PATIENCE).map_err(late)?
}

fn bounded(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(LARGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LARGEST {
        true => Err(io::Error::from_raw_os_error(libc::EFBIG)),
        false => Ok(text),
    }
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let size: Size = text.parse().map_err(serde::de::Error::custom)?;
    Ok(Some(size.mib()))
}

/// A program is the same one for everybody, wherever he stands.
fn program<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    match path.is_absolute() {
        true => Ok(Some(path)),
        false => Err(serde::de::Error::custom(format!(
            "`{}` is no absolute path: write /usr/libexec/numa-run/...",
            path.display()
        ))),
    }
}

fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let number = f64::deserialize(deserializer)?;
    let seconds = Duration::try_from_secs_f64(number).ok().filter(|limit| !limit.is_zero() && number <= LONGEST);
    let wrong = || serde::de::Error::custom(format!("{number} is no time limit: write seconds, up to {LONGEST}"));
    seconds.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read() {
        let text = "pool = \"2-7\"\n[reserved]\ncpus = \"0-1\"\nmemory = \"1G\"\n[class.gpu]\ndevices = [\"1002:5046\"]\n\
                    [device_node]\n\"3b:00.0\" = 1\n";
        let config = toml::from_str::<Config>(text).unwrap();
        assert_eq!(config.reserved.memory, Some(1024));
        assert_eq!(config.class["gpu"].devices, [VendorDevice { vendor: 0x1002, device: 0x5046 }]);
        assert_eq!(config.device_node[&"0000:3b:00.0".parse().unwrap()], 1);
    }

    #[test]
    fn a_program_that_is_asked_has_a_second_unless_told_otherwise() {
        let class = |text: &str| toml::from_str::<Config>(text).unwrap().class["gpu"].clone();
        let plain = class("[class.gpu]\nprefer = \"/usr/libexec/numa-run/pairs\"");
        assert_eq!(plain.prefer.as_deref(), Some(Path::new("/usr/libexec/numa-run/pairs")));
        assert_eq!(plain.prefer_within(), Duration::from_secs(1));
        assert_eq!(class("[class.gpu]\nprefer_seconds = 3").prefer_within(), Duration::from_secs(3));
        assert_eq!(class("[class.gpu]\nprefer_seconds = 0.25").prefer_within(), Duration::from_millis(250));
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        for (text, part) in [
            ("pol = \"1\"", "unknown field `pol`"),
            ("[reserved]\ncpus = \"3-1\"", "runs backwards"),
            ("[reserved]\nmemory = \"1\"", "has no unit"),
            ("[class.gpu]\ndevices = [\"10de\"]", "is no vendor:device"),
            ("[class.a]\nmatch = [{ vendr = \"intel\" }]", "`vendr` is no key"),
            ("[class.a]\nmatch = [{ vendor = \"acme\" }]", "is no vendor"),
            ("[class.a]\nhandling = \"uio\"", "unknown variant `uio`"),
            ("[class.vf]\ncreate = -1", "expected u16"),
            ("[class.gpu]\nprefer = \"./pairs\"", "`./pairs` is no absolute path"),
            ("[class.gpu]\nprefer_seconds = 0", "0 is no time limit"),
            ("[class.gpu]\nprefer_seconds = -1", "-1 is no time limit"),
            ("[class.gpu]\nprefer_seconds = nan", "is no time limit"),
            ("[class.gpu]\nprefer_seconds = 1e9", "is no time limit: write seconds, up to 60"),
        ] {
            let message = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("line"), "{message}");
        }
    }
}
