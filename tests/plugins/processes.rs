//! What plugins do as processes: they hang, leave children, read nothing, hold pipes.

use super::{ANSWER, FIRST, LIMIT, PREFERRED, Planned, Stage, gone, left, planned};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The limit, and what a busy machine needs besides.
const IN_TIME: Duration = Duration::from_millis(4000);

#[track_caller]
fn first(planned: &Planned, part: &str) {
    assert_eq!((planned.code, &planned.devices[..]), (Some(0), &FIRST.map(str::to_owned)[..]), "{planned:?}");
    assert!(planned.said.contains(part) && planned.took < IN_TIME, "{part}: {planned:?}");
}

#[track_caller]
fn preferred(planned: &Planned) {
    assert_eq!(planned.devices, PREFERRED, "{planned:?}");
    assert!(planned.took < IN_TIME, "{planned:?}");
}

#[test]
fn a_plugin_that_hangs_is_killed_with_its_children_when_its_time_is_over() {
    for text in [
        "sleep 60",
        "sleep 60 & echo $! >> $pid; wait",
        "trap '' TERM INT HUP; sleep 60 & echo $! >> $pid; sleep 60",
        "exec >&- 2>&- <&-; sleep 60",
        "while :; do echo endless >&2; done",
        "echo '{\"preferred\": ['; kill -STOP $$",
    ] {
        let stage = Stage::new();
        let plugin = stage.plugin(&format!("pid={}/pid; echo $$ > $pid; {text}", stage.path().display()));
        let planned = stage.planned(&plugin);
        first(&planned, "it gave no answer within 0.5 s and was stopped");
        assert!(planned.took >= Duration::from_secs_f64(LIMIT), "{text}: {planned:?}");
        assert!(left(&stage, "pid").lines().all(gone), "{text}");
    }
}

#[test]
fn children_that_hold_the_pipes_neither_keep_a_launch_waiting_nor_outlive_it() {
    let stage = Stage::new();
    let pids = stage.path().join("pids");
    let bomb = format!("for i in $(seq 100); do sleep 60 & echo $! >> {}; done", pids.display());
    let planned = stage.planned(&stage.plugin(&format!("{bomb}; echo '{ANSWER}'")));
    preferred(&planned);
    let started = fs::read_to_string(&pids).unwrap();
    assert_eq!(started.lines().count(), 100);
    assert!(started.lines().all(gone), "{started}");
    let planned = stage.planned(&stage.plugin("sleep 60 & exit 0"));
    first(&planned, "cannot be read: EOF");
}

#[test]
fn a_child_in_a_session_of_its_own_keeps_no_launch_waiting() {
    let stage = Stage::new();
    let planned = stage.planned(&stage.plugin(&format!("setsid sleep 6 & echo '{ANSWER}'")));
    preferred(&planned);
    let planned = stage.planned(&stage.plugin("setsid sleep 6 & wait"));
    first(&planned, "it gave no answer within 0.5 s");
}

#[test]
fn a_plugin_need_not_read_what_no_pipe_holds() {
    let stage = Stage::with_cpus("0-2047");
    let size = stage.path().join("size");
    let answers = [
        format!("echo '{ANSWER}'"),
        format!("exec <&-; sleep 0.1; echo '{ANSWER}'"),
        format!("head -c 10 >/dev/null; sleep 0.1; echo '{ANSWER}'"),
        format!("sleep 0.1; wc -c > {}; echo '{ANSWER}'", size.display()),
    ];
    for text in answers {
        preferred(&planned(stage.numa_run(&["plan", "--gpu", "2", "--json"], &stage.plugin(&text), 2.0)));
    }
    let size: usize = fs::read_to_string(size).unwrap().trim().parse().unwrap();
    assert!(size > 65536, "{size} bytes fit a pipe");
    first(&stage.planned(&stage.plugin("sleep 60")), "it gave no answer within 0.5 s");
}

