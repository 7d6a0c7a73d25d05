//! Who the workload is and what it may do. Only root can start it as somebody else.

use super::{Ended, NUMA_RUN, ORDINARY, Stage, User, installed, typed, users};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

const OTHER: &str = "65534:65534";
const NET_RAW_AND_IPC_LOCK: &str = "0000000000006000";
const NONE: &str = "0000000000000000";

/// True for root, who can start programs as an ordinary user here.
fn root() -> bool {
    let root = users().contains(&User::Ordinary);
    if !root {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root and leaves nothing out");
        eprintln!("SKIPPED, NOT TESTED: only root becomes another user");
    }
    root
}

/// A launch's /proc/self/status, by name.
fn status(options: &[&str]) -> BTreeMap<String, String> {
    let stage = Stage::new();
    let mut command = stage.numa_run(User::Same);
    read(&Ended::fine(command.args(["--quiet", "--cpus", "1"]).args(options).args(["--", "cat", "/proc/self/status"])))
}

fn read(text: &str) -> BTreeMap<String, String> {
    let words = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), words(value))).collect()
}

fn caps(status: &BTreeMap<String, String>) -> [&str; 5] {
    ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|name| status[name].as_str())
}

#[test]
fn another_user_has_all_four_ids_and_no_capability() {
    if !root() {
        return;
    }
    let own = read(&fs::read_to_string("/proc/self/status").unwrap());
    let status = status(&["--user", OTHER, "--group", "7,9", "--group", "7"]);
    assert_eq!(status["Uid"], "65534 65534 65534 65534");
    assert_eq!(status["Gid"], "65534 65534 65534 65534");
    assert_eq!(status["NoNewPrivs"], own["NoNewPrivs"]);
    // Set-uid programs work as they do under su.
    assert_eq!(caps(&status), [NONE, NONE, NONE, &own["CapBnd"], NONE]);
    let groups: Vec<&str> = status["Groups"].split(' ').collect();
    assert!(["7", "9", "65534"].iter().all(|group| groups.contains(group)) && !groups.contains(&"0"), "{groups:?}");
}

#[test]
fn capabilities_that_are_asked_for_survive_exec_and_no_other_can_be_had() {
    if !root() {
        return;
    }
    let asked = NET_RAW_AND_IPC_LOCK;
    let status_of_user = status(&["--user", OTHER, "--caps", "net_raw,CAP_IPC_LOCK"]);
    assert_eq!(caps(&status_of_user), [asked; 5]);
    assert_eq!(status_of_user["Uid"], "65534 65534 65534 65534");
    let status_of_root = status(&["--caps", "net_raw,ipc_lock"]);
    assert_eq!(caps(&status_of_root), [asked; 5]);
    assert_eq!(status_of_root["Uid"], "0 0 0 0");
    assert_eq!(caps(&status(&["--caps", "none"])), [NONE; 5]);
    assert_eq!(caps(&status(&["--user", OTHER, "--caps", "none"])), [NONE; 5]);
}

#[test]
fn root_by_name_keeps_what_root_has() {
    if !root() {
        return;
    }
    let plain = status(&[]);
    let named = status(&["--user", "root"]);
    assert_eq!(caps(&named), caps(&plain));
    assert_eq!(named["Uid"], "0 0 0 0");
}

#[test]
fn no_new_privileges_is_for_everybody() {
    for user in users() {
        let stage = Stage::new();
        let mut command = stage.numa_run(user);
        let shown = Ended::fine(command.args(["--no-new-privs", "--cpus", "1", "--", "cat", "/proc/self/status"]));
        assert_eq!(read(&shown)["NoNewPrivs"], "1", "{user:?}");
    }
}

#[test]
fn nothing_is_regained() {
    if !root() {
        return;
    }
    let stage = Stage::new();
    let shell = fs::read(fs::canonicalize("/bin/cat").unwrap()).unwrap();
    let set_uid = stage.file("set-uid", &shell, 0o4755).display().to_string();
    let flags = nix::sys::statvfs::statvfs(set_uid.as_str()).unwrap().flags();
    let honoured = !flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID);
    let script = "setpriv --reuid 0 true && echo regained; setpriv --regid 0 true && echo regained; \
                  setpriv --groups 0 true && echo regained; head -c 1 /etc/shadow; \"$0\" /proc/self/status";
    let run = |options: &[&str]| {
        let mut command = stage.numa_run(User::Same);
        let command = command.args(["--cpus", "1", "--user", OTHER]).args(options);
        Ended::of(command.args(["--", "sh", "-c", script, &set_uid])).out
    };
    for (options, effective_user, capabilities) in [
        (&[][..], "0", None),
        (&["--caps", "net_raw,ipc_lock"], "0", Some(NET_RAW_AND_IPC_LOCK)),
        (&["--caps", "none"], "0", Some(NONE)),
        (&["--no-new-privs"], "65534", Some(NONE)),
        (&["--no-new-privs", "--caps", "net_raw,ipc_lock"], "65534", Some(NET_RAW_AND_IPC_LOCK)),
    ] {
        let out = run(options);
        assert!(!out.contains("regained") && out.starts_with("Name:"), "{options:?}: {out}");
        let status = read(&out);
        if honoured {
            assert_eq!(status["Uid"].split(' ').nth(1), Some(effective_user), "{options:?}");
            assert!(capabilities.is_none_or(|wanted| status["CapEff"] == wanted), "{options:?}: {}", status["CapEff"]);
        }
    }
    assert!(honoured, "{set_uid} does not honour set-uid");
}

