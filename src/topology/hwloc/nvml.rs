//! Links between NVIDIA's GPUs. NVML tells them: a library that comes with the
//! driver and is loaded where the driver is.

use super::links::joined;
use crate::topology::{Bdf, Link, PciFunction};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// NVML wakes GPUs one by one, and waits for a driver that hangs. The probe as
/// a whole has longer: what libhwloc said must not be lost.
pub const LIMIT: Duration = Duration::from_secs(5);

const NVIDIA: u16 = 0x10de;
const DISPLAY: u32 = 0x03;
const BRIDGE: u32 = 0x06;
/// No GPU has as many links; the loop ends at the first that there is not.
const MOST_LINKS: u32 = 64;

/// A GPU, and where its links that are up go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its address.
    pub at: Bdf,
    /// Its links.
    pub links: Vec<NvLink>,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvLink {
    /// What the other end is on: a GPU, a switch, a processor.
    pub remote: Bdf,
    /// Version, as NVML numbers them.
    pub version: u32,
}

/// MB/s in one direction, by NVML's number of a version: 1 is NVLink 1.0, 2 and
/// 3 are 2.x, 4 and 5 are 3.x, 6 is 4.0, 7 is 5.0 (an H100 may call its links
/// so too). On one machine they are alike.
fn bandwidth(version: u32) -> u64 {
    match version {
        0 | 1 => 20_000,
        2..=6 => 25_000,
        _ => 50_000,
    }
}

/// Links between the GPUs of a machine, in the order of their ends. GPUs that
/// hang on the same switches are linked by as many links as both have there.
pub fn links(gpus: &[Gpu], functions: &[PciFunction]) -> Vec<Link> {
    let known = |bdf: Bdf| {
        let at = functions.binary_search_by_key(&bdf, |function| function.bdf);
        at.ok().map(|at| &functions[at]).filter(|function| function.vendor == NVIDIA)
    };
    let is = |bdf: Bdf, class: u32| known(bdf).is_some_and(|function| function.class >> 16 == class);
    let mut told: BTreeMap<(Bdf, Bdf), u64> = BTreeMap::new();
    for (gpu, link) in gpus.iter().flat_map(|gpu| gpu.links.iter().map(move |link| (gpu.at, link))) {
        if is(link.remote, DISPLAY) || is(link.remote, BRIDGE) {
            *told.entry((gpu, link.remote)).or_default() += bandwidth(link.version);
        }
    }
    // A GPU that tells nothing is told of by the other end.
    let both = told.iter().map(|(&(a, b), &told_by_a)| {
        let told_by_b = told.get(&(b, a)).copied().unwrap_or(0);
        ((a.min(b), a.max(b)), told_by_a.max(told_by_b))
    });
    let ways = both.flat_map(|((a, b), bandwidth)| [((a, b), bandwidth), ((b, a), bandwidth)]);
    joined(&ways.collect(), |bdf| is(*bdf, BRIDGE))
}

/// The links, where there is a driver; a sentence where it gives no answer in
/// time. Without NVML there are none.
///
/// # Errors
/// NVML hangs or died.
pub fn links_within(
    limit: Duration,
    root: &Path,
    library: Option<OsString>,
    functions: &[PciFunction],
) -> Result<Vec<Link>, String> {
    // Where the driver is not loaded, NVML would load it.
    if !root.join("proc/driver/nvidia").exists() {
        return Ok(Vec::new());
    }
    let (sender, receiver) = channel();
    // Nobody listens after the limit.
    thread::spawn(move || drop(sender.send(gpus(library.as_deref()))));
    match receiver.recv_timeout(limit) {
        Ok(Ok(gpus)) => Ok(links(&gpus, functions)),
        Ok(Err(error)) => {
            tracing::debug!("NVML: {error}");
            Ok(Vec::new())
        }
        Err(_) => {
            Err(format!("NVML gave no answer within {} s: links between NVIDIA GPUs are unknown", limit.as_secs_f32()))
        }
    }
}

/// What NVML says of all GPUs that it sees, by way of this library or the usual one.
///
/// # Errors
/// There is no such library, or no driver for it.
pub fn gpus(library: Option<&OsStr>) -> Result<Vec<Gpu>, NvmlError> {
    let mut builder = Nvml::builder();
    if let Some(path) = library {
        builder.lib_path(path);
    }
    let nvml = builder.init()?;
    // One that has fallen off the bus says nothing of the others.
    let gpu = |index| gpu(&nvml, index).inspect_err(|error| tracing::debug!("NVML: GPU {index}: {error}")).ok();
    Ok((0..nvml.device_count()?).filter_map(gpu).flatten().collect())
}

fn gpu(nvml: &Nvml, index: u32) -> Result<Option<Gpu>, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let mut links = Vec::new();
    for number in 0..MOST_LINKS {
        let link = device.link_wrapper_for(number);
        match link.is_active() {
            Err(_) => break,
            Ok(false) => {}
            Ok(true) => {
                links.extend(link.remote_pci_info().ok().and_then(|remote| {
                    Some(NvLink { remote: address(&remote)?, version: link.version().unwrap_or(0) })
                }))
            }
        }
    }
    Ok(address(&device.pci_info()?).map(|at| Gpu { at, links }))
}

/// What is unknown has all bits set.
fn address(pci: &PciInfo) -> Option<Bdf> {
    let (bus, device) = (u8::try_from(pci.bus).ok()?, u8::try_from(pci.device).ok()?);
    (pci.domain != u32::MAX).then_some(Bdf { domain: pci.domain, bus, device, function: 0 })
}
