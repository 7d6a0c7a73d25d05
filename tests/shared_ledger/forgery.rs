//! Leases that are well made and say what is not true.

use super::{ALICE, Ended, MALLORY, OSCAR, ROOT, Shared, all_cpus, dead, stage_is_set};
use numa_run::lease::record::{self, Event};
use numa_run::lease::{Header, Held, Identity, VERSION};
use numa_run::step::Undo;
use std::fs;
use std::path::Path;

/// A lease that claims all CPUs.
fn claim(id: &str) -> Header {
    let held = Held { cpus: all_cpus().parse().unwrap(), ..Held::default() };
    Header { version: VERSION, lease: id.into(), owner: dead(), held, ..Header::default() }
}

fn event(event: &Event) -> String {
    record::line(event).unwrap()
}

#[track_caller]
fn everything_is_free(shared: &Shared) {
    for user in [ALICE, ROOT, ALICE] {
        let ended = shared.launch(user, &["--cpu-list", &all_cpus()]).fine();
        assert!(!ended.errors.contains('\u{1b}'), "{ended:?}");
        let plan = Ended::of(&mut shared.numa_run(user, &["plan", "--isolated", "never", "--cpu-list", &all_cpus()]));
        assert_eq!(plan.code, Some(0), "{plan:?}");
    }
}

#[test]
fn a_lease_that_really_lives_counts_whoever_wrote_it() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let (inode, locked) = shared.locked(MALLORY, "1-1-000001", MALLORY);
    let header = Header { lock: inode, ..claim("1-1-000001") };
    shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, ""));
    shared.launch(ALICE, &["--cpus", "1"]).refused("0 free");
    shared.launch(ROOT, &["--cpus", "1"]).refused("0 free");
    drop(locked);
    everything_is_free(&shared);
}

#[test]
fn a_lease_lives_by_nothing_that_is_not_its_users() {
    if !stage_is_set() {
        return;
    }
    let init = Identity::of(Path::new("/"), 1).unwrap();
    let own = Identity::own(Path::new("/"));
    let groups = ["/", "/sys/fs/cgroup", "/sys/fs/cgroup/init.scope", "/proc/1", "/sys/fs/cgroup/../../../tmp"];
    for owner in [init, own] {
        let shared = Shared::new();
        shared.write(MALLORY, "1-1-000001.lease", &shared.text(Header { owner, ..claim("1-1-000001") }, ""));
        everything_is_free(&shared);
    }
    for group in groups {
        let shared = Shared::new();
        let header = Header { group: Some(group.into()), ..claim("1-1-000001") };
        shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, ""));
        everything_is_free(&shared);
    }
}

#[test]
fn a_folder_that_looks_like_a_group_is_none() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let group = shared.folder.path().join("sys/fs/cgroup/a");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("cgroup.events"), "populated 1\n").unwrap();
    nix::unistd::chown(&group, Some(MALLORY.into()), None).unwrap();
    let header = Header { group: Some(group), ..claim("1-1-000001") };
    shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, ""));
    everything_is_free(&shared);
}

#[test]
fn a_lease_does_not_live_by_the_lock_of_another_or_by_who_else_can_open_his() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let (inode, _locked) = shared.locked(ALICE, "2-2-000002", ALICE);
    let lock = shared.file("2-2-000002.lock");
    for link in ["ln", "ln -s"] {
        // Linking is refused by most systems, and makes no difference where it is not.
        shared.by_hand(MALLORY, &format!("{link} {} 1-1-000001.lock", lock.display()));
        fs::remove_file(shared.file("1-1-000001.lock")).ok();
        let made = if link == "ln" {
            fs::hard_link(&lock, shared.file("1-1-000001.lock"))
        } else {
            std::os::unix::fs::symlink(&lock, shared.file("1-1-000001.lock"))
        };
        made.unwrap();
        shared.write(MALLORY, "1-1-000001.lease", &shared.text(Header { lock: inode, ..claim("1-1-000001") }, ""));
        everything_is_free(&shared);
        fs::remove_file(shared.file("1-1-000001.lock")).ok();
    }
    let (inode, _kept) = shared.locked(MALLORY, "1-1-000003", OSCAR);
    shared.write(MALLORY, "1-1-000003.lease", &shared.text(Header { lock: inode, ..claim("1-1-000003") }, ""));
    everything_is_free(&shared);
}