#[test]
fn the_users_variables_are_his_own() {
    if !root() {
        return;
    }
    let script = "echo \"$HOME $USER $LOGNAME $SHELL ${XDG_RUNTIME_DIR-unset} $KEPT\"";
    let run = |options: &[&str]| {
        let stage = Stage::new();
        let mut command = stage.numa_run(User::Same);
        let command = command.env("HOME", "/root").env("USER", "root").env("XDG_RUNTIME_DIR", "/run/user/0");
        let command = command.env("LOGNAME", "root").env("SHELL", "/bin/zsh").env("KEPT", "kept");
        Ended::fine(command.args(options).args(["--", "sh", "-c", script])).trim().to_owned()
    };
    let daemon = nix::unistd::User::from_name("daemon").unwrap().unwrap();
    let (home, shell) = (daemon.dir.display().to_string(), daemon.shell.display().to_string());
    assert_eq!(run(&["--user", "daemon"]), format!("{home} daemon daemon {shell} unset kept"));
    assert_eq!(run(&["--user", &daemon.uid.to_string()]), format!("{home} daemon daemon {shell} unset kept"));
    assert_eq!(run(&["--user", "4200000000:1"]), "/ 4200000000 4200000000 /bin/sh unset kept");
    assert_eq!(run(&["--caps", "none"]), "/root root root /bin/zsh /run/user/0 kept");
}

#[test]
fn a_command_that_its_user_may_not_execute_leaves_nothing_behind() {
    if !root() {
        return;
    }
    let stage = Stage::new();
    let closed = stage.file("root-only", b"#!/bin/sh\n", 0o700).display().to_string();
    for options in [&["--user", OTHER][..], &["--user", OTHER, "--caps", "net_raw"], &["--caps", "none"]] {
        for (program, code) in [(closed.as_str(), 126), ("/no/such/program", 127), ("no-such-program", 127)] {
            // Root may, with or without capabilities.
            if options[0] == "--caps" && code == 126 {
                continue;
            }
            let mut command = stage.numa_run(User::Same);
            let ended = Ended::of(command.args(["--cpus", "1"]).args(options).args(["--", program]));
            assert_eq!(ended.code, Some(code), "{options:?} {program}: {ended:?}");
            assert_eq!(ended.errors.lines().count(), 1, "{ended:?}");
            let left: Vec<_> = fs::read_dir(stage.path("run-Same/leases")).unwrap().flatten().collect();
            assert!(left.is_empty(), "{options:?} {program}: {left:?}");
        }
    }
}

