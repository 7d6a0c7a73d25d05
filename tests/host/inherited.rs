//! What the workload inherits: everything that the caller gave, nothing of ours.

use super::{Ended, NUMA_RUN, Stage, User, installed, typed, users};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

/// The output of `script`, once started by `sh -c 'caller; exec ...'` and once
/// with numa-run in between.
fn outputs(user: User, caller: &str, script: &str) -> (String, String) {
    let stage = Stage::new();
    let run = |launcher: &[&str]| {
        let mut command = typed(user, "sh");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run"));
        let start = format!("{caller}\nexec \"$@\"");
        Ended::fine(command.args(["-c", &start, "sh"]).args(launcher).args(["sh", "-c", script]))
    };
    // Twice: the first one may read the machine with the help of a child, the second need not.
    run(&[NUMA_RUN, "--quiet", "--cpus", "1", "--"]);
    (run(&[]), run(&[NUMA_RUN, "--quiet", "--cpus", "1", "--"]))
}

fn same(caller: &str, script: &str) {
    for user in users() {
        let (plain, ours) = outputs(user, caller, script);
        assert!(!plain.trim().is_empty());
        assert_eq!(ours, plain, "{user:?}");
    }
}

#[test]
fn descriptors_of_the_caller_survive_and_of_ours_only_the_lease() {
    let caller = "exec 5</etc/passwd 7>/dev/null 9</dev/null";
    for user in users() {
        let (plain, ours) = outputs(user, caller, "ls -l /proc/$$/fd; head -c 4 <&5");
        let lease = |line: &&str| line.contains("/leases/") && line.ends_with(".lock");
        assert_eq!(ours.lines().filter(lease).count(), 1, "{user:?}: {ours}");
        // `5 -> /etc/passwd`, and what a pipe is called differs from start to start.
        let opened = |line: &str| line.rsplit_once(':').map_or(line.to_owned(), |(_, name)| name[3..].to_owned());
        let opened = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !lease(line)).map(|line| opened(line.trim_end_matches(|c| c != '>'))).collect()
        };
        assert!(opened(&plain).len() > 5, "{plain}");
        assert_eq!(opened(&ours), opened(&plain), "{user:?}");
        assert!(ours.ends_with("root") && ours.contains("5 -> /etc/passwd"), "{ours}");
    }
}

#[test]
fn a_closed_descriptor_is_not_taken_by_a_file_of_ours() {
    for closed in ["0<&-", "2>&-", "0<&- 2>&-"] {
        let stage = Stage::new();
        let mut command = Command::new("sh");
        stage.set_up(&mut command);
        let start = format!("exec {closed}; exec \"$@\"");
        let script = "for n in 0 2; do readlink /proc/$$/fd/$n || echo closed; done";
        command.env("NUMA_RUN_RUN_DIR", stage.path("run")).args(["-c", &start, "sh", NUMA_RUN, "--cpus", "1"]);
        let ours = Ended::fine(command.args(["--", "sh", "-c", script]));
        let fine = |line: &str| line == "closed" || line == "/dev/null" || line.starts_with("pipe:");
        assert!(ours.lines().count() == 2 && ours.lines().all(fine), "{closed}: {ours}");
    }
}

/// Blocked and ignored signals. 32 to 34 are the C library's own, which makes
/// handlers for them where it starts a thread.
fn signals(status: &str) -> Vec<(String, u64)> {
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let lines = lines.filter(|(name, _)| ["SigBlk", "SigIgn"].contains(name));
    lines.map(|(name, mask)| (name.to_owned(), u64::from_str_radix(mask, 16).unwrap() & !(7 << 31))).collect()
}

