//! A Machine kept in the run directory, so that a launch need not read it anew.
//!
//! It is used only where it is from this boot, of this machine as it is now,
//! undamaged, and written by root or by the user. What moves (pages,
//! memory, drivers) is read again where it matters: `refresh_*` in [`super::sysfs`].

use super::Machine;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the file in the run directory.
pub const FILE: &str = "machine.snapshot";

const MAGIC: &[u8; 8] = b"numa-run";
const VERSION: u32 = 5;

/// No machine's snapshot is longer: a file with a hole must not be read into memory.
const LARGEST: u64 = 64 << 20;

/// Files that change when a driver of GPUs comes, goes or sees other GPUs.
const DRIVERS: [&str; 2] = ["sys/class/kfd/kfd/topology/generation_id", "proc/driver/nvidia/version"];

/// Why a snapshot is not used.
#[derive(Debug, thiserror::Error)]
pub enum Discard {
    /// There is none.
    #[error("there is no snapshot")]
    Absent,
    /// It cannot be read.
    #[error("the snapshot cannot be read")]
    Unreadable(#[source] io::Error),
    /// It is a link: who made it could point it anywhere.
    #[error("the snapshot is a symbolic link")]
    Symlink,
    /// It is a folder, a pipe or a device.
    #[error("the snapshot is no regular file")]
    NotAFile,
    /// Someone else wrote it.
    #[error("the snapshot belongs to user {0}, neither root nor the caller")]
    Owner(u32),
    /// Someone else may have written to it.
    #[error("the snapshot can be written by others (mode {0:o})")]
    Writable(u32),
    /// It is none of ours.
    #[error("the file is no snapshot")]
    Foreign,
    /// Another version wrote it.
    #[error("the snapshot was written by another version ({0})")]
    Version(String),
    /// It is damaged.
    #[error("the snapshot is damaged")]
    Checksum,
    /// The machine was started again.
    #[error("the snapshot is from an earlier boot")]
    Boot,
    /// The machine changed.
    #[error("the snapshot is out of date: {0} changed")]
    Changed(&'static str),
}

/// What a machine is recognised by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    boot: String,
    cpus: String,
    isolated: String,
    nodes: String,
    functions: u32,
    /// Sum of the checksums of the functions' addresses: sysfs lists them in no order.
    addresses: u64,
    /// What the drivers of GPUs say of themselves: links between GPUs come from them.
    drivers: String,
    library: Option<ProgramFile>,
    probe: Option<ProgramFile>,
}

/// A file of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ProgramFile {
    path: PathBuf,
    size: u64,
    modified: (i64, i64),
}

impl Fingerprint {
    /// What the machine under this root is recognised by, now. Take it before
    /// the machine is read: a change in between must not go unnoticed.
    pub fn read(root: &Path) -> Fingerprint {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (functions, addresses) = functions(&root.join("sys/bus/pci/devices"));
        Fingerprint {
            boot: text("proc/sys/kernel/random/boot_id"),
            cpus: text("sys/devices/system/cpu/online"),
            isolated: text("sys/devices/system/cpu/isolated"),
            nodes: text("sys/devices/system/node/online"),
            functions,
            addresses,
            drivers: DRIVERS.map(text).concat(),
            library: None,
            probe: None,
        }
    }

    /// The same with the libhwloc that read the machine.
    pub fn with_library(mut self, path: Option<&Path>) -> Fingerprint {
        self.library = path.and_then(program_file);
        self
    }

    /// The same with the probe that is installed, whether or not it gave an answer.
    pub fn with_probe(mut self, path: Option<&Path>) -> Fingerprint {
        self.probe = path.and_then(program_file);
        self
    }

