//! What the kernel says, read by the tests themselves: the other side of each comparison.

use std::fs;

/// The NIC with SR-IOV, as `vendor:device`.
pub const IGB: &str = "0x8086:0x10c9";

/// A file's text, trimmed.
pub fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_string()
}

/// An attribute of a NUMA node.
pub fn node(id: u32, attribute: &str) -> String {
    read(&format!("/sys/devices/system/node/node{id}/{attribute}"))
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

/// A file that is written to, and gets its old text back when the test ends, however it ends.
pub struct Changed<'a> {
    path: &'a str,
    before: String,
}

impl Changed<'_> {
    /// Writes the text.
    pub fn to<'a>(path: &'a str, text: &str) -> Changed<'a> {
        let before = read(path);
        fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
        Changed { path, before }
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        // An empty text would be written by no call at all.
        fs::write(self.path, format!("{}\n", self.before)).unwrap();
    }
}
