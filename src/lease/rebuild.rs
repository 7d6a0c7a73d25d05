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
        // Of groups of one name, the first version's are one in each hierarchy: any with CPUs will do.
        if let Ok(name) = entry.file_name().into_string()
            && cpus(&entry.path()).is_some()
        {
            groups.insert(name, entry.path());
        }
        if depth > 0 {
            read(&entry.path(), depth - 1, groups);
        }
    }
}

/// The lease of this name, if it has a group with CPUs of its own where somebody lives.
pub fn lease(root: &Path, groups: &Groups, id: &str, user: u32) -> Option<Lease> {
    let names = [id.to_owned(), format!("numa-run-{id}"), format!("numa-run-{id}.scope"), format!("{id}.scope")];
    let folder = names.iter().find_map(|name| groups.get(name))?;
    let group = Path::new("/").join(folder.strip_prefix(root).ok()?);
    if !is_group_of(root, &group, user) || !life::populated(root, &group) {
        return None;
    }
    let held = Held { cpus: cpus(folder)?, ..Held::default() };
    let header = Header { lease: id.to_owned(), group: Some(group), held, ..Header::default() };
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
        let group = |path: &str, cpus: &str, populated: u8| {
            let folder = root.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpuset.cpus"), format!("{cpus}\n")).unwrap();
            fs::write(folder.join("cgroup.events"), format!("populated {populated}\nfrozen 0\n")).unwrap();
        };
        group("a.slice/numa-run/a1", "2-3", 1);
        group("system.slice/numa-run-a2.scope", "4", 1);
        group("a3", "", 1);
        group("a4", "5", 0);
        let groups = groups(root.path());
        let held = |id: &str| lease(root.path(), &groups, id, user).map(|lease| lease.header.held.cpus.to_string());
        assert_eq!(held("a1").as_deref(), Some("2-3"));
        assert_eq!(held("a2").as_deref(), Some("4"));
        assert_eq!((held("a3"), held("a4"), held("a5")), (None, None, None));
        assert_eq!(lease(root.path(), &groups, "a1", user + 1), None, "a group of somebody else");
    }
}
