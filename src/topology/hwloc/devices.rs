//! PCI functions of an export.

use super::describe::cpus_of;
use crate::topology::{Bdf, CpuSet, Machine, PciFunction};
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::{ObjectAttributes, PCIDeviceAttributes, UpstreamAttributes};
use hwlocality::object::types::{OSDeviceType, ObjectType};

/// Names of what programs compute through. A display device with one of these
/// is no mere console.
const COMPUTE: [&str; 6] = ["renderD", "cuda", "nvml", "rsmi", "opencl", "ze"];

/// All functions that the topology kept, in the order of their addresses.
pub(super) fn functions(topology: &Topology, machine: &Machine) -> Vec<PciFunction> {
    let objects = topology.objects_with_type(ObjectType::PCIDevice);
    let mut functions: Vec<PciFunction> = objects.filter_map(|object| function(object, machine)).collect();
    functions.sort_unstable_by_key(|function| function.bdf);
    functions.dedup_by_key(|function| function.bdf);
    functions
}

fn function(object: &TopologyObject, machine: &Machine) -> Option<PciFunction> {
    let Some(ObjectAttributes::PCIDevice(pci)) = object.attributes() else { return None };
    let names = |wanted: fn(OSDeviceType) -> bool| {
        let devices = object.io_children().filter(move |child| device_type(child).is_some_and(wanted));
        devices.filter_map(|device| Some(device.name()?.to_string_lossy().into_owned()))
    };
    let mut interfaces: Vec<String> = names(|kind| kind == OSDeviceType::Network).collect();
    interfaces.sort_unstable();
    let computes = |name: String| COMPUTE.iter().any(|prefix| name.starts_with(prefix));
    let class = u32::from(pci.class_id()) << 8;
    Some(PciFunction {
        bdf: address(pci),
        class,
        vendor: pci.vendor_id(),
        device: pci.device_id(),
        node: place(object, machine),
        interfaces,
        above: above(object),
        render_node: class >> 16 == 0x03
            && names(|kind| matches!(kind, OSDeviceType::GPU | OSDeviceType::CoProcessor)).any(computes),
        ..PciFunction::default()
    })
}

/// Bridges on the way to a function, from the root port down.
fn above(object: &TopologyObject) -> Vec<Bdf> {
    let mut above: Vec<Bdf> = object.ancestors().filter_map(bridge).collect();
    above.reverse();
    above
}

fn bridge(object: &TopologyObject) -> Option<Bdf> {
    let Some(ObjectAttributes::Bridge(bridge)) = object.attributes() else { return None };
    bridge.upstream_attributes().map(|UpstreamAttributes::PCI(pci)| address(pci))
}

/// The function that an object is, or that it is a part of.
pub(super) fn address_of(object: &TopologyObject) -> Option<Bdf> {
    std::iter::once(object).chain(object.ancestors()).find_map(|object| match object.attributes() {
        Some(ObjectAttributes::PCIDevice(pci)) => Some(address(pci)),
        _ => None,
    })
}

fn address(pci: &PCIDeviceAttributes) -> Bdf {
    Bdf { domain: pci.domain().into(), bus: pci.bus_id(), device: pci.bus_device(), function: pci.function() }
}

fn device_type(object: &TopologyObject) -> Option<OSDeviceType> {
    match object.attributes() {
        Some(ObjectAttributes::OSDevice(device)) => Some(device.device_type()),
        _ => None,
    }
}

/// The node that has all the CPUs which the function is near to. Where one
/// node has all CPUs of the machine, everything is on it.
fn place(object: &TopologyObject, machine: &Machine) -> Option<u32> {
    let near = cpus_of(object.first_non_io_ancestor()?);
    let holds = |cpus: &CpuSet| !near.is_empty() && near.is_subset(cpus);
    machine.nodes.iter().find(|node| holds(&node.cpus)).map(|node| node.id)
}
