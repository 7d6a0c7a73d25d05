//! What libhwloc describes, by way of the probe.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod machines;

use machines::{Tree, guest, guest_file, unpacked};
use numa_run::topology::probe::{self, Probe, ProbeError};
use numa_run::topology::{CpuSet, Machine, MemoryKind, TopologySource, sysfs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROBE: &str = env!("CARGO_BIN_EXE_numa-run-probe");

fn ask(source: &TopologySource) -> Result<Machine, ProbeError> {
    Probe::at(PROBE, Duration::from_secs(60)).machine(source)
}

fn xml(path: impl Into<PathBuf>) -> Machine {
    ask(&TopologySource::Xml(path.into())).unwrap()
}

fn own_export() -> PathBuf {
    guest_file("memless.xml")
}

fn place(machine: &Machine, bdf: &str) -> Option<u32> {
    machine.pci(bdf.parse().unwrap()).unwrap_or_else(|| panic!("{bdf} is there")).node
}

/// The machine without what moves while it is looked at: a balloon, pages in use.
fn still(mut machine: Machine) -> Machine {
    for node in &mut machine.nodes {
        node.memory_kib = 0;
        node.pages.clear();
    }
    machine
}

/// A program that stands in for the probe.
fn stand_in(script: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("probe");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, program)
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(PROBE).args(arguments).envs(environment.iter().copied()).output().unwrap()
}

#[test]
fn cpus_of_a_node_that_hwloc_dropped_belong_to_none() {
    let machine = xml(own_export());
    assert_eq!(machine.node_ids().to_string(), "0,2-3");
    let lost: CpuSet = machine.cpus.iter().filter(|cpu| cpu.node.is_none()).map(|cpu| cpu.id).collect();
    assert_eq!(lost.to_string(), "2-3");
    assert_eq!(machine.locality(3), Some(2));
    // Near to node 2, to the lost CPUs, and to all.
    assert_eq!(["61:00.0", "41:00.0", "00:10.0"].map(|bdf| place(&machine, bdf)), [Some(2), None, None]);
    assert_eq!(
        machine.warnings,
        ["libhwloc left out nodes 1, which have no memory or are not online", "CPUs 2-3 belong to no node"]
    );
    let pool = machine.node(2).unwrap().pages[0];
    assert_eq!((pool.size_kib, pool.total, pool.free), (2048, 16, None));
}

#[test]
fn cpus_belong_to_ordinary_memory_before_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hbm.xml");
    let text = fs::read_to_string(own_export()).unwrap();
    let node = "<object type=\"NUMANode\" os_index=\"2\"";
    assert!(text.contains(node));
    fs::write(&file, text.replace(node, &format!("{node} subtype=\"HBM\""))).unwrap();
    let machine = xml(file);
    assert_eq!(machine.cpu_nodes().to_string(), "0,3");
    assert_eq!(machine.node(2).unwrap().memory, MemoryKind::Hbm);
    assert_eq!(machine.locality(2), Some(3));
}

#[test]
fn memory_is_hbm_next_to_cpus_too_where_there_is_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hbm.xml");
    let text = fs::read_to_string(guest_file("topo4.xml")).unwrap();
    let node = "<object type=\"NUMANode\"";
    assert_eq!(text.matches(node).count(), 4);
    fs::write(&file, text.replace(node, &format!("{node} subtype=\"HBM\""))).unwrap();
    let machine = xml(&file);
    assert_eq!(machine.cpu_nodes().to_string(), "0-3");
    assert!(machine.nodes.iter().all(|node| node.memory == MemoryKind::Hbm));
    let mut plan = Command::new(env!("CARGO_BIN_EXE_numa-run"));
    plan.args(["plan", "--config", "/dev/null", "--cpus", "2", "--memory", "100M", "--mem-kind", "hbm", "--topology"]);
    let said = String::from_utf8(plan.arg(file).output().unwrap().stdout).unwrap();
    assert!(said.starts_with("admitted by best-effort: aligned"), "{said}");
}

#[test]
fn an_export_of_hwloc_3_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.xml");
    let text = fs::read_to_string(own_export()).unwrap();
    let tag = "<topology version=\"2.0\">";
    assert!(text.contains(tag));
    fs::write(&file, text.replace(tag, "<topology version=\"3.0\">")).unwrap();
    let error = ask(&TopologySource::Xml(file)).unwrap_err().to_string();
    assert!(error.contains("new.xml was written by hwloc 3.0 and libhwloc 2."), "{error}");
    assert!(error.contains("lstopo --of xml --export-xml-flags v2"), "{error}");
}

