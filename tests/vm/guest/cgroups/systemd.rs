//! The same where systemd manages the groups: a launch keeps its unit, or gets a scope.

use super::{ALONE, Inside, Running, inside, only_lease, parsed, script, soon};
use crate::landing::{landing, printed, refusal, run, workload};
use crate::sys::read;
use std::fs;
use std::path::Path;

/// The start of a command in a service of its own, its output here.
fn service(options: &str) -> String {
    format!("systemd-run --quiet --wait --pipe --collect {options}").trim_end().to_owned()
}

/// The same from a session of a user's, or what is like one.
fn session(unit: &str) -> String {
    format!("systemd-run --quiet --scope --collect --slice=user.slice --unit={unit}")
}

const NUMA_RUN: &str = "/rig/bin/numa-run";

fn property(unit: &str, name: &str) -> String {
    printed(&format!("systemctl show --property={name} --value {unit}")).trim().to_owned()
}

fn gc() {
    assert_eq!(printed("numa-run gc"), "");
    assert!(printed("numa-run status").starts_with("nothing is held"));
}

#[test]
fn a_delegated_service_has_a_group_in_its_unit() {
    let delegated = service("-p Delegate=yes");
    let found = inside(&format!("{delegated} {NUMA_RUN} --cpus 2 --cpu-nodes 1 --memory 64M --require-cgroup --"));
    assert_eq!(found.effective, ("2-3".into(), "1".into()));
    let (unit, group) = found.group.rsplit_once('/').unwrap();
    assert!(unit.starts_with("/system.slice/run-") && unit.ends_with(".service"), "{found:?}");
    assert!(group.starts_with("numa-run-"), "{found:?}");
    assert!(!Path::new(&format!("/sys/fs/cgroup{unit}")).exists());
    gc();
    let output = run(&format!("{delegated} {NUMA_RUN} --cpus 2 --cpu-nodes 1 -- taskset --cpu-list 4 true"));
    assert!(!output.status.success());
    gc();
}

#[test]
fn a_service_that_is_not_delegated_keeps_its_unit_and_is_told_so() {
    let landing = landing(&format!("{} {NUMA_RUN} --cpus 2 -- /rig/bin/{}", service(""), workload()));
    assert!(landing.said.contains(ALONE) && landing.said.contains("is not delegated: add Delegate=yes"), "{landing:?}");
    assert_eq!((landing.cpus.len(), landing.said.lines().count()), (2, 1), "{}", landing.said);
    let found = inside(&format!("{} {NUMA_RUN} --quiet --cpus 2 --", service("--unit=plain")));
    assert_eq!(found.group, "/system.slice/plain.service");
    let said = refusal(&format!("{} {NUMA_RUN} --cpus 2 --require-cgroup -- true", service("")));
    assert!(said.contains("is not delegated"), "{said}");
    gc();
}

/// Case E06.
#[test]
fn a_group_in_a_unit_survives_a_daemon_reload() {
    let start = "systemd-run --quiet --unit=e06 -p Delegate=yes -p AllowedCPUs=2-7";
    printed(&format!("{start} {NUMA_RUN} --cpu-list 4-7 --require-cgroup -- sleep 1000"));
    soon(|| run("numa-run status").stdout.windows(7).any(|word| word == b"running"));
    let lease = only_lease();
    let group = lease["group"].as_str().unwrap().to_owned();
    let state = || ["cpuset.cpus", "cpuset.cpus.effective"].map(|file| read(&format!("{group}/{file}")));
    assert_eq!(state(), ["4-7", "4-7"]);
    printed("systemctl daemon-reload");
    printed("systemctl set-property --runtime e06.service CPUWeight=50");
    printed("systemctl daemon-reload");
    assert_eq!(state(), ["4-7", "4-7"]);
    let pid = property("e06.service", "MainPID");
    assert_eq!(lease["pid"].to_string(), pid, "the workload is the unit's main process");
    assert!(read(&format!("{group}/cgroup.procs")).contains(&pid));
    assert!(read(&format!("/proc/{pid}/status")).contains("Cpus_allowed_list:\t4-7"));
    // Its end is the unit's end, and the next start has the same again.
    printed(&format!("kill -9 {pid}"));
    soon(|| property("e06.service", "ActiveState") == "failed");
    printed("systemctl reset-failed e06.service");
    assert!(!Path::new(&group).exists());
    gc();
}