#[test]
fn ignored_and_blocked_signals_are_inherited_as_they_were() {
    let able = Command::new("env").args(["--block-signal=USR1", "true"]).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED, NOT TESTED: this env cannot block signals");
        return;
    }
    let callers: [(&[&str], [u64; 2]); 4] = [
        (&["--default-signal"], [0, 0]),
        (&["--default-signal", "--ignore-signal=PIPE"], [0, 1 << 12]),
        (&["--default-signal", "--block-signal=USR1", "--ignore-signal=HUP"], [1 << 9, 1]),
        (&["--default-signal", "--block-signal=PIPE", "--ignore-signal=INT"], [1 << 12, 1 << 1]),
    ];
    for user in users() {
        for (caller, [blocked, ignored]) in callers {
            let stage = Stage::new();
            let run = |launcher: &[&str]| {
                let mut command = typed(user, "env");
                stage.set_up(&mut command);
                command.env("NUMA_RUN_RUN_DIR", stage.path("run")).args(caller).args(launcher);
                signals(&Ended::fine(command.args(["cat", "/proc/self/status"])))
            };
            let plain = run(&[]);
            assert_eq!(plain, [("SigBlk".to_owned(), blocked), ("SigIgn".to_owned(), ignored)]);
            // The first one may read the machine with the help of a child, the second need not.
            for _ in 0..2 {
                assert_eq!(run(&[NUMA_RUN, "--cpus", "1", "--"]), plain, "{user:?}");
            }
        }
    }
}

#[test]
fn the_process_is_the_same_one() {
    for user in users() {
        let stage = Stage::new();
        let mut command = stage.numa_run(user);
        let child = command.args(["--cpus", "1", "--", "sh", "-c", "echo $$"]).stdout(std::process::Stdio::piped());
        let child = child.spawn().unwrap();
        let id = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), id.to_string());
    }
}

#[test]
fn limits_niceness_folder_and_umask_are_unchanged() {
    same(
        "ulimit -n 333; ulimit -c 0; umask 027; cd /usr",
        "cat /proc/self/limits; nice; umask; pwd; cut -d' ' -f5 /proc/self/stat >/dev/null",
    );
    for user in users() {
        let stage = Stage::new();
        let mut command = typed(user, "nice");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run"));
        let niced = Ended::fine(command.args(["-n", "5", NUMA_RUN, "--cpus", "1", "--", "nice"]));
        let usual = Ended::fine(&mut Command::new("nice"));
        let number = |text: &str| text.trim().parse::<i32>().unwrap();
        assert_eq!(number(&niced), (number(&usual) + 5).min(19));
    }
}

#[test]
fn arguments_and_variables_that_are_no_text_arrive_untouched() {
    let odd: Vec<u8> = (1..=255).collect();
    for user in users() {
        let stage = Stage::new();
        let mut command = stage.numa_run(user);
        command.env("ODD", OsStr::from_bytes(&odd)).env_remove("LANG");
        command.args([
            "--cpus",
            "1",
            "--",
            "sh",
            "-c",
            "cat /proc/$$/cmdline; printf '\\n--\\n'; printf %s \"$ODD\"",
            "sh",
        ]);
        command.arg(OsString::from_vec(odd.clone())).arg("").arg("--cpus").arg("{cpus}");
        let output = command.output().unwrap();
        let mut wanted = odd.clone();
        wanted.extend(b"\0\0--cpus\0{cpus}\0\n--\n");
        wanted.extend(&odd);
        assert!(output.stdout.ends_with(&wanted), "{user:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn many_and_long_arguments_arrive() {
    let stage = Stage::new();
    let words: Vec<String> = (0..5000).map(|number| format!("{number:0200}")).collect();
    let out = Ended::fine(
        stage.numa_run(User::Same).args(["--", "sh", "-c", "echo $#; eval echo \\${$#}", "sh"]).args(&words),
    );
    assert_eq!(out, format!("5000\n{}\n", words[4999]));
}

#[test]
fn stdin_reaches_the_workload() {
    if !installed("wc") {
        return;
    }
    let stage = Stage::new();
    let file = stage.file("input", &[b'x'; 100_000], 0o644);
    let mut command = stage.numa_run(User::Same);
    let out = Ended::fine(command.args(["--cpus", "1", "--", "wc", "-c"]).stdin(std::fs::File::open(file).unwrap()));
    assert_eq!(out.trim(), "100000");
}