#[test]
fn an_answer_may_be_as_long_as_pipes_are_short() {
    let stage = Stage::new();
    let planned = stage.planned(&stage.plugin(&format!("head -c 900000 /dev/zero | tr '\\0' ' '; echo '{ANSWER}'")));
    preferred(&planned);
}

#[test]
fn a_plugin_inherits_nothing() {
    let stage = Stage::new();
    let folder = stage.path().display();
    let seen = r"ls /proc/self/fd; cat /proc/self/environ | tr '\0' '\n'; pwd; echo";
    let plugin =
        stage.plugin(&format!("exec 8> {folder}/part; {{ {seen}; }} >&8 2>&8 8>&-; mv {folder}/part {folder}/seen"));
    let mut numa_run = stage.numa_run(&["plan", "--gpu", "2"], &plugin, 2.0);
    numa_run.env("SECRET", "1").current_dir(stage.path());
    // The shell leaves descriptor 9 open over exec.
    let mut command = Command::new("sh");
    command.arg("-c").arg("exec 9</dev/null; exec \"$0\" \"$@\"").arg(numa_run.get_program()).args(numa_run.get_args());
    for (name, value) in numa_run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(stage.path()).stdout(Stdio::null()).status().unwrap();
    let seen = left(&stage, "seen");
    let lines: Vec<&str> = seen.lines().collect();
    // `ls` has its own folder open as the fourth.
    assert_eq!(lines[..4], ["0", "1", "2", "3"], "{seen}");
    assert!(lines.iter().any(|line| line.starts_with("PATH=/usr/local/sbin:")) && lines.contains(&"/"), "{seen}");
    assert!(!seen.contains("SECRET") && !seen.contains("NUMA_RUN") && !seen.contains("HOME"), "{seen}");
}

#[test]
fn a_plugin_does_not_outlive_a_launch_that_is_killed() {
    let stage = Stage::new();
    let plugin = stage.plugin(&format!("echo $$ > {}/pid; exec sleep 60", stage.path().display()));
    let mut launch = stage.numa_run(&["plan", "--gpu", "2"], &plugin, 50.0).stdout(Stdio::null()).spawn().unwrap();
    let pid = left(&stage, "pid");
    launch.kill().unwrap();
    launch.wait().unwrap();
    assert!(gone(&pid));
}

#[test]
fn a_plugin_that_has_failed_is_not_asked_again_by_the_same_launch() {
    let stage = Stage::new();
    let plugin = stage.plugin(&format!("echo asked >> {}/asked; exit 1", stage.path().display()));
    planned(stage.numa_run(&["plan", "--gpu", "a=1", "--gpu", "b=1", "--gpu", "c=1"], &plugin, LIMIT));
    assert_eq!(fs::read_to_string(stage.path().join("asked")).unwrap().lines().count(), 1);
}

#[test]
fn no_zombie_is_left_even_where_orphans_are_ours() {
    // As for the first process of a container: who loses his parent becomes our child.
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let stage = Stage::new();
    let plugin = stage.plugin("for i in 1 2 3 4 5; do sleep 60 & done; (sleep 60 & exit 0); echo $$");
    for limit in [Duration::from_secs(5), Duration::from_millis(300)] {
        let answer = numa_run::host::plugin::ask(&plugin, b"{}", limit).unwrap();
        let group = String::from_utf8(answer).unwrap();
        let members = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            // Behind the name: state, parent, group.
            (stat.rsplit_once(')')?.1.split_whitespace().nth(2)? == group.trim()).then_some(stat)
        });
        assert_eq!(members.collect::<Vec<_>>(), [] as [String; 0]);
    }
    let plugin = stage.plugin("sleep 60 & sleep 60");
    let silence = numa_run::host::plugin::ask(&plugin, b"{}", Duration::from_millis(200)).unwrap_err();
    assert_eq!(silence.to_string(), "it gave no answer within 0.2 s and was stopped");
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    assert_eq!(children.trim(), "");
}
