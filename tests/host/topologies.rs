//! Machines from files: wrong and damaged ones end in a sentence.

use super::{Ended, Stage, User};
use std::path::{Path, PathBuf};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/guest/memless.xml")
}

/// True where the probe was built too.
fn probe_is_built() -> bool {
    let built = Path::new(super::NUMA_RUN).with_file_name("numa-run-probe").is_file();
    if !built {
        eprintln!("SKIPPED, NOT TESTED: numa-run-probe is not built (cargo build --features probe)");
    }
    built
}

#[test]
fn a_probe_that_dies_is_an_error_and_no_crash() {
    let stage = Stage::new();
    let probe = stage.file("probe", b"#!/bin/sh\nkill -SEGV $$\n", 0o755);
    let mut command = stage.numa_run(User::Same);
    let ended = Ended::of(command.env("NUMA_RUN_PROBE", probe).args(["plan", "--cpus", "1", "--topology", "some.xml"]));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(
        ended.errors.contains("died of signal 11 (SIGSEGV) while reading some.xml: the file is damaged"),
        "{ended:?}"
    );
    assert_eq!(ended.out, "");
}

#[test]
fn a_launch_goes_on_without_a_probe_that_works() {
    for text in ["kill -SEGV $$", "exit 3", "echo '{}'", "echo nonsense >&2; exit 1"] {
        let stage = Stage::new();
        let probe = stage.file("probe", format!("#!/bin/sh\n{text}\n").as_bytes(), 0o755);
        let mut command = stage.numa_run(User::Same);
        let ended = Ended::of(command.env("NUMA_RUN_PROBE", probe).args(["--cpus", "1", "--", "echo", "ran"]));
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{text}: {ended:?}");
    }
}

#[test]
fn damaged_files_never_crash_the_launcher() {
    if !probe_is_built() {
        return;
    }
    let whole = std::fs::read(example()).unwrap();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        // Xorshift: the same damage each time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let stage = Stage::new();
    for round in 0..60 {
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(next(whole.len())),
            1 => (0..20).for_each(|_| bytes[next(whole.len())] = next(256) as u8),
            _ => drop(bytes.splice(next(whole.len() / 2)..whole.len() / 2 + next(whole.len() / 2), [])),
        }
        let file = stage.file("damaged.xml", &bytes, 0o644);
        let ended = Ended::of(stage.numa_run(User::Same).args(["plan", "--cpus", "1", "--topology"]).arg(&file));
        assert!(matches!(ended.code, Some(0 | 1 | 125)), "round {round}: {ended:?}");
        let said = !ended.errors.trim().is_empty() && !ended.errors.contains("panicked");
        assert!(ended.code != Some(125) || said, "round {round}: {ended:?}");
    }
}

#[test]
fn what_is_no_topology_is_refused_with_a_sentence() {
    let stage = Stage::new();
    let folder = stage.0.path().display().to_string();
    let empty = stage.file("empty.xml", b"", 0o644).display().to_string();
    let text = stage.file("text.xml", b"these are not the nodes", 0o644).display().to_string();
    let cases = [
        ("/no/such.xml".to_owned(), "/no/such.xml"),
        (empty.clone(), "empty.xml"),
        (text.clone(), "text.xml"),
        ("synthetic:".to_owned(), "synthetic"),
        ("synthetic:cores:many".to_owned(), "synthetic"),
        (format!("root:{folder}/nowhere"), "nowhere"),
        (format!("root:{folder}"), "names no online CPU"),
    ];
    for (source, says) in cases {
        for verb in ["plan", "topo"] {
            let ended = Ended::of(stage.numa_run(User::Same).args([verb, "--topology", &source]));
            assert_eq!(ended.code, Some(125), "{verb} {source}: {ended:?}");
            assert!(
                ended.errors.starts_with("numa-run: ") && ended.errors.contains(says),
                "{verb} {source}: {ended:?}"
            );
            assert_eq!(ended.out, "", "{verb} {source}");
        }
    }
}

#[test]
fn another_machines_export_can_be_planned_on() {
    if !probe_is_built() {
        return;
    }
    let stage = Stage::new();
    let mut command = stage.numa_run(User::Same);
    let out =
        Ended::fine(command.args(["plan", "--json", "--cpus", "4", "--memory", "100M", "--topology"]).arg(example()));
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["allocations"][0]["cpus"], "4-7");
}

#[test]
fn this_host_is_shown_and_json_is_one_document() {
    let stage = Stage::new();
    for verb in [["topo", "--json"], ["plan", "--json"]] {
        let out = Ended::fine(stage.numa_run(User::Same).args(verb));
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["version"], 1);
    }
    let out = Ended::fine(stage.numa_run(User::Same).arg("topo"));
    assert!(out.starts_with("this host: "), "{out}");
}

#[test]
fn a_launch_says_once_that_the_machine_was_read_without_the_probe() {
    let stage = Stage::new();
    let said = |arguments: &[&str]| {
        let mut command = stage.numa_run(User::Same);
        command.env("NUMA_RUN_PROBE", "/nonexistent").args(arguments).args(["--cpus", "1", "--", "true"]);
        Ended::of(&mut command).errors
    };
    let sentence = "cannot start /nonexistent: read from sysfs alone, without libhwloc";
    // The second of each pair uses the snapshot of the first.
    for arguments in [["--verbose"], ["--verbose"], ["--explain"], ["--explain"]] {
        let errors = said(&arguments);
        assert_eq!(errors.matches(sentence).count(), 1, "{errors}");
    }
    assert_eq!(said(&["--dry-run"]), "");
}

#[test]
fn a_snapshot_made_without_the_probe_is_replaced_once_there_is_one() {
    if !probe_is_built() {
        return;
    }
    let stage = Stage::new();
    let hwloc = |probe: Option<&str>| {
        let mut command = stage.numa_run(User::Same);
        probe.map(|probe| command.env("NUMA_RUN_PROBE", probe));
        let out = Ended::fine(command.args(["topo", "--json"]));
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["hwloc"].is_string()
    };
    assert!(!hwloc(Some("/nonexistent")));
    assert!(hwloc(None), "read anew");
    assert!(hwloc(Some("/nonexistent")), "kept");
}
