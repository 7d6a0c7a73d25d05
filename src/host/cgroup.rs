//! A cgroup of a lease's own: what is written is read back.

use super::StepError;
use crate::fault;
use crate::step::Group;
use std::fs;
use std::io;
use std::path::Path;

/// Makes the group and gives it its CPUs and nodes.
///
/// # Errors
/// The kernel refused, or kept something else than was written.
pub fn make(group: &Group) -> Result<(), StepError> {
    let call = || format!("mkdir {}", group.folder.display());
    fs::create_dir(&group.folder).map_err(|source| StepError::Refused { call: call(), source })?;
    fault::point("group.made");
    if !group.cpus.is_empty() {
        set(&group.folder, "cpuset.cpus", &group.cpus.to_string())?;
    }
    if !group.mems.is_empty() {
        set(&group.folder, "cpuset.mems", &group.mems.to_string())?;
    }
    Ok(())
}

/// Moves this process into the group.
///
/// # Errors
/// The kernel refused.
pub fn join(folder: &Path) -> Result<(), StepError> {
    write(&folder.join("cgroup.procs"), &std::process::id().to_string())
}

/// Removes a group that is there and has nobody in it.
///
/// # Errors
/// Somebody lives in it, or it is not to be removed.
pub fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn set(folder: &Path, file: &str, value: &str) -> Result<(), StepError> {
    write(&folder.join(file), value)?;
    fault::point("group.set");
    let effective = folder.join(format!("{file}.effective"));
    let call = || format!("write {value} to {}", folder.join(file).display());
    let found = fs::read_to_string(&effective).map_err(|source| StepError::Refused { call: call(), source })?;
    match found.trim() == value {
        true => Ok(()),
        false => Err(StepError::Changed { call: call(), found: format!("`{}`", found.trim()) }),
    }
}

fn write(file: &Path, value: &str) -> Result<(), StepError> {
    fs::write(file, value)
        .map_err(|source| StepError::Refused { call: format!("write {value} to {}", file.display()), source })
}