#[test]
fn what_nobody_lives_for_is_not_kept_for_a_restart_from_other_users() {
    if !stage_is_set() {
        return;
    }
    for ended in [None, Some(0), Some(u64::MAX), Some(u64::MAX / 2)] {
        let shared = Shared::new();
        let header = Header { name: Some("web".into()), grace: u64::MAX, ..claim("1-1-000001") };
        let rest = ended.map_or_else(String::new, |at| event(&Event::Ended(at)));
        shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, &rest));
        everything_is_free(&shared);
    }
}

#[test]
fn another_version_is_believed_of_root_only() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let newer = |id: &str| {
        let begun = record::line(&Header { version: 99, ..claim(id) }).unwrap();
        begun + "something that only version 99 knows\n"
    };
    shared.write(MALLORY, "1-1-000001.lease", &newer("1-1-000001"));
    everything_is_free(&shared);
    assert!(shared.file("1-1-000001.lease").exists(), "a newer numa-run of his may need it");
    let (_, locked) = shared.locked(ROOT, "1-1-000002", ROOT);
    shared.write(ROOT, "1-1-000002.lease", &newer("1-1-000002"));
    // Dead or alive: what it did to the host, this version cannot know.
    drop(locked);
    for user in [ALICE, ROOT] {
        let refused = shared.launch(user, &["--cpus", "1"]).refused("0 free");
        assert!(refused.errors.contains("ledger version 99 has to put it right"), "{refused:?}");
    }
    assert!(shared.file("1-1-000002.lease").exists());
}

#[test]
fn what_a_user_says_is_to_be_undone_is_never_done_by_root() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let file = shared.folder.path().join("passwd");
    fs::write(&file, "ours\n").unwrap();
    let group = shared.folder.path().join("group");
    fs::create_dir(&group).unwrap();
    let undo = [
        Undo::Restore { file: file.clone(), old: "his".into(), ours: "ours".into() },
        Undo::RemoveGroup(group.clone()),
    ];
    let journal = || undo.iter().map(|undo| event(&Event::Undo(undo.clone()))).collect::<String>();
    for name in [None, Some("web".to_owned())] {
        let grace = if name.is_some() { 1000 } else { 0 };
        let header = Header { name: name.clone(), grace, ..claim("1-1-000001") };
        shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, &journal()));
        shared.launch(ROOT, &["--cpus", "1", "--name", "web", "--grace", "0"]).fine();
        shared.gc(ROOT).fine();
        Ended::of(&mut shared.numa_run(ROOT, &["release", "1-1-000001"])).fine();
        Ended::of(&mut shared.numa_run(ROOT, &["release", "web"])).fine();
        assert_eq!(fs::read_to_string(&file).unwrap(), "ours\n");
        assert!(group.exists());
        // A named one is his to take over.
        assert_eq!(shared.file("1-1-000001.lease").exists(), name.is_some());
    }
}

