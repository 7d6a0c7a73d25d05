//! What a GPU is, and what GPU runtimes are told.

use super::class::{Told, Variables};
use crate::resource::Device;
use crate::topology::{Bdf, PciFunction};

const NVIDIA: u16 = 0x10de;
const AMD: u16 = 0x1002;
const INTEL: u16 = 0x8086;

/// Class 0302, 0380 or 0300 of a vendor that makes GPUs; the console that the
/// firmware booted on counts only if its driver can render.
pub(super) fn is_gpu(function: &PciFunction) -> bool {
    let vendor = [NVIDIA, AMD, INTEL].contains(&function.vendor);
    let console = function.boot_vga && !function.render_node;
    vendor && [0x0302, 0x0380, 0x0300].contains(&(function.class >> 8)) && !console
}

/// Which GPUs each vendor's runtime may see.
pub(super) fn variables(devices: &[&Device], told: &Told<'_>) -> Variables {
    let of = |vendor: u16| -> Option<String> {
        let these: Vec<&Device> = devices.iter().filter(|device| device.vendor == vendor).copied().collect();
        (!these.is_empty()).then(|| visible(vendor, &these, told))
    };
    let mut set = Vec::new();
    if let Some(list) = of(NVIDIA) {
        // An index means the PCI order only together with this; CUDA's own order is fastest first.
        set.push(("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()));
        set.push(("CUDA_VISIBLE_DEVICES".to_owned(), list));
    }
    set.extend(of(AMD).map(|list| ("ROCR_VISIBLE_DEVICES".to_owned(), list)));
    set.extend(of(INTEL).map(|list| ("ZE_AFFINITY_MASK".to_owned(), list)));
    set
}

/// UUIDs where all are known, else positions among the vendor's GPUs in PCI order.
fn visible(vendor: u16, devices: &[&Device], told: &Told<'_>) -> String {
    let uuids: Option<Vec<String>> = devices.iter().map(|device| told.uuids.get(&device.bdf).cloned()).collect();
    if let Some(uuids) = uuids.filter(|_| vendor != INTEL) {
        return uuids.join(",");
    }
    let all = told.machine.pci.iter().filter(|function| function.vendor == vendor && is_gpu(function));
    let all: Vec<Bdf> = all.map(|function| function.bdf).collect();
    let position = |device: &&Device| all.iter().position(|bdf| *bdf == device.bdf).map(|index| index.to_string());
    devices.iter().filter_map(position).collect::<Vec<_>>().join(",")
}
