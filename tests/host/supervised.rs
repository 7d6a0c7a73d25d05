//! `--supervise`: numa-run stays as the parent.

use super::{Ended, NUMA_RUN, Stage, User, installed, typed, users};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SUPERVISED: &[&str] = &["--supervise", "--cpus", "1", "--", "sh", "-c"];

fn supervised(stage: &Stage, user: User, script: &str) -> Command {
    let mut command = stage.numa_run(user);
    command.args(SUPERVISED).arg(script).env("STAGE", stage.path(""));
    command
}

/// The leases that are there, of whichever user's ledger.
fn leases(stage: &Stage) -> Vec<String> {
    let folders = fs::read_dir(stage.path("")).unwrap().flatten().map(|folder| folder.path().join("leases"));
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    files.map(|file| file.file_name().into_string().unwrap()).collect()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a supervised workload and waits for the file `up`, which holds its pid.
fn up(stage: &Stage, script: &str) -> (Child, Pid) {
    let child = supervised(stage, User::Same, script).stderr(Stdio::null()).spawn().unwrap();
    (child, pid_in(stage, "up"))
}

fn pid_in(stage: &Stage, name: &str) -> Pid {
    let pid = || fs::read_to_string(stage.path(name)).ok().filter(|text| text.ends_with('\n'));
    until(name, || pid().is_some());
    Pid::from_raw(pid().unwrap().trim().parse().unwrap())
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

fn state(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").map_or(String::new(), |(_, fields)| fields[..1].to_owned())
}

#[test]
fn the_status_is_the_workloads_and_128_more_for_a_signal() {
    for user in users() {
        for (script, code) in [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
            let stage = Stage::new();
            let ended = Ended::of(&mut supervised(&stage, user, script));
            assert_eq!((ended.code, ended.errors.as_str()), (Some(code), ""), "{user:?} {script}");
            assert_eq!(leases(&stage), Vec::<String>::new(), "{user:?} {script}");
        }
    }
}

#[test]
fn a_launch_that_fails_says_why_and_ends_as_without_a_parent() {
    for user in users() {
        for (words, code) in
            [(&["--cpus", "1", "--", "/no/such"][..], 127), (&["--", "/tmp"], 126), (&["--cpus", "9999", "true"], 125)]
        {
            let stage = Stage::new();
            let run = |supervise: &[&str]| Ended::of(stage.numa_run(user).args(supervise).args(words));
            let (alone, supervised) = (run(&[]), run(&["--supervise"]));
            assert_eq!(alone.code, Some(code), "{alone:?}");
            assert_eq!((supervised.code, &supervised.errors), (alone.code, &alone.errors));
            assert_eq!(leases(&stage), Vec::<String>::new());
        }
    }
}

#[test]
fn signals_are_passed_on_and_the_launch_ends_after_the_workload() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGINT, Signal::SIGWINCH] {
        let stage = Stage::new();
        let name = signal.as_str().trim_start_matches("SIG");
        let script = format!(
            "trap 'sleep 0.1; echo {name} >$STAGE/got; exit 9' {name}; echo $$ >$STAGE/up; while :; do sleep 0.01; done"
        );
        let (mut child, _) = up(&stage, &script);
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(9), "{signal}");
        assert_eq!(fs::read_to_string(stage.path("got")).unwrap().trim(), name);
        assert_eq!(leases(&stage), Vec::<String>::new());
    }
}

/// The kernel sends what is typed to the whole group in the foreground: passed
/// on, it would arrive twice.
#[test]
fn what_the_terminal_sends_arrives_once() {
    if !installed("script") {
        return;
    }
    let stage = Stage::new();
    // A wait is interrupted at once, so that two signals are two lines.
    let script = "trap 'echo INT >>$STAGE/got' INT; sleep 60 & echo $! >$STAGE/sleeper; echo $$ >$STAGE/up; \
                  while kill -0 $!; do wait; done; exit 7";
    fs::write(stage.path("workload"), script).unwrap();
    let mut command = typed(User::Same, "script");
    stage.set_up(&mut command);
    command.env("NUMA_RUN_RUN_DIR", stage.path("run")).env("STAGE", stage.path(""));
    let line = format!("exec {NUMA_RUN} --supervise --cpus 1 -- sh {}", stage.path("workload").display());
    let mut terminal =
        command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    pid_in(&stage, "up");
    let lines = || fs::read_to_string(stage.path("got")).unwrap_or_default().lines().count();
    let mut keys = terminal.stdin.take().unwrap();
    for typed in 1..=5 {
        keys.write_all(b"\x03").unwrap();
        until("the signal", || lines() >= typed);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(lines(), typed, "it came twice");
    }
    kill(pid_in(&stage, "sleeper"), Signal::SIGKILL).unwrap();
    assert_eq!(terminal.wait().unwrap().code(), Some(7));
}

