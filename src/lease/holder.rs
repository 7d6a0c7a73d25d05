//! Who has the ledger's lock, in words, for the one who waits in vain.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `process 4711 (app) of user 1000, which is stopped`; none where it cannot be seen from here.
pub fn holder(root: &Path, file: &File) -> Option<String> {
    let about = file.metadata().ok()?;
    let locks = fs::read_to_string(root.join("proc/locks")).ok()?;
    let locker = locks.lines().find_map(|line| locker(line, &about));
    let lives = |pid: &u32| root.join(format!("proc/{pid}")).exists();
    // Who locked it may be gone, and one of its children have the lock.
    let pid = locker.filter(lives).or_else(|| opener(root, &about));
    match (pid, locker) {
        (Some(pid), _) => Some(described(root, pid)),
        (None, Some(pid)) => Some(format!("process {pid}, which is gone, or by one that it started")),
        (None, None) => None,
    }
}

/// The process of a line like `1: FLOCK  ADVISORY  WRITE 4711 00:1a:42 0 EOF`, if it is about this file.
fn locker(line: &str, about: &Metadata) -> Option<u32> {
    let (kind, rest) = line.split_once(':')?.1.trim_start().split_once(' ')?;
    let mut fields = rest.split_ascii_whitespace().skip(2);
    let pid = fields.next()?.parse().ok()?;
    let inode = fields.next()?.rsplit(':').next()?;
    (kind == "FLOCK" && inode == about.ino().to_string()).then_some(pid)
}

/// A process that has locked it by one of its descriptors, if they may be looked at.
fn opener(root: &Path, about: &Metadata) -> Option<u32> {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).collect::<Vec<u32>>()
    };
    let has = |pid: &u32| {
        let folder = root.join(format!("proc/{pid}/fdinfo"));
        names(&folder).iter().any(|number| {
            let text = fs::read_to_string(folder.join(number.to_string())).unwrap_or_default();
            let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
            locks.filter_map(|line| locker(line.trim_start(), about)).next().is_some()
        })
    };
    names(&root.join("proc")).into_iter().find(has)
}

fn described(root: &Path, pid: u32) -> String {
    let folder = root.join(format!("proc/{pid}"));
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next());
    let user = field("Uid:").map(|user| format!(" of user {user}")).unwrap_or_default();
    let stopped = if matches!(field("State:"), Some("T" | "t")) { ", which is stopped" } else { "" };
    format!("process {pid} ({}){user}{stopped}", name.trim_end_matches('\n').escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{Flock, FlockArg};

    #[test]
    fn who_has_locked_it_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(Path::new("/"), file.as_file()), None);
        let _lock = Flock::lock(file.reopen().unwrap(), FlockArg::LockExclusive).unwrap();
        let said = holder(Path::new("/"), file.as_file()).unwrap();
        assert!(said.starts_with(&format!("process {} (", std::process::id())), "{said}");
        let user = nix::unistd::getuid();
        assert!(said.ends_with(&format!(") of user {user}")), "{said}");
    }

    #[test]
    fn who_inherited_the_lock_is_found_behind_the_one_who_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = format!("1: FLOCK  ADVISORY  READ 10 00:01:{} 0 EOF\n", file.as_file().metadata().unwrap().ino());
        let proc = root.path().join("proc");
        fs::create_dir_all(proc.join("12/fdinfo")).unwrap();
        fs::write(proc.join("locks"), format!("1: POSIX  ADVISORY  WRITE 9 00:01:1 0 EOF\n{line}")).unwrap();
        let said = || holder(root.path(), file.as_file()).unwrap();
        assert_eq!(said(), "process 10, which is gone, or by one that it started");
        fs::write(proc.join("12/fdinfo/7"), format!("pos:\t0\nlock:\t{line}")).unwrap();
        fs::write(proc.join("12/comm"), "a\u{1b}[2J\n").unwrap();
        fs::write(proc.join("12/status"), "State:\tT (stopped)\nUid:\t1000\t1000\t1000\t1000\n").unwrap();
        assert_eq!(said(), "process 12 (a\\u{1b}[2J) of user 1000, which is stopped");
    }
}
