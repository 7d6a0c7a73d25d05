//! Keeps a Machine in the run directory.

use super::syscall;
use crate::topology::Machine;
use crate::topology::snapshot::{FILE, Fingerprint, encode};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of a run directory that is made here: root's is for all to read.
fn mode() -> u32 {
    if nix::unistd::geteuid().is_root() { 0o755 } else { 0o700 }
}

/// Makes the run directory if it is not there. One that belongs to somebody
/// else, or a link to one, is not written to: in /tmp anyone may have made it.
fn own_folder(dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(mode()).create(dir) {
        // So that the caller's umask has no say.
        Ok(()) => std::fs::set_permissions(dir, Permissions::from_mode(mode()))?,
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    let found = std::fs::symlink_metadata(dir)?;
    let user = nix::unistd::geteuid().as_raw();
    match found.is_dir() && (found.uid() == user || found.uid() == 0) {
        true => Ok(()),
        false => Err(io::Error::other("it is not a folder of this user's")),
    }
}

/// Why no snapshot was kept. A launch goes on without.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep a snapshot in {}", path.display())]
pub struct StoreError {
    path: PathBuf,
    source: io::Error,
}

/// Writes a snapshot in one step: a reader sees the old one or the new one.
/// The fingerprint was taken before the machine was read. Everyone may read it.
pub fn store(dir: &Path, machine: &Machine, fingerprint: Fingerprint) -> Result<(), StoreError> {
    let failed = |source| StoreError { path: dir.to_owned(), source };
    let fingerprint = fingerprint.with_library(machine.hwloc_library.as_deref());
    let bytes = encode(machine, &fingerprint).map_err(|error| failed(io::Error::other(error)))?;
    write(dir, &bytes).map_err(failed)
}

fn write(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    // A write above the limit ends the writer, who only wants to start something else.
    if bytes.len() as u64 > syscall::largest_file() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    own_folder(dir)?;
    let readable = Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().prefix(".snapshot").tempfile_in(dir)?;
    file.write_all(bytes)?;
    // After the creation, so that the caller's umask has no say.
    file.as_file().set_permissions(readable)?;
    file.persist(dir.join(FILE)).map_err(|error| error.error)?;
    Ok(())
}