#[test]
fn what_fails_on_the_way_to_another_user_is_named_and_leaves_nothing_behind() {
    if !root() || !installed("strace") {
        return;
    }
    // Some of them fail when there is no way back to root.
    for (call, options) in [
        ("setgroups", &["--user", OTHER][..]),
        ("setresgid", &["--user", OTHER]),
        ("setresuid", &["--user", OTHER]),
        ("capset", &["--user", OTHER]),
        ("capset", &["--caps", "net_raw"]),
        ("prctl", &["--user", OTHER, "--no-new-privs"]),
    ] {
        let stage = Stage::new();
        let mut command = Command::new("strace");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run")).args(["-qq", "-o", "/dev/null", "-e"]);
        command.args([&format!("inject={call}:error=EPERM"), NUMA_RUN, "--cpus", "1"]).args(options);
        let ended = Ended::of(command.args(["--", "echo", "ran"]));
        assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{call}: {ended:?}");
        assert!(ended.errors.contains(call) && ended.errors.contains("Operation not permitted"), "{call}: {ended:?}");
        let left: Vec<_> = fs::read_dir(stage.path("run/leases")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{call}: {left:?}");
    }
}

#[test]
fn a_supervised_command_of_another_user_ends_as_it_ends() {
    if !root() {
        return;
    }
    let stage = Stage::new();
    let run = |command: &[&str]| {
        let mut launch = stage.numa_run(User::Same);
        let ended = Ended::of(launch.args(["--supervise", "--cpus", "1", "--user", OTHER, "--"]).args(command));
        let left: Vec<_> = fs::read_dir(stage.path("run-Same/leases")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{command:?}: {left:?}");
        (ended.code, ended.out)
    };
    assert_eq!(run(&["sh", "-c", "id -u; exit 3"]), (Some(3), "65534\n".into()));
    assert_eq!(run(&["/no/such/program"]), (Some(127), String::new()));
    assert_eq!(run(&[stage.file("root-only", b"#!/bin/sh\n", 0o700).to_str().unwrap()]), (Some(126), String::new()));
}

#[test]
fn the_lease_stays_roots_and_ends_with_the_workload() {
    if !root() {
        return;
    }
    let stage = Stage::new();
    let all = super::allowed_cpus().to_string();
    let run = |script: &str| {
        let mut command = stage.numa_run(User::Same);
        Ended::fine(command.args([
            "--isolated",
            "never",
            "--cpu-list",
            &all,
            "--user",
            OTHER,
            "--",
            "sh",
            "-c",
            script,
        ]))
    };
    let script = "lock=$(ls -l /proc/$$/fd | sed -n 's|.* \\([0-9]*\\) -> .*\\.lock$|\\1|p'); echo $lock; \
                  cat < /proc/$$/fd/$lock && echo read; echo >> /proc/$$/fd/$lock && echo written; \
                  (echo forged > \"$1\"/leases/forged.lock) && (rm \"$1\"/leases/*.lease) && echo removed; cat \"$1\"/leases/*.lease | head -c 8";
    let run_dir = stage.path("run-Same").display().to_string();
    let mut command = stage.numa_run(User::Same);
    let ended = Ended::of(command.args(["--cpus", "1", "--user", OTHER, "--", "sh", "-c", script, "sh", &run_dir]));
    let words: Vec<&str> = ended.out.split_whitespace().collect();
    assert_eq!(words.len(), 2, "one descriptor of ours, readable by its number only: {ended:?}");
    for lock in fs::read_dir(stage.path("run-Same/leases")).unwrap().flatten() {
        let about = lock.metadata().unwrap();
        assert!(about.uid() == 0 || lock.file_name() == "forged.lock", "{lock:?}");
    }
    // Whoever stood by is gone when the workload is: the next one gets everything.
    for _ in 0..20 {
        run("true");
    }
}

#[test]
fn a_process_that_is_the_users_already_does_not_have_the_ledger() {
    if !root() || !installed("strace") {
        return;
    }
    let stage = Stage::new();
    let mut command = Command::new("strace");
    stage.set_up(&mut command);
    command.env("NUMA_RUN_RUN_DIR", stage.path("run-Same")).args(["-qq", "-o", "/dev/null", "-e"]);
    command.args(["inject=setresuid:delay_exit=4s", NUMA_RUN, "--cpus", "1", "--user", OTHER, "--", "true"]);
    let mut slow = command.spawn().unwrap();
    let leases = stage.path("run-Same/leases");
    let has_lease = || {
        fs::read_dir(&leases)
            .into_iter()
            .flatten()
            .flatten()
            .any(|file| file.path().extension().is_some_and(|kind| kind == "lease"))
    };
    while !has_lease() {
        assert_eq!(slow.try_wait().unwrap(), None, "strace cannot trace here");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let begun = std::time::Instant::now();
    assert_eq!(Ended::of(stage.numa_run(User::Same).arg("gc")).code, Some(0));
    assert_eq!(slow.try_wait().unwrap(), None);
    assert!(begun.elapsed().as_secs() < 2);
    assert!(slow.wait().unwrap().success());
}

#[test]
fn the_workload_has_no_child_that_it_did_not_start() {
    if !root() {
        return;
    }
    for ignored in [&[][..], &["env", "--ignore-signal=CHLD"]] {
        let stage = Stage::new();
        let words = [ignored, &[NUMA_RUN, "--cpus", "1", "--user", OTHER, "--"]].concat();
        let mut command = Command::new(words[0]);
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run"));
        let out = Ended::fine(command.args(&words[1..]).args(["sh", "-c", "cat /proc/$$/task/$$/children; echo none"]));
        // The first is cat itself.
        assert!(out.split_whitespace().count() <= 2 && out.ends_with("none\n"), "{out}");
    }
}

#[test]
fn another_users_workload_has_the_callers_descriptors_and_of_ours_the_lock_alone() {
    if !root() {
        return;
    }
    let stage = Stage::new();
    let run = |launcher: &[&str]| {
        let mut command = Command::new("sh");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run"));
        let start = "exec 5</etc/passwd 7>/dev/null 2>&-; exec \"$@\"";
        command.args(["-c", start, "sh"]).args(launcher).args(["sh", "-c", "ls -l /proc/$$/fd; true"]);
        let ended = Ended::of(&mut command);
        let name_and_place = |line: &str| {
            let (rest, place) = line.split_once(" -> ")?;
            // What a pipe is called differs from start to start.
            let place = if place.starts_with("pipe:") { "pipe" } else { place };
            Some(format!("{} {place}", rest.rsplit(' ').next()?))
        };
        ended.out.lines().filter_map(name_and_place).collect::<Vec<String>>()
    };
    let by_hand = run(&["setpriv", "--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups", "--"]);
    let mut ours = run(&[NUMA_RUN, "--quiet", "--cpus", "1", "--user", OTHER, "--"]);
    let lock = ours.iter().position(|line| line.starts_with("512 ") && line.ends_with(".lock")).expect("the lock");
    ours.remove(lock);
    // A closed one is closed or /dev/null, and no file of ours.
    ours.retain(|line| line != "2 /dev/null");
    assert_eq!(ours, by_hand);
    assert!(ours.iter().any(|line| line == "5 /etc/passwd"), "{ours:?}");
}

#[test]
fn the_lines_of_a_dry_run_do_the_same() {
    if !root() || !installed("setpriv") {
        return;
    }
    for options in [
        &["--user", "daemon"][..],
        &["--user", OTHER, "--group", "9", "--caps", "net_raw,ipc_lock", "--no-new-privs"],
        &["--user", "4200000000:7", "--caps", "none"],
        &["--caps", "net_raw"],
        &["--no-new-privs"],
    ] {
        let stage = Stage::new();
        let mut command = stage.numa_run(User::Same);
        let show = "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs):' /proc/self/status; echo $HOME $USER $LOGNAME $SHELL";
        command.args(options).args(["--dry-run", "--", "sh", "-c", show]);
        let steps = Ended::fine(&mut command);
        let by_hand = Ended::fine(typed(User::Same, "sh").args(["-c", &steps]));
        let mut command = stage.numa_run(User::Same);
        let ours = Ended::fine(command.args(options).args(["--", "sh", "-c", show]));
        assert_eq!(by_hand, ours, "{steps}");
    }
}

#[test]
fn what_cannot_be_given_up_or_kept_is_said() {
    let refused = |user: User, options: &[&str], says: &str| {
        let stage = Stage::new();
        let ended = Ended::of(stage.numa_run(user).args(options).args(["--", "echo", "ran"]));
        assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{options:?}: {ended:?}");
        assert!(ended.errors.contains(says), "{options:?}: {says}: {ended:?}");
    };
    for (options, says) in [
        (&["--user", "no-such-user"][..], "there is no user `no-such-user` in /etc/passwd"),
        (&["--user", "root:no-such-group"], "there is no group `no-such-group` in /etc/group"),
        (&["--user", "4200000000"], "write --user 4200000000:GROUP"),
        (&["--user", "4294967295:0"], "is no user or group"),
        (&["--user", "1:"], "is no user or group"),
        (&["--group", "7"], "add --user USER"),
        (&["--caps", "net_row"], "`net_row` is no capability"),
    ] {
        refused(User::Same, options, says);
    }
    if root() {
        for options in [["--user", "0"], ["--user", ORDINARY], ["--caps", "none"]] {
            refused(User::Ordinary, &options, &format!("{} needs root, and this is user {ORDINARY}", options[0]));
        }
        // Root whose capabilities somebody has limited.
        let stage = Stage::new();
        let mut command = Command::new("setpriv");
        stage.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", stage.path("run"));
        command.args(["--bounding-set=-net_raw", NUMA_RUN, "--caps", "net_raw,ipc_lock", "--", "echo", "ran"]);
        let ended = Ended::of(&mut command);
        assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{ended:?}");
        assert!(ended.errors.contains("--caps: net_raw cannot be given"), "{ended:?}");
    }
}

#[test]
fn a_variable_about_groups_is_no_mistake_where_no_user_is_named() {
    let stage = Stage::new();
    let mut command = stage.numa_run(User::Same);
    assert_eq!(Ended::of(command.env("NUMA_RUN_GROUP", "7").args(["--", "true"])).code, Some(0));
}
