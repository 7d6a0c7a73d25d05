//! What must not work, by the program itself: odd words, odd files, odd surroundings.

#![allow(clippy::unwrap_used, reason = "what cannot be set up is a failed test")]
#![allow(clippy::disallowed_methods, reason = "the program is started, in a folder of its own")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const LAUNCHER: &str = env!("CARGO_BIN_EXE_numa-run");

/// The launcher with a run directory of its own and none of the caller's settings.
fn launcher(folder: &Path) -> Command {
    let mut command = Command::new(LAUNCHER);
    let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NUMA_RUN_"));
    for (name, _) in settings {
        command.env_remove(name);
    }
    command.current_dir(folder).env("NUMA_RUN_RUN_DIR", folder.join("run")).env("NUMA_RUN_CGROUP", "never");
    command
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn run(words: &[&str]) -> Output {
    launcher(folder().path()).args(words).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn refused(output: &Output, code: i32, part: &str) {
    assert_eq!((output.status.code(), said(output).contains(part)), (Some(code), true), "{}", said(output));
}

/// A plan for two nodes of two CPUs each, from a captured tree.
fn plan(folder: &Path, assume: &str, config: &str, words: &[&str]) -> Output {
    fs::write(folder.join("assume.toml"), assume).unwrap();
    fs::write(folder.join("config.toml"), config).unwrap();
    let mut command = launcher(folder);
    command.args(["plan", "--assume", "assume.toml", "--config", "config.toml", "--topology"]);
    command.arg(format!("root:{}", tree(folder).display())).args(words).output().unwrap()
}

fn tree(folder: &Path) -> std::path::PathBuf {
    let root = folder.join("root");
    let sys = root.join("sys/devices/system");
    let write = |path: &str, text: &str| {
        let path = sys.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("cpu/online", "0-3\n");
    write("node/online", "0-2\n");
    for (node, cpus) in [(0, "0-1"), (1, "2-3"), (2, "")] {
        write(&format!("node/node{node}/cpulist"), &format!("{cpus}\n"));
        write(&format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal: 1048576 kB\n"));
        write(&format!("node/node{node}/distance"), "10 20 20\n");
    }
    root
}

#[test]
fn a_list_that_leaves_no_node_is_refused() {
    for spec in ["!0-1048575", "0x0"] {
        for flag in ["--mem-nodes", "--cpu-nodes"] {
            refused(&run(&[flag, spec, "--", "true"]), 125, "no node is left");
        }
    }
}

#[test]
fn a_memory_policy_without_nodes_is_refused() {
    for mode in ["bind", "preferred", "preferred-many", "interleave", "weighted-interleave"] {
        refused(&run(&["--mempolicy", mode, "--", "true"]), 125, "--mem-nodes");
    }
}

#[test]
fn a_short_text_cannot_name_billions_of_cpus() {
    let list = ["0-1048575"; 10_000].join(",");
    refused(&run(&["--cpu-list", &list, "--", "true"]), 125, "more than 1048576 ids");
}

#[test]
fn variables_of_a_launch_do_not_stop_a_subcommand() {
    for variable in ["NUMA_RUN_CPUS", "NUMA_RUN_CPU_LIST", "NUMA_RUN_POLICY", "NUMA_RUN_GPU"] {
        let output = launcher(folder().path()).env(variable, "junk").arg("topo").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{variable}: {}", said(&output));
    }
    let output = launcher(folder().path()).env("NUMA_RUN_CPUS", "junk").args(["plan", "--cpus", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let names = ["CPUS", "CPU_LIST", "MEMORY", "HUGEPAGES", "GPU", "POLICY", "MERGE", "SMT", "QUIET", "ISOLATED"];
    for words in [&["--", "true"][..], &["plan"], &["--cpus", "1", "plan"], &["topo"]] {
        let folder = folder();
        let mut command = launcher(folder.path());
        command.envs(names.map(|name| (format!("NUMA_RUN_{name}"), "")));
        let output = command.args(words).output().unwrap();
        // A plan for this host may find something that is not aligned.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {}", said(&output));
    }
}

#[test]
fn a_flag_wins_over_a_variable_that_contradicts_it() {
    let wins = |name: &str, value: &str, words: &[&str]| {
        let output = launcher(folder().path()).env(name, value).args(words).args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name} {words:?}: {}", said(&output));
    };
    let all = ["--cpu-list", "all"];
    wins("NUMA_RUN_CPUS", "1000", &all);
    wins("NUMA_RUN_CPU_NODES", "1000", &all);
    wins("NUMA_RUN_SMT", "one-per-core", &all);
    wins("NUMA_RUN_CPU_LIST", "100000", &["--cpus", "1"]);
    wins("NUMA_RUN_MEM_NODES", "0", &["--mempolicy", "local"]);
    wins("NUMA_RUN_MEMPOLICY", "local", &["--mem-nodes", "0"]);
}

#[test]
fn a_variable_about_what_nobody_asks_for_is_no_mistake_and_a_flag_is() {
    for (option, value) in [("smt", "share"), ("cpu-option", "prefer-l3"), ("cpu-kind", "P"), ("mem-kind", "hbm")] {
        let variable = format!("NUMA_RUN_{}", option.to_uppercase().replace('-', "_"));
        let output = launcher(folder().path()).env(variable, value).args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{option}: {}", said(&output));
        refused(&run(&[&format!("--{option}"), value, "--", "true"]), 125, &format!("--{option} says"));
    }
}

#[test]
fn options_that_exclude_each_other_are_a_usage_error() {
    for (first, second) in [("--cpus", "1"), ("--cpu-nodes", "0")] {
        refused(&run(&["--cpu-list", "0", first, second, "--", "true"]), 125, "cannot be used with");
        refused(&run(&["plan", "--cpu-list", "0", first, second]), 2, "cannot be used with");
    }
}

#[test]
fn a_source_without_a_name_is_a_usage_error() {
    for word in ["", "root:"] {
        refused(&run(&["plan", "--topology", word]), 2, "synthetic:SPEC");
    }
}

#[test]
fn a_configuration_without_an_end_is_refused() {
    refused(&run(&["--config", "/dev/zero", "--", "true"]), 125, "/dev/zero");
    refused(&run(&["plan", "--assume", "/dev/zero"]), 125, "/dev/zero");
}

#[test]
fn a_pipe_that_nobody_writes_to_does_not_hold_up_a_launch() {
    let folder = folder();
    nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let output = launcher(folder.path()).args(["--config", "pipe", "--", "true"]).output().unwrap();
    refused(&output, 125, "cannot read pipe");
}

#[test]
fn a_configuration_may_come_through_a_pipe() {
    let shell = format!("printf '[reserved]\\ncpus = \"0-9999\"\\n' | {LAUNCHER} plan --cpus 1 --config /dev/stdin");
    let output = Command::new("sh").args(["-c", &shell]).output().unwrap();
    refused(&output, 1, "1 wanted, 0 free");
}

#[test]
fn a_device_on_a_node_that_does_not_exist_is_of_unknown_locality() {
    let folder = folder();
    let assume = "[[device]]\nclass = \"gpu\"\npci = \"01:00.0\"\nnode = 0\n";
    let output = plan(folder.path(), assume, "[device_node]\n\"01:00.0\" = 9\n", &["--gpu", "1"]);
    refused(&output, 1, "the node of gpu 0000:01:00.0 is unknown");
}

#[test]
fn a_device_is_in_one_class_only() {
    let folder = folder();
    let function = tree(folder.path()).join("sys/bus/pci/devices/0000:01:00.0");
    fs::create_dir_all(&function).unwrap();
    for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x1572"), ("numa_node", "1")] {
        fs::write(function.join(name), text).unwrap();
    }
    let moved = "[class.gpu]\ndevices = [\"8086:1572\"]\n";
    assert_eq!(plan(folder.path(), "", "", &["--nic", "1"]).status.code(), Some(0));
    assert_eq!(plan(folder.path(), "", moved, &["--gpu", "1"]).status.code(), Some(0));
    refused(
        &plan(folder.path(), "", moved, &["--gpu", "1", "--nic", "1"]),
        1,
        "not enough nic: 1 wanted, this machine has no nic",
    );
    let both = format!("{moved}[class.nic]\ndevices = [\"8086:1572\"]\n");
    refused(&plan(folder.path(), "", &both, &["--gpu", "1"]), 125, "8086:1572 into two classes");
    let device = |class: &str| format!("[[device]]\nclass = \"{class}\"\npci = \"02:00.0\"\nnode = 0\n");
    let twice = device("gpu") + &device("nic");
    refused(&plan(folder.path(), &twice, "", &["--gpu", "1"]), 125, "0000:02:00.0 is assumed twice");
}

#[test]
fn known_devices_go_first_where_no_nodes_are_preferred() {
    let folder = folder();
    let assume = "device = [\n{ class = \"gpu\", pci = \"01:00.0\", node = -1 },\n{ class = \"gpu\", pci = \"02:00.0\", node = 1 }]\n";
    let output = plan(folder.path(), assume, "", &["--gpu", "1", "--policy", "none", "--json"]);
    refused(&output, 0, "\"devices\":[\"0000:02:00.0\"]");
}

#[test]
fn single_numa_node_takes_what_is_on_the_only_node_before_what_is_nowhere() {
    let folder = folder();
    let assume = "device = [\n{ class = \"gpu\", pci = \"01:00.0\", node = -1 },\n{ class = \"gpu\", pci = \"02:00.0\", node = 1 }]\n";
    let words = ["--gpu", "1", "--cpus", "2", "--pool", "2-3", "--policy", "single-numa-node", "--json"];
    refused(&plan(folder.path(), assume, "", &words), 0, "\"devices\":[\"0000:02:00.0\"]");
    // CPU 0 belongs to no node, CPUs 2 and 3 are all that there is of node 1.
    let node = tree(folder.path()).join("sys/devices/system/node/node0/cpulist");
    fs::write(&node, "1\n").unwrap();
    let words = ["--cpus", "2", "--pool", "0,2-3", "--policy", "single-numa-node", "--json"];
    fs::write(folder.path().join("none.toml"), "").unwrap();
    let mut command = launcher(folder.path());
    command.args(["plan", "--config", "none.toml", "--topology"]);
    let output = command.arg(format!("root:{}", folder.path().join("root").display())).args(words).output().unwrap();
    refused(&output, 0, "\"cpus\":\"2-3\"");
}

#[test]
fn a_captured_tree_with_pipes_and_endless_files_is_read_all_the_same() {
    let folder = folder();
    let cpus = tree(folder.path()).join("sys/devices/system/cpu");
    nix::unistd::mkfifo(&cpus.join("present"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", cpus.join("isolated")).unwrap();
    std::os::unix::fs::symlink("loop", cpus.join("loop")).unwrap();
    let source = format!("root:{}", folder.path().join("root").display());
    let output = launcher(folder.path()).args(["topo", "--topology", &source]).output().unwrap();
    refused(&output, 0, "3 nodes, 4 CPUs");
}

#[test]
fn absurd_numbers_of_pages_are_no_crash() {
    let folder = folder();
    let most = i64::MAX;
    let assume =
        format!("[pages.2M]\n0 = {most}\n1 = {most}\n2 = {most}\n[pages.1G]\n0 = {most}\n1 = {most}\n2 = {most}\n");
    let all = ["--mem-nodes", "all"];
    refused(&plan(folder.path(), &assume, "", &[&all[..], &["--memory", "1M"]].concat()), 1, "0M free");
    let pages = ["--hugepages", "2M=x18446744073709551615"];
    refused(&plan(folder.path(), &assume, "", &[&all[..], &pages].concat()), 1, "pages wanted");
    refused(&plan(folder.path(), "[pages.0M]\n0 = 1\n", "", &[]), 125, "0M");
}

#[test]
fn a_huge_snapshot_is_not_read() {
    let folder = folder();
    fs::create_dir(folder.path().join("run")).unwrap();
    let snapshot = folder.path().join("run/machine.snapshot");
    fs::File::create(&snapshot).unwrap().set_len(1 << 40).unwrap();
    fs::set_permissions(&snapshot, fs::Permissions::from_mode(0o644)).unwrap();
    let output = launcher(folder.path()).args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(fs::metadata(&snapshot).unwrap().len() < 1 << 20, "a good one takes its place");
}

#[test]
fn the_run_directory_has_its_mode_whatever_the_umask() {
    let folder = folder();
    let shell = format!("umask 777; exec {LAUNCHER} -- true");
    let mut command = Command::new("sh");
    command.args(["-c", &shell]).env("NUMA_RUN_RUN_DIR", folder.path().join("run"));
    assert!(command.status().unwrap().success());
    let mode = if nix::unistd::geteuid().is_root() { 0o755 } else { 0o700 };
    assert_eq!(fs::metadata(folder.path().join("run")).unwrap().mode() & 0o777, mode);
}

#[test]
fn a_limit_on_files_does_not_end_a_launch() {
    let folder = folder();
    let shell = format!("ulimit -f 0; exec {LAUNCHER} -- true");
    let mut command = Command::new("sh");
    command.args(["-c", &shell]).env("NUMA_RUN_RUN_DIR", folder.path().join("run"));
    assert_eq!(command.status().unwrap().code(), Some(0));
}

#[test]
fn odd_entries_of_the_environment_are_passed_on() {
    const CHILD: &str = "NUMA_RUN_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let c = |text: &str| std::ffi::CString::new(text).unwrap();
        let words = [LAUNCHER, "--", "/bin/cat", "/proc/self/environ"].map(c);
        let entries = ["A=1", "A=2", "no equals sign", "=nameless", "EMPTY="].map(c);
        // Comes back only when it fails.
        panic!("{:?}", nix::unistd::execve(&words[0], &words, &entries));
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "odd_entries_of_the_environment_are_passed_on", "--nocapture"]).env(CHILD, "1");
    let output = child.output().unwrap();
    let environment = String::from_utf8_lossy(&output.stdout);
    let inherited = "A=1\0A=2\0no equals sign\0=nameless\0EMPTY=\0NUMA_RUN_ALLOC_LEASE=";
    assert!(environment.contains(inherited), "{environment:?} {}", said(&output));
}

#[test]
fn a_command_without_a_name_does_not_exist() {
    refused(&run(&["--", ""]), 127, "no such program");
}

#[test]
fn a_set_uid_launcher_refuses_plans_too() {
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root and leaves nothing out");
        eprintln!("SKIPPED, NOT TESTED: only root can make a set-uid program that others start");
        return;
    }
    let folder = folder();
    let copy = folder.path().join("numa-run");
    fs::copy(LAUNCHER, &copy).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    for verb in ["plan", "topo", "debug"] {
        let output = Command::new(&copy).arg(verb).uid(65534).current_dir("/").output().unwrap();
        refused(&output, 125, "does not run set-uid");
    }
}