#[test]
fn a_stopped_workload_stops_the_launch_and_both_go_on() {
    let stage = Stage::new();
    let (mut child, workload) =
        up(&stage, "echo $$ >$STAGE/up; while ! test -e $STAGE/end; do sleep 0.01; done; exit 5");
    let launch = child.id() as i32;
    let states = |wanted: &str| [launch, workload.as_raw()].iter().all(|&pid| wanted.contains(&state(pid)));
    for _ in 0..2 {
        send(&child, Signal::SIGTSTP);
        until("both are stopped", || states("T"));
        send(&child, Signal::SIGCONT);
        until("both go on", || states("SR"));
    }
    fs::write(stage.path("end"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn what_the_workload_leaves_behind_is_waited_for_and_gets_the_signals() {
    let stage = Stage::new();
    let daemon = "trap 'echo bye >$STAGE/got; exit' TERM; echo $$ >$STAGE/daemon; while :; do sleep 0.01; done";
    fs::write(stage.path("behind"), daemon).unwrap();
    let (mut child, workload) = up(
        &stage,
        "setsid sh $STAGE/behind & while ! test -s $STAGE/daemon; do sleep 0.01; done; echo $$ >$STAGE/up; exit 3",
    );
    let daemon = pid_in(&stage, "daemon");
    until("the workload has ended", || state(workload.as_raw()).is_empty());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(child.try_wait().unwrap(), None);
    assert_eq!(leases(&stage).len(), 2);
    assert_ne!(state(daemon.as_raw()), "");
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(fs::read_to_string(stage.path("got")).unwrap(), "bye\n");
    assert_eq!(leases(&stage), Vec::<String>::new());
}

#[test]
fn what_the_workload_leaves_behind_is_killed_where_that_is_asked_for() {
    let stage = Stage::new();
    let behind = "echo $$ >$STAGE/daemon; sleep 1000 & echo $! >$STAGE/its; wait";
    fs::write(stage.path("behind"), behind).unwrap();
    let script = "setsid sh $STAGE/behind & while ! test -s $STAGE/its; do sleep 0.01; done; exit 3";
    let mut command = stage.numa_run(User::Same);
    command.args(["--on-daemonize", "kill"]).args(SUPERVISED).arg(script).env("STAGE", stage.path(""));
    assert_eq!(Ended::of(command.stdout(Stdio::null()).stderr(Stdio::null())).code, Some(3));
    for name in ["daemon", "its"] {
        assert_eq!(state(pid_in(&stage, name).as_raw()), "", "{name}");
    }
    assert_eq!(leases(&stage), Vec::<String>::new());
}

#[test]
fn orphans_leave_no_zombies() {
    let stage = Stage::new();
    let orphans = "for n in 1 2 3 4; do (sh -c 'sleep 0.02 &'); done";
    let (mut child, _) = up(&stage, &format!("{orphans}; sleep 0.3; echo $$ >$STAGE/up; sleep 0.2"));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let states: Vec<String> = children.split_whitespace().map(|pid| state(pid.parse().unwrap())).collect();
    assert_eq!(states.len(), 1, "{children}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn children_of_who_became_numa_run_are_not_waited_for() {
    let stage = Stage::new();
    let mut command = Command::new("sh");
    stage.set_up(&mut command);
    let start = "sleep 60 </dev/null >/dev/null 2>&1 & echo $!; exec \"$@\"";
    command.env("NUMA_RUN_RUN_DIR", stage.path("run")).args(["-c", start, "sh", NUMA_RUN]).args(SUPERVISED);
    let begun = Instant::now();
    let other = Ended::fine(command.arg("exit 0"));
    assert!(begun.elapsed() < Duration::from_secs(30));
    kill(Pid::from_raw(other.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
}

#[test]
fn where_the_parent_is_killed_the_lease_stays_with_the_workload() {
    let stage = Stage::new();
    let (mut child, workload) = up(&stage, "echo $$ >$STAGE/up; while ! test -e $STAGE/end; do sleep 0.01; done");
    let status = || Ended::fine(stage.numa_run(User::Same).args(["status", "--json"]));
    let state_of_lease = || serde_json::from_str::<serde_json::Value>(&status()).unwrap()["leases"][0]["state"].clone();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(state_of_lease(), "running");
    assert!(status().contains(&format!("\"pid\":{workload}")) || status().contains(&format!("\"pid\": {workload}")));
    Ended::fine(stage.numa_run(User::Same).arg("gc"));
    assert_eq!(state_of_lease(), "running");
    fs::write(stage.path("end"), "").unwrap();
    until("the workload has ended", || state(workload.as_raw()).is_empty() || state(workload.as_raw()) == "Z");
    Ended::fine(stage.numa_run(User::Same).arg("gc"));
    assert_eq!(leases(&stage), Vec::<String>::new());
}

#[test]
fn a_caller_who_ignores_his_children_still_gets_the_status() {
    let able = Command::new("env").args(["--ignore-signal=CHLD", "true"]).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED, NOT TESTED: this env cannot ignore signals");
        return;
    }
    let stage = Stage::new();
    let run = |words: &[&str]| {
        let mut command = Command::new("env");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run")).args(["--ignore-signal=CHLD", NUMA_RUN, "--supervise"]);
        Ended::of(command.args(["--cpus", "1", "--"]).args(words))
    };
    assert_eq!(run(&["sh", "-c", "exit 6"]).code, Some(6));
    // The workload inherits it as it was: SIGCHLD is the 17th.
    let said = run(&["grep", "SigIgn", "/proc/self/status"]).out;
    let ignored = u64::from_str_radix(said.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(ignored & 1 << 16, 1 << 16, "{said}");
}
