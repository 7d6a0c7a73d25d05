//! Plugins of launches on this host: its own functions are handed out, which
//! changes nothing but the ledger of the test.

use super::{scratch, script};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A class that holds whatever function there is, and a plugin for it.
fn config(folder: &Path, plugin: &Path) -> PathBuf {
    let file = folder.join("any.toml");
    let class = "[class.any]\nmatch = [{ address = \"*\" }]\n";
    fs::write(&file, format!("{class}prefer = \"{}\"\nprefer_seconds = 20\n", plugin.display())).unwrap();
    file
}

fn numa_run(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numa-run"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"NUMA_RUN_")) {
        command.env_remove(name);
    }
    command.env("NUMA_RUN_RUN_DIR", folder.join("run")).env("NUMA_RUN_CGROUP", "never");
    command
}

/// Functions of this host that can be had; none where there are too few for a choice.
fn functions(folder: &Path) -> Option<Vec<String>> {
    let config = config(folder, Path::new("/nonexistent"));
    let asked = |count: &str| {
        let mut command = numa_run(folder);
        let output = command.args(["plan", "--json", "--device", count, "--config"]).arg(&config).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let free: u64 =
        asked("any=1")["hints"][0]["nodes"].as_array()?.iter().filter_map(|node| node["free"].as_u64()).sum();
    if free < 3 {
        eprintln!("SKIPPED, NOT TESTED: this host has {free} PCI functions that could be handed out, not 3");
        return None;
    }
    let devices = asked(&format!("any={free}"))["allocations"][0]["devices"].as_array()?.clone();
    devices.iter().map(|device| device.as_str().map(str::to_owned)).collect()
}

fn launched(folder: &Path, plugin: &Path) -> Output {
    let mut command = numa_run(folder);
    command.args(["--policy", "none", "--device", "any=1", "--config"]).arg(config(folder, plugin));
    command.args(["--", "printenv", "NUMA_RUN_ALLOC_ANY"]).output().unwrap()
}

/// What the workload was told, and what was said besides.
fn told(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn answer(device: &str) -> String {
    format!("echo '{{\"preferred\": [{{\"devices\": [\"{device}\"]}}]}}'")
}

#[test]
fn others_launch_while_a_plugin_thinks() {
    let folder = scratch();
    let Some(functions) = functions(folder.path()) else { return };
    let preferred = &functions[1];
    let launcher = env!("CARGO_BIN_EXE_numa-run");
    let run = folder.path().join("run").display().to_string();
    let text =
        format!("{launcher} --cgroup never --run-dir {run} --shared-cpus 1 -- true || exit 9\n{}", answer(preferred));
    let plugin = script(folder.path(), "plugin", &format!("#!/bin/sh\n{text}\n"));
    assert_eq!(told(&launched(folder.path(), &plugin)), (preferred.clone(), String::new()));
}

#[test]
fn what_another_launch_takes_while_a_plugin_thinks_is_not_given_twice() {
    let folder = scratch();
    let Some(functions) = functions(folder.path()) else { return };
    let (taken, other) = (&functions[1], &functions[2]);
    let place = folder.path().display();
    let launcher = env!("CARGO_BIN_EXE_numa-run");
    // The first time, another launch takes the preferred one before the answer comes.
    let holder = format!(
        "{launcher} --cgroup never --run-dir {place}/run --pci {taken} -- sh -c 'echo $$ > {place}/holder; exec sleep 60'"
    );
    let first = format!("setsid {holder} >/dev/null 2>&1 <&- &\nuntil [ -s {place}/holder ]; do sleep 0.02; done");
    let text = format!("if [ -e {place}/holder ]; then {}; else {first}\n{}; fi", answer(other), answer(taken));
    let plugin = script(folder.path(), "plugin", &format!("#!/bin/sh\n{text}\n"));
    let output = launched(folder.path(), &plugin);
    let holder = left_by(folder.path());
    assert!(Command::new("kill").arg(holder.trim()).status().unwrap().success());
    assert_eq!(told(&output), (other.clone(), String::new()));
}

fn left_by(folder: &Path) -> String {
    fs::read_to_string(folder.join("holder")).unwrap()
}
