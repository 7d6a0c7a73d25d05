//! What the launching process was given: the cpuset of its cgroup.

use super::CpuSet;
use super::cgroup;
use std::io;
use std::path::Path;

/// CPUs of this process's effective cpuset; none where no cpuset controller is mounted.
///
/// # Errors
/// A file that is there and cannot be understood.
pub fn cpuset(root: &Path) -> io::Result<Option<CpuSet>> {
    let Ok(own) = std::fs::read_to_string(root.join("proc/self/cgroup")) else { return Ok(None) };
    let places = [
        (cgroup::cpusets(root, &own), "cpuset.effective_cpus"),
        (cgroup::unified(root, &own), "cpuset.cpus.effective"),
    ];
    for (place, file) in places {
        let Some(place) = place else { continue };
        if let Some(text) = cgroup::nearest(root, &place, file) {
            let odd = |error| io::Error::other(format!("{file} above {}: {error}", place.folder().display()));
            return text.parse().map(Some).map_err(odd);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_the_controller_lives_in_its_parents_cpuset() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/a/b/c\n");
        write("sys/fs/cgroup/cgroup.controllers", "cpuset\n");
        write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-7\n");
        std::fs::create_dir_all(root.path().join("sys/fs/cgroup/a/b/c")).unwrap();
        assert_eq!(cpuset(root.path()).unwrap().unwrap().to_string(), "0-7");
        write("sys/fs/cgroup/a/b/cpuset.cpus.effective", "x\n");
        assert!(cpuset(root.path()).unwrap_err().to_string().contains("`x` is no id"));
    }
}
