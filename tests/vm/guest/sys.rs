//! What the kernel says, read by the tests themselves: the other side of each comparison.

use std::fs;

/// A file's text, trimmed.
pub fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_string()
}

/// An attribute of the PCI function at this address.
pub fn attribute(bdf: &str, name: &str) -> String {
    read(&format!("/sys/bus/pci/devices/{bdf}/{name}"))
}

/// The addresses of the PCI functions with this `vendor:device`, in order.
pub fn functions(vendor_device: &str) -> Vec<String> {
    let mut found: Vec<_> = fs::read_dir("/sys/bus/pci/devices")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|bdf| format!("{}:{}", attribute(bdf, "vendor"), attribute(bdf, "device")) == vendor_device)
        .collect();
    found.sort();
    found
}
