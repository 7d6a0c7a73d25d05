//! Whom root trusts: a plugin that others can change is an error, not advice.

use super::{ANSWER, PREFERRED, Stage};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

/// A user who is not root.
const OTHER: u32 = 65534;

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root and leaves nothing out");
        eprintln!("SKIPPED, NOT TESTED: only root has plugins that it must not run");
    }
    root
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A stage with its plugin in a folder of its own.
fn stage() -> (Stage, std::path::PathBuf, std::path::PathBuf) {
    let stage = Stage::new();
    let folder = stage.path().join("libexec");
    fs::create_dir(&folder).unwrap();
    let plugin = super::script(&folder, "plugin", &format!("#!/bin/sh\necho '{ANSWER}'\n"));
    (stage, folder, plugin)
}

#[test]
fn root_runs_no_plugin_that_others_can_change() {
    if !is_root() {
        return;
    }
    type Spoil = fn(&Path, &Path);
    let cases: [(Spoil, &str, bool); 8] = [
        (|_, plugin| chown(plugin, Some(OTHER), None).unwrap(), "libexec/plugin does not belong to root", false),
        (|_, plugin| mode(plugin, 0o757), "libexec/plugin may be written to by others", false),
        (
            |_, plugin| {
                chown(plugin, None, Some(OTHER)).unwrap();
                mode(plugin, 0o775)
            },
            "libexec/plugin may be written to",
            false,
        ),
        (|folder, _| chown(folder, Some(OTHER), None).unwrap(), "libexec does not belong to root", false),
        (|folder, _| mode(folder, 0o777), "libexec may be written to by others", false),
        (|folder, _| mode(folder, 0o1777), "libexec may be written to by others", false),
        (|folder, _| chown(folder.parent().unwrap(), Some(OTHER), None).unwrap(), "does not belong to root", false),
        (|_, plugin| mode(plugin, 0o775), "", true),
    ];
    for (spoil, part, runs) in cases {
        let (stage, folder, plugin) = stage();
        assert_eq!(stage.planned(&plugin).devices, PREFERRED, "all is well at first");
        spoil(&folder, &plugin);
        let planned = stage.planned(&plugin);
        if runs {
            assert_eq!(planned.devices, PREFERRED, "root's group is root's: {planned:?}");
            continue;
        }
        assert_eq!(planned.code, Some(125), "{part}: {planned:?}");
        let named = planned.said.contains(&format!("plugin {}: ", plugin.display()));
        assert!(
            named && planned.said.contains(part) && planned.said.contains("root runs a plugin only where"),
            "{planned:?}"
        );
    }
}

#[test]
fn links_lead_root_only_to_what_nobody_else_can_change() {
    if !is_root() {
        return;
    }
    let (stage, folder, plugin) = stage();
    let link = |target: &Path, name: &str| {
        let place = stage.path().join(name);
        symlink(target, &place).unwrap();
        place
    };
    assert_eq!(stage.planned(&link(Path::new("libexec/plugin"), "good")).devices, PREFERRED);
    assert_eq!(stage.planned(&link(&folder, "folder").join("../libexec/plugin")).devices, PREFERRED);
    // Somebody else's folder is on the way, though root's plugin is at its end.
    let open = stage.path().join("open");
    fs::create_dir(&open).unwrap();
    symlink(&plugin, open.join("plugin")).unwrap();
    chown(&open, Some(OTHER), None).unwrap();
    let planned = stage.planned(&link(&open.join("plugin"), "bad"));
    assert_eq!(planned.code, Some(125), "{planned:?}");
    assert!(planned.said.contains("open does not belong to root"), "{planned:?}");
    let planned = stage.planned(&link(Path::new("loop"), "loop"));
    assert_eq!(planned.code, Some(125), "{planned:?}");
}

#[test]
fn what_nobody_asks_for_is_not_looked_at() {
    if !is_root() {
        return;
    }
    let (stage, folder, plugin) = stage();
    mode(&folder, 0o777);
    let planned = super::planned(stage.numa_run(&["plan", "--cpus", "1", "--json"], &plugin, 1.0));
    assert_eq!(planned.code, Some(0), "{planned:?}");
}

#[test]
fn a_plugin_without_an_absolute_path_is_a_mistake_of_the_configuration() {
    let stage = Stage::new();
    let planned = stage.planned(Path::new("libexec/plugin"));
    assert_eq!(planned.code, Some(125), "{planned:?}");
    assert!(planned.said.contains("config.toml") && planned.said.contains("no absolute path"), "{planned:?}");
}
