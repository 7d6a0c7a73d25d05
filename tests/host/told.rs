//! What the workload is told: variables and templates.

use super::{Ended, Stage, User, installed, users};
use numa_run::topology::CpuSet;

#[test]
fn the_grant_is_in_the_environment() {
    for user in users() {
        let stage = Stage::new();
        let out = Ended::fine(stage.numa_run(user).args(["--cpus", "1", "--memory", "64M", "--", "env"]));
        let value =
            |name: &str| out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
        let cpu = value("NUMA_RUN_ALLOC_CPUS").expect(&out);
        assert!(cpu.parse::<u32>().is_ok(), "{cpu}");
        assert_eq!(value("NUMA_RUN_ALLOC_MEMORY").as_deref(), Some("64M"));
        assert!(value("NUMA_RUN_ALLOC_NODES").is_some_and(|nodes| !nodes.is_empty()), "{out}");
        assert!(value("NUMA_RUN_ALLOC_LEASE").is_some_and(|lease| !lease.contains('/')), "{out}");
        assert_eq!(value("OMP_NUM_THREADS").as_deref(), Some("1"));
        assert_eq!(value("OMP_PLACES"), Some(format!("{{{cpu}}}")));
    }
}

#[test]
fn a_command_with_members_is_told_the_whole_and_each_members_part() {
    let count = super::allowed_cpus().len().min(2);
    for (user, scope) in users().into_iter().flat_map(|user| [(user, "member"), (user, "group")]) {
        let stage = Stage::new();
        let members = count.to_string();
        let request = ["--members", &members, "--scope", scope, "--cpus", "1", "--smt", "share", "--memory", "64M"];
        let mut command = stage.numa_run(user);
        let out = Ended::fine(command.args(request).args(["--isolated", "never", "--", "env"]));
        let value =
            |name: &str| out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
        assert_eq!(value("NUMA_RUN_ALLOC_MEMBERS"), Some(members.clone()), "{out}");
        assert_eq!(value("NUMA_RUN_ALLOC_MEMORY"), Some(format!("{}M", 64 * count)));
        let part = |member: usize, what: &str| value(&format!("NUMA_RUN_ALLOC_MEMBER_{member}_{what}"));
        let parts = (0..count).map(|member| part(member, "CPUS").unwrap().parse::<CpuSet>().unwrap());
        let all = parts.fold(CpuSet::new(), |all, part| all.or(&part));
        assert_eq!(all.len(), count, "no two have the same: {out}");
        assert_eq!(value("NUMA_RUN_ALLOC_CPUS"), Some(all.to_string()), "the command has them all: {out}");
        assert_eq!(part(0, "MEMORY").as_deref(), Some("64M"));
        assert!(part(0, "NODES").is_some_and(|nodes| !nodes.is_empty()) && part(count, "CPUS").is_none());
        assert_eq!(value("OMP_NUM_THREADS").as_deref(), Some("1"), "a member's number of threads");
        assert_eq!(value("OMP_PLACES"), None);
    }
}

#[test]
fn openmp_variables_of_the_caller_win() {
    let stage = Stage::new();
    let mut command = stage.numa_run(User::Same);
    command.env("OMP_NUM_THREADS", "7").args([
        "--cpus",
        "1",
        "--",
        "sh",
        "-c",
        "echo $OMP_NUM_THREADS; echo $OMP_PLACES",
    ]);
    let out = Ended::fine(&mut command);
    assert!(out.starts_with("7\n{"), "{out}");
    let out = Ended::fine(stage.numa_run(User::Same).args(["--", "sh", "-c", "echo [$OMP_NUM_THREADS$OMP_PLACES]"]));
    assert_eq!(out, "[]\n", "without CPUs of its own there is nothing to tell");
}

#[test]
fn templates_are_filled_where_that_is_asked_for() {
    let stage = Stage::new();
    let words = ["-l{cpus}", "{nodes}", "{numa-mem}", "{not a template}", "{}"];
    let run = |template: &[&str]| {
        let mut command = stage.numa_run(User::Same);
        command.args(template).args([
            "--cpu-list",
            "all",
            "--isolated",
            "never",
            "--memory",
            "64M",
            "--",
            "printf",
            "%s|",
        ]);
        Ended::fine(command.args(words))
    };
    let filled = run(&["--template"]);
    let parts: Vec<&str> = filled.split('|').collect();
    assert_eq!(parts[0], format!("-l{}", super::allowed_cpus()));
    assert!(parts[1].parse::<numa_run::topology::NodeMask>().is_ok(), "{filled}");
    assert_eq!(parts[2].split(',').filter_map(|part| part.parse::<u64>().ok()).sum::<u64>(), 64, "{filled}");
    assert_eq!(parts[3..5], ["{not a template}", "{}"]);
    assert_eq!(run(&[]), words.join("|") + "|");
}

#[test]
fn an_unknown_template_is_an_error_before_anything_happens() {
    for word in ["{gpu.0}", "{nope}", "x{vf.n3}y", "{shared-cpus}"] {
        let stage = Stage::new();
        let mark = stage.path("mark");
        let mut command = stage.numa_run(User::Same);
        let ended = Ended::of(command.args(["--template", "--cpus", "1", "--", "touch"]).arg(&mark).arg(word));
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert!(ended.errors.contains("stands for nothing here"), "{ended:?}");
        assert!(!super::started(&mark));
    }
}

#[test]
fn a_flag_wins_over_the_environment() {
    if !installed("nproc") {
        return;
    }
    let stage = Stage::new();
    let run = |options: &[&str]| {
        let mut command = stage.numa_run(User::Same);
        command.env("NUMA_RUN_CPUS", "9999").env("NUMA_RUN_QUIET", "1");
        Ended::of(command.args(options).args(["--", "nproc"]))
    };
    assert_eq!(run(&["--cpus", "1"]).out, "1\n");
    assert_eq!(run(&[]).code, Some(125), "the environment's 9999 CPUs are asked for");
}

#[test]
fn a_quiet_launch_says_nothing_and_an_explained_one_says_why() {
    let stage = Stage::new();
    let quiet = Ended::of(stage.numa_run(User::Same).args(["--quiet", "--cpus", "1", "--", "true"]));
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.errors.as_str()), (Some(0), "", ""));
    let explained = Ended::of(stage.numa_run(User::Same).args(["--explain", "--cpus", "1", "--", "echo", "output"]));
    assert_eq!(explained.out, "output\n");
    assert!(explained.errors.contains("cpu: 1 wanted"), "{explained:?}");
}
