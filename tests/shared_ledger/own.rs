//! Launches by a user who finds no ledger of the host's: his own folder, and he is told how far that reaches.

use super::{ALICE, Ended, MALLORY, NUMA_RUN, all_cpus, stage_is_set, typed};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

const SAYS: &str = "only launches of user 61001 keep off this one";

/// True where /run/numa-run is not there; it is not for a test to use.
fn no_ledger_of_the_hosts() -> bool {
    let free = !Path::new("/run/numa-run/leases").exists();
    if !free {
        eprintln!("SKIPPED, NOT TESTED: this host has a ledger");
    }
    free
}

fn runtime_folder(owner: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    nix::unistd::chown(folder.path(), Some(owner.into()), None).unwrap();
    folder
}

fn launch(runtime: &TempDir, options: &[&str]) -> Ended {
    let mut command = typed(ALICE, NUMA_RUN);
    command.env("XDG_RUNTIME_DIR", runtime.path()).args(["--isolated", "never"]).args(options);
    Ended::of(command.args(["--", "sh", "-c", "echo $NUMA_RUN_ALLOC_CPUS"]))
}

#[test]
fn without_a_ledger_of_the_hosts_a_users_launches_keep_off_each_other_and_he_is_told() {
    if !stage_is_set() || !no_ledger_of_the_hosts() {
        return;
    }
    let runtime = runtime_folder(ALICE);
    let told = launch(&runtime, &["--cpus", "1"]).fine();
    assert!(told.errors.contains(SAYS) && told.errors.lines().count() == 1, "{told:?}");
    let folder = runtime.path().join("numa-run/leases");
    assert_eq!((fs::metadata(&folder).unwrap().uid(), fs::metadata(&folder).unwrap().mode() & 0o7777), (ALICE, 0o700));
    assert_eq!(launch(&runtime, &["--cpus", "1", "--quiet"]).fine().errors, "");
    let nothing_held = Ended::of(typed(ALICE, NUMA_RUN).env("XDG_RUNTIME_DIR", runtime.path()).arg("true")).fine();
    assert_eq!(nothing_held.errors, "");
    let mut command = typed(ALICE, NUMA_RUN);
    command.env("XDG_RUNTIME_DIR", runtime.path()).args(["--quiet", "--isolated", "never", "--cpu-list", &all_cpus()]);
    let mut holder = command.args(["--", "sleep", "1000"]).spawn().unwrap();
    super::wait_for(|| {
        let status = Ended::of(typed(ALICE, NUMA_RUN).env("XDG_RUNTIME_DIR", runtime.path()).arg("status"));
        status.out.contains("running").then_some(())
    });
    let refused = launch(&runtime, &["--quiet", "--cpus", "1"]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    refused.refused("0 free");
}

#[test]
fn the_runtime_folder_of_another_user_is_not_used() {
    if !stage_is_set() || !no_ledger_of_the_hosts() || Path::new("/run/user/61001").exists() {
        return;
    }
    // As `su` without a login leaves it.
    let runtime = runtime_folder(MALLORY);
    let status = Ended::of(typed(ALICE, NUMA_RUN).env("XDG_RUNTIME_DIR", runtime.path()).arg("status")).fine();
    assert!(status.out.contains("/tmp/numa-run-61001"), "{status:?}");
}
