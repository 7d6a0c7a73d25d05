//! Which group it can be in, by what is there and who owns it.

use crate::topology::cgroup::{Cgroups, Cpuset, Group, Kind, Legacy, Unified, Unit};
use crate::topology::{CpuSet, NodeMask};
use std::path::{Path, PathBuf};

/// Where a lease's group goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below a group of our own at the top: nobody else manages this hierarchy.
    Tool {
        /// The top.
        mount: PathBuf,
        /// What it has of cpusets.
        top: Cpuset,
        /// What our group there has of them; none where it is not there.
        tool: Option<Cpuset>,
    },
    /// Below a group that was left to this process.
    Inside {
        /// The group.
        parent: PathBuf,
        /// Whether it is to pass on cpusets first.
        pass_on: bool,
    },
    /// In a scope that systemd makes.
    Scope {
        /// The group of all its units.
        root: PathBuf,
    },
    /// Below this process's cpuset of version 1.
    Legacy {
        /// The cpuset.
        parent: PathBuf,
        /// Its CPUs: a new one has none.
        cpus: CpuSet,
        /// Its nodes.
        mems: NodeMask,
    },
}

/// Where it goes, and where the process comes from. `fewer_nodes`: not all of the machine's memory is allowed here.
///
/// # Errors
/// Why there is no place for it.
pub fn place(cgroups: &Cgroups, root: bool, fewer_nodes: bool) -> Result<(Place, PathBuf), String> {
    let unified = cgroups.unified.as_ref().filter(|unified| unified.groups[0].cpuset != Cpuset::Absent);
    match (unified, &cgroups.legacy) {
        (Some(unified), _) => Ok((in_unified(unified, root, fewer_nodes)?, unified.own().folder.clone())),
        (None, Some(legacy)) => Ok((in_legacy(legacy)?, legacy.folder.clone())),
        (None, None) if cgroups.unified.is_some() => Err("there is no cpuset controller here".into()),
        (None, None) => Err("no cgroups are to be seen here".into()),
    }
}

fn in_legacy(legacy: &Legacy) -> Result<Place, String> {
    let Legacy { folder, cpus, mems, writable } = legacy;
    match writable {
        true => Ok(Place::Legacy { parent: folder.clone(), cpus: cpus.clone(), mems: mems.clone() }),
        false => Err(not_ours(folder)),
    }
}

fn in_unified(unified: &Unified, root: bool, fewer_nodes: bool) -> Result<Place, String> {
    let groups = &unified.groups;
    if let Some(job) = groups.iter().find(|group| is_slurm(&group.folder)) {
        return Err(format!("{} is Slurm's, and left as it is", job.folder.display()));
    }
    let Some(systemd) = &unified.systemd else {
        let limited = fewer_nodes || unified.given.is_some() || groups.iter().any(|group| !group.limits.is_empty());
        return match root && groups[0].kind == Kind::Root && groups[0].writable && !limited {
            true => Ok(Place::Tool { mount: groups[0].folder.clone(), top: groups[0].cpuset, tool: unified.tool }),
            false => inside(groups, ""),
        };
    };
    let scope = || scope(groups, &systemd.root);
    match &systemd.unit {
        None if root => scope(),
        None => Err(format!("this process is in no unit, but in {}{ADVICE}", unified.own().folder.display())),
        Some(Unit { at, delegated: true }) => inside(&groups[*at..], ADVICE),
        Some(Unit { at, .. }) if groups.len() > at + 1 => inside(&groups[at + 1..], ADVICE),
        Some(Unit { at, .. }) => match name(&groups[*at].folder) {
            unit if unit.ends_with(".service") => Err(format!("{unit} is not delegated: add Delegate=yes to it")),
            _ if root => scope(),
            unit => Err(format!("{unit} is not this user's{ADVICE}")),
        },
    }
}

/// For who is no root, or not alone.
const ADVICE: &str = ": systemd-run --user --scope -p Delegate=yes (as root without --user) gives one";

/// Below the innermost group that lets us, but never out of one that limits its
/// processes. `advice` follows what stands in the way.
fn inside(groups: &[Group], advice: &str) -> Result<Place, String> {
    let mut reason = None;
    for group in groups.iter().rev().filter(|group| group.kind != Kind::Root) {
        match obstacle(group, advice) {
            None => {
                let pass_on = group.cpuset == Cpuset::Here;
                return Ok(Place::Inside { parent: group.folder.clone(), pass_on });
            }
            Some(obstacle) => reason = reason.or(Some(obstacle)),
        }
        if !group.limits.is_empty() {
            break;
        }
    }
    Err(reason.unwrap_or_else(|| format!("only root can make one in {}", groups[0].folder.display())))
}

fn obstacle(group: &Group, advice: &str) -> Option<String> {
    let folder = group.folder.display();
    match (&group.kind, group.cpuset) {
        (Kind::Other(kind), _) => Some(format!("{folder} is {kind}: no process can live below it")),
        _ if !group.writable => Some(format!("{}{advice}", not_ours(&group.folder))),
        (_, Cpuset::Absent) => Some(format!("{folder} has no cpuset controller: add Delegate=cpuset where it is made")),
        (_, Cpuset::Here) if group.others > 0 => {
            let others = if group.others == 1 { "another process lives" } else { "other processes live" };
            Some(format!("{others} in {folder}, which so cannot be divided{advice}"))
        }
        _ => None,
    }
}

/// What limits the memory or the time of a group above would be lost in a scope
/// elsewhere. Its tasks are limited for every unit, and its cpuset is kept to.
fn scope(groups: &[Group], root: &Path) -> Result<Place, String> {
    let lost = |limit: &&&str| limit.starts_with("memory") || limit.starts_with("cpu.");
    let limited = groups.iter().find_map(|group| Some((group, group.limits.iter().find(lost)?)));
    match limited {
        None => Ok(Place::Scope { root: root.to_owned() }),
        Some((group, limit)) => Err(format!(
            "{} limits its processes by {limit}, which a scope would be free of: add Delegate=yes to the unit",
            group.folder.display()
        )),
    }
}

fn not_ours(folder: &Path) -> String {
    format!("{} is not this user's to divide", folder.display())
}

/// Slurm kills and counts by the groups that it has made.
fn is_slurm(folder: &Path) -> bool {
    let name = name(folder);
    name == "slurm" || name.starts_with("slurmstepd") || name.starts_with("slurm_")
}

fn name(folder: &Path) -> std::borrow::Cow<'_, str> {
    folder.file_name().unwrap_or_default().to_string_lossy()
}
