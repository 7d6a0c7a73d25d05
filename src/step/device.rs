//! What becomes of a device before it is handed out, as data.

use super::quoted;
use crate::host::audit::TARGET;
use crate::topology::Bdf;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Where the functions are.
pub const FUNCTIONS: &str = "/sys/bus/pci/devices";

/// Giving a function to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The function.
    pub device: Bdf,
    /// The driver, such as `vfio-pci`.
    pub driver: String,
}

/// Making all virtual functions of a port that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MakeVfs {
    /// The physical function.
    pub port: Bdf,
    /// How many.
    pub count: u32,
    /// Whether the kernel gives them to a driver of its own.
    pub drivers: bool,
    /// Those that are handed out: they must be among them.
    pub wanted: Vec<Bdf>,
}

/// Giving a user the files by which programs open a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The function.
    pub device: Bdf,
    /// The user.
    pub user: u32,
}

/// What gives a function back to who had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rebind {
    /// The function.
    pub device: Bdf,
    /// `vendor:device`, so that another one at this address is told from it.
    pub kind: String,
    /// The driver that we gave it to.
    pub ours: String,
    /// The driver that it had.
    pub driver: Option<String>,
    /// Its `driver_override`; empty for none.
    pub chosen: String,
}

/// What removes the virtual functions that we made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RemoveVfs {
    /// The physical function.
    pub port: Bdf,
    /// How many we made.
    pub count: u32,
    /// What `sriov_drivers_autoprobe` had.
    pub autoprobe: Option<String>,
}

/// What takes the files of a device back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Close {
    /// Files with the user that they had.
    pub files: Vec<(PathBuf, u32)>,
    /// The user that we gave them to.
    pub user: u32,
}

impl Bind {
    /// Lines for a shell that do the same.
    pub fn shell(&self) -> String {
        let (device, driver) = (self.device, &self.driver);
        let folder = format!("{FUNCTIONS}/{device}");
        format!(
            "echo {driver} > {folder}/driver_override\n\
             test ! -e {folder}/driver || echo {device} > {folder}/driver/unbind\n\
             echo {device} > /sys/bus/pci/drivers_probe"
        )
    }
}

impl MakeVfs {
    /// Lines for a shell that do the same.
    pub fn shell(&self) -> String {
        let (folder, count) = (format!("{FUNCTIONS}/{}", self.port), self.count);
        let make = format!("echo {count} > {folder}/sriov_numvfs");
        match self.drivers {
            true => make,
            false => {
                let file = format!("{folder}/sriov_drivers_autoprobe");
                format!("autoprobe=$(cat {file})\necho 0 > {file}\n{make}\necho $autoprobe > {file}")
            }
        }
    }
}

impl Open {
    /// Lines for a shell that do the same, for a device at vfio-pci.
    pub fn shell(&self) -> String {
        let group = format!("$(basename \"$(readlink {FUNCTIONS}/{}/iommu_group)\")", self.device);
        format!("chown {} /dev/vfio/{group}", self.user)
    }
}

impl fmt::Display for Rebind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Some(driver) => write!(out, "give {} back to {driver}", self.device),
            None => write!(out, "take {} from {}", self.device, self.ours),
        }
    }
}

impl fmt::Display for RemoveVfs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "write 0 to {FUNCTIONS}/{}/sriov_numvfs", self.port)
    }
}

impl fmt::Display for Close {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.iter().map(|(file, user)| format!("chown {user} {}", quoted(file.as_os_str())));
        out.write_str(&files.collect::<Vec<_>>().join(", "))
    }
}

impl Rebind {
    /// Says for the journal of the system what is about to be done.
    pub fn announce(&self, lease: &str) {
        let (file, old) = (format!("{FUNCTIONS}/{}/driver", self.device), self.driver.as_deref().unwrap_or("none"));
        tracing::info!(target: TARGET, lease, file, old, new = self.ours, "a device is given to a driver");
    }
}

impl RemoveVfs {
    /// Says for the journal of the system what is about to be done.
    pub fn announce(&self, lease: &str) {
        let file = format!("{FUNCTIONS}/{}/sriov_numvfs", self.port);
        tracing::info!(target: TARGET, lease, file, old = 0, new = self.count, "virtual functions are made");
    }
}

impl Close {
    /// Says for the journal of the system what is about to be done.
    pub fn announce(&self, lease: &str) {
        for (file, old) in &self.files {
            let (file, new) = (file.display(), self.user);
            tracing::info!(target: TARGET, lease, %file, old, new, "a file of a device is given to a user");
        }
    }
}
