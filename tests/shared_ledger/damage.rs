//! Files of leases that are damaged, as a crash or a full disk leaves them.

use super::{ALICE, ROOT, Shared, all_cpus, stage_is_set};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_damaged_lease_is_set_aside_by_its_user_or_root_with_one_line() {
    if !stage_is_set() {
        return;
    }
    for owner in [ROOT, ALICE] {
        for (text, says) in [
            ("", "it is empty"),
            ("00000000 {}\n", "its first line is damaged"),
            ("4c9a", "its first line is damaged"),
            ("\n", "its first line is damaged"),
        ] {
            let shared = Shared::new();
            shared.write(owner, "1-1-000001.lease", text);
            let ended = shared.launch(owner, &["--cpu-list", &all_cpus()]).fine();
            assert_eq!(ended.errors.lines().count(), 1, "{text:?}: {ended:?}");
            let said =
                format!("lease 1-1-000001: {says}: set aside as {}", shared.file("1-1-000001.damaged").display());
            assert!(ended.errors.contains(&said), "{text:?}: {ended:?}");
            let left: Vec<String> = shared.names().into_iter().filter(|name| name.starts_with("1-1-")).collect();
            assert_eq!(left, ["1-1-000001.damaged"]);
            assert_eq!(shared.launch(owner, &["--cpus", "1"]).fine().errors, "");
        }
    }
}

#[test]
fn a_lease_that_cannot_be_read_is_said_and_holds_nothing() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    shared.write(ROOT, "1-1-000001.lease", "secret");
    fs::set_permissions(shared.file("1-1-000001.lease"), fs::Permissions::from_mode(0o000)).unwrap();
    let ended = shared.launch(ALICE, &["--cpus", "1"]).fine();
    let said =
        "lease 1-1-000001: it cannot be read: Permission denied (os error 13): it is user 0's, and holds nothing";
    assert!(ended.errors.contains(said), "{ended:?}");
    assert_eq!(ended.errors.lines().count(), 1);
}

#[test]
fn a_torn_last_line_is_as_if_it_was_never_written() {
    if !stage_is_set() {
        return;
    }
    let shared = Shared::new();
    let held = shared.holder(ROOT, &["--cpu-list", &all_cpus()]);
    let file = shared.file(&format!("{}.lease", held.id));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 3]).unwrap();
    let refused = shared.launch(ALICE, &["--cpus", "1"]).refused("0 free");
    assert_eq!(refused.errors.lines().count(), 1, "{refused:?}");
}