#[test]
fn a_damaged_export_is_an_error_and_never_the_end_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.xml");
    let text = fs::read(own_export()).unwrap();
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut errors = 0;
    for _ in 0..120 {
        let mut bytes = text.clone();
        for _ in 0..3 {
            bytes[random(text.len())] = *b"\0 <>\"=/09azZ\xff".get(random(13)).unwrap();
        }
        fs::write(&file, bytes).unwrap();
        match ask(&TopologySource::Xml(file.clone())) {
            Ok(machine) => assert!(machine.cpus.len() < 100_000),
            Err(error) => {
                errors += 1;
                assert!(error.to_string().contains("damaged"), "{error}");
            }
        }
    }
    assert!(errors > 0, "no mutation was noticed");
    for length in [0, 10, text.len() / 2, text.len() - 20] {
        fs::write(&file, &text[..length]).unwrap();
        assert!(ask(&TopologySource::Xml(file.clone())).is_err(), "{length} bytes");
    }
}

#[test]
fn the_death_of_the_probe_is_an_error_that_names_signal_and_file() {
    let (_folder, program) = stand_in("kill -SEGV $$");
    let error = Probe::at(program, Duration::from_secs(10)).machine(&TopologySource::Xml("topology.xml".into()));
    assert_eq!(
        error.unwrap_err().to_string(),
        "numa-run-probe died of signal 11 (SIGSEGV) while reading topology.xml: the file is damaged"
    );
}

#[test]
fn garbage_silence_and_failure_are_told_apart() {
    let source = TopologySource::Synthetic("pu:1".into());
    let fails = |script: &str, limit: u64| {
        let (_folder, program) = stand_in(script);
        Probe::at(program, Duration::from_millis(limit)).machine(&source).unwrap_err()
    };
    assert!(matches!(fails("echo '{}'", 10_000), ProbeError::Garbage { .. }));
    let said = fails("echo numa-run-probe: warning: odd >&2; echo numa-run-probe: no such thing >&2; exit 125", 10_000);
    assert_eq!(said.to_string(), "numa-run-probe: no such thing");
    assert!(fails("exit 127", 10_000).to_string().contains("status 127 and no message"));
    let start = Instant::now();
    let late = fails("sleep 30", 200);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(late.to_string(), "numa-run-probe did not answer within 0.2 s while reading synthetic:pu:1");
    let absent = Probe::at("/nonexistent/probe", Duration::from_secs(1)).machine(&source).unwrap_err();
    assert_eq!(absent.to_string(), "cannot start /nonexistent/probe");
}

#[test]
fn without_a_probe_this_host_is_read_from_sysfs_and_an_export_is_not_read() {
    let machine = probe::read(None, &TopologySource::Live).unwrap();
    assert!(machine.hwloc.is_none());
    assert_eq!(
        machine.unprobed.as_deref(),
        Some("numa-run-probe is not installed: read from sysfs alone, without libhwloc")
    );
    let error = probe::read(None, &TopologySource::Xml("a.xml".into())).unwrap_err().to_string();
    assert!(error.starts_with("a.xml can be read by numa-run-probe only, which is not installed"), "{error}");
    let (_folder, broken) = stand_in("kill -ABRT $$");
    let machine = probe::read(Some(&Probe::at(broken, Duration::from_secs(10))), &TopologySource::Live).unwrap();
    assert!(machine.unprobed.as_ref().unwrap().contains("died of signal 6 (SIGABRT)"), "{:?}", machine.unprobed);
}

#[test]
fn the_users_hwloc_variables_do_not_change_what_this_host_is() {
    let export = own_export();
    let odd =
        [("HWLOC_XMLFILE", export.to_str().unwrap()), ("HWLOC_SYNTHETIC", "numa:9 pu:9"), ("HWLOC_FSROOT", "/tmp")];
    let output = run(&[], &odd);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let machine: Machine = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(still(machine.clone()), still(ask(&TopologySource::Live).unwrap()));
    assert_eq!(machine.source, "this host");
}

