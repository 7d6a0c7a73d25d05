//! Whether a lease's workload still runs.
//!
//! The lock is asked first: whoever has it inherited it. Only where it is free
//! do the cgroup's population and the process itself count.

use super::listing::{self, Folder};
use super::rebuild::{self, Groups};
use super::{Lease, belief, identity};
use nix::fcntl::{Flock, FlockArg};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How a lease was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Somebody has the lock, lives in the cgroup or is the process itself.
    Alive,
    /// Nobody does.
    Dead,
}

/// What is looked at for all leases together.
#[derive(Clone, Debug)]
pub struct Signs {
    /// Where `/proc` and `/sys` are.
    root: PathBuf,
    /// This boot.
    boot: String,
    /// Inodes that somebody has locked, by device (`/proc/locks`).
    locks: HashSet<(u64, u64)>,
    /// Cgroups, read where a damaged lease makes it necessary.
    groups: OnceCell<Groups>,
}

impl Signs {
    /// Reads them.
    pub fn read(root: &Path) -> Signs {
        let locks = std::fs::read_to_string(root.join("proc/locks")).unwrap_or_default();
        let locks = locks.lines().filter_map(locked).collect();
        Signs { root: root.to_owned(), boot: identity::boot(root), locks, groups: OnceCell::new() }
    }

    /// The cgroup of a lease whose file is damaged.
    pub fn group_of(&self, id: &str, user: u32) -> Option<PathBuf> {
        rebuild::group(&self.root, self.groups.get_or_init(|| rebuild::groups(&self.root)), id, user)
    }

    /// What such a lease holds, if its cgroup still tells.
    pub fn rebuilt(&self, group: &Path, id: &str, user: u32) -> Option<Lease> {
        rebuild::lease(&self.root, group, id, user)
    }

    /// Whether a lease lives, whose lock is this file of this folder.
    pub fn life(&self, lease: &Lease, folder: &Folder, lock: &str) -> Life {
        let header = &lease.header;
        if header.owner.boot != self.boot {
            return Life::Dead;
        }
        let its_own = |group: &&Path| belief::is_group_of(&self.root, group, lease.user);
        let inside = || header.group.as_deref().filter(its_own).is_some_and(|group| populated(&self.root, group));
        // With root's leases, the process may be another user's by now.
        let may_be = || lease.user == 0 || header.owner.belongs_to(&self.root, lease.user);
        match self.is_locked(lease, folder, lock) || inside() || header.owner.runs(&self.root) && may_be() {
            true => Life::Alive,
            false => Life::Dead,
        }
    }

    /// The list of locks is for everybody to read; but in a container it lacks
    /// those whose first holder is gone, so that the lock itself is tried too.
    fn is_locked(&self, lease: &Lease, folder: &Folder, lock: &str) -> bool {
        let Ok(found) = folder.about(lock) else { return false };
        let its = listing::is_plain(&found) && found.st_uid == lease.user && found.st_ino == lease.header.lock;
        // If others could open it, they could keep the lease alive.
        let closed = found.st_mode & 0o7777 == 0o400;
        its && closed && self.locked((found.st_dev, found.st_ino), || folder.file(lock))
    }

    /// Whether somebody has locked a file.
    pub(super) fn locked(&self, place: (u64, u64), open: impl FnOnce() -> io::Result<File>) -> bool {
        self.locks.contains(&place) || open().and_then(held).unwrap_or(false)
    }
}

/// True when somebody has the lock; an error where it is not ours to try. Two who only ask are not in each other's way.
fn held(file: File) -> io::Result<bool> {
    Ok(Flock::lock(file, FlockArg::LockSharedNonblock).is_err())
}

/// Opens a lock without following a link or waiting for a pipe.
pub(super) fn open(lock: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(lock)
}

/// `1: FLOCK  ADVISORY  WRITE 4711 00:1a:42 0 EOF`; a line with `->` waits for a lock.
fn locked(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (kind, access) = (fields.next()?, fields.nth(1)?);
    if (kind, access) != ("FLOCK", "WRITE") {
        return None;
    }
    let mut place = fields.nth(1)?.split(':');
    let hexadecimal = |text: Option<&str>| u64::from_str_radix(text?, 16).ok();
    let (major, minor) = (hexadecimal(place.next())?, hexadecimal(place.next())?);
    Some((nix::sys::stat::makedev(major, minor), place.next()?.parse().ok()?))
}

