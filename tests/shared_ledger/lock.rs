//! Somebody has the ledger's lock and does not let go.

use super::{ALICE, Ended, Killed, MALLORY, ROOT, Shared, stage_is_set, typed, wait_for};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn who_never_lets_go_of_the_lock_is_waited_for_a_while_and_named() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let lock = shared.run_dir().join("lock");
    let inode = fs::metadata(&lock).unwrap().ino();
    for (how, stop) in [("-x", false), ("-s", true)] {
        // `flock` runs the program as its child and waits; both have the lock.
        let mut command = typed(MALLORY, "flock");
        let holder = Killed(command.args([how, lock.to_str().unwrap(), "sleep", "1000"]).spawn().unwrap());
        wait_for(|| fs::read_to_string("/proc/locks").unwrap().contains(&format!(":{inode} ")).then_some(()));
        let pid = holder.0.id();
        if stop {
            assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
        }
        let stopped = if stop { ", which is stopped" } else { "" };
        let named = format!("by process {pid} (flock) of user {MALLORY}{stopped}: end that process, or try again");
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for user in [ALICE, ROOT] {
                let (shared, named) = (&shared, &named);
                scope.spawn(move || shared.launch(user, &["--cpus", "1"]).refused(named));
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        // What holds nothing does not ask for it.
        Ended::of(&mut shared.numa_run(ALICE, &["--mempolicy", "local", "--", "true"])).fine();
        drop(holder);
        shared.launch(ALICE, &["--cpus", "1"]).fine();
    }
}

#[test]
fn who_inherited_the_lock_from_one_that_is_gone_is_named_too() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let lock = shared.run_dir().join("lock");
    let script = format!("exec 9<{}; flock -x 9; sleep 1000 >/dev/null 2>&1 & echo $!", lock.display());
    let ended = Ended::of(
        typed(MALLORY, "sh")
            .args(["-c", &(script + " >&2; exit 0")])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped()),
    );
    let pid = ended.errors.trim().to_owned();
    let refused = shared.launch(ROOT, &["--cpus", "1"]);
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    refused.refused(&format!("by process {pid} (sleep) of user {MALLORY}"));
    shared.launch(ROOT, &["--cpus", "1"]).fine();
}
