//! Whether a workload still is where its launch has put it: somebody else may
//! have written to its cpuset, or its threads have moved where nothing stops them.

use super::{Entry, Life, belief};
use crate::host::syscall;
use crate::topology::CpuSet;
use std::fs;
use std::path::Path;

/// What differs from what was granted, as a sentence. Threads that are pinned
/// to a part of it are where they belong.
pub fn drift(entry: &Entry) -> Option<String> {
    let lease = entry.lease.as_ref().ok().filter(|lease| entry.life == Life::Alive && lease.running)?;
    let granted = lease.header.held.cpus.or(&lease.header.held.shared);
    if granted.is_empty() {
        return None;
    }
    let root = Path::new("/");
    let group = lease.header.group.as_deref().filter(|group| belief::is_group_of(root, group, lease.user));
    let owner = &lease.header.owner;
    let of_owner = || if owner.runs(root) { tasks(owner.pid) } else { Vec::new() };
    let threads = group.map(members).filter(|threads| !threads.is_empty()).unwrap_or_else(of_owner);
    group.and_then(|group| changed(group, &granted)).or_else(|| outside(&threads, &granted))
}

fn changed(group: &Path, granted: &CpuSet) -> Option<String> {
    let now = fs::read_to_string(group.join("cpuset.cpus")).ok()?.parse::<CpuSet>().ok()?;
    // An empty one has never been set.
    let differs = !now.is_empty() && now != *granted;
    differs.then(|| format!("its cpuset was changed to {now}, and {granted} was granted"))
}

fn outside(threads: &[i32], granted: &CpuSet) -> Option<String> {
    let affinities = threads.iter().filter_map(|&id| Some((id, syscall::affinity_of(id).ok()?)));
    let (id, cpus) = affinities.into_iter().find(|(_, cpus)| !cpus.is_subset(granted))?;
    Some(format!("its thread {id} may run on {cpus}, and {granted} was granted"))
}

fn members(group: &Path) -> Vec<i32> {
    let ids = fs::read_to_string(group.join("cgroup.threads"));
    // The first version calls them so.
    let ids = ids.or_else(|_| fs::read_to_string(group.join("tasks"))).unwrap_or_default();
    // Those of another pid namespace are shown as 0, which would be this one.
    ids.lines().filter_map(|id| id.parse().ok()).filter(|&id| id > 0).collect()
}

fn tasks(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}
