//! Which PCI functions the host itself uses, as far as files tell. It moves
//! all the time, so that it is read anew whenever devices are asked for.

mod making;
mod network;
mod storage;

pub use making::barred;

use super::{Bdf, Machine, PciFunction};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// No file that is read here is longer, but in a tree made to do harm.
const LONGEST: u64 = 16 << 20;

/// Functions that cannot be had, and why: `is used by the host: eth0 has an address`.
pub type InUse = BTreeMap<Bdf, String>;

/// The functions among `wanted` that cannot be had, for the host uses them or they are dead. `addressed` are names of
/// interfaces that are known to have an address besides those that files name.
pub fn read(root: &Path, machine: &Machine, wanted: &[&PciFunction], addressed: &BTreeSet<String>) -> InUse {
    let files = Files { root: root.to_owned() };
    // A physical function's virtual functions count too: taking it takes them.
    let parents: BTreeSet<Bdf> = wanted.iter().map(|function| function.bdf).collect();
    let below = |function: &&PciFunction| function.physical_function.is_some_and(|parent| parents.contains(&parent));
    let mut looked_at: Vec<&PciFunction> = machine.pci.iter().filter(below).collect();
    looked_at.extend(wanted);
    let mut used = network::used(&files, &looked_at, addressed);
    if looked_at.iter().any(|function| function.class >> 16 != 0x03) {
        used.extend(storage::used(&files));
    }
    let of_parents = machine.pci.iter().filter_map(|function| {
        let parent = function.physical_function?;
        let reason = used.get(&function.bdf)?;
        Some((parent, format!("its virtual function {}: {reason}", function.bdf)))
    });
    let of_parents: InUse = of_parents.collect();
    for (parent, reason) in of_parents {
        used.entry(parent).or_insert(reason);
    }
    used.retain(|bdf, _| parents.contains(bdf));
    used.values_mut().for_each(|reason| *reason = format!("is used by the host: {reason}"));
    used.extend(wanted.iter().filter_map(|function| Some((function.bdf, dead(&files, function)?))));
    used
}

/// What says that a function has died or gone.
fn dead(files: &Files, function: &PciFunction) -> Option<String> {
    let folder = format!("sys/bus/pci/devices/{}", function.bdf);
    if !files.exists(&folder) {
        return Some("is gone".to_owned());
    }
    if files.text(format!("{folder}/power_state")).as_deref() == Some("error") {
        return Some("is dead: its power state is an error".to_owned());
    }
    let controllers = files.names(format!("{folder}/nvme"));
    let state = |name: &String| files.text(format!("{folder}/nvme/{name}/state"));
    if controllers.iter().any(|name| state(name).as_deref() == Some("dead")) {
        return Some("is dead, says its driver".to_owned());
    }
    // Reading the configuration space wakes a sleeping device, which cannot have been lost asleep.
    let status = files.text(format!("{folder}/power/runtime_status"));
    let awake = status.is_none_or(|status| status != "suspended" && status != "suspending");
    (awake && files.starts_with_ones(&format!("{folder}/config"))).then(|| "is dead: it answers with ones".to_owned())
}

/// Files below a root.
struct Files {
    root: PathBuf,
}

impl Files {
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut text = String::new();
        self.open(path)?.take(LONGEST).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// A plain file: a pipe in a captured tree would be waited for.
    fn open(&self, path: impl AsRef<Path>) -> Option<fs::File> {
        let path = self.root.join(path);
        fs::metadata(&path).ok()?.is_file().then(|| fs::File::open(&path).ok())?
    }

    fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// Names in a folder, sorted.
    fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        fs::read_link(self.root.join(path)).ok()
    }

    /// Where a function is that left the bus, all reads as ones. Vendor and
    /// device of a virtual function always do; its class does not.
    fn starts_with_ones(&self, path: &str) -> bool {
        let mut start = [0; 16];
        let read = self.open(path).is_some_and(|mut file| file.read_exact(&mut start).is_ok());
        read && start == [0xff; 16]
    }
}

/// Interfaces of this host with an address of their own. Files name them for
/// IPv6 only; an IPv4 address may come without a route.
pub fn addressed() -> BTreeSet<String> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let counts = |interface: &nix::ifaddrs::InterfaceAddress| {
        let address = interface.address.as_ref();
        let four = address.is_some_and(|address| address.as_sockaddr_in().is_some());
        let six = address.and_then(|address| address.as_sockaddr_in6());
        four || six.is_some_and(|six| six.ip().segments()[0] & 0xffc0 != 0xfe80)
    };
    all.filter(counts).map(|interface| interface.interface_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(bdf: &str) -> PciFunction {
        PciFunction { bdf: bdf.parse().unwrap(), class: 0x030200, ..PciFunction::default() }
    }

    #[test]
    fn a_function_that_answers_with_ones_is_dead_and_a_sleeping_one_is_not_woken() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine {
            pci: ["10:00.0", "10:10.0", "11:00.0", "12:00.0", "13:00.0"].map(function).into(),
            ..Machine::default()
        };
        let config = |bdf: &str, bytes: &[u8], status: &str| {
            let folder = root.path().join("sys/bus/pci/devices").join(bdf);
            fs::create_dir_all(folder.join("power")).unwrap();
            fs::write(folder.join("config"), bytes).unwrap();
            fs::write(folder.join("power/runtime_status"), status).unwrap();
        };
        config("0000:10:00.0", &[0xde, 0x10, 0xb0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "active\n");
        // A virtual function.
        config("0000:10:10.0", &[0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0, 1, 0, 0, 2, 0, 0, 0, 0], "active\n");
        config("0000:11:00.0", &[0xff; 64], "active\n");
        config("0000:12:00.0", &[0xff; 64], "suspended\n");
        let wanted: Vec<&PciFunction> = machine.pci.iter().collect();
        let found = read(root.path(), &machine, &wanted, &BTreeSet::new());
        let found: Vec<String> = found.iter().map(|(bdf, reason)| format!("{bdf} {reason}")).collect();
        assert_eq!(found, ["0000:11:00.0 is dead: it answers with ones", "0000:13:00.0 is gone"]);
    }

    #[test]
    fn an_interface_that_is_told_to_have_an_address_is_used() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/bus/pci/devices/0000:10:00.0")).unwrap();
        let port = PciFunction { class: 0x020000, interfaces: vec!["eth0".into()], ..function("10:00.0") };
        let machine = Machine { pci: vec![port.clone()], ..Machine::default() };
        let used = |addressed: &[&str]| {
            let addressed = addressed.iter().map(|name| (*name).to_owned()).collect();
            read(root.path(), &machine, &[&port], &addressed).into_values().next()
        };
        assert_eq!(used(&["eth1"]), None);
        assert_eq!(used(&["eth0"]).as_deref(), Some("is used by the host: eth0 has an address"));
    }
}