#[test]
fn a_session_gets_a_scope_that_goes_by_itself() {
    let line = format!("{} numa-run --cpus 2 --cpu-nodes 1 --memory 64M --require-cgroup --", session("session-77"));
    let found = inside(&line);
    assert_eq!(found.effective, ("2-3".into(), "1".into()));
    assert!(found.group.starts_with("/numa.slice/numa-run.slice/numa-run-"), "{found:?}");
    assert!(found.group.ends_with(".scope"), "{found:?}");
    assert_eq!(only_lease()["group"], format!("/sys/fs/cgroup{}", found.group));
    soon(|| !Path::new(&format!("/sys/fs/cgroup{}", found.group)).exists());
    let unit = found.group.rsplit_once('/').unwrap().1;
    soon(|| property(unit, "LoadState") == "not-found");
    gc();
    let output =
        run(&format!("{} numa-run --cpus 2 --cpu-nodes 1 -- taskset --cpu-list 4 true", session("session-78")));
    assert!(!output.status.success(), "the scope keeps it in");
    gc();
}

#[test]
fn a_scope_is_alive_with_its_last_process_and_survives_a_daemon_reload() {
    let running = Running::start(&format!("{} numa-run --cpu-list 4-7 -- sleep 1000", session("session-79")));
    soon(|| run("numa-run status").stdout.windows(7).any(|word| word == b"running"));
    soon(|| running.file("comm") == "sleep");
    let group = only_lease()["group"].as_str().unwrap().to_owned();
    printed("systemctl daemon-reload");
    assert_eq!(read(&format!("{group}/cpuset.cpus.effective")), "4-7");
    assert_eq!(running.affinity(), "4-7");
    assert_eq!(only_lease()["state"], "running");
    drop(running);
    soon(|| !Path::new(&group).exists());
    gc();
}

#[test]
fn what_a_scope_is_limited_by_is_not_left_behind() {
    let line = format!("{} -p MemoryMax=500M numa-run --cpus 2 -- {}", session("session-80"), workload());
    let landing = landing(&line);
    assert!(landing.said.contains("session-80.scope limits its processes by memory.max"), "{}", landing.said);
    let line =
        format!("{} -p MemoryMax=500M -p Delegate=yes numa-run --cpus 2 --require-cgroup --", session("session-81"));
    assert!(inside(&line).group.starts_with("/user.slice/session-81.scope/numa-run-"));
    gc();
}

#[test]
fn where_others_live_in_the_unit_there_is_no_group() {
    // As here: the tests are in a delegated unit, all of them in one group.
    let landing = landing(&format!("numa-run --cpus 2 -- {}", workload()));
    let said =
        "other processes live in /sys/fs/cgroup/system.slice/rig.service, which so cannot be divided: systemd-run";
    assert!(landing.said.contains(said), "{}", landing.said);
    gc();
}

#[test]
fn an_ordinary_user_has_a_group_in_a_unit_that_was_left_to_him() {
    let user = service("-p User=nobody -p Delegate=yes");
    let found = inside(&format!("{user} {NUMA_RUN} --cpus 2 --cpu-nodes 1 --memory 64M --require-cgroup --"));
    assert_eq!(found.effective, ("2-3".into(), "1".into()));
    let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let landing = landing(&format!("{} {user} numa-run --cpus 2 -- {}", session("session-82"), workload()));
    assert!(landing.said.contains("session-82.scope is not this user's: systemd-run --user"), "{}", landing.said);
    printed(&format!("{user} numa-run gc"));
    gc();
}

