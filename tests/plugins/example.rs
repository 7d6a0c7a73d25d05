//! The plugin in README does what it says.

use super::{Stage, planned, script};
use std::path::Path;

/// The script among the README's blocks that is a plugin.
fn example() -> String {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let blocks = readme.split("```").skip(1).step_by(2);
    let scripts: Vec<&str> = blocks.filter_map(|block| block.strip_prefix("sh\n")).collect();
    let plugin = scripts.into_iter().find(|text| text.starts_with("#!/bin/sh"));
    plugin.expect("README has the example").to_owned()
}

#[test]
fn the_example_in_readme_prefers_a_pair_of_linked_gpus() {
    let found =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|place| place.join("jq").exists());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "jq is not installed, and CI leaves nothing out");
        eprintln!("SKIPPED, NOT TESTED: jq is not installed");
        return;
    }
    let stage = Stage::new();
    let plugin = script(stage.path(), "plugin", &example());
    let pair = planned(stage.numa_run(&["plan", "--gpu", "2", "--json"], &plugin, 10.0));
    assert_eq!(pair.devices, ["0000:10:00.0", "0000:13:00.0"], "{pair:?}");
    assert!(pair.said.contains("\"resource_domain\":\"bridge 0\"") && !pair.said.contains("for gpu:"), "{pair:?}");
    // One of the first pair is typed: its partner is the other.
    let partner = planned(stage.numa_run(&["plan", "--gpu", "1", "--pci", "13:00.0", "--json"], &plugin, 10.0));
    assert_eq!(partner.devices, ["0000:10:00.0"], "{partner:?}");
    // No pair: no opinion, no warning.
    let three = planned(stage.numa_run(&["plan", "--gpu", "3", "--json"], &plugin, 10.0));
    assert!(three.devices.len() == 3 && !three.said.contains("for gpu:"), "{three:?}");
}
