//! PCI functions: what they are, who drives them, and where.

use super::locality::Localities;
use super::{Tree, locality::Locality};
use crate::topology::{Bdf, Machine, PciFunction, Sriov};
use std::fs;
use std::path::Path;

const DEVICES: &str = "bus/pci/devices";

/// Reads a function's driver and interfaces again: they move while the list
/// of functions, and so the snapshot, stays.
pub fn refresh_function(function: &mut PciFunction, root: &Path) {
    let tree = Tree::at(root);
    let folder = format!("{DEVICES}/{}", function.bdf);
    function.driver = driver(&tree, &folder);
    function.interfaces = interfaces(&tree, &folder);
    function.sriov = sriov(&tree, &folder);
    function.render_node = render_node(&tree, &folder);
}

/// All functions. One that has an odd name is skipped with a warning.
pub(super) fn read(tree: &mut Tree, machine: &Machine) -> Vec<PciFunction> {
    let mut functions = Vec::new();
    let mut places = Localities::new(machine);
    for name in tree.names(DEVICES) {
        match name.parse::<Bdf>() {
            Ok(bdf) => functions.extend(function(tree, &name, bdf, &mut places)),
            Err(error) => tree.warn(format!("PCI function skipped: {error}")),
        }
    }
    functions.sort_unstable_by_key(|function| function.bdf);
    places.settle(&mut functions);
    tree.warnings.extend(places.warnings());
    functions
}

fn function(tree: &mut Tree, name: &str, bdf: Bdf, places: &mut Localities) -> Option<PciFunction> {
    let folder = format!("{DEVICES}/{name}");
    // Gone between the list and here, as VFs do: it never was.
    let class = hex(tree, &folder, "class")?;
    let above = above(tree, &folder, bdf);
    places.note(bdf, locality(tree, &folder, bdf, &above));
    Some(PciFunction {
        bdf,
        class,
        vendor: hex(tree, &folder, "vendor").unwrap_or(0) as u16,
        device: hex(tree, &folder, "device").unwrap_or(0) as u16,
        node: None,
        driver: driver(tree, &folder),
        interfaces: interfaces(tree, &folder),
        physical_function: link(tree, &folder, "physfn").and_then(|name| name.parse().ok()),
        sriov: sriov(tree, &folder),
        above,
        render_node: render_node(tree, &folder),
        boot_vga: tree.number::<u8>(format!("{folder}/boot_vga")) == Some(1),
    })
}

fn locality(tree: &mut Tree, folder: &str, bdf: Bdf, above: &[Bdf]) -> Locality {
    // sysfs prints -1 where the firmware names no node.
    let node = tree.number::<i64>(format!("{folder}/numa_node")).and_then(|node| u32::try_from(node).ok());
    // The nearest function above in another domain: the VMD device whose child this is.
    let outside = above.iter().rev().find(|other| other.domain != bdf.domain).copied();
    Locality { node, cpus: tree.list(format!("{folder}/local_cpulist")), above: outside }
}

/// Bridges on the way to a function, and a VMD device whose child it is.
fn above(tree: &Tree, folder: &str, bdf: Bdf) -> Vec<Bdf> {
    let place = fs::read_link(tree.sys.join(folder)).unwrap_or_default();
    let functions = place.iter().filter_map(|part| part.to_str()?.parse::<Bdf>().ok());
    functions.filter(|other| *other != bdf).collect()
}

fn hex(tree: &Tree, folder: &str, name: &str) -> Option<u32> {
    let text = tree.text(format!("{folder}/{name}"))?;
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).ok()
}

fn driver(tree: &Tree, folder: &str) -> Option<String> {
    link(tree, folder, "driver")
}

/// Last part of a link's target. Only the name: the target may lie outside of the tree.
fn link(tree: &Tree, folder: &str, name: &str) -> Option<String> {
    let target = fs::read_link(tree.sys.join(folder).join(name)).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

fn interfaces(tree: &Tree, folder: &str) -> Vec<String> {
    let mut names = tree.names(format!("{folder}/net"));
    // A virtio function's interface belongs to the virtio device below it.
    let below = tree.names(folder).into_iter().filter(|name| name.starts_with("virtio"));
    below.for_each(|device| names.extend(tree.names(format!("{folder}/{device}/net"))));
    names.sort_unstable();
    names
}

/// Counted, because to read `sriov_numvfs` is to wait for who changes it, which
/// takes for ever where a device is not let go.
fn virtual_functions(tree: &Tree, folder: &str) -> u16 {
    let is_one = |name: &String| name.strip_prefix("virtfn").is_some_and(|number| number.parse::<u32>().is_ok());
    tree.names(folder).iter().filter(|name| is_one(name)).count() as u16
}

/// Only functions with the capability have these files.
fn sriov(tree: &Tree, folder: &str) -> Option<Sriov> {
    let number = |name: &str| tree.number(format!("{folder}/sriov_{name}"));
    Some(Sriov {
        total: number("totalvfs")?,
        made: virtual_functions(tree, folder),
        offset: number("offset").unwrap_or(0),
        stride: number("stride").unwrap_or(0),
        device: hex(tree, folder, "sriov_vf_device").unwrap_or(0) as u16,
    })
}

fn render_node(tree: &Tree, folder: &str) -> bool {
    tree.names(format!("{folder}/drm")).iter().any(|name| name.starts_with("renderD"))
}
