//! The kept Machine is used only where it is to be believed.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod machines;

use machines::Tree;
use numa_run::host::snapshot::store;
use numa_run::topology::snapshot::{Discard, FILE, Fingerprint, load};
use numa_run::topology::{Machine, sysfs};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

type Change = fn(&Tree);

/// A machine, a libhwloc that may be changed, and a run directory with a snapshot.
struct Kept {
    tree: Tree,
    run: TempDir,
    machine: Machine,
}

impl Kept {
    fn new() -> Kept {
        let tree = Tree::of(&[(0, "0-3", 1024, "10 21"), (1, "4-7", 1024, "21 10")]);
        tree.pci("pci0000:00", "0000:00:03.0", "0x020000", 1, "4-7").pages(0, 2048, 8, 8);
        tree.file("../proc/sys/kernel/random/boot_id", "0ee5a8b4");
        tree.file("../libhwloc.so.15", "a library").file("../numa-run-probe", "a probe");
        let before = Fingerprint::read(tree.root()).with_probe(Some(&tree.root().join("numa-run-probe")));
        let mut machine = sysfs::read(tree.root()).unwrap();
        machine.hwloc_library = Some(tree.root().join("libhwloc.so.15"));
        let run = tempfile::tempdir().unwrap();
        store(run.path(), &machine, before).unwrap();
        Kept { tree, run, machine }
    }

    fn load(&self) -> Result<Machine, Discard> {
        self.load_with("numa-run-probe")
    }

    fn load_with(&self, probe: &str) -> Result<Machine, Discard> {
        load(self.run.path(), self.tree.root(), Some(&self.tree.root().join(probe)))
    }

    fn reason(&self) -> String {
        self.load().expect_err("the snapshot must not be used").to_string()
    }

    fn file(&self) -> PathBuf {
        self.run.path().join(FILE)
    }

    fn rewrite(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file()).unwrap();
        change(&mut bytes);
        fs::write(self.file(), bytes).unwrap();
    }
}

