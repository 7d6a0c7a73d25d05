//! Which group of which hierarchy: what `/proc` says of mounts and of this process.

use std::path::{Component, Path, PathBuf};

/// A hierarchy that is mounted, and this process's group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The group, seen from the mount: `/` is the mount itself.
    pub own: PathBuf,
}

impl Place {
    /// The group's folder.
    pub fn folder(&self) -> PathBuf {
        below(&self.mount, &self.own)
    }

    /// The folders of the groups that this process is in, the mount first.
    pub fn groups(&self) -> impl Iterator<Item = PathBuf> {
        let parts = self.own.components().filter(|part| matches!(part, Component::Normal(_)));
        let mut folder = self.mount.clone();
        let below = parts.map(move |part| {
            folder.push(part);
            folder.clone()
        });
        std::iter::once(self.mount.clone()).chain(below)
    }
}

/// Where version 2 is mounted nearly everywhere.
const USUAL: &str = "/sys/fs/cgroup";

/// This process's place in the hierarchy of version 2; `own` is its `/proc/self/cgroup`.
pub fn unified(root: &Path, own: &str) -> Option<Place> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let usual = Place { mount: USUAL.into(), own: path.into() };
    let there = under(root, Path::new(USUAL)).join("cgroup.controllers").exists();
    // The list of mounts is long on some hosts.
    if there && (path == "/" || under(root, &usual.folder()).is_dir()) {
        return Some(usual);
    }
    mounted(root, path, "cgroup2", None)
}

/// This process's place in the hierarchy of version 1 that has the cpusets.
pub fn cpusets(root: &Path, own: &str) -> Option<Place> {
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers.split(',').any(|name| name == "cpuset").then(|| fields.next())?
    })?;
    mounted(root, path, "cgroup", Some("cpuset"))
}

/// The first mount of this kind in which the group can be seen: in a container
/// a part of the hierarchy may be mounted, and the group lie outside of it.
fn mounted(root: &Path, path: &str, kind: &str, option: Option<&str>) -> Option<Place> {
    let table = std::fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    table.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut fields = front.split(' ').skip(3);
        let (top, mount) = (fields.next()?, fields.next()?);
        let mut fields = back.split(' ');
        let (found, options) = (fields.next()?, fields.nth(1)?);
        let wanted = option.is_none_or(|option| options.split(',').any(|other| other == option));
        let own = Path::new("/").join(Path::new(path).strip_prefix(top).ok()?);
        let place = Place { mount: mount.into(), own };
        (found == kind && wanted && under(root, &place.folder()).is_dir()).then_some(place)
    })
}

/// A path that begins with `/`, below a folder.
pub fn below(folder: &Path, path: &Path) -> PathBuf {
    let relative = path.strip_prefix("/").unwrap_or(path);
    // An empty part would end the path with a slash.
    if relative.as_os_str().is_empty() { folder.to_owned() } else { folder.join(relative) }
}

/// Where a path of the system is, of which `root` is a copy.
pub fn under(root: &Path, path: &Path) -> PathBuf {
    below(root, path)
}

/// The file of this process's group, or of the nearest group above that has one:
/// a group without the controller lives in its parent's cpuset.
pub fn nearest(root: &Path, place: &Place, file: &str) -> Option<String> {
    let groups: Vec<PathBuf> = place.groups().collect();
    let mut texts = groups.iter().rev().map(|folder| std::fs::read_to_string(under(root, folder).join(file)).ok());
    texts.find_map(|text| text.filter(|text| !text.trim().is_empty()))
}

/// The group that systemd's units are below, seen from the mount: process 1 has moved into `init.scope` there.
pub fn systemd_root(root: &Path) -> PathBuf {
    let text = std::fs::read_to_string(root.join("proc/1/cgroup")).unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let top = own.strip_suffix("/init.scope").unwrap_or(own);
    PathBuf::from(if top.is_empty() { "/" } else { top })
}

/// Which of the groups below systemd's root is the innermost unit: slices hold
/// units, and the unit of a user's manager holds slices and units of its own.
pub fn innermost_unit(names: impl Iterator<Item = impl AsRef<str>>) -> Option<usize> {
    let mut unit = None;
    for (at, name) in names.enumerate() {
        let name = name.as_ref();
        if name.ends_with(".service") || name.ends_with(".scope") {
            unit = Some(at);
            if !name.starts_with("user@") {
                break;
            }
        } else if !name.ends_with(".slice") {
            break;
        }
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(path: &str) -> Option<usize> {
        innermost_unit(path.split('/').skip(1))
    }

    #[test]
    fn the_innermost_unit_is_found_and_what_is_below_it_is_none() {
        assert_eq!(unit("/user.slice/user-0.slice/session-4.scope"), Some(2));
        assert_eq!(unit("/system.slice/docker-1.scope/init.scope"), Some(1));
        assert_eq!(unit("/user.slice/user-7.slice/user@7.service/app.slice/a.scope/b"), Some(4));
        assert_eq!(unit("/user.slice/user-7.slice/user@7.service/init.scope"), Some(3));
        assert_eq!(unit("/system.slice/x.service/numa-run-1/y.scope"), Some(1));
        assert_eq!(unit("/machine.slice"), None);
        assert_eq!(unit("/jobs/a.scope"), None);
    }

    fn tree(mountinfo: &str, folders: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
        folders.iter().for_each(|folder| std::fs::create_dir_all(root.path().join(folder)).unwrap());
        root
    }

    fn place(mount: &str, own: &str) -> Option<Place> {
        Some(Place { mount: mount.into(), own: own.into() })
    }

    #[test]
    fn the_group_of_each_hierarchy_is_found() {
        let root = tree(
            "31 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             32 23 0:27 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory\n\
             33 23 0:28 / /sys/fs/cgroup/cpuset rw shared:4 - cgroup cgroup rw,cpuset\n",
            &["sys/fs/cgroup/cpuset/jobs/7", "sys/fs/cgroup/unified/user.slice"],
        );
        let own = "5:cpuset,cpu:/jobs/7\n4:memory:/\n0::/user.slice\n";
        assert_eq!(unified(root.path(), own), place("/sys/fs/cgroup/unified", "/user.slice"));
        assert_eq!(cpusets(root.path(), own), place("/sys/fs/cgroup/cpuset", "/jobs/7"));
        let groups: Vec<PathBuf> = cpusets(root.path(), own).unwrap().groups().collect();
        let folders = ["", "/jobs", "/jobs/7"].map(|path| PathBuf::from(format!("/sys/fs/cgroup/cpuset{path}")));
        assert_eq!(groups, folders);
    }

    #[test]
    fn a_group_is_found_in_a_mount_of_a_part_of_the_hierarchy_and_not_outside_of_it() {
        let root = tree("31 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n", &["sys/fs/cgroup/inner"]);
        assert_eq!(unified(root.path(), "0::/docker/1/inner\n"), place("/sys/fs/cgroup", "/inner"));
        assert_eq!(unified(root.path(), "0::/docker/1\n"), place("/sys/fs/cgroup", "/"));
        assert_eq!(unified(root.path(), "0::/docker/2\n"), None);
        assert_eq!(unified(root.path(), "0::/../docker/2\n"), None);
        assert_eq!(cpusets(root.path(), "0::/docker/1\n"), None);
    }
}