/// Whether any process lives in a group or below; a group that is gone has none.
pub fn populated(root: &Path, group: &Path) -> bool {
    let folder = root.join(group.strip_prefix("/").unwrap_or(group));
    let events = std::fs::read_to_string(folder.join("cgroup.events"));
    let listed = || std::fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|pids| !pids.trim().is_empty());
    // The first version of cgroups has no events.
    events.map_or_else(|_| listed(), |text| text.lines().any(|line| line == "populated 1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Header, Identity};
    use std::os::unix::fs::MetadataExt;

    struct Place {
        folder: tempfile::TempDir,
        lock: PathBuf,
        lease: Lease,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("a1.lock");
        File::create(&lock).unwrap();
        std::fs::set_permissions(&lock, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        let about = std::fs::metadata(&lock).unwrap();
        let owner = Identity { pid: 0, start: 0, boot: identity::boot(Path::new("/")) };
        let header = Header { owner, lock: about.ino(), ..Header::default() };
        Place { lease: Lease { header, user: about.uid(), ..Lease::default() }, folder, lock }
    }

    fn life(place: &Place) -> Life {
        Signs::read(Path::new("/")).life(&place.lease, &Folder::open(place.folder.path()).unwrap(), "a1.lock")
    }

    #[test]
    fn a_lease_lives_as_long_as_anybody_has_its_lock() {
        let place = place();
        assert_eq!(life(&place), Life::Dead);
        let lock = Flock::lock(open(&place.lock).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
        assert_eq!(life(&place), Life::Alive);
        let child = lock.try_clone().unwrap();
        // As exec does: closed, not unlocked.
        std::mem::forget(lock);
        assert_eq!(life(&place), Life::Alive);
        drop(child);
    }

    #[test]
    fn a_lock_that_others_can_open_keeps_nothing_alive() {
        let place = place();
        let _lock = Flock::lock(open(&place.lock).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
        std::fs::set_permissions(&place.lock, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
        assert_eq!(life(&place), Life::Dead);
    }

    #[test]
    fn the_process_of_another_user_keeps_nothing_alive() {
        let mut place = place();
        place.lease.header.owner = Identity::own(Path::new("/"));
        place.lease.user = nix::unistd::geteuid().as_raw() + 1;
        assert_eq!(life(&place), Life::Dead);
        // Root's launches may have become another user.
        place.lease.user = 0;
        assert_eq!(life(&place), Life::Alive);
    }

    #[test]
    fn a_lock_in_its_place_or_of_another_boot_keeps_nothing_alive() {
        let mut place = place();
        let _lock = Flock::lock(open(&place.lock).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
        place.lease.header.lock += 1;
        assert_eq!(life(&place), Life::Dead);
        place.lease.header.lock -= 1;
        place.lease.user += 1;
        assert_eq!(life(&place), Life::Dead);
        place.lease.user -= 1;
        place.lease.header.owner.boot = "another".into();
        assert_eq!(life(&place), Life::Dead);
    }

    #[test]
    fn without_the_lock_the_process_and_the_group_count() {
        let mut place = place();
        place.lease.header.owner = Identity::own(Path::new("/"));
        assert_eq!(life(&place), Life::Alive);
        place.lease.header.owner.start += 1;
        assert_eq!(life(&place), Life::Dead);
        let root = place.folder.path();
        let group = root.join("sys/fs/cgroup/group");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::create_dir_all(root.join("proc/sys/kernel/random")).unwrap();
        std::fs::write(root.join("proc/sys/kernel/random/boot_id"), &place.lease.header.owner.boot).unwrap();
        place.lease.header.group = Some("/sys/fs/cgroup/group".into());
        for (events, expected) in [("populated 1\nfrozen 0\n", Life::Alive), ("populated 0\nfrozen 0\n", Life::Dead)] {
            std::fs::write(group.join("cgroup.events"), events).unwrap();
            assert_eq!(Signs::read(root).life(&place.lease, &Folder::open(root).unwrap(), "a1.lock"), expected);
        }
    }

    #[test]
    fn a_waiter_holds_nothing() {
        assert_eq!(locked("3: FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF"), Some((nix::sys::stat::makedev(8, 1), 77)));
        assert_eq!(locked("3: -> FLOCK  ADVISORY  WRITE 10 08:01:77 0 EOF"), None);
        assert_eq!(locked("1: POSIX  ADVISORY  WRITE 10 08:01:77 0 EOF"), None);
        assert_eq!(locked("1: FLOCK  ADVISORY  READ 10 08:01:77 0 EOF"), None);
    }
}
