//! The lease that this process was started in: by its cgroup, or by the lock
//! that it inherited.

use super::belief::{is_believed, is_group_of};
use super::{Lease, Ledger};
use std::path::{Path, PathBuf};

/// The innermost of these leases that this process lives in.
pub fn parent<'a>(ledger: &Ledger, live: &'a [Lease]) -> Option<&'a Lease> {
    if live.is_empty() {
        return None;
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let locks = inherited(&ledger.leases());
    let inside = |lease: &&Lease| {
        let header = &lease.header;
        // Anybody can name our group in a lease of his, to have us take what others hold.
        let its = |group: &Path| is_group_of(Path::new("/"), group, lease.user);
        header.group.as_deref().filter(|group| lives_in(&groups, group)).is_some_and(its)
            || !locks.is_empty() && is_believed(lease.user) && locks.contains(&ledger.lock_path(header))
    };
    let inside: Vec<&Lease> = live.iter().filter(inside).collect();
    // What is nobody's parent among them is the innermost.
    let outer = |lease: &&&Lease| !inside.iter().any(|other| other.header.parent.as_ref() == Some(&lease.header.lease));
    inside.iter().find(outer).copied()
}

/// Locks of leases among this process's open files.
fn inherited(leases: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let opened = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    opened.filter(|path| path.parent() == Some(leases)).collect()
}

/// A group's folder ends with what `/proc/self/cgroup` says behind the mount.
fn lives_in(groups: &str, group: &Path) -> bool {
    let below = |line: &str| {
        let path = line.splitn(3, ':').nth(2)?.trim_start_matches('/');
        Some(!path.is_empty() && Path::new(path).ancestors().any(|path| is_end(group, path)))
    };
    groups.lines().any(|line| below(line) == Some(true))
}

fn is_end(group: &Path, path: &Path) -> bool {
    // A name alone could be anybody's: our groups lie in a folder of ours or of a unit's.
    path.components().count() > 1 && group.ends_with(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_in_its_group_and_in_those_above() {
        let group = Path::new("/sys/fs/cgroup/numa-run/a1");
        assert!(lives_in("0::/numa-run/a1\n", group));
        assert!(lives_in("5:cpuset:/numa-run/a1\n0::/user.slice\n", group));
        assert!(lives_in("0::/numa-run/a1/worker\n", group));
        assert!(!lives_in("0::/numa-run/a2\n", group));
        assert!(!lives_in("0::/\n", group));
        assert!(!lives_in("0::/a1\n", group));
    }
}