    /// What differs from the machine as it is.
    fn differs(&self, now: &Fingerprint) -> Option<Discard> {
        let parts = [
            (self.cpus != now.cpus, "online CPUs"),
            (self.isolated != now.isolated, "isolated CPUs"),
            (self.nodes != now.nodes, "online nodes"),
            ((self.functions, self.addresses) != (now.functions, now.addresses), "PCI functions"),
            (self.drivers != now.drivers, "GPU drivers"),
            (self.library != now.library, "libhwloc"),
            // Who has no probe takes what another one's saw.
            (now.probe.is_some() && self.probe != now.probe, "numa-run-probe"),
        ];
        if self.boot != now.boot {
            return Some(Discard::Boot);
        }
        parts.iter().find(|(differs, _)| *differs).map(|&(_, part)| Discard::Changed(part))
    }
}

fn functions(folder: &Path) -> (u32, u64) {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.fold((0, 0), |(count, sum), name| (count + 1, sum + u64::from(crc32fast::hash(name.as_bytes()))))
}

fn program_file(path: &Path) -> Option<ProgramFile> {
    let file = fs::metadata(path).ok()?;
    Some(ProgramFile { path: path.to_owned(), size: file.size(), modified: (file.mtime(), file.mtime_nsec()) })
}

/// The snapshot's bytes. Writing them is [`crate::host::snapshot::store`]'s.
pub fn encode(machine: &Machine, fingerprint: &Fingerprint) -> Result<Vec<u8>, postcard::Error> {
    let body = postcard::to_allocvec(&(env!("CARGO_PKG_VERSION"), fingerprint, machine))?;
    let checksum = crc32fast::hash(&body);
    Ok([MAGIC.as_slice(), &VERSION.to_le_bytes(), &checksum.to_le_bytes(), &body].concat())
}

/// The Machine kept in a run directory, if it may be used for the machine under this root.
/// `probe` is the one that would read it anew.
pub fn load(dir: &Path, root: &Path, probe: Option<&Path>) -> Result<Machine, Discard> {
    let bytes = trusted(&dir.join(FILE))?;
    let body = body(&bytes)?;
    let (version, rest) = postcard::take_from_bytes::<&str>(body).map_err(|_| Discard::Foreign)?;
    if version != env!("CARGO_PKG_VERSION") {
        return Err(Discard::Version(version.to_owned()));
    }
    let (kept, rest) = postcard::take_from_bytes::<Fingerprint>(rest).map_err(|_| Discard::Foreign)?;
    let library = kept.library.as_ref().map(|library| library.path.as_path());
    let now = Fingerprint::read(root).with_library(library).with_probe(probe);
    match kept.differs(&now) {
        Some(reason) => Err(reason),
        None => postcard::from_bytes(rest).map_err(|_| Discard::Foreign),
    }
}

/// Reads a file that nobody but root or the caller can have written.
fn trusted(path: &Path) -> Result<Vec<u8>, Discard> {
    // A pipe in its place must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(reason)?;
    let about = file.metadata().map_err(Discard::Unreadable)?;
    if !about.is_file() {
        return Err(Discard::NotAFile);
    }
    if about.uid() != 0 && about.uid() != geteuid().as_raw() {
        return Err(Discard::Owner(about.uid()));
    }
    if about.size() > LARGEST {
        return Err(Discard::Foreign);
    }
    if about.mode() & 0o022 != 0 {
        return Err(Discard::Writable(about.mode() & 0o7777));
    }
    read(file, about.size()).map_err(Discard::Unreadable)
}

fn reason(error: io::Error) -> Discard {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Discard::Absent,
        Some(libc::ELOOP) => Discard::Symlink,
        Some(libc::ENXIO) => Discard::NotAFile,
        _ => Discard::Unreadable(error),
    }
}

fn read(mut file: File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn body(bytes: &[u8]) -> Result<&[u8], Discard> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Discard::Foreign)?;
    let (version, rest) = rest.split_first_chunk().ok_or(Discard::Foreign)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(Discard::Version(format!("format {version}")));
    }
    let (checksum, body) = rest.split_first_chunk().ok_or(Discard::Foreign)?;
    match crc32fast::hash(body) == u32::from_le_bytes(*checksum) {
        true => Ok(body),
        false => Err(Discard::Checksum),
    }
}
