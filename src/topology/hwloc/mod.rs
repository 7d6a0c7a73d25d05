//! A [`Machine`] from libhwloc: this host, another root, an XML export or a
//! synthetic string. The only room that names hwlocality and NVML.
//!
//! Where there is a `/sys` tree, it is the authority and libhwloc adds what
//! only it knows: hwloc 2 drops nodes without memory, lists no free pages and
//! merges what contradicts itself.

mod describe;
mod devices;
mod links;
pub mod nvml;
mod reconcile;

use super::source::TopologySource;
use super::sysfs::{self, SysfsError};
use super::{Machine, check};
use hwlocality::Topology;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why libhwloc gave no machine.
#[derive(Debug, thiserror::Error)]
pub enum HwlocError {
    /// A libhwloc that the program was not built for.
    #[error("libhwloc has version {0}: numa-run-probe needs 2.8 or later, and not 3")]
    Version(String),
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An export that libhwloc 2 does not read.
    #[error(
        "{} was written by hwloc {found} and libhwloc {ours} reads exports of hwloc 1 and 2 only: \
         export it again with `lstopo --of xml --export-xml-flags v2 FILE`",
        path.display()
    )]
    ExportVersion {
        /// The file.
        path: PathBuf,
        /// Version that the file names.
        found: String,
        /// Version of libhwloc.
        ours: String,
    },
    /// libhwloc did not take it.
    #[error("{what} describes no machine: {reason}")]
    Refused {
        /// File, folder or string.
        what: String,
        /// What libhwloc said.
        reason: String,
    },
    /// The /sys tree describes no machine.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

/// The machine that a source describes. The environment must be clean:
/// [`super::probe::is_clean`].
pub fn read(source: &TopologySource) -> Result<Machine, HwlocError> {
    let version = version()?;
    let mut machine = match source {
        TopologySource::Live => this_host()?,
        TopologySource::Root(root) => with_sysfs(root)?,
        TopologySource::Xml(path) => from_xml(path, &version)?,
        TopologySource::Synthetic(text) => from_synthetic(text)?,
    };
    machine.hwloc = Some(version);
    machine.hwloc_library = library();
    Ok(machine)
}

fn this_host() -> Result<Machine, HwlocError> {
    let root = Path::new("/");
    let mut machine = with_sysfs(root)?;
    match nvml::links_within(nvml::LIMIT, root, None, &machine.pci) {
        Ok(links) => machine.links.extend(links),
        Err(warning) => machine.warnings.push(warning),
    }
    Ok(machine)
}

fn with_sysfs(root: &Path) -> Result<Machine, HwlocError> {
    let machine = sysfs::read(root)?;
    // sysfs has the PCI functions; libhwloc would read each one's config space,
    // which wakes sleeping devices.
    let topology = load(builder(TypeFilter::KeepNone), &machine.source)?;
    Ok(reconcile::merge(machine, &describe::machine(&topology)))
}

fn from_xml(path: &Path, ours: &str) -> Result<Machine, HwlocError> {
    if let Some(found) = export_version(path)?.filter(|version| major(version) > 2) {
        return Err(HwlocError::ExportVersion { path: path.to_owned(), found, ours: ours.to_owned() });
    }
    let what = path.display().to_string();
    let configured = builder(TypeFilter::KeepAll).from_xml_file(path).map_err(|error| refused(&what, error))?;
    imported(configured, what)
}

fn from_synthetic(text: &str) -> Result<Machine, HwlocError> {
    let what = format!("synthetic:{text}");
    let configured = builder(TypeFilter::KeepAll).from_synthetic(text).map_err(|error| refused(&what, error))?;
    imported(configured, what)
}

fn imported(configured: TopologyBuilder, what: String) -> Result<Machine, HwlocError> {
    let mut machine = describe::machine(&load(configured, &what)?);
    machine.source = what;
    check::warn_of_contradictions(&mut machine);
    Ok(machine)
}

fn builder(devices: TypeFilter) -> TopologyBuilder {
    // The whole machine, whatever this process may use of it; and libhwloc must
    // not hop over all CPUs to ask each one what it is.
    let flags = BuildFlags::INCLUDE_DISALLOWED | BuildFlags::DONT_CHANGE_BINDING;
    let configured = Topology::builder().with_flags(flags).expect("these flags do not exclude each other");
    configured.with_io_type_filter(devices).expect("devices may be kept or not")
}

fn load(configured: TopologyBuilder, what: &str) -> Result<Topology, HwlocError> {
    configured.build().map_err(|error| refused(what, error))
}

fn refused(what: &str, reason: impl std::fmt::Display) -> HwlocError {
    HwlocError::Refused { what: what.to_owned(), reason: reason.to_string() }
}

/// Version of the libhwloc that was loaded, such as `2.9.0`.
fn version() -> Result<String, HwlocError> {
    let number = hwlocality::hwloc_api_version();
    let api = format!("{}.{}", number >> 16, number >> 8 & 0xff);
    if !(0x2_0800..0x3_0000).contains(&number) {
        return Err(HwlocError::Version(api));
    }
    // The number above is that of the interface, which most releases leave as it
    // was. A topology that libhwloc makes itself names the release.
    let release = || {
        let topology = builder(TypeFilter::KeepNone).from_synthetic("pu:1").ok()?.build().ok()?;
        Some(topology.root_object().info("hwlocVersion")?.to_string_lossy().into_owned())
    };
    Ok(release().unwrap_or(api))
}

/// The file that libhwloc was loaded from.
fn library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains("/libhwloc.so"))?;
    line.find('/').map(|start| PathBuf::from(&line[start..]))
}

/// The version attribute of an export; exports of hwloc 1 have none.
fn export_version(path: &Path) -> Result<Option<String>, HwlocError> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4096).read_to_end(&mut head));
    read.map_err(|source| HwlocError::Read { path: path.to_owned(), source })?;
    let head = String::from_utf8_lossy(&head);
    let tag = head.split_once("<topology").and_then(|(_, rest)| rest.split_once('>')).map(|(tag, _)| tag);
    let version = tag.and_then(|tag| tag.split_once("version=\"")?.1.split_once('"'));
    Ok(version.map(|(version, _)| version.to_owned()))
}

fn major(version: &str) -> u32 {
    version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0)
}
