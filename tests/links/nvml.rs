//! NVLink: what NVML says, by a library that stands in for it. No GPU of NVIDIA has been asked.

use numa_run::topology::hwloc::nvml::{Gpu, NvLink, gpus, links, links_within};
use numa_run::topology::{Bdf, Link, Machine, PciFunction};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn at(bus: u8) -> Bdf {
    Bdf { bus, ..Bdf::default() }
}

fn function(bus: u8, class: u32, vendor: u16) -> PciFunction {
    PciFunction { bdf: at(bus), class, vendor, ..PciFunction::default() }
}

fn gpu(bus: u8) -> PciFunction {
    function(bus, 0x030200, 0x10de)
}

fn switch(bus: u8) -> PciFunction {
    function(bus, 0x068000, 0x10de)
}

/// A GPU with links of one version to these buses.
fn linked(bus: u8, version: u32, remotes: &[u8]) -> Gpu {
    Gpu { at: at(bus), links: remotes.iter().map(|&remote| NvLink { remote: at(remote), version }).collect() }
}

/// Links, as `10-11 50000`.
fn told(links: Vec<Link>) -> Vec<String> {
    links.iter().map(|Link { a, b, weight }| format!("{:02x}-{:02x} {weight}", a.bus, b.bus)).collect()
}

#[test]
fn several_links_between_two_gpus_add_up_and_count_once() {
    let functions: Vec<PciFunction> = (0x10..0x13).map(gpu).collect();
    let gpus = [linked(0x10, 1, &[0x11, 0x11, 0x12]), linked(0x11, 1, &[0x10, 0x10]), linked(0x12, 1, &[0x10])];
    assert_eq!(told(links(&gpus, &functions)), ["10-11 40000", "10-12 20000"]);
    // One that tells less than the other, or nothing.
    let gpus = [linked(0x10, 6, &[0x11]), linked(0x11, 6, &[0x10, 0x10]), linked(0x12, 7, &[0x10])];
    assert_eq!(told(links(&gpus, &functions)), ["10-11 50000", "10-12 50000"]);
}

#[test]
fn gpus_on_the_same_switches_are_linked_by_what_both_have_there() {
    let functions: Vec<PciFunction> = (0x10..0x13).map(gpu).chain([switch(0x20), switch(0x21)]).collect();
    let all = [0x20, 0x20, 0x21, 0x21];
    let gpus = [linked(0x10, 5, &all), linked(0x11, 5, &all), linked(0x12, 5, &[0x20])];
    assert_eq!(told(links(&gpus, &functions)), ["10-11 100000", "10-12 25000", "11-12 25000"]);
}

#[test]
fn what_is_neither_a_gpu_nor_a_switch_of_this_machine_is_no_end() {
    // A processor, a GPU that is not here, a bridge of another vendor.
    let functions = [gpu(0x10), gpu(0x11), function(0x30, 0x068000, 0x1014), function(0x31, 0x060400, 0x8086)];
    let gpus = [linked(0x10, 2, &[0x30, 0x31, 0x40]), linked(0x11, 2, &[0x30, 0x31, 0x40])];
    assert_eq!(told(links(&gpus, &functions)), Vec::<String>::new());
}

/// A folder with the library that stands in for NVML; none where there is no C compiler.
fn library() -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/links/nvml.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&file).arg(source).status();
    match compiled {
        Ok(status) => assert!(status.success(), "the library compiles"),
        Err(error) => {
            eprintln!("SKIPPED, NOT TESTED: cc cannot be started ({error})");
            return None;
        }
    }
    Some((folder, file))
}

#[test]
fn the_library_is_asked_for_each_gpu_and_each_link_that_is_up() {
    let Some((_folder, library)) = library() else { return };
    let found = gpus(Some(library.as_os_str())).unwrap();
    assert_eq!(found, [linked(0x10, 5, &[0x11, 0x20]), linked(0x11, 5, &[0x10, 0x20])]);
    assert!(gpus(Some("/nonexistent/libnvidia-ml.so.1".as_ref())).is_err());
}

#[test]
fn without_a_driver_or_without_a_library_there_are_no_links_and_nothing_is_said() {
    let root = tempfile::tempdir().unwrap();
    let links = |library: &Path| {
        let limit = Duration::from_secs(10);
        links_within(limit, root.path(), Some(library.into()), &[gpu(0x10), gpu(0x11), switch(0x20)]).map(told)
    };
    let Some((_folder, library)) = library() else { return };
    assert_eq!(links(&library).unwrap(), Vec::<String>::new(), "NVML would load the driver");
    fs::create_dir_all(root.path().join("proc/driver/nvidia")).unwrap();
    assert_eq!(links(&library).unwrap(), ["10-11 50000"]);
    assert_eq!(links(Path::new("/nonexistent/libnvidia-ml.so.1")).unwrap(), Vec::<String>::new());
}

/// The probe on this host, in a mount namespace of its own where the driver is loaded and two GPUs and a switch are the
/// only functions; none where there may be none.
fn probed(environment: &[(&str, &str)]) -> Option<Machine> {
    let (folder, _) = library()?;
    let functions = [("10", "0x030200"), ("11", "0x030200"), ("20", "0x068000")].map(|(bus, class)| {
        format!("d=/sys/bus/pci/devices/0000:{bus}:00.0; mkdir $d; echo {class} > $d/class; echo 0x10de > $d/vendor")
    });
    let script = format!(
        "mount -t tmpfs none /proc/driver && mount -t tmpfs none /sys/bus/pci/devices || exit 77\n\
         mkdir /proc/driver/nvidia\n{}\nexec {}",
        functions.join("\n"),
        env!("CARGO_BIN_EXE_numa-run-probe")
    );
    let namespace: &[&str] = if nix::unistd::geteuid().is_root() { &["-m"] } else { &["-Urm"] };
    let mut command = Command::new("unshare");
    command.args(namespace).args(["sh", "-c", &script]).env("LD_LIBRARY_PATH", folder.path());
    let output = command.envs(environment.iter().copied()).output();
    let output = output.ok().filter(|output| !matches!(output.status.code(), Some(1 | 77)));
    let Some(output) = output else {
        eprintln!("SKIPPED, NOT TESTED: no mount namespace can be made here");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_probe_lists_the_links_of_this_host() {
    let Some(machine) = probed(&[]) else { return };
    assert_eq!(machine.pci.len(), 3);
    assert_eq!(told(machine.links), ["10-11 50000"]);
}

#[test]
fn a_library_that_hangs_costs_the_links_and_not_the_machine() {
    let start = Instant::now();
    let Some(machine) = probed(&[("NVML_HANGS", "yes")]) else { return };
    assert!(start.elapsed() < Duration::from_secs(9), "the probe's own limit is 10 s");
    assert!(machine.hwloc.is_some() && machine.links.is_empty());
    let warning = "NVML gave no answer within 5 s: links between NVIDIA GPUs are unknown";
    assert!(machine.warnings.iter().any(|said| said == warning), "{:?}", machine.warnings);
}
