//! What a lease holds whose file is damaged: the CPUs that its cgroup has of
//! its own, as long as anybody lives in it.

use super::belief::is_group_of;
use super::{Header, Held, Lease, life};
use crate::topology::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Groups lie no deeper.
const DEPTH: u32 = 12;

/// Folders of cgroups, by name.
pub type Groups = BTreeMap<String, PathBuf>;

/// Reads them.
pub fn groups(root: &Path) -> Groups {
    let mut groups = Groups::new();
    read(&root.join("sys/fs/cgroup"), DEPTH, &mut groups);
    groups
}

fn read(folder: &Path, depth: u32, groups: &mut Groups) {
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let path = entry.path();
        if let Ok(name) = entry.file_name().into_string() {
            // With the first version, a group is one in each hierarchy: that of CPUs will do.
            if !groups.contains_key(&name) || cpus(&path).is_some() {
                groups.insert(name, path.clone());
            }
        }
        if depth > 0 {
            read(&path, depth - 1, groups);
        }
    }
}

/// The cgroup of this user's lease of this name.
pub fn group(root: &Path, groups: &Groups, id: &str, user: u32) -> Option<PathBuf> {
    let names = [id.to_owned(), format!("numa-run-{id}"), format!("numa-run-{id}.scope"), format!("{id}.scope")];
    let folder = names.iter().find_map(|name| groups.get(name))?;
    let group = Path::new("/").join(folder.strip_prefix(root).ok()?);
    is_group_of(root, &group, user).then_some(group)
}

/// What it holds, if it has CPUs of its own and somebody lives in it.
pub fn lease(root: &Path, group: &Path, id: &str, user: u32) -> Option<Lease> {
    let folder = root.join(group.strip_prefix("/").unwrap_or(group));
    let cpus = cpus(&folder).filter(|_| life::populated(root, group))?;
    let held = Held { cpus, ..Held::default() };
    let header = Header { lease: id.to_owned(), group: Some(group.to_owned()), held, ..Header::default() };
    Some(Lease { header, user, running: true, ..Lease::default() })
}

/// CPUs that were given to the group itself, not those that it has from above.
fn cpus(folder: &Path) -> Option<CpuSet> {
    let text = fs::read_to_string(folder.join("cpuset.cpus")).ok()?;
    text.trim().parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_lease_holds_its_groups_cpus_while_somebody_lives_there() {
        let root = tempfile::tempdir().unwrap();
        let user = nix::unistd::geteuid().as_raw();
        let made = |path: &str, cpus: &str, populated: u8| {
            let folder = root.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpuset.cpus"), format!("{cpus}\n")).unwrap();
            fs::write(folder.join("cgroup.events"), format!("populated {populated}\nfrozen 0\n")).unwrap();
        };
        made("a.slice/numa-run/a1", "2-3", 1);
        made("system.slice/numa-run-a2.scope", "4", 1);
        made("a3", "", 1);
        made("a4", "5", 0);
        let groups = groups(root.path());
        let held = |id: &str| {
            let group = group(root.path(), &groups, id, user)?;
            lease(root.path(), &group, id, user).map(|lease| lease.header.held.cpus.to_string())
        };
        assert_eq!(held("a1").as_deref(), Some("2-3"));
        assert_eq!(held("a2").as_deref(), Some("4"));
        assert_eq!((held("a3"), held("a4"), held("a5")), (None, None, None));
        assert_eq!(group(root.path(), &groups, "a1", user + 1), None, "a group of somebody else");
    }
}
