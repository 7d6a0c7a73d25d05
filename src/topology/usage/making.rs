//! Functions on which no virtual functions are to be made.

use super::{Files, InUse};
use crate::topology::{Machine, PciFunction};
use std::collections::BTreeSet;
use std::path::Path;

/// The functions among `wanted` on which no virtual functions are to be made,
/// and why: their drivers may start a port anew for it, which is the host's in
/// use, and who manages a port would take the new ones for its own.
pub fn barred(root: &Path, machine: &Machine, wanted: &[&PciFunction], addressed: &BTreeSet<String>) -> InUse {
    let files = Files { root: root.to_owned() };
    let mut barred = super::read(root, machine, wanted, addressed);
    barred.values_mut().for_each(|reason| *reason = format!("it {reason}"));
    let told =
        wanted.iter().filter_map(|function| Some((function.bdf, driver(function).or(manager(&files, function))?)));
    barred.extend(told);
    barred
}

/// Without a driver that knows how, the kernel makes none.
fn driver(function: &PciFunction) -> Option<String> {
    match function.driver.as_deref() {
        None => Some("it has no driver".to_owned()),
        Some("vfio-pci") => Some("it is bound to vfio-pci".to_owned()),
        Some(_) => None,
    }
}

fn manager(files: &Files, function: &PciFunction) -> Option<String> {
    function.interfaces.iter().find_map(|name| {
        let index = files.text(format!("sys/class/net/{name}/ifindex"))?;
        let by = [("NetworkManager", by_network_manager(files, &index)), ("networkd", by_networkd(files, &index))];
        let (who, _) = by.into_iter().find(|(_, managed)| *managed)?;
        Some(format!("{name} is managed by {who}"))
    })
}

fn by_network_manager(files: &Files, index: &str) -> bool {
    let state = files.text(format!("run/NetworkManager/devices/{index}")).unwrap_or_default();
    state.lines().any(|line| line.trim() == "managed=true")
}

fn by_networkd(files: &Files, index: &str) -> bool {
    let state = files.text(format!("run/systemd/netif/links/{index}")).unwrap_or_default();
    let managed = ["configuring", "configured", "failed"];
    state.lines().filter_map(|line| line.strip_prefix("ADMIN_STATE=")).any(|state| managed.contains(&state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_port_that_somebody_manages_makes_no_virtual_functions() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let port = |bus: u8, driver: Option<&str>| {
            let function = PciFunction {
                bdf: crate::topology::Bdf { bus, ..Default::default() },
                class: 0x020000,
                driver: driver.map(str::to_owned),
                interfaces: vec![format!("eth{bus}")],
                ..PciFunction::default()
            };
            file(&format!("sys/class/net/eth{bus}/ifindex"), &format!("{bus}\n"));
            file(&format!("sys/bus/pci/devices/{}/vendor", function.bdf), "0x8086\n");
            function
        };
        let (own, vfio) = (Some("ice"), Some("vfio-pci"));
        let pci =
            vec![port(1, own), port(2, own), port(3, own), port(4, own), port(5, own), port(6, vfio), port(7, None)];
        file("run/NetworkManager/devices/1", "[device]\nmanaged=true\nconnection-uuid=x\n");
        file("run/NetworkManager/devices/2", "[device]\nmanaged=false\n");
        file("run/systemd/netif/links/2", "# private\nADMIN_STATE=unmanaged\nOPER_STATE=off\n");
        file("run/systemd/netif/links/3", "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/x.network\n");
        let machine = Machine { pci, ..Machine::default() };
        let wanted: Vec<&PciFunction> = machine.pci.iter().collect();
        let barred = barred(root.path(), &machine, &wanted, &BTreeSet::from(["eth4".to_owned()]));
        let told: Vec<String> = barred.iter().map(|(bdf, reason)| format!("{} {reason}", bdf.bus)).collect();
        assert_eq!(
            told,
            [
                "1 eth1 is managed by NetworkManager",
                "3 eth3 is managed by networkd",
                "4 it is used by the host: eth4 has an address",
                "6 it is bound to vfio-pci",
                "7 it has no driver",
            ]
        );
    }
}
