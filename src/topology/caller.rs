//! What the launching process was given: the cpuset of its cgroup.

use super::CpuSet;
use std::io;
use std::path::{Path, PathBuf};

/// CPUs of this process's effective cpuset; none where no cpuset controller is mounted.
///
/// # Errors
/// A file that is there and cannot be understood.
pub fn cpuset(root: &Path) -> io::Result<Option<CpuSet>> {
    let Ok(groups) = std::fs::read_to_string(root.join("proc/self/cgroup")) else { return Ok(None) };
    let mounts = std::fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
    for (folder, file) in places(&groups, &mounts) {
        let folder = root.join(folder.strip_prefix("/").unwrap_or(&folder));
        if let Some(text) = nearest(&folder, file) {
            let cpus =
                text.parse::<CpuSet>().map_err(|error| io::Error::other(format!("{}: {error}", folder.display())))?;
            return Ok(Some(cpus));
        }
    }
    Ok(None)
}

/// Folders of this process's group, in the hierarchies that may have a cpuset
/// controller, and the file that holds the effective CPUs there.
fn places(groups: &str, mounts: &str) -> Vec<(PathBuf, &'static str)> {
    let mut places = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let below = |mount: &str| PathBuf::from(mount).join(path.trim_start_matches('/'));
        if controllers.is_empty() {
            places.extend(mounted(mounts, "cgroup2", None).map(|mount| (below(mount), "cpuset.cpus.effective")));
        } else if controllers.split(',').any(|name| name == "cpuset") {
            places
                .extend(mounted(mounts, "cgroup", Some("cpuset")).map(|mount| (below(mount), "cpuset.effective_cpus")));
        }
    }
    places
}

fn mounted<'a>(mounts: &'a str, kind: &'a str, option: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    mounts.lines().filter_map(move |line| {
        let mut fields = line.split(' ').skip(1);
        let (mount, found, options) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted = option.is_none_or(|option| options.split(',').any(|other| other == option));
        (found == kind && wanted).then_some(mount)
    })
}

/// The file of this group, or of the nearest group above that has one: a group
/// without the controller lives in its parent's cpuset.
fn nearest(folder: &Path, file: &str) -> Option<String> {
    folder
        .ancestors()
        .take_while(|folder| folder.components().count() > 2)
        .find_map(|folder| std::fs::read_to_string(folder.join(file)).ok().filter(|text| !text.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_each_hierarchy_is_found() {
        let groups = "5:cpuset,cpu:/jobs/7\n0::/user.slice\n";
        let mounts =
            "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let places = places(groups, mounts);
        assert_eq!(places[0].0, Path::new("/sys/fs/cgroup/cpuset/jobs/7"));
        assert_eq!(places[1].0, Path::new("/sys/fs/cgroup/unified/user.slice"));
    }

    #[test]
    fn a_group_without_the_controller_lives_in_its_parents_cpuset() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/a/b/c\n");
        write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-7\n");
        std::fs::create_dir_all(root.path().join("sys/fs/cgroup/a/b/c")).unwrap();
        assert_eq!(cpuset(root.path()).unwrap().unwrap().to_string(), "0-7");
    }
}
