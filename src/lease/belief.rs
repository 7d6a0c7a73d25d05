//! What is believed of a lease that another user has written.
//!
//! Root's leases and one's own are believed. Anybody else can write what he
//! likes into his, so that it counts only while something lives that is
//! provably his, and for nothing that only root can hold:
//! - a lock, a process or a cgroup of another user's keeps nothing of his alive;
//! - devices are root's, and so is what is kept for a restart when nobody lives;
//! - what undoes changes is never executed for him;
//! - one that names what the machine does not have counts for nothing.

use super::{Entry, Held, Lease, Life, VERSION, identity};
use crate::topology::{CpuSet, Machine};
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

/// True for root's leases and this user's own.
pub fn is_believed(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// How much is read of the leases of each user who is not believed: room for
/// thousands, and little enough to be read at once.
#[derive(Debug, Default)]
pub struct Budget(BTreeMap<u32, u64>);

impl Budget {
    /// Of all leases of one user.
    const BYTES: u64 = 4 << 20;
    /// Of one of them: a header is no longer, and the rest is not looked at.
    const OF_ONE: u64 = 1 << 16;
    /// Of one that is believed.
    const LARGEST: u64 = 1 << 20;

    /// How many bytes of a file of this length may be read; none where its user has had his share.
    pub fn of(&mut self, user: u32, length: u64) -> Option<u64> {
        if is_believed(user) {
            return Some(Self::LARGEST);
        }
        let spent = self.0.entry(user).or_default();
        // An empty file is work too.
        *spent += length.clamp(64, Self::OF_ONE);
        (*spent <= Self::BYTES).then_some(Self::OF_ONE)
    }
}

/// CPUs have no higher numbers in leases that are not believed: a few letters
/// could otherwise name a million.
const HIGHEST_CPU: u32 = 1 << 16;

/// Whether the numbers of a lease are small enough to go on with it.
pub fn is_moderate(user: u32, held: &Held) -> bool {
    let highest = held.cpus.last().max(held.shared.last());
    is_believed(user) || highest.is_none_or(|cpu| cpu < HIGHEST_CPU)
}

/// Whether a cgroup can hold processes of this user's leases.
pub fn is_group_of(root: &Path, group: &Path, user: u32) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if user == 0 {
        return true;
    }
    // Only the kernel makes files there; anywhere else, a folder may just look like a group.
    if !group.starts_with("/sys/fs/cgroup") || !group.components().all(plain) {
        return false;
    }
    let slice = format!("user-{user}.slice");
    let in_slice = group.components().any(|part| part.as_os_str() == slice.as_str());
    let folder = root.join(group.strip_prefix("/").unwrap_or(group));
    in_slice || std::fs::symlink_metadata(folder).is_ok_and(|about| about.uid() == user)
}

/// False for another user's lease that names what this machine does not have,
/// which no launch can have been given.
pub fn is_possible(lease: &Lease, machine: &Machine) -> bool {
    let held = &lease.header.held;
    let cpus: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let node = |id: u32| machine.nodes.iter().find(|node| node.id == id);
    let has_memory = |(&id, &mib): (&u32, &u64)| node(id).is_some_and(|node| mib <= node.memory_kib / 1024);
    let has_pages = |(kib, id, count): (u64, u32, u64)| {
        let pool = node(id).and_then(|node| node.pages.iter().find(|pool| pool.size_kib == kib));
        pool.is_some_and(|pool| count <= pool.total)
    };
    let pages = held.pages.iter().flat_map(|(&kib, nodes)| nodes.iter().map(move |(&id, &count)| (kib, id, count)));
    is_believed(lease.user)
        || held.cpus.or(&held.shared).is_subset(&cpus)
            && held.memory.iter().all(has_memory)
            && pages.into_iter().all(has_pages)
}

/// What the judgement of dead leases depends on.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Seconds since the boot.
    now: u64,
    /// The boot.
    boot: String,
}

impl Moment {
    /// This one.
    pub fn read(root: &Path) -> Moment {
        Moment { now: identity::uptime(root), boot: identity::boot(root) }
    }

    /// Seconds since the boot.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether a dead lease is kept for a restart, according to its file.
    pub fn waits(&self, lease: &Lease) -> bool {
        let possible = lease.ended.is_none_or(|ended| ended <= self.now);
        self.is_of_this_boot(lease) && possible && lease.waits(self.now)
    }

    /// Whether a dead lease may have something to undo that this version does not know of.
    pub fn is_unknown(&self, lease: &Lease) -> bool {
        self.is_of_this_boot(lease) && lease.header.version != VERSION
    }

    /// A dead lease that holds nothing from others but is its owner's to take
    /// over or to put right.
    pub fn is_left_alone(&self, lease: &Lease) -> bool {
        !is_believed(lease.user) && (self.waits(lease) || self.is_unknown(lease))
    }

