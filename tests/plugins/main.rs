//! Plugins of device classes, by the program itself: good ones, bad ones, and
//! those that others could change.

#![allow(clippy::unwrap_used, reason = "what cannot be set up is a failed test")]
#![allow(clippy::disallowed_methods, reason = "programs are started, in folders of their own")]

mod answers;
mod example;
mod launch;
#[path = "../machines/mod.rs"]
mod machines;
mod processes;
mod trust;

use machines::{Tree, scratch, script};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long plugins may think here, in seconds.
const LIMIT: f64 = 0.5;
/// The set that good plugins prefer here, and its answer.
const PREFERRED: [&str; 2] = ["0000:11:00.0", "0000:13:00.0"];
const ANSWER: &str = r#"{"preferred": [{"devices": ["0000:11:00.0", "0000:13:00.0"], "cost": 1}]}"#;
/// What a request for two gets without any preference.
const FIRST: [&str; 2] = ["0000:10:00.0", "0000:11:00.0"];

/// A machine with four GPUs on a node, and a folder for plugins.
struct Stage {
    folder: TempDir,
    tree: Tree,
}

/// A plan, as it came out.
#[derive(Debug)]
struct Planned {
    code: Option<i32>,
    devices: Vec<String>,
    said: String,
    took: Duration,
}

impl Stage {
    fn new() -> Stage {
        Stage::with_cpus("0-3")
    }

    fn with_cpus(cpus: &str) -> Stage {
        let tree = Tree::of(&[(0, cpus, 1024, "10")]);
        for bus in 10..14 {
            let name = format!("0000:{bus}:00.0");
            tree.pci("pci0000:00", &name, "0x030200", 0, cpus);
            tree.file(&format!("devices/pci0000:00/{name}/vendor"), "0x10de");
        }
        Stage { folder: scratch(), tree }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A shell script as the plugin.
    fn plugin(&self, text: &str) -> PathBuf {
        script(self.path(), "plugin", &format!("#!/bin/sh\n{text}\n"))
    }

    /// The program with this plugin for its GPUs.
    fn numa_run(&self, verb: &[&str], plugin: &Path, limit: f64) -> Command {
        let config = self.path().join("config.toml");
        let text = format!("[class.gpu]\nprefer = \"{}\"\nprefer_seconds = {limit}\n", plugin.display());
        fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_numa-run"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"NUMA_RUN_")) {
            command.env_remove(name);
        }
        command.env("NUMA_RUN_PROBE", "/nonexistent").env("NUMA_RUN_RUN_DIR", self.path().join("run"));
        command.args(verb).arg("--config").arg(config);
        command.arg("--topology").arg(format!("root:{}", self.tree.root().display()));
        command
    }

    /// A plan for two GPUs.
    fn planned(&self, plugin: &Path) -> Planned {
        planned(self.numa_run(&["plan", "--gpu", "2", "--json"], plugin, LIMIT))
    }
}

fn planned(mut command: Command) -> Planned {
    let begin = Instant::now();
    let output = command.output().unwrap();
    let took = begin.elapsed();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let devices = plan["allocations"][0]["devices"].as_array().cloned().unwrap_or_default();
    let devices = devices.iter().map(|device| device.as_str().unwrap().to_owned()).collect();
    Planned { code: output.status.code(), devices, said, took }
}

/// True once a process is gone, which may take a moment.
fn gone(pid: &str) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        match fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
            Ok(stat) if !stat.contains(") Z ") => std::thread::sleep(Duration::from_millis(10)),
            _ => return true,
        }
    }
    false
}

/// What a plugin leaves in a file of the stage, once it is there.
fn left(stage: &Stage, name: &str) -> String {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match fs::read_to_string(stage.path().join(name)) {
            Ok(text) if text.ends_with('\n') => return text,
            _ if Instant::now() > end => panic!("the plugin left no {name}"),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