#[test]
fn a_machine_comes_back_as_it_was_and_everyone_may_read_it() {
    let kept = Kept::new();
    assert_eq!(kept.load().unwrap(), kept.machine);
    assert_eq!(fs::metadata(kept.file()).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(fs::read_dir(kept.run.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn no_snapshot_is_a_reason_of_its_own() {
    let kept = Kept::new();
    fs::remove_file(kept.file()).unwrap();
    assert!(matches!(kept.load(), Err(Discard::Absent)));
}

#[test]
fn one_changed_byte_anywhere_is_noticed() {
    let length = fs::metadata(Kept::new().file()).unwrap().len() as usize;
    let kept = Kept::new();
    for index in 0..length {
        kept.rewrite(|bytes| bytes[index] ^= 0x10);
        let error = kept.load().expect_err("damage is noticed");
        let expected = match index {
            0..8 => matches!(error, Discard::Foreign),
            8..12 => matches!(error, Discard::Version(_)),
            _ => matches!(error, Discard::Checksum),
        };
        assert!(expected, "byte {index}: {error}");
        kept.rewrite(|bytes| bytes[index] ^= 0x10);
    }
    assert!(kept.load().is_ok());
}

#[test]
fn a_truncated_one_is_damaged() {
    for length in [0, 7, 10, 15, 16, 40] {
        let kept = Kept::new();
        kept.rewrite(|bytes| bytes.truncate(length));
        assert!(matches!(kept.load(), Err(Discard::Foreign | Discard::Checksum)), "{length} bytes");
    }
}

#[test]
fn one_of_a_newer_version_is_left_alone() {
    let kept = Kept::new();
    kept.rewrite(|bytes| bytes[8] += 1);
    assert_eq!(kept.reason(), "the snapshot was written by another version (format 6)");
}

#[test]
fn one_from_an_earlier_boot_is_discarded() {
    let kept = Kept::new();
    kept.tree.file("../proc/sys/kernel/random/boot_id", "another");
    assert_eq!(kept.reason(), "the snapshot is from an earlier boot");
}

#[test]
fn each_change_of_the_machine_is_noticed() {
    let changes: [(&str, Change); 8] = [
        ("online CPUs", |tree| _ = tree.file("devices/system/cpu/online", "0-6")),
        ("isolated CPUs", |tree| _ = tree.file("devices/system/cpu/isolated", "3")),
        ("online nodes", |tree| _ = tree.file("devices/system/node/online", "0")),
        ("PCI functions", |tree| _ = tree.pci("pci0000:00", "0000:00:04.0", "0x020000", 1, "4-7")),
        ("GPU drivers", |tree| _ = tree.file("class/kfd/kfd/topology/generation_id", "2")),
        ("GPU drivers", |tree| _ = tree.file("../proc/driver/nvidia/version", "580")),
        ("libhwloc", |tree| _ = tree.file("../libhwloc.so.15", "a newer library")),
        ("numa-run-probe", |tree| _ = tree.file("../numa-run-probe", "a newer probe")),
    ];
    for (part, change) in changes {
        let kept = Kept::new();
        change(&kept.tree);
        assert_eq!(kept.reason(), format!("the snapshot is out of date: {part} changed"));
    }
}

#[test]
fn one_that_was_made_without_the_probe_serves_until_there_is_one() {
    let kept = Kept::new();
    store(kept.run.path(), &kept.machine, Fingerprint::read(kept.tree.root())).unwrap();
    assert_eq!(kept.load_with("no-such-probe").unwrap(), kept.machine);
    assert_eq!(kept.reason(), "the snapshot is out of date: numa-run-probe changed");
    let probed = Kept::new();
    assert_eq!(probed.load_with("no-such-probe").unwrap(), probed.machine, "another one's probe saw more");
}

#[test]
fn free_pages_move_and_do_not_make_it_old() {
    let kept = Kept::new();
    kept.tree.pages(0, 2048, 8, 2);
    let mut machine = kept.load().unwrap();
    sysfs::refresh_pages(&mut machine, kept.tree.root());
    assert_eq!(machine.node(0).unwrap().pages[0].free, Some(2));
}

#[test]
fn a_link_a_folder_and_a_pipe_are_refused() {
    let kept = Kept::new();
    let real = kept.run.path().join("real");
    fs::rename(kept.file(), &real).unwrap();
    symlink(&real, kept.file()).unwrap();
    assert!(matches!(kept.load(), Err(Discard::Symlink)));
    fs::remove_file(kept.file()).unwrap();
    fs::create_dir(kept.file()).unwrap();
    assert!(matches!(kept.load(), Err(Discard::NotAFile)));
    fs::remove_dir(kept.file()).unwrap();
    assert!(Command::new("mkfifo").arg(kept.file()).status().unwrap().success());
    assert!(matches!(kept.load(), Err(Discard::NotAFile)));
}

#[test]
fn one_that_others_may_write_is_refused() {
    for mode in [0o664, 0o646] {
        let kept = Kept::new();
        fs::set_permissions(kept.file(), Permissions::from_mode(mode)).unwrap();
        assert_eq!(kept.reason(), format!("the snapshot can be written by others (mode {mode:o})"));
    }
}

#[test]
fn one_of_another_user_is_refused() {
    let kept = Kept::new();
    if let Err(error) = chown(kept.file(), Some(12345), None) {
        eprintln!("SKIPPED, NOT TESTED: only root can give a file away ({error})");
        return;
    }
    assert_eq!(kept.reason(), "the snapshot belongs to user 12345, neither root nor the caller");
}

#[test]
fn a_folder_that_takes_no_snapshot_is_an_error_that_names_it() {
    let kept = Kept::new();
    let error = store("/proc/self".as_ref(), &kept.machine, Fingerprint::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot keep a snapshot in /proc/self");
}
