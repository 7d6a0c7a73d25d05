//! Devices that are handed out: given to vfio-pci and to the workload's user
//! while the workload runs, and as before when it has ended, with nobody else's help.

use crate::landing::{printed, run};
use crate::sys::{Changed, IGB, attribute, functions};
use crate::vfio;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const USER: u32 = 65534;

fn modules() {
    printed("modprobe -a vfio-pci vfio_iommu_type1 igb igbvf e1000");
}

/// The first port of this kind on a node.
fn port(node: u32) -> String {
    let on_node = functions(IGB).into_iter().find(|bdf| attribute(bdf, "numa_node") == node.to_string());
    on_node.expect("a port on the node")
}

/// All that handing out devices may change: drivers, what is chosen for them, functions, files and their owners.
pub fn devices() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/sys/bus/pci/devices").unwrap().flatten() {
        let bdf = entry.file_name().to_string_lossy().into_owned();
        let driver = fs::read_link(entry.path().join("driver")).unwrap_or_default();
        let driver = driver.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default().trim().to_owned();
        let [chosen, count, probes] = ["driver_override", "sriov_numvfs", "sriov_drivers_autoprobe"].map(text);
        found.insert(bdf, format!("{driver} {chosen} {count} {probes}"));
    }
    for entry in fs::read_dir("/dev/vfio").into_iter().flatten().flatten() {
        let about = entry.metadata().unwrap();
        let said = format!("{}:{} {:o}", about.uid(), about.gid(), about.mode());
        found.insert(entry.path().display().to_string(), said);
    }
    found
}