/// Processes of ours stand by in the unit meanwhile, and who passes on cpusets may have none.
#[test]
fn a_delegated_service_has_a_group_also_where_somebody_comes_after_the_workload() {
    let delegated = service("-p Delegate=yes");
    let found =
        inside(&format!("{delegated} {NUMA_RUN} --user 65534:65534 --cpus 2 --cpu-nodes 1 --require-cgroup --"));
    assert_eq!(found.effective.0, "2-3", "{found:?}");
    gc();
    let output = run(&format!("{delegated} {NUMA_RUN} --user 65534:65534 --cpus 2 --require-cgroup -- /nonexistent"));
    assert!(!output.status.success(), "{output:?}");
    assert!(printed("numa-run status").starts_with("nothing is held"));
    let file = "/tmp/changed-in-a-unit";
    fs::write(file, "before\n").unwrap();
    let changing = service(&format!("-p Delegate=yes --setenv=NUMA_RUN_FAULT_WRITE={file}=during"));
    let found = inside(&format!("{changing} {NUMA_RUN} --cpus 2 --cpu-nodes 1 --require-cgroup --"));
    assert_eq!(found.effective.0, "2-3", "{found:?}");
    soon(|| read(file) == "before");
    gc();
}

/// A launch for which some paths are something else.
fn hiding(paths: &str, launch: &str) -> std::process::Output {
    let hide = "/tmp/hide";
    let text = format!("for path in {paths}\ndo mount --bind /dev/null $path\ndone\nexec \"$@\"\n");
    fs::write(hide, text).unwrap();
    run(&format!("{} unshare --mount sh {hide} {launch}", session("session-83")))
}

#[test]
fn where_systemd_does_not_listen_itself_the_bus_is_asked() {
    printed("systemctl start dbus.socket");
    let launch = format!("numa-run --cpus 2 --require-cgroup -- sh {}", script());
    let output = hiding("/run/systemd/private", &launch);
    assert!(output.status.success(), "{output:?}");
    let found: Inside = parsed(&String::from_utf8(output.stdout).unwrap());
    assert!(found.group.starts_with("/numa.slice/numa-run.slice/"), "{found:?}");
    gc();
    let both = "/run/systemd/private /run/dbus/system_bus_socket";
    let output = hiding(both, &launch);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains(".scope (systemd): /run/dbus/system_bus_socket: Connection refused"), "{said}");
    let output = hiding(both, &format!("numa-run --cpus 2 -- sh {}", script()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains(ALONE) && said.lines().count() == 1, "{said}");
    gc();
}

/// Interleaved, so that what slows the machine down slows both.
#[test]
fn a_launch_into_a_scope_takes_about_as_long_as_systemd_run_does() {
    let shipped = "/rig/bin/numa-run-shipped";
    if !Path::new(shipped).exists() {
        return println!("SKIPPED: NUMA_RUN_STATIC names no launcher as it ships; ./x test does");
    }
    let ours = format!("{shipped} --quiet --cpus 2 --cpu-nodes 1 --memory 64M --require-cgroup true");
    let theirs = "systemd-run --quiet --scope --collect -p AllowedCPUs=2-3 -p AllowedMemoryNodes=1 true";
    let turn =
        format!("b=$(now); {ours} || exit 1; m=$(now); {theirs} || exit 1; e=$(now); echo $((m - b)) $((e - m))");
    let loops = format!("now() {{ date +%s%N; }}\nfor turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do {turn}; done\n");
    fs::write("/tmp/turns", loops).unwrap();
    let text = printed(&format!("{} sh /tmp/turns", session("session-84")));
    let times = |column: usize| {
        let mut times: Vec<f64> =
            text.lines().map(|line| line.split(' ').nth(column).unwrap().parse().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        assert_eq!(times.len(), 15, "{text}");
        times[7] / 1e6
    };
    let (ours, theirs) = (times(0), times(1));
    println!("a launch into a scope took {ours:.0} ms, systemd-run --scope {theirs:.0} ms: {:.2} of it", ours / theirs);
    assert!(ours < theirs * 1.3, "{text}");
    gc();
}
