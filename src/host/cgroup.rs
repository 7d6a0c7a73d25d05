//! A cgroup of a lease's own, and this process in it: what is written is read back.

use super::affinities::Affinities;
use super::{StepError, syscall, systemd};
use crate::fault;
use crate::plan::Need;
use crate::step::group::SUBTREE;
use crate::step::{Group, Move, Set, Undo};
use crate::topology::cgroup::TOOL;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes the group and moves this process into it, once for each move telling what undoes it.
///
/// # Errors
/// The kernel or systemd refused, or kept something else than was written.
pub fn enter(group: &Group, journal: &mut dyn FnMut(Undo) -> io::Result<()>) -> Result<(), StepError> {
    for step in &group.moves {
        if let Some(undo) = undo_of(step) {
            journal(undo).map_err(StepError::Journal)?;
        }
        match step {
            Move::Tool(folder) => tool(folder),
            Move::PassOn { group, .. } => pass_on(group),
            Move::Make(folder) => make(folder),
            Move::Set(set) => self::set(set),
            Move::Join { group, .. } => join(group),
            Move::Scope(scope) => systemd::start(scope).and_then(|()| scope.sets.iter().try_for_each(came_to)),
        }?;
        fault::point("group.moved");
    }
    Ok(())
}

/// Moves this process to where those that it starts for itself may stay. Where
/// that fails, entering the group says why.
pub fn step_aside(group: &Group) {
    if let Some(aside) = group.aside() {
        let _ = tool(&aside).and_then(|()| join(&aside));
    }
}

fn undo_of(step: &Move) -> Option<Undo> {
    match step {
        Move::Tool(_) | Move::Set(_) | Move::PassOn { only: None, .. } => None,
        Move::PassOn { group, only: Some(child) } => {
            Some(Undo::KeepBack { group: group.clone(), child: child.clone() })
        }
        Move::Make(folder) => Some(Undo::RemoveGroup(folder.clone())),
        Move::Join { group, home } => Some(back(group, home)),
        // A scope goes by itself once nobody is in it.
        Move::Scope(scope) => Some(back(&scope.folder, &scope.home)),
    }
}

fn back(group: &Path, home: &Path) -> Undo {
    Undo::Return { group: group.to_owned(), home: home.to_owned(), process: std::process::id() }
}

fn tool(folder: &Path) -> Result<(), StepError> {
    match fs::create_dir(folder) {
        // Another launch was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(|source| StepError::refused(format!("mkdir {}", folder.display()), source)),
    }
}

fn make(folder: &Path) -> Result<(), StepError> {
    fs::create_dir(folder).map_err(|source| {
        let call = format!("mkdir {}", folder.display());
        let full = source.raw_os_error() == Some(libc::EAGAIN);
        StepError::refused(call, explained(source, full, "the groups above allow no more (cgroup.max.descendants)"))
    })
}

/// Passes cpusets on to the groups below. On Linux before 6.2 that gives
/// everybody who lives there all CPUs back, whatever he was pinned to.
fn pass_on(group: &Path) -> Result<(), StepError> {
    let file = group.join(SUBTREE);
    if passes_on(&file) {
        return Ok(());
    }
    let pinned = Affinities::below(group);
    let written = put(&file, "+cpuset");
    pinned.put_back();
    let call = || format!("write +cpuset to {}", file.display());
    written.map_err(|source| {
        let busy = source.raw_os_error() == Some(libc::EBUSY);
        StepError::refused(call(), explained(source, busy, "processes live in this group"))
    })?;
    match passes_on(&file) {
        true => Ok(()),
        false => Err(StepError::refused(call(), io::Error::other("the kernel left it as it was"))),
    }
}

pub(super) fn passes_on(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|controller| controller == "cpuset"))
}

fn join(group: &Path) -> Result<(), StepError> {
    let file = group.join("cgroup.procs");
    keeping_affinity(std::process::id(), || put(&file, &std::process::id().to_string())).map_err(|source| {
        let reason = match source.raw_os_error() {
            Some(libc::EOPNOTSUPP) => "the group is threaded or domain invalid: no process can live in it",
            Some(libc::ENOSPC) => "its cpuset has no CPUs or no memory nodes",
            Some(libc::EBUSY) => "it passes controllers on: no process can live in it",
            _ => "",
        };
        let call = format!("write {} to {}", std::process::id(), file.display());
        StepError::refused(call, explained(source, !reason.is_empty(), reason))
    })
}