fn soon(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(40);
    while !condition() {
        assert!(Instant::now() < end, "not within 40 s: {what}: {:?}", devices());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// They are as they were, and nobody but the guardian has seen to that.
fn as_before(before: &BTreeMap<String, String>) {
    soon("everything is as before", || devices() == *before);
    soon("the leases are gone", || printed("numa-run status").starts_with("nothing is held"));
}

/// A launch that waits until it is let go, and what it prints meanwhile.
struct Running(Child);

impl Running {
    fn start(options: &str) -> Running {
        Running::by(Command::new("numa-run"), options)
    }

    fn by(mut command: Command, options: &str) -> Running {
        let words = format!("--quiet {options} -- sh -c");
        command.args(words.split(' ')).arg("env | grep ^PCIDEVICE_; echo up; read end");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Running(child)
    }

    /// The devices of a class that it has.
    fn devices(&mut self, class: &str) -> Vec<String> {
        use std::io::{BufRead, BufReader};
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        let mut found = Vec::new();
        loop {
            let line = lines.next().expect("it runs").unwrap();
            if let Some(value) = line.strip_prefix(&format!("PCIDEVICE_{class}=")) {
                found = value.split(',').map(str::to_owned).collect();
            }
            if line == "up" {
                return found;
            }
        }
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn driver(bdf: &str) -> String {
    let link = fs::read_link(format!("/sys/bus/pci/devices/{bdf}/driver")).unwrap_or_default();
    link.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn group(bdf: &str) -> String {
    let link = fs::read_link(format!("/sys/bus/pci/devices/{bdf}/iommu_group")).unwrap();
    format!("/dev/vfio/{}", link.file_name().unwrap().to_string_lossy())
}

#[test]
fn virtual_functions_are_made_for_a_launch_given_to_its_user_and_removed_after_it() {
    modules();
    let before = devices();
    let mut launch = Running::start(&format!("--cpus 2 --cpu-nodes 2 --vf 2 --create-vfs --user {USER}:{USER}"));
    let mine = launch.devices("VF");
    assert_eq!(mine.len(), 2);
    for bdf in &mine {
        assert_eq!((driver(bdf).as_str(), attribute(bdf, "numa_node").as_str()), ("vfio-pci", "2"), "{bdf}");
        let about = fs::metadata(group(bdf)).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o777), (USER, 0o600), "{bdf}");
    }
    let port = port(2);
    assert_eq!(
        (attribute(&port, "sriov_numvfs"), attribute(&port, "sriov_drivers_autoprobe")),
        ("7".into(), "1".into())
    );
    // What the launch did not ask for has no driver, and is nobody's.
    let others = devices().into_iter().filter(|(path, _)| path.starts_with("/dev/vfio/"));
    let given = others.filter(|(_, about)| about.starts_with(&format!("{USER}:"))).count();
    assert_eq!(given, 2);
    drop(vfio::open(&mine[0]));
    launch.end();
    as_before(&before);
}

#[test]
fn a_function_goes_back_to_its_driver_and_to_what_was_chosen_for_it() {
    modules();
    let port = port(0);
    let count = format!("/sys/bus/pci/devices/{port}/sriov_numvfs");
    let made = Changed::to(&count, "2");
    let [first, second] = [0, 1].map(|number| {
        let link = fs::read_link(format!("/sys/bus/pci/devices/{port}/virtfn{number}")).unwrap();
        link.file_name().unwrap().to_string_lossy().into_owned()
    });
    soon("the functions have a driver", || driver(&first) == "igbvf" && driver(&second) == "igbvf");
    let chosen = format!("/sys/bus/pci/devices/{first}/driver_override");
    fs::write(&chosen, "igbvf\n").unwrap();
    let before = devices();
    let mut launch = Running::start(&format!("--cpus 1 --vf 2:pf={port}"));
    let mut mine = launch.devices("VF");
    mine.sort();
    assert_eq!(mine, [first.clone(), second.clone()]);
    assert_eq!((driver(&first), driver(&second)), ("vfio-pci".into(), "vfio-pci".into()));
    launch.end();
    as_before(&before);
    // Where another one has given it away meanwhile, that stands.
    let mut launch = Running::start(&format!("--cpus 1 --vf 2:pf={port}"));
    launch.devices("VF");
    fs::write(format!("/sys/bus/pci/devices/{second}/driver_override"), "other\n").unwrap();
    launch.end();
    soon("the first is back", || driver(&first) == "igbvf");
    soon("the lease is gone", || printed("numa-run status").starts_with("nothing is held"));
    assert_eq!((driver(&second), attribute(&second, "driver_override")), ("vfio-pci".into(), "other".into()));
    fs::write(format!("/sys/bus/pci/devices/{second}/driver_override"), "\n").unwrap();
    drop(made);
}

#[test]
fn functions_that_one_launch_made_stay_while_another_one_has_some_of_them() {
    modules();
    let before = devices();
    let port = port(0);
    let mut maker = Running::start(&format!("--cpus 1 --vf 1:pf={port} --create-vfs"));
    let its = maker.devices("VF");
    let mut user = Running::start(&format!("--cpus 1 --vf 1:pf={port}"));
    let others = user.devices("VF");
    assert_ne!(its, others);
    maker.end();
    soon("the maker's is given back", || driver(&its[0]).is_empty());
    soon("its lease is gone", || printed("numa-run status --json").matches("\"lease\"").count() <= 1);
    assert_eq!((driver(&others[0]), attribute(&port, "sriov_numvfs")), ("vfio-pci".into(), "7".into()));
    user.end();
    as_before(&before);
}

#[test]
fn a_launch_that_fails_leaves_no_function_behind() {
    modules();
    let before = devices();
    let output = run("numa-run --cpus 1 --vf 1 --create-vfs -- /no/such/program");
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(devices(), before);
    let output = run(&format!("numa-run --cpus 1 --vf 1 --create-vfs --user {USER} -- /no/such/program"));
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(devices(), before);
}

#[test]
fn a_restart_under_its_name_has_the_same_function_without_binding_it_again() {
    modules();
    let before = devices();
    let options = "--name fw --grace 30 --cpus 1 --vf 1 --create-vfs";
    let mut launch = Running::start(options);
    let mine = launch.devices("VF");
    let file = group(&mine[0]);
    let made = fs::metadata(&file).unwrap().ino();
    launch.end();
    let mut again = Running::start(options);
    assert_eq!(again.devices("VF"), mine);
    assert_eq!(fs::metadata(&file).unwrap().ino(), made);
    again.end();
    assert_eq!(driver(&mine[0]), "vfio-pci");
    printed("numa-run release fw");
    as_before(&before);
}

fn faulty(words: &str) -> Command {
    let mut command = fragile();
    command.args(words.split(' '));
    command
}

fn fragile() -> Command {
    let mut command = Command::new("numa-run-faults");
    command.env("NUMA_RUN_RUN_DIR", "/tmp/crash-devices").env("NUMA_RUN_AUDIT", "never");
    command
}

fn ended(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn nobody_is_left() -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(b"numa-run")).count() == 0
}

/// Kills a launch at every point from the first change to the last, and sees
/// that its devices are as before. Where there is a guardian he may be first;
/// without him the next one does it.
fn killed_at_any_point(words: &str, steps: &[&str]) {
    let before = devices();
    let trace = "/tmp/devices-trace";
    let whole = ended(faulty(words).env("NUMA_RUN_FAULT_TRACE", trace));
    soon("nobody is left", nobody_is_left);
    assert_eq!(devices(), before, "{whole:?}");
    let points = fs::read_to_string(trace).unwrap();
    fs::remove_file(trace).unwrap();
    for step in steps {
        assert!(points.contains(&format!(" {step} ")), "no point {step} in {points}");
    }
    // The ledger's own are gone through where there are no devices.
    let points = points.lines().filter(|point| !point.contains(" ledger.") && !point.contains(" lease."));
    for (at, point) in points.enumerate() {
        let points = if at % 2 == 0 { point.to_owned() } else { format!("{point};guard guard.waits 1") };
        ended(faulty(words).env("NUMA_RUN_FAULT", &points));
        soon("nobody is left", nobody_is_left);
        let gc = ended(&mut faulty("gc"));
        assert!(gc.status.success(), "{points}: {gc:?}");
        assert_eq!(devices(), before, "killed at {points}: {gc:?}");
    }
    assert!(Path::new("/tmp/crash-devices/leases").read_dir().unwrap().next().is_none());
}

#[test]
fn a_launch_that_makes_functions_killed_at_any_point_leaves_none() {
    modules();
    let made = ["vfs.without-drivers", "vfs.made", "bind.chosen", "bind.taken", "node.given", "node.taken"];
    let undone = ["rebind.unbound", "rebind.chosen", "vfs.removed"];
    let words = format!("--cgroup never --cpus 1 --vf 1 --create-vfs --user {USER} -- true");
    killed_at_any_point(&words, &[&made[..], &undone].concat());
}

#[test]
fn a_launch_that_takes_a_function_from_its_driver_killed_at_any_point_gives_it_back() {
    modules();
    let port = port(0);
    let count = format!("/sys/bus/pci/devices/{port}/sriov_numvfs");
    let _made = Changed::to(&count, "1");
    let function = fs::read_link(format!("/sys/bus/pci/devices/{port}/virtfn0")).unwrap();
    let function = function.file_name().unwrap().to_string_lossy().into_owned();
    soon("the function has a driver", || driver(&function) == "igbvf");
    let steps = [
        "bind.chosen",
        "bind.unbound",
        "bind.taken",
        "rebind.unbound",
        "rebind.named",
        "rebind.taken",
        "rebind.chosen",
    ];
    for workload in ["true", "/no/such"] {
        killed_at_any_point(&format!("--cgroup never --cpus 1 --vf 1 --user {USER} -- {workload}"), &steps);
    }
}

/// The line of a point that is passed once, whoever passes it.
fn line_of(point: &str, trace: &str) -> String {
    let points = fs::read_to_string(trace).unwrap();
    fs::remove_file(trace).unwrap();
    let line = points.lines().find(|line| line.contains(&format!(" {point} ")));
    line.unwrap_or_else(|| panic!("no point {point} in {points}")).to_owned()
}

#[test]
fn drivers_that_were_kept_off_new_functions_are_let_in_again_even_if_who_does_it_is_killed() {
    modules();
    let (before, trace) = (devices(), "/tmp/drivers-trace");
    let words = format!("--cgroup never --cpus 1 --vf 1 --create-vfs --user {USER} -- true");
    let killed_at = |faults: &str| {
        ended(faulty(&words).env("NUMA_RUN_FAULT_TRACE", trace).env("NUMA_RUN_FAULT", faults));
        soon("nobody is left", nobody_is_left);
    };
    killed_at("");
    let made = line_of("vfs.without-drivers", trace);
    killed_at(&made);
    assert_eq!(devices(), before, "killed at {made}");
    let undone = line_of("vfs.with-drivers", trace);
    killed_at(&format!("{made};{undone};guard guard.waits 1"));
    assert_eq!(line_of("vfs.with-drivers", trace), undone);
    assert!(ended(&mut faulty("gc")).status.success());
    assert_eq!(devices(), before, "killed at {made} and {undone}");
    assert!(Path::new("/tmp/crash-devices/leases").read_dir().unwrap().next().is_none());
}

#[test]
fn functions_are_removed_after_their_last_user_though_their_maker_is_killed_while_it_hands_them_on() {
    modules();
    let before = devices();
    let port = port(0);
    let trace = "/tmp/heir-trace";
    let roles = (1..10).map(|child| format!("child-{child}-of-guard heir.told 1"));
    let faults = roles.chain(["guard heir.told 1".to_owned()]).collect::<Vec<_>>().join(";");
    let mut fragile_maker = fragile();
    fragile_maker.env("NUMA_RUN_FAULT", &faults).env("NUMA_RUN_FAULT_TRACE", trace);
    let mut maker = Running::by(fragile_maker, &format!("--cgroup never --cpus 1 --vf 1:pf={port} --create-vfs"));
    let its = maker.devices("VF");
    let mut user = Running::by(fragile(), &format!("--cgroup never --cpus 1 --vf 1:pf={port}"));
    let others = user.devices("VF");
    assert_ne!(its, others);
    maker.end();
    let told = || fs::read_to_string(trace).is_ok_and(|points| points.contains(" heir.told "));
    soon("it hands them on", told);
    let line = line_of("heir.told", trace);
    assert!(faults.split(';').any(|fault| fault == line), "nobody was killed at {line}");
    assert!(ended(&mut faulty("gc")).status.success());
    assert!(driver(&its[0]).is_empty());
    assert_eq!((driver(&others[0]), attribute(&port, "sriov_numvfs")), ("vfio-pci".into(), "7".into()));
    user.end();
    soon("everything is as before", || devices() == before);
}

#[test]
fn a_function_whose_group_others_use_is_refused_with_all_of_them_before_anything_is_touched() {
    modules();
    let before = devices();
    let wanted = "0000:84:01.0";
    let group = fs::read_link(format!("/sys/bus/pci/devices/{wanted}/iommu_group")).unwrap();
    let members = fs::read_dir(format!("/sys/bus/pci/devices/{wanted}/iommu_group/devices")).unwrap().flatten();
    let members = members.map(|member| member.file_name().into_string().unwrap()).filter(|member| member != wanted);
    let used: Vec<String> = members.filter(|member| !["", "pcieport"].contains(&&*driver(member))).collect();
    assert!(used.len() > 1, "{used:?}");
    let launch = |option: &str| run(&format!("numa-run {option} --cpus 1 --pci {wanted} --vfio pci -- true"));
    for option in ["--quiet", "--dry-run"] {
        let output = launch(option);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{option}: {said}");
        for member in &used {
            assert!(said.contains(&format!("{member} ({})", driver(member))), "{member}: {said}");
        }
        assert!(said.contains(&format!("IOMMU group {}", group.file_name().unwrap().to_string_lossy())), "{said}");
        assert_eq!(devices(), before);
    }

    // Without drivers they are no obstacle.
    let drivers: Vec<(&String, String)> = used.iter().map(|member| (member, driver(member))).collect();
    for (member, driver) in &drivers {
        fs::write(format!("/sys/bus/pci/drivers/{driver}/unbind"), member).unwrap();
    }
    let output = launch("--quiet");
    for (member, driver) in &drivers {
        fs::write(format!("/sys/bus/pci/drivers/{driver}/bind"), member).unwrap();
    }
    assert!(output.status.success(), "{output:?}");
    as_before(&before);
}