#[test]
fn this_host_is_what_sysfs_says_and_names_its_libhwloc() {
    let machine = still(ask(&TopologySource::Live).unwrap());
    let alone = still(sysfs::read("/".as_ref()).unwrap());
    assert_eq!((&machine.nodes, &machine.pci, &machine.distances), (&alone.nodes, &alone.pci, &alone.distances));
    assert_eq!(machine.online(), alone.online());
    assert!(machine.hwloc.as_deref().is_some_and(|version| version.starts_with("2.")));
    assert!(machine.hwloc_library.is_some_and(|path| path.is_file()));
    assert!(machine.warnings.iter().all(|warning| !warning.contains("libhwloc")), "{:?}", machine.warnings);
    assert_eq!(machine.unprobed, None);
}

#[test]
fn another_root_is_never_this_host() {
    let tree = Tree::of(&[
        (0, "0-5,24-29", 0, "10 16 16 16"),
        (1, "6-11,30-35", 65536, "16 10 16 16"),
        (2, "12-17,36-41", 65536, "16 16 10 16"),
        (3, "18-23,42-47", 0, "16 16 16 10"),
    ]);
    let machine = ask(&TopologySource::Root(tree.root().to_owned())).unwrap();
    assert_eq!(machine.node_ids().to_string(), "0-3");
    assert_eq!(machine.node(3).unwrap().cpus.to_string(), "18-23,42-47");
    assert_eq!((machine.cpus.len(), machine.cpu(29).unwrap().node), (48, Some(0)));
    // A tree that libhwloc cannot use makes it describe this host instead.
    let bare = Tree::new();
    bare.file("devices/system/cpu/online", "0-499");
    let machine = ask(&TopologySource::Root(bare.root().to_owned())).unwrap();
    assert_eq!(machine.cpus.len(), 500);
    assert!(machine.warnings.iter().any(|warning| warning.ends_with("sysfs has 0-499: only sysfs counts")));
    assert!(ask(&TopologySource::Root(Tree::new().root().to_owned())).is_err());
}

#[test]
fn captured_trees_read_alike_with_and_without_libhwloc() {
    let trees = [
        ("sysfs/2pa-pcidomain32bits.tar.bz2", "2pa-pcidomain32bits"),
        ("sysfs/48amd64-4pa2n6c-sparse.tar.bz2", "48amd64-4d2n6c-sparse"),
        ("sysfs/nri-topology-aware-sysfs.tar.bz2", "sysfs/server"),
    ];
    let mut roots: Vec<_> = ["memless", "topo4", "tiers"].map(guest).into();
    roots.extend(trees.iter().filter_map(|(archive, tree)| unpacked(archive, tree)));
    for (_folder, root) in roots {
        let machine = ask(&TopologySource::Root(root.clone())).unwrap();
        let alone = sysfs::read(&root).unwrap();
        let nodes = |machine: &Machine| -> Vec<_> {
            machine.nodes.iter().map(|node| (node.id, node.cpus.clone(), node.memory_kib, node.pages.clone())).collect()
        };
        assert_eq!(nodes(&machine), nodes(&alone), "{}", root.display());
        assert_eq!((&machine.cpus, &machine.pci), (&alone.cpus, &alone.pci), "{}", root.display());
        assert!(machine.warnings.iter().all(|warning| !warning.contains("libhwloc sees")), "{:?}", machine.warnings);
    }
}

#[test]
fn a_synthetic_string_is_a_machine_and_a_wrong_one_an_error() {
    let machine = ask(&TopologySource::Synthetic("numa:2 core:4 pu:2".into())).unwrap();
    assert_eq!((machine.nodes.len(), machine.cpus.len()), (2, 16));
    assert_eq!(machine.node(1).unwrap().cpus.to_string(), "8-15");
    assert_eq!(machine.cpu(9).unwrap().core, 8);
    let error = ask(&TopologySource::Synthetic("numa:x".into())).unwrap_err().to_string();
    assert!(error.contains("synthetic:numa:x describes no machine"), "{error}");
}

#[test]
fn bad_usage_and_missing_files_end_with_125() {
    for arguments in [&["--odd"][..], &["--xml", "a", "--root", "/"], &["--xml", "/nonexistent.xml"]] {
        let output = run(arguments, &[]);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(run(&["--help"], &[]).status.code(), Some(0));
}