/// What a process is pinned to stays, as far as the other group has it: Linux
/// before 6.2 gives it all CPUs of that group.
pub(super) fn keeping_affinity<T>(process: u32, moving: impl FnOnce() -> T) -> T {
    let id = process.cast_signed();
    let before = syscall::affinity_of(id);
    let result = moving();
    if let Ok(before) = before
        && syscall::affinity_of(id).is_ok_and(|now| !now.is_subset(&before))
    {
        // Where the other group has none of it, its CPUs are what there is.
        let _ = syscall::set_affinity_of(id, &before);
    }
    result
}

/// Moves a process back where it came from, if it is still in the group that it was moved into.
///
/// # Errors
/// The kernel refused.
pub fn go_back(group: &Path, home: &Path, process: u32) -> io::Result<()> {
    let id = process.to_string();
    let inside = fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.lines().any(|pid| pid == id));
    // It may have been the last one there, and the owner of the group have taken it away.
    if !inside || !home.exists() {
        return Ok(());
    }
    keeping_affinity(process, || put(&home.join("cgroup.procs"), &id))
}

/// Passes cpusets no longer on to the groups below one; none where it is done,
/// else who uses them by now besides the child for which it was done.
///
/// # Errors
/// The kernel refused.
pub fn keep_back(group: &Path, child: &Path) -> io::Result<Option<String>> {
    let file = group.join(SUBTREE);
    if !passes_on(&file) {
        return Ok(None);
    }
    let folders = fs::read_dir(group)?.flatten().map(|entry| entry.path());
    let uses = |folder: &Path| {
        ["cpuset.cpus", "cpuset.mems"]
            .iter()
            .any(|file| fs::read_to_string(folder.join(file)).is_ok_and(|text| !text.trim().is_empty()))
    };
    if let Some(other) = folders.into_iter().find(|folder| folder != child && uses(folder)) {
        return Ok(Some(format!("{} uses it", other.display())));
    }
    let pinned = Affinities::below(group);
    let written = put(&file, "-cpuset");
    pinned.put_back();
    // Processes of ours may have waited there.
    let _ = fs::remove_dir(group.join(TOOL));
    written.map(|()| None)
}

/// How long a process takes to leave its group after it has ended.
const LEAVING: Duration = Duration::from_millis(200);

/// Removes a group, if it is there, with the empty groups that its workload made in it.
///
/// # Errors
/// Somebody lives in it, or it is not to be removed.
pub fn remove(folder: &Path) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => return Err(error),
            Err(error) if begun.elapsed() >= LEAVING => {
                return Err(explained(error, true, "processes live in it"));
            }
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
        let inner = fs::read_dir(folder)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        inner.for_each(|entry| _ = remove_empty(&entry.path()));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn remove_empty(folder: &Path) -> io::Result<()> {
    let inner = fs::read_dir(folder)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inner.for_each(|entry| _ = remove_empty(&entry.path()));
    fs::remove_dir(folder)
}

fn set(set: &Set) -> Result<(), StepError> {
    let Set { file, value, .. } = set;
    put(file, value).map_err(|source| StepError::refused(format!("write {value} to {}", file.display()), source))?;
    fault::point("group.set");
    came_to(set)
}

/// What the kernel made of a list: it takes more than it gives.
fn came_to(set: &Set) -> Result<(), StepError> {
    let call = format!("write {} to {}", set.value, set.file.display());
    let found = match fs::read_to_string(&set.effective) {
        Ok(found) => found.trim().to_owned(),
        Err(source) => return Err(StepError::refused(call, source)),
    };
    match (found == set.value, set.need) {
        (true, _) => Ok(()),
        (false, Need::Must) => Err(StepError::Changed { call, found: format!("`{found}`") }),
        (false, Need::May) => {
            Err(StepError::refused(call, io::Error::other(format!("the kernel kept `{found}` instead"))))
        }
    }
}

/// One that is not there is not to be made: the kernel makes them.
fn put(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}

/// The kernel's error in words, where they are better than its own.
fn explained(error: io::Error, meant: bool, words: &str) -> io::Error {
    if meant { io::Error::new(error.kind(), format!("{words} ({error})")) } else { error }
}
