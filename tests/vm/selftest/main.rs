//! Tests that go wrong on purpose, in each way that the rig must notice. They run in the guest and end it: never elsewhere.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // The guest is thrown away.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Ends the guest as a crash of QEMU does: at once, with no word to the host.
fn kill_the_guest() -> ! {
    fs::write("/proc/sysrq-trigger", "o").unwrap();
    sleep(Duration::from_secs(60));
    panic!("still alive");
}

#[test]
fn passes() {}

#[test]
fn fails() {
    assert_eq!(1 + 1, 3, "broken on purpose");
}

#[test]
#[ignore = "an ignored test must not count as passed"]
fn is_ignored() {}

#[test]
fn never_ends() {
    sleep(Duration::from_secs(3600));
}

#[test]
fn kills_the_guest_once() {
    let flag = Path::new("/share/was-killed");
    if !flag.exists() {
        fs::write(flag, "").unwrap();
        kill_the_guest();
    }
}

#[test]
fn kills_the_guest_each_time() {
    kill_the_guest();
}
