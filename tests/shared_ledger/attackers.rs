//! What one user holds, and what another tries to do to it.

use super::{ALICE, Ended, Killed, MALLORY, ROOT, Shared, all_cpus, stage_is_set};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn nobody_gets_what_another_user_holds() {
    if !stage_is_set() {
        return;
    }
    for (holder, others) in [(ALICE, [MALLORY, ROOT]), (ROOT, [ALICE, MALLORY])] {
        let shared = Shared::new();
        let held = shared.holder(holder, &["--cpu-list", &all_cpus()]);
        for user in others {
            shared.launch(user, &["--cpus", "1"]).refused("not enough cpus: 1 wanted, 0 free");
            shared.launch(user, &["--cpu-list", &all_cpus()]).refused("held by another launch");
            let plan = Ended::of(&mut shared.numa_run(user, &["plan", "--cpus", "1"]));
            assert_eq!(plan.code, Some(1), "{plan:?}");
        }
        drop(held);
        for user in others {
            shared.launch(user, &["--cpu-list", &all_cpus()]).fine();
        }
    }
}

#[test]
fn another_users_lease_and_lock_are_not_to_be_opened_changed_or_removed() {
    if !stage_is_set() {
        return;
    }
    for owner in [ALICE, ROOT] {
        let shared = Shared::new();
        let held = shared.holder(owner, &["--cpu-list", &all_cpus()]);
        let before = shared.names();
        let (id, lock) = (&held.id, &held.lock);
        for attack in [
            format!("test -e {lock} && cat {lock}"),
            format!("test -e {lock} && flock -n {lock} true"),
            format!("test -e {lock} && flock -n -s {lock} true"),
            format!("rm -f {id}.lease"),
            format!("rm -f {lock}"),
            format!("mv {id}.lease mine.lease"),
            format!("echo > mine; mv -f mine {lock}; ! rm mine"),
            format!("echo >> {id}.lease"),
            format!("chmod 666 {lock}"),
            format!("cat < /proc/{}/fd/512", held.child.id()),
            "rm -rf ../leases; test ! -e ../leases".to_owned(),
            "mv ../leases ../mine".to_owned(),
            "rm -f ../lock; test ! -e ../lock".to_owned(),
            "echo >> ../lock".to_owned(),
        ] {
            let ended = shared.by_hand(MALLORY, &attack);
            assert_ne!(ended.code, Some(0), "{attack}: {ended:?}");
        }
        assert_eq!(shared.names(), before);
        let release = Ended::of(&mut shared.numa_run(MALLORY, &["release", id]));
        assert!(release.errors.contains("is in use"), "{release:?}");
        shared.gc(MALLORY).fine();
        shared.launch(MALLORY, &["--cpus", "1"]).refused("0 free");
        assert_eq!(shared.names(), before);
    }
}

#[test]
fn what_is_no_lease_is_in_nobodys_way_and_is_said_once() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let held = shared.holder(ALICE, &["--cpus", "1"]);
    let (id, lock) = (&held.id, &held.lock);
    let script = format!(
        "ln -s /etc/shadow a.lease; ln -s nowhere b.lease; mkfifo c.lease; mkdir d.lease; mkfifo a.lock; \
         echo x > e.lease; chmod 000 e.lease; : > f.lease; ln {id}.lease g.lease; ln {lock} h.lock; \
         ln -s {lock} i.lock; mkfifo .leasexyz; : > \"$(printf 'j\\033[2J.lease')\"; mkdir k.lock; : > .l.lease; true"
    );
    shared.by_hand(MALLORY, &script).fine();
    let begun = Instant::now();
    let seen = shared.launch(ALICE, &["--cpus", "1"]).fine();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(seen.errors.lines().count() <= 5 && !seen.errors.contains('\u{1b}'), "{seen:?}");
    assert!(seen.errors.contains(&format!("user {MALLORY}'s, and holds nothing")), "{seen:?}");
    assert!(shared.names().contains(&"a.lease".to_owned()), "what is another's stays");
    let put_aside = shared.gc(ROOT).fine();
    assert!(put_aside.errors.contains("lease a: it is no plain file: set aside"), "{put_aside:?}");
    assert!(put_aside.errors.contains("more files of user"), "{put_aside:?}");
    let again = shared.gc(ROOT).fine();
    assert_eq!(again.errors, "");
    assert!(!fs::read_to_string("/etc/shadow").unwrap().is_empty());
    assert!(shared.names().contains(&format!("{id}.lease")) && shared.names().contains(lock));
}

