//! Hugepages of one node: more of them, as many as the kernel really makes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Tries after the first, each behind a compaction of the node's memory.
const RETRIES: usize = 3;

/// The file that holds how many pages of a size a node has.
pub fn file(root: &Path, node: u32, kib: u64) -> PathBuf {
    root.join(format!("sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages"))
}

/// How many there are.
///
/// # Errors
/// The node or the size does not exist.
pub fn count(file: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    text.trim().parse().map_err(|_| io::Error::other(format!("`{}` is no number", text.trim())))
}

/// Sees to it that a node has at least so many pages, and says how many it has
/// then: the kernel takes any number and makes as many as it finds memory for.
///
/// # Errors
/// The node or the size does not exist, or they are not ours to change.
pub fn raise(root: &Path, node: u32, kib: u64, wanted: u64) -> io::Result<u64> {
    let file = file(root, node, kib);
    let mut found = count(&file)?;
    for attempt in 0..=RETRIES {
        if found >= wanted {
            break;
        }
        if attempt > 0 {
            // Kernels without compaction lack the file: then it is tried as it is.
            let _ = fs::write(root.join(format!("sys/devices/system/node/node{node}/compact")), "1");
        }
        fs::write(&file, wanted.to_string())?;
        found = count(&file)?;
    }
    Ok(found)
}
