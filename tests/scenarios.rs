//! Scenarios: each file in `scenarios/` is a test. It describes a machine, what
//! is typed, and what must come of it, by the program itself.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read is a failed test")]
#![allow(clippy::disallowed_methods, reason = "the program is started, in a folder of its own")]

mod machines;

use libtest_mimic::{Arguments, Failed, Trial};
use machines::described::{Described, copied};
use machines::{captured, scratch};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// A true sentence.
    #[serde(rename = "title")]
    _title: String,
    /// The machine, as a /sys tree;
    machine: Option<Described>,
    /// or as a synthetic string of hwloc;
    synthetic: Option<String>,
    /// or as an XML export in `machines/`;
    xml: Option<String>,
    /// or as one captured by others.
    captured: Option<String>,
    /// Assumptions, in the form of `--assume`.
    assume: Option<String>,
    /// Configuration, in the form of `--config`; `{plugin}` stands for the program of the run.
    #[serde(default)]
    config: String,
    run: Vec<Run>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// The subcommand.
    #[serde(default = "plan")]
    verb: String,
    /// What is typed besides the machine, parted by blanks.
    #[serde(default)]
    args: String,
    /// In place of the scenario's assumptions.
    assume: Option<String>,
    /// A shell script that the configuration may name.
    plugin: Option<String>,
    /// What is fed to it.
    #[serde(default)]
    stdin: String,
    /// How often it is run; every answer is the same, in whatever order folders are listed.
    #[serde(default = "once")]
    times: usize,
    exit: i32,
    /// Part of the JSON: arrays and scalars are equal, other fields may be
    /// there too; `"null"` stands for null, `"absent"` for no such field.
    #[serde(default)]
    answer: toml::Table,
    /// Parts of what is printed, on stdout or stderr.
    #[serde(default)]
    says: Vec<String>,
    /// What must not be printed.
    #[serde(default)]
    never: Vec<String>,
}

fn plan() -> String {
    "plan".into()
}

fn once() -> usize {
    1
}

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let named = |file: &PathBuf| file.extension().is_some_and(|part| part == "toml");
    assert!(files.iter().all(named), "only scenarios are in their folder");
    assert!(!files.is_empty(), "there are scenarios");
    libtest_mimic::run(&Arguments::from_args(), files.iter().map(|file| trial(file)).collect()).exit_code()
}

/// The test of a file. One that lacks what it needs here is left out by name.
fn trial(file: &Path) -> Trial {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(file).unwrap();
    match toml::from_str::<Scenario>(&text) {
        Err(error) => Trial::test(name, move || Err(error.into())),
        Ok(scenario) => {
            let left_out = lacks(&scenario);
            if let Some(reason) = &left_out {
                eprintln!("SKIPPED, NOT TESTED: {name}: {reason}");
            }
            Trial::test(name, move || check(&scenario)).with_ignored_flag(left_out.is_some())
        }
    }
}

/// What is not at hand.
fn lacks(scenario: &Scenario) -> Option<String> {
    let probe = Path::new(env!("CARGO_BIN_EXE_numa-run")).with_file_name("numa-run-probe");
    let others = [&scenario.synthetic, &scenario.xml, &scenario.captured];
    if others.iter().any(|other| other.is_some()) && !probe.is_file() {
        return Some(format!("{} is not built (cargo build --features probe)", probe.display()));
    }
    let file = captured(scenario.captured.as_ref()?);
    file.is_none().then(|| "the captured machines are not there".to_owned())
}

fn check(scenario: &Scenario) -> Result<(), Failed> {
    assert!(!scenario.run.is_empty(), "a scenario runs something");
    let stage = scratch();
    let topologies = topologies(scenario, stage.path());
    for run in &scenario.run {
        let mut facts = Vec::new();
        let assume = run.assume.as_ref().or(scenario.assume.as_ref());
        let plugin = stage.path().join("plugin");
        let config = scenario.config.replace("{plugin}", &plugin.display().to_string());
        if let Some(text) = &run.plugin {
            machines::script(stage.path(), "plugin", &format!("#!/bin/sh\n{text}"));
        }
        for (flag, text) in [("--assume", assume), ("--config", Some(&config))] {
            let Some(text) = text else { continue };
            let path = stage.path().join(flag);
            fs::write(&path, text)?;
            facts.extend([flag.to_owned(), path.display().to_string()]);
        }
        let place = |problem: String| format!("`{} {}`: {}", run.verb, run.args, short(problem));
        checked(run, &topologies, &facts, stage.path()).map_err(place)?;
    }
    Ok(())
}