#[test]
fn absurd_numbers_hold_nothing_and_break_nothing() {
    if !stage_is_set() {
        return;
    }
    let most = u64::MAX;
    let json = |inode: u64, held: &str| {
        let boot = dead().boot;
        let text = format!(
            "{{\"version\":1,\"lease\":\"1-1-000001\",\"lock\":{inode},\"owner\":{{\"pid\":0,\"start\":0,\"boot\":\"{boot}\"}},\"held\":{held}}}"
        );
        format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()))
    };
    let deep = format!("{{\"deep\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let memory =
        |node: u64| format!("{{\"memory\":{{\"{node}\":{most}}},\"pages\":{{\"2048\":{{\"{node}\":{most}}}}}}}");
    for held in [
        "{\"cpus\":\"0-4294967295\"}".to_owned(),
        "{\"cpus\":\"0-1048575\"}".to_owned(),
        "{\"cpus\":\"0-65000\"}".to_owned(),
        format!("{{\"cpus\":\"0-4000\",\"memory\":{{\"0\":{most}}}}}"),
        memory(0),
        memory(most),
        memory(77),
        format!("{{\"pages\":{{\"{most}\":{{\"0\":{most}}}}}}}"),
        "{\"cpus\":7}".to_owned(),
        "{\"devices\":[\"0000:00:00.0\"]}".to_owned(),
        deep,
    ] {
        let shared = Shared::new();
        let (inode, _locked) = shared.locked(MALLORY, "1-1-000001", MALLORY);
        shared.write(MALLORY, "1-1-000001.lease", &json(inode, &held));
        for user in [ALICE, ROOT] {
            let ended = shared.launch(user, &["--cpu-list", &all_cpus(), "--memory", "1M"]).fine();
            assert!(ended.errors.lines().count() <= 2, "{held:.80}: {ended:?}");
            Ended::of(&mut shared.numa_run(user, &["status"])).fine();
        }
    }
}

#[test]
fn a_lease_of_a_megabyte_is_not_read_to_its_end() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let (inode, _locked) = shared.locked(MALLORY, "1-1-000001", MALLORY);
    let header = Header { lock: inode, command: "x".repeat(1 << 20), ..claim("1-1-000001") };
    shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, ""));
    everything_is_free(&shared);
}

#[test]
fn no_clock_that_is_set_changes_what_is_held() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    for (since, date) in [(0, "1970-01-02"), (u64::MAX, "2100-01-01")] {
        let (inode, locked) = shared.locked(MALLORY, "1-1-000001", MALLORY);
        let header = Header { lock: inode, since, ..claim("1-1-000001") };
        shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, ""));
        shared.by_hand(MALLORY, &format!("touch -d {date} 1-1-000001.lease")).fine();
        shared.launch(ALICE, &["--cpus", "1"]).refused("0 free");
        drop(locked);
        everything_is_free(&shared);
        assert!(!shared.file("1-1-000001.lease").exists());
    }
}

#[test]
fn a_name_is_each_users_own() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let (inode, _locked) = shared.locked(MALLORY, "web", MALLORY);
    let named = Header { name: Some("web".into()), held: Held::default(), lock: inode, ..claim("web") };
    shared.write(MALLORY, "web.lease", &shared.text(named, ""));
    // Neither its name nor its id are in the way of root's launch of that name, or of its release.
    shared.launch(ROOT, &["--cpus", "1", "--name", "web", "--grace", "0"]).fine();
    let released = Ended::of(&mut shared.numa_run(ROOT, &["release", "web"])).fine();
    assert!(!released.errors.contains("in use"), "{released:?}");
}

#[test]
fn what_is_written_in_a_lease_does_nothing_to_a_terminal() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let (inode, _locked) = shared.locked(MALLORY, "1-1-000001", MALLORY);
    let odd = "\u{1b}]0;owned\u{7}\r\n\u{9b}2J";
    let header = Header { name: Some(odd.into()), command: odd.into(), lock: inode, ..claim("1-1-000001") };
    shared.write(MALLORY, "1-1-000001.lease", &shared.text(header, ""));
    shared.gc(ROOT).fine();
    let shown = Ended::of(&mut shared.numa_run(ROOT, &["status"])).fine();
    assert!(shown.out.contains("owned"), "{shown:?}");
    assert!(shown.out.chars().all(|letter| !letter.is_control() || letter == '\n'), "{shown:?}");
    assert_eq!(shown.out.lines().count(), 2, "{shown:?}");
}