    /// Whether others have to keep off what an entry holds, as who only looks sees it.
    pub fn counts(&self, entry: &Entry) -> bool {
        let held = |lease: &Lease| {
            let undone = lease.journal.is_empty() || !self.is_of_this_boot(lease);
            is_believed(lease.user) && (self.waits(lease) || self.is_unknown(lease) || lease.user == 0 && !undone)
        };
        entry.life == Life::Alive || entry.lease.as_ref().is_ok_and(held)
    }

    fn is_of_this_boot(&self, lease: &Lease) -> bool {
        lease.header.owner.boot == self.boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Header, Identity};
    use crate::topology::{Cpu, Node};

    /// A user who is neither root nor who runs this.
    fn other() -> u32 {
        geteuid().as_raw() + 1
    }

    fn dead(user: u32, header: Header) -> Entry {
        let owner = Identity { boot: "now".into(), ..Identity::default() };
        let lease = Lease { user, header: Header { owner, ..header }, ..Lease::default() };
        Entry { id: "a1".into(), user, life: Life::Dead, lease: Ok(lease), damage: None, group: None }
    }

    #[test]
    fn what_is_kept_for_a_restart_is_kept_from_others_by_root_only() {
        let moment = Moment { now: 100, boot: "now".into() };
        let named = || Header { version: VERSION, grace: 50, ..Header::default() };
        assert!(moment.counts(&dead(0, named())));
        assert!(moment.counts(&dead(geteuid().as_raw(), named())));
        let of_other = dead(other(), named());
        assert!(!moment.counts(&of_other));
        assert!(moment.is_left_alone(of_other.lease.as_ref().unwrap()));
        for (ended, waits) in
            [(None, true), (Some(51), true), (Some(50), false), (Some(101), false), (Some(u64::MAX), false)]
        {
            let mut lease = dead(other(), named()).lease.unwrap();
            lease.ended = ended;
            assert_eq!(moment.is_left_alone(&lease), waits, "{ended:?}");
        }
    }

    #[test]
    fn what_an_unknown_version_held_is_held_until_it_is_put_right_or_the_host_is_started_anew() {
        let newer = || Header { version: 99, ..Header::default() };
        for (boot, counts) in [("now", true), ("later", false)] {
            let moment = Moment { now: 100, boot: boot.into() };
            assert_eq!(moment.counts(&dead(0, newer())), counts);
            assert!(!moment.counts(&dead(other(), newer())));
        }
    }

    #[test]
    fn what_the_machine_does_not_have_is_in_no_lease_of_another_user() {
        let machine = Machine {
            nodes: vec![Node { id: 0, memory_kib: 1 << 20, ..Default::default() }],
            cpus: vec![Cpu { id: 1, ..Default::default() }],
            ..Default::default()
        };
        let possible = |user: u32, cpus: &str, mib: u64, node: u32| {
            let held = Held { cpus: cpus.parse().unwrap(), memory: [(node, mib)].into(), ..Held::default() };
            is_possible(&dead(user, Header { held, ..Header::default() }).lease.unwrap(), &machine)
        };
        assert!(possible(other(), "1", 1024, 0));
        assert!(!possible(other(), "0-1", 1, 0) && !possible(other(), "1", 1025, 0) && !possible(other(), "1", 1, 1));
        assert!(possible(0, "0-1", u64::MAX, 7), "root's may be of a machine that was bigger then");
    }

    #[test]
    fn a_user_who_leaves_much_behind_is_not_read_to_the_end() {
        let mut budget = Budget::default();
        let read = (0..10_000).filter(|_| budget.of(other(), 1 << 40).is_some()).count();
        assert_eq!(read, 64);
        assert_eq!(budget.of(0, 1 << 40), Some(1 << 20));
        assert!(budget.of(other() + 1, 0).is_some());
    }

    #[test]
    fn a_group_is_a_users_where_the_kernel_says_so() {
        let root = tempfile::tempdir().unwrap();
        let own = geteuid().as_raw();
        for name in ["sys/fs/cgroup/app", "tmp/sys/fs/cgroup/app"] {
            std::fs::create_dir_all(root.path().join(name)).unwrap();
        }
        let is_of = |group: &str, user: u32| is_group_of(root.path(), Path::new(group), user);
        assert!(is_of("/sys/fs/cgroup/app", own) && is_of("/anywhere", 0));
        assert!(!is_of("/sys/fs/cgroup/app", own + 1) && !is_of("/sys/fs/cgroup/gone", own + 1));
        assert!(is_of("/sys/fs/cgroup/user.slice/user-77.slice/session-1.scope", 77));
        assert!(!is_of("/sys/fs/cgroup/user.slice/user-77.slice/session-1.scope", 7));
        assert!(!is_of("/tmp/sys/fs/cgroup/user-77.slice", 77));
        assert!(!is_of("/sys/fs/cgroup/../../../tmp/user-77.slice", 77));
    }
}