fn short(problem: String) -> String {
    problem.chars().take(2500).collect()
}

/// Where the machine is described: twice for a tree, which is listed in both orders.
fn topologies(scenario: &Scenario, stage: &Path) -> Vec<String> {
    if let Some(machine) = &scenario.machine {
        let tree = machine.tree();
        let copies = [("forwards", false), ("backwards", true)].map(|(name, backwards)| {
            copied(tree.root(), &stage.join(name), backwards);
            format!("root:{}", stage.join(name).display())
        });
        return copies.into();
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    let synthetic = scenario.synthetic.iter().map(|spec| format!("synthetic:{spec}"));
    let own = scenario.xml.iter().map(|path| own.join(path).display().to_string());
    let captured = scenario.captured.iter().filter_map(|path| Some(captured(path)?.display().to_string()));
    synthetic.chain(own).chain(captured).collect()
}

fn checked(run: &Run, topologies: &[String], facts: &[String], stage: &Path) -> Result<(), String> {
    let mut answers = Vec::new();
    for time in 0..run.times.max(topologies.len()) {
        let topology = topologies.get(time % topologies.len().max(1));
        let (status, out, errors) = ran(run, topology, facts, stage);
        let said = format!("{out}{errors}");
        if status != Some(run.exit) {
            return Err(format!("ended with {status:?}, not {}:\n{said}", run.exit));
        }
        if let Some(part) = run.says.iter().find(|part| !said.contains(*part)) {
            return Err(format!("does not say `{part}`:\n{said}"));
        }
        if let Some(part) = run.never.iter().find(|part| said.contains(*part)) {
            return Err(format!("says `{part}`:\n{said}"));
        }
        if !run.answer.is_empty() {
            let wanted = serde_json::to_value(&run.answer).map_err(|error| error.to_string())?;
            let found = serde_json::from_str(&out).map_err(|error| format!("{error}:\n{said}"))?;
            part_of(&wanted, &found, "").map_err(|problem| format!("{problem}\n{said}"))?;
        }
        let folder = topology.map(|topology| topology.trim_start_matches("root:"));
        answers.push(folder.map_or(out.clone(), |folder| out.replace(folder, "")));
    }
    answers.dedup();
    if answers.len() == 1 { Ok(()) } else { Err(format!("answers differ:\n{}", answers.concat())) }
}

fn ran(run: &Run, topology: Option<&String>, facts: &[String], stage: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numa-run"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"NUMA_RUN_")) {
        command.env_remove(name);
    }
    // The cases' verdicts are the kubelet's; a run that asks for another merge says so.
    command.env("NUMA_RUN_MERGE", "kubelet");
    command.args(run.verb.split_whitespace());
    let of_machine = run.verb != "debug merge";
    if of_machine {
        command.arg("--json").args(facts).arg("--run-dir").arg(stage.join("run"));
    }
    if let Some(topology) = topology.filter(|_| of_machine) {
        command.arg("--topology").arg(topology);
        if topology.starts_with("root:") {
            // libhwloc wants mask files that these trees lack; what it reads of real trees is tested elsewhere.
            command.env("NUMA_RUN_PROBE", "/nonexistent");
        }
    }
    command.args(run.args.split_whitespace());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end without having read any of it.
    let _ = child.stdin.take().unwrap().write_all(run.stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Says what of `wanted` is not in `found`.
fn part_of(wanted: &Value, found: &Value, place: &str) -> Result<(), String> {
    match (wanted, found) {
        (Value::String(word), Value::Null) if word == "null" => Ok(()),
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().try_for_each(|(name, value)| {
            let place = format!("{place}.{name}");
            match found.get(name) {
                Some(found) => part_of(value, found, &place),
                None if *value == "absent" => Ok(()),
                None => Err(format!("{place} is not there")),
            }
        }),
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            let mut pairs = wanted.iter().zip(found).enumerate();
            pairs.try_for_each(|(index, (wanted, found))| part_of(wanted, found, &format!("{place}[{index}]")))
        }
        _ if wanted == found => Ok(()),
        _ => Err(format!("{place} is {found}, not {wanted}")),
    }
}
