//! What is refused, and that nothing was started then.

use super::{Ended, Stage, User, allowed_cpus, started, users};

/// Launches something that leaves a mark; it must not get that far.
fn refused(user: User, options: &[&str], says: &[&str]) {
    let stage = Stage::new();
    let mark = stage.path("mark");
    let ended = Ended::of(stage.numa_run(user).args(options).arg("--").arg("touch").arg(&mark));
    assert_eq!(ended.code, Some(125), "{user:?} {options:?}: {ended:?}");
    assert!(!started(&mark), "{user:?} {options:?}");
    assert_eq!(ended.out, "", "{user:?} {options:?}");
    for part in says {
        assert!(ended.errors.contains(part), "{user:?} {options:?}: {part}: {ended:?}");
    }
}

#[test]
fn more_cpus_than_there_are_is_a_sentence_to_act_on() {
    let free = allowed_cpus().len();
    let wanted = (free + 1).to_string();
    for user in users() {
        let found = format!("not enough cpus: {wanted} wanted, {free} free");
        refused(
            user,
            &["--isolated", "never", "--cpus", &wanted],
            &[&found, &format!("--cpus {free} would be admitted now")],
        );
    }
}

#[test]
fn more_memory_than_there_is() {
    for user in users() {
        refused(user, &["--memory", "1000000G"], &["not enough memory: 1000000G wanted", "would be admitted now"]);
    }
}

#[test]
fn a_usage_error_of_a_launch_is_125() {
    let cases: [(&[&str], &str); 14] = [
        (&["--cpus", "x"], "invalid value 'x'"),
        (&["--cpus", "0"], "0 is not in 1..="),
        (&["--cpu-list", "3-1"], "runs backwards"),
        (&["--cpu-list", "0", "--cpus", "1"], "cannot be used with"),
        (&["--cpu-list", "9999"], "CPU 9999 does not exist"),
        (&["--cpu-nodes", "99"], "node 99 does not exist"),
        (&["--mem-nodes", "99"], "node 99 does not exist"),
        (&["--memory", "12"], "has no unit"),
        (&["--policy", "strict"], "is no policy"),
        (&["--nonsense"], "unexpected argument"),
        (&["--mempolicy", "local", "--mem-nodes", "0"], "takes no nodes"),
        (&["--cpus", "1", "--cpu-option", "full-core"], "no cpu option"),
        (&["--config", "/no/such/file"], "cannot read /no/such/file"),
        (&["--max-numa-nodes", "true"], "invalid value 'true'"),
    ];
    for (options, says) in cases {
        refused(User::Same, options, &[says]);
    }
}

#[test]
fn a_usage_error_of_a_plan_is_2_and_a_failure_125() {
    let cases: [(&[&str], i32); 7] = [
        (&["--cpus", "x"], 2),
        (&["--nonsense"], 2),
        (&["--cpu-list", "0", "--cpus", "1"], 2),
        (&["--mempolicy", "local", "--mem-nodes", "0"], 2),
        (&["--cpu-nodes", "99"], 2),
        (&["--config", "/no/such/file"], 125),
        (&["--cpu-list", "9999"], 1),
    ];
    for (options, code) in cases {
        let stage = Stage::new();
        let ended = Ended::of(stage.numa_run(User::Same).arg("plan").args(options));
        assert_eq!(ended.code, Some(code), "{options:?}: {ended:?}");
    }
}

#[test]
fn a_limit_of_no_nodes_is_refused_with_both_numbers() {
    refused(User::Same, &["--cpus", "1", "--max-numa-nodes", "0"], &["nodes found, limit 0"]);
}

#[test]
fn nothing_to_run_is_an_error() {
    let stage = Stage::new();
    for options in [&["--cpus", "1"] as &[&str], &["--cpus", "1", "--"], &[]] {
        let ended = Ended::of(stage.numa_run(User::Same).args(options));
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert!(ended.errors.contains("nothing to run"), "{ended:?}");
    }
}

#[test]
fn another_machine_is_no_place_to_start_a_command() {
    let stage = Stage::new();
    let assume = stage.file("assume.toml", b"held_cpus = \"0\"\n", 0o644);
    let assume = assume.display().to_string();
    for user in users() {
        refused(user, &["--topology", "synthetic:numa:1 core:2 pu:1"], &["--topology describes another machine"]);
        refused(user, &["--topology", "/no/such.xml"], &["--topology describes another machine"]);
        refused(user, &["--assume", &assume], &["--assume takes things for granted"]);
    }
}

#[test]
fn a_wrong_configuration_is_named_with_its_line() {
    let cases: [(&str, &str); 5] = [
        ("pol = \"1\"\n", "unknown field `pol`"),
        ("pool = \"3-1\"\n", "runs backwards"),
        ("[reserved]\nmemory = \"1\"\n", "has no unit"),
        ("[class.fpga]\ndevices = []\n", "the configuration names class `fpga`"),
        ("pool = ", "line 1"),
    ];
    for (text, says) in cases {
        let stage = Stage::new();
        let config = stage.file("config.toml", text.as_bytes(), 0o644).display().to_string();
        refused(User::Same, &["--config", &config, "--cpus", "1"], &[says]);
    }
}

#[test]
fn a_wrong_assumption_is_named() {
    let cases: [(&str, &str); 4] = [
        ("held = \"1\"\n", "unknown field `held`"),
        ("[[device]]\nclass = \"fpga\"\npci = \"3b:00.0\"\n", "an assumed device is of class `fpga`"),
        ("[[device]]\nclass = \"gpu\"\npci = \"3b:20.0\"\n", "3b:20.0"),
        ("[[device]]\nclass = \"gpu\"\npci = \"3b:00.0\"\nnode = -2\n", "-2 is no node"),
    ];
    for (text, says) in cases {
        let stage = Stage::new();
        let assume = stage.file("assume.toml", text.as_bytes(), 0o644);
        let ended = Ended::of(stage.numa_run(User::Same).args(["plan", "--gpu", "1", "--assume"]).arg(&assume));
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert!(ended.errors.contains(says), "{ended:?}");
    }
}

#[test]
fn a_host_that_is_reserved_as_a_whole_gives_nothing() {
    let stage = Stage::new();
    let text = format!("[reserved]\ncpus = \"{}\"\n", allowed_cpus());
    let config = stage.file("config.toml", text.as_bytes(), 0o644).display().to_string();
    refused(
        User::Same,
        &["--config", &config, "--cpus", "1", "--isolated", "never"],
        &["not enough cpus: 1 wanted, 0 free"],
    );
}

#[test]
fn a_set_uid_numa_run_does_nothing() {
    if !users().contains(&User::Ordinary) {
        eprintln!("SKIPPED, NOT TESTED: only root can make a set-uid program to be started by others");
        return;
    }
    let stage = Stage::new();
    let program = stage.file("numa-run", &std::fs::read(super::NUMA_RUN).unwrap(), 0o4755);
    let flags = nix::sys::statvfs::statvfs(&program).unwrap().flags();
    if flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID) {
        eprintln!("SKIPPED, NOT TESTED: {} does not honour set-uid", program.display());
        return;
    }
    let mut command = super::typed(User::Ordinary, &program);
    stage.set_up(&mut command);
    let ended = Ended::of(command.args(["--cpus", "1", "--", "id"]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{ended:?}");
    assert!(ended.errors.contains("does not run set-uid"), "{ended:?}");
}