#[test]
fn ten_thousand_files_of_one_user_hold_nobody_up() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    shared.write(MALLORY, "empty", "");
    shared.write(MALLORY, "large", &"x".repeat(100_000));
    for number in 0..10_000 {
        let from = if number % 2 == 0 { "empty" } else { "large" };
        fs::hard_link(shared.file(from), shared.file(&format!("{number}.lease"))).unwrap();
        fs::hard_link(shared.file("empty"), shared.file(&format!("{number}.lock"))).unwrap();
    }
    for user in [ALICE, ROOT, ALICE] {
        let begun = Instant::now();
        let ended = shared.launch(user, &["--cpus", "1"]).fine();
        eprintln!("user {user}: {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert!(ended.errors.lines().count() <= 5, "{ended:?}");
    }
}

/// Puts files of the attacker's where those of a launch in the making would go next.
fn squat(leases: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut seen = BTreeSet::new();
    while Instant::now() < end && leases.exists() {
        for name in fs::read_dir(leases).into_iter().flatten().flatten().map(|file| file.file_name()) {
            let name = name.to_string_lossy().into_owned();
            let (from, to) = if name.ends_with(".lock") { (".lock", ".lease") } else { (".lease", ".lock") };
            if name.ends_with(from) && seen.insert(name.clone()) {
                let _ = fs::File::create_new(leases.join(name.replace(from, to)));
            }
        }
    }
}

#[test]
fn nobody_is_there_before_a_launch_that_is_being_made() {
    const CHILD: &str = "NUMA_RUN_TEST_SQUATTED";
    if let Some(leases) = std::env::var_os(CHILD) {
        return squat(Path::new(&leases));
    }
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let own = std::env::current_exe().unwrap();
    let mut command = super::typed(MALLORY, own.to_str().unwrap());
    command.args(["--exact", "attackers::nobody_is_there_before_a_launch_that_is_being_made"]);
    let squatter = Killed(command.env(CHILD, shared.leases()).stdout(Stdio::null()).spawn().unwrap());
    for _ in 0..40 {
        shared.launch(ALICE, &["--cpus", "1"]).fine();
    }
    let squatted = |name: &String| fs::metadata(shared.file(name)).is_ok_and(|about| about.uid() == MALLORY);
    assert!(shared.names().iter().any(squatted), "it was not tried");
    drop(squatter);
    shared.gc(ROOT).fine();
}

#[test]
fn a_folder_that_another_user_made_first_is_named_and_not_used() {
    if !stage_is_set() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = |mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(folder.path(), mode).unwrap();
    };
    set(0o1777);
    let run = folder.path().join("numa-run-61001").display().to_string();
    let by_hand = |user: u32, script: &str| Ended::of(super::typed(user, "sh").args(["-c", script]));
    let launch =
        |user: u32| Ended::of(super::typed(user, super::NUMA_RUN).args(["--run-dir", &run, "--cpus", "1", "true"]));
    by_hand(MALLORY, &format!("mkdir -m 1777 {run} && mkdir -m 1777 {run}/leases && : > {run}/lock")).fine();
    for user in [ALICE, ROOT] {
        launch(user).refused(&format!("belongs to user {MALLORY} with mode 1777"));
    }
    by_hand(
        MALLORY,
        &format!("rm -rf {run} && mkdir -p {run}-2/leases && chmod -R 777 {run}-2 && ln -s {run}-2 {run}"),
    )
    .fine();
    for user in [ALICE, ROOT] {
        launch(user).refused("Not a directory");
    }
    by_hand(MALLORY, &format!("rm {run}")).fine();
    launch(ALICE).fine();
    // In a folder where everybody may rename everything, it could be replaced at any time.
    set(0o777);
    launch(ALICE).refused("choose another --run-dir");
    set(0o1777);
    launch(ALICE).fine();
    assert_eq!(fs::metadata(&run).unwrap().uid(), ALICE);
}
