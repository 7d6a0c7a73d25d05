//! What one launch holds, another does not get; and how it comes back.

use super::{Ended, NUMA_RUN, Stage, User, allowed_cpus, users};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// A launch whose workload has said its CPUs and waits for its stdin to end.
struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
    cpus: String,
}

const SAY: &str = "echo \"$NUMA_RUN_ALLOC_CPUS\"";

fn held(stage: &Stage, user: User, options: &[&str], script: &str) -> Held {
    let mut command = stage.numa_run(user);
    command.args(["--quiet"]).args(options).args(["--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut cpus = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut cpus).unwrap();
    let stdin = child.stdin.take();
    Held { child, stdin, cpus: cpus.trim().to_owned() }
}

fn waiting(stage: &Stage, user: User, options: &[&str]) -> Held {
    let held = held(stage, user, options, &format!("{SAY}; read end"));
    assert!(!held.cpus.is_empty(), "nothing was started with {options:?}");
    held
}

impl Held {
    fn end(mut self) {
        drop(self.stdin.take());
        self.child.wait().unwrap();
    }
}

fn quick(stage: &Stage, user: User, options: &[&str]) -> Ended {
    Ended::of(stage.numa_run(user).args(["--quiet"]).args(options).args(["--", "sh", "-c", SAY]))
}

fn status(stage: &Stage, user: User) -> serde_json::Value {
    let text = Ended::fine(stage.numa_run(user).args(["status", "--json"]));
    serde_json::from_str(&text).unwrap()
}

fn leases(stage: &Stage, user: User) -> usize {
    status(stage, user)["leases"].as_array().unwrap().len()
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Enough CPUs for two launches; without them there is nothing to tell apart.
fn cpus_for_two() -> usize {
    let cpus = allowed_cpus().len();
    assert!(cpus >= 2, "these tests need two CPUs");
    cpus
}

#[test]
fn two_launches_never_have_a_cpu_in_common() {
    let all = cpus_for_two();
    for user in users() {
        let stage = Stage::new();
        let first = waiting(&stage, user, &["--smt", "share", "--cpus", "1"]);
        let rest = (all - 1).to_string();
        let second = waiting(&stage, user, &["--smt", "share", "--cpus", &rest]);
        assert!(!second.cpus.split(',').any(|cpu| cpu == first.cpus), "{} and {}", first.cpus, second.cpus);
        let third = quick(&stage, user, &["--smt", "share", "--cpus", "1"]);
        assert_eq!(third.code, Some(125));
        assert!(third.errors.contains("not enough cpus: 1 wanted, 0 free"), "{}", third.errors);
        let named = quick(&stage, user, &["--cpu-list", &first.cpus]);
        assert!(named.errors.contains("held by another launch"), "{}", named.errors);
        first.end();
        assert_eq!(quick(&stage, user, &["--smt", "share", "--cpus", "1"]).code, Some(0));
        second.end();
    }
}

#[test]
fn status_says_who_holds_what_and_gc_leaves_nothing() {
    for user in users() {
        let stage = Stage::new();
        assert_eq!(leases(&stage, user), 0);
        let launch = waiting(&stage, user, &["--cpus", "1", "--memory", "16M", "--name", "fw1", "--grace", "0"]);
        let status = status(&stage, user);
        let lease = &status["leases"][0];
        assert_eq!((lease["state"].as_str(), lease["name"].as_str()), (Some("running"), Some("fw1")));
        assert_eq!(lease["held"]["cpus"].as_str(), Some(launch.cpus.as_str()));
        assert_eq!(lease["held"]["memory"]["0"].as_u64(), Some(16));
        assert_eq!(lease["pid"].as_u64(), Some(launch.child.id().into()));
        let text = Ended::fine(stage.numa_run(user).arg("status"));
        assert!(text.contains("fw1") && text.contains("running"), "{text}");
        let early = Ended::of(stage.numa_run(user).args(["release", "fw1"]));
        assert!(early.code == Some(125) && early.errors.contains("is in use"), "{early:?}");
        launch.end();
        Ended::fine(stage.numa_run(user).arg("gc"));
        let left: Vec<_> = stage.path(&format!("run-{user:?}/leases")).read_dir().unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        Ended::fine(stage.numa_run(user).args(["release", "fw1"]));
    }
}

#[test]
fn a_program_that_cannot_be_started_holds_nothing_at_once() {
    let stage = Stage::new();
    let text = stage.file("text", b"no program", 0o755);
    for (command, code) in [("/no/such", 127), (text.to_str().unwrap(), 126), ("/", 126)] {
        let ended = Ended::of(stage.numa_run(User::Same).args(["--cpus", "1", "--", command]));
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(leases(&stage, User::Same), 0, "{command}");
    }
}

#[test]
fn children_and_daemons_keep_the_lease_alive_and_its_lock_is_all_they_need() {
    for user in users() {
        let stage = Stage::new();
        let all = allowed_cpus().len().to_string();
        // The parent ends at once; what it started has closed nothing but its own input and output.
        let script =
            format!("{SAY}; (setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $! >{})", stage.path("pid").display());
        held(&stage, user, &["--cpus", &all], &script).end();
        let refused = quick(&stage, user, &["--cpus", "1"]);
        assert_eq!(refused.code, Some(125), "{refused:?}");
        let pid = std::fs::read_to_string(stage.path("pid")).unwrap();
        assert!(Command::new("kill").arg(pid.trim()).status().unwrap().success());
        wait_until("the daemon's CPUs are free", || quick(&stage, user, &["--cpus", "1"]).code == Some(0));
        std::fs::remove_file(stage.path("pid")).unwrap();
    }
}

#[test]
fn a_workload_that_closes_every_descriptor_is_known_by_its_process() {
    let stage = Stage::new();
    let all = allowed_cpus().len().to_string();
    let close = format!(
        "{SAY}; for fd in /proc/$$/fd/*; do n=${{fd##*/}}; [ $n -lt 3 ] || eval \"exec $n>&-\" 2>/dev/null; done; read end"
    );
    let bash = ["--quiet", "--cpus", &all, "--", "bash", "-c", &close];
    let mut command = stage.numa_run(User::Same);
    let mut child = command.args(bash).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let locks = || {
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter(|fd| {
                fd.as_ref().is_ok_and(|fd| {
                    std::fs::read_link(fd.path()).is_ok_and(|path| path.extension().is_some_and(|kind| kind == "lock"))
                })
            })
            .count()
    };
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    wait_until("it has closed its descriptors", || locks() == 0);
    assert_eq!(quick(&stage, User::Same, &["--cpus", "1"]).code, Some(125));
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(quick(&stage, User::Same, &["--cpus", "1"]).code, Some(0));
}

#[test]
fn a_name_is_one_launchs_at_a_time() {
    for user in users() {
        let stage = Stage::new();
        let first = waiting(&stage, user, &["--smt", "share", "--cpus", "1", "--name", "fw1"]);
        let second = quick(&stage, user, &["--smt", "share", "--cpus", "1", "--name", "fw1"]);
        let said = format!("the name fw1 is in use by process {}", first.child.id());
        assert!(second.code == Some(125) && second.errors.contains(&said), "{second:?}");
        assert_eq!(quick(&stage, user, &["--smt", "share", "--cpus", "1", "--name", "fw2"]).code, Some(0));
        first.end();
    }
}

#[test]
fn a_restart_under_its_name_gets_the_same_again_and_nobody_else_does_meanwhile() {
    cpus_for_two();
    for user in users() {
        let stage = Stage::new();
        let one = ["--smt", "share", "--cpus", "1"];
        let other = waiting(&stage, user, &one);
        let named = [&one[..], &["--name", "fw1", "--grace", "1m"]].concat();
        let first = waiting(&stage, user, &named);
        let cpus = first.cpus.clone();
        assert_ne!(cpus, other.cpus);
        first.end();
        other.end();
        // The lower CPU is free now, and the launch would get it if it were not the same one.
        let all = allowed_cpus().len().to_string();
        assert_eq!(quick(&stage, user, &["--smt", "share", "--cpus", &all]).code, Some(125));
        let again = waiting(&stage, user, &named);
        assert_eq!(again.cpus, cpus);
        again.end();
        // Who asks for something else under the name gets that.
        let more = quick(&stage, user, &["--smt", "share", "--cpus", &all, "--name", "fw1", "--grace", "0"]);
        assert_eq!(more.code, Some(0), "{more:?}");
        assert_eq!(quick(&stage, user, &["--smt", "share", "--cpus", &all]).code, Some(0));
    }
}

#[test]
fn what_a_named_launch_held_comes_back_when_its_grace_is_over() {
    let stage = Stage::new();
    let all = allowed_cpus().len().to_string();
    waiting(&stage, User::Same, &["--cpus", &all, "--name", "fw1", "--grace", "2s"]).end();
    assert_eq!(quick(&stage, User::Same, &["--cpus", "1"]).code, Some(125));
    wait_until("the grace is over", || quick(&stage, User::Same, &["--cpus", "1"]).code == Some(0));
}

#[test]
fn who_waits_is_served_when_others_have_ended_in_the_order_of_asking() {
    for user in users() {
        let stage = Stage::new();
        let all = allowed_cpus().len().to_string();
        let first = waiting(&stage, user, &["--cpus", &all]);
        let too_short = quick(&stage, user, &["--cpus", "1", "--wait=100ms"]);
        assert!(too_short.code == Some(125) && too_short.errors.contains("not enough cpus"), "{too_short:?}");
        let log = stage.path("order");
        let tickets = || stage.path(&format!("run-{user:?}/queue")).read_dir().map_or(0, Iterator::count);
        let waiter = |number: usize| {
            let mut command = stage.numa_run(user);
            let script = format!("echo {number} >>{}", log.display());
            let child = command.args(["--cpus", &all, "--wait=30s", "--", "sh", "-c", &script]).spawn().unwrap();
            wait_until("it has its ticket", || tickets() == number);
            child
        };
        let waiters: Vec<Child> = (1..=4).map(waiter).collect();
        first.end();
        for mut child in waiters {
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "1\n2\n3\n4\n");
        assert_eq!(tickets(), 0);
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
fn what_can_never_be_had_is_not_waited_for() {
    let stage = Stage::new();
    let begun = Instant::now();
    let ended = quick(&stage, User::Same, &["--cpus", "9999", "--wait"]);
    assert_eq!(ended.code, Some(125));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn launches_inside_of_a_lease_divide_it() {
    let all = cpus_for_two();
    for user in users() {
        let stage = Stage::new();
        let inner = |count: usize, rest: &str| format!("{NUMA_RUN} --quiet --smt share --cpus {count} -- {rest}");
        // Inside of one CPU there is no second one, whatever is free outside of it.
        let nested = quick_script(&stage, user, "1", &format!("{}; echo $?", inner(2, "true")));
        assert_eq!(nested.out, "125\n", "{nested:?}");
        assert!(nested.errors.contains("not enough cpus: 2 wanted, 1 free"), "{nested:?}");
        let halves = format!(
            "{} & {SAY}; {} & wait",
            inner(1, "sh -c 'echo in $NUMA_RUN_ALLOC_CPUS; sleep 0.5'"),
            inner(all - 1, "sh -c 'echo in $NUMA_RUN_ALLOC_CPUS; sleep 0.5'")
        );
        let nested = quick_script(&stage, user, &all.to_string(), &halves);
        let parts: Vec<&str> = nested.out.lines().filter_map(|line| line.strip_prefix("in ")).collect();
        assert_eq!(parts.len(), 2, "{nested:?}");
        assert_ne!(parts[0], parts[1]);
    }
}

fn quick_script(stage: &Stage, user: User, cpus: &str, script: &str) -> Ended {
    Ended::of(stage.numa_run(user).args(["--quiet", "--smt", "share", "--cpus", cpus, "--", "sh", "-c", script]))
}

#[test]
fn the_systems_journal_has_a_line_for_what_is_granted_refused_and_given_back() {
    let stage = Stage::new();
    let path = stage.path("log");
    let log = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    log.set_nonblocking(true).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = stage.numa_run(User::Same);
        Ended::of(command.env("NUMA_RUN_AUDIT", &path).args(arguments))
    };
    run(&["--cpus", "1", "--memory", "16M", "--", "true"]);
    run(&["--cpus", "9999", "--", "true"]);
    run(&["plan", "--cpus", "9999"]);
    run(&["gc"]);
    let mut bytes = [0; 4096];
    let next = || log.recv(&mut bytes).ok().map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned());
    let lines = std::iter::from_fn(next);
    let lines: Vec<String> = lines.map(|line| line.split_once("]: ").unwrap().1.to_owned()).collect();
    let begins: Vec<&str> = lines.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(begins, ["granted", "released", "refused"], "{lines:#?}");
    let user = nix::unistd::getuid();
    assert!(lines[0].contains(&format!("16M on node 0; user={user} lease=")), "{lines:#?}");
    assert!(lines[2].contains("not enough cpus: 9999 wanted"), "{lines:#?}");
}

#[test]
fn ranks_that_ask_for_nothing_divide_the_lease_that_they_are_started_in() {
    let all = cpus_for_two();
    for user in users() {
        let stage = Stage::new();
        let rank = |number: usize| {
            let say = "echo $NUMA_RUN_ALLOC_CPUS / $(grep Cpus_allowed_list /proc/self/status | cut -f2); sleep 0.3";
            format!("LOCAL_RANK={number} LOCAL_WORLD_SIZE={all} {NUMA_RUN} --quiet -- sh -c '{say}' &")
        };
        let ranks: String = (0..all).map(rank).collect();
        let ended = quick_script(&stage, user, &all.to_string(), &format!("{ranks} wait"));
        let mut parts: Vec<&str> = ended.out.lines().collect();
        parts.sort();
        parts.dedup();
        assert_eq!(parts.len(), all, "{ended:?}");
        // One CPU each, and the kernel agrees.
        let one = |line: &&str| {
            line.split_once(" / ").is_some_and(|(told, kept)| told == kept && told.parse::<u32>().is_ok())
        };
        assert!(parts.iter().all(one), "{ended:?}");
        // Outside of a lease a rank is a launch like any other, and holds nothing.
        let mut free = stage.numa_run(user);
        free.env("LOCAL_RANK", "0").env("LOCAL_WORLD_SIZE", "2");
        assert_eq!(Ended::fine(free.args(["--", "sh", "-c", SAY])).trim(), "");
    }
}

/// Where nothing holds them, threads may go anywhere; `status` says so.
#[test]
fn a_workload_that_has_moved_elsewhere_is_told_of_and_one_that_pins_its_threads_is_not() {
    let all = allowed_cpus();
    if all.len() < 2 || !super::installed("taskset") {
        eprintln!("SKIPPED, NOT TESTED: one CPU only, or no taskset");
        return;
    }
    for user in users() {
        let stage = Stage::new();
        let held = waiting(&stage, user, &["--cpus", "2", "--smt", "share", "--policy", "none"]);
        let (pid, drift) = (held.child.id(), || status(&stage, user)["leases"][0]["drift"].clone());
        let taskset = |cpus: &str| {
            let mut taskset = Command::new("taskset");
            Ended::fine(taskset.args(["--all-tasks", "--cpu-list", "--pid", cpus, &pid.to_string()]));
        };
        let first = held.cpus.split([',', '-']).next().unwrap().to_owned();
        taskset(&first);
        assert_eq!(drift(), serde_json::Value::Null);
        held.end();
        let held = waiting(&stage, user, &["--cpu-list", &first]);
        let pid = held.child.id();
        Ended::fine(Command::new("taskset").args(["--cpu-list", "--pid", &all.to_string(), &pid.to_string()]));
        let said = Ended::fine(stage.numa_run(user).arg("status"));
        assert!(said.contains(&format!("has drifted: its thread {pid} may run on {all}, and {first}")), "{said}");
        held.end();
    }
}
