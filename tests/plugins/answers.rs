//! Answers, and what is none: a wrong one is a warning and never a reason to fail.

use super::{ANSWER, FIRST, PREFERRED, Stage};
use std::fs;
use std::time::Duration;

#[test]
fn a_good_answer_is_followed() {
    let stage = Stage::new();
    let planned = stage.planned(&stage.plugin(&format!("cat >/dev/null; echo '{ANSWER}'")));
    assert_eq!((planned.code, &planned.devices[..]), (Some(0), &PREFERRED.map(str::to_owned)[..]), "{planned:?}");
    assert!(!planned.said.contains("for gpu:"), "{planned:?}");
}

#[test]
fn a_launch_asks_as_a_plan_does() {
    let stage = Stage::new();
    let plugin = stage.plugin(&format!("echo '{ANSWER}'"));
    let mut command = stage.numa_run(&["--gpu", "2", "--dry-run", "--explain"], &plugin, 1.0);
    let output = command.args(["--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("NUMA_RUN_ALLOC_GPU=0000:11:00.0,0000:13:00.0"), "{said}");
    assert!(said.contains("prefers 0000:11:00.0 0000:13:00.0, instead of 0000:10:00.0 0000:11:00.0, cost 1"), "{said}");
}

#[test]
fn a_bad_answer_is_a_warning_and_the_built_in_preference() {
    let set = |devices: &str, rest: &str| format!("echo '{{\"preferred\": [{{\"devices\": [{devices}]{rest}}}]}}'");
    let pair = "\"0000:11:00.0\", \"0000:13:00.0\"";
    let texts = [
        ("".to_owned(), "cannot be read: EOF"),
        ("echo Segmentation fault".into(), "cannot be read: expected value"),
        ("head -c 3000 /dev/urandom".into(), "cannot be read"),
        ("head -c 300000 /dev/zero".into(), "cannot be read"),
        ("head -c 900000 /dev/zero | tr '\\0' '['".into(), "cannot be read: recursion limit"),
        ("yes".into(), "printed more than 1 MiB"),
        ("head -c 1048577 /dev/zero; exec >&-; sleep 9".into(), "printed more than 1 MiB"),
        (format!("echo '{ANSWER}{ANSWER}'"), "cannot be read: trailing characters"),
        ("echo '{\"preferred\": 7}'".into(), "cannot be read: invalid type"),
        ("echo '{\"preference\": []}'".into(), "cannot be read: missing field"),
        (set(pair, ", \"cost\": NaN"), "cannot be read"),
        (set(pair, ", \"cost\": 1e999"), "cannot be read: number out of range"),
        (set(pair, ", \"cost\": 1e300"), "is no cost"),
        (set(pair, ", \"cost\": -0.5"), "-0.5 is no cost"),
        (set(pair, ", \"cost\": \"none\""), "not used: invalid type"),
        (set("\"0000:11:00.0\", \"0000:11:00.0\"", ""), "names 0000:11:00.0 twice"),
        (set("\"0000:11:00.0\", \"11:0.0\"", ""), "names 0000:11:00.0 twice"),
        (set("\"0000:11:00.0\"", ""), "its size is 1, not 2"),
        (set("\"0000:10:00.0\", \"0000:11:00.0\", \"0000:12:00.0\"", ""), "its size is 3, not 2"),
        (set("\"0000:11:00.0\", \"0000:99:00.0\"", ""), "0000:99:00.0 was not offered"),
        (set("\"0000:11:00.0\", \"gpu1\"", ""), "`gpu1` is no PCI address"),
        ("echo 'out of memory' >&2; exit 3".into(), "it ended with status 3: out of memory"),
        (format!("echo '{ANSWER}'; exit 1"), "it ended with status 1"),
        (format!("echo '{ANSWER}'; kill -SEGV $$"), "it died of signal 11 (SIGSEGV)"),
        ("kill -KILL $$".into(), "it died of signal 9 (SIGKILL)"),
    ];
    let stage = Stage::new();
    for (text, part) in texts {
        let planned = stage.planned(&stage.plugin(&text));
        assert_eq!(
            (planned.code, &planned.devices[..]),
            (Some(0), &FIRST.map(str::to_owned)[..]),
            "{text} {planned:?}"
        );
        let warning = format!("plugin {} for gpu: ", stage.path().join("plugin").display());
        assert!(planned.said.contains(&warning) && planned.said.contains(part), "{text}: {}", planned.said);
        assert_eq!(planned.said.matches(&warning).count(), 1, "once: {}", planned.said);
        assert!(planned.took < Duration::from_secs(5), "{text}: {planned:?}");
    }
}

#[test]
fn a_plugin_that_cannot_be_started_is_a_warning() {
    let stage = Stage::new();
    let bare = stage.path().join("bare");
    fs::write(&bare, "no program").unwrap();
    let interpreter = super::script(stage.path(), "interpreter", "#!/nonexistent\n");
    let folder = stage.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for program in [stage.path().join("absent"), bare.clone(), bare.join("below"), interpreter, folder] {
        let planned = stage.planned(&program);
        assert_eq!((planned.code, &planned.devices[..]), (Some(0), &FIRST.map(str::to_owned)[..]), "{planned:?}");
        assert!(planned.said.contains("for gpu: it cannot be run: "), "{planned:?}");
    }
}

#[test]
fn what_a_plugin_says_does_a_terminal_no_harm() {
    let stage = Stage::new();
    for text in [
        "printf 'bad \\033[2J\\n' >&2; exit 1",
        "echo '{\"preferred\": [{\"devices\": [\"\\u001b[2J\", \"\\u001b[2J\"]}]}'",
        "echo '{\"preferred\": [{\"devices\": [\"0000:11:00.0\", \"0000:13:00.0\"], \"resource_domain\": \"\\u001b[2J\"}]}'",
    ] {
        let plugin = stage.plugin(text);
        let output = stage.numa_run(&["plan", "--gpu", "2", "--explain"], &plugin, 1.0).output().unwrap();
        assert!(![output.stdout, output.stderr].concat().contains(&0x1b), "{text}");
    }
}

#[test]
fn the_question_has_all_that_a_choice_needs_and_the_machine_that_is_planned_for() {
    let stage = Stage::new();
    let plugin = stage.plugin(&format!("cat > {}/question; echo >> {0}/question", stage.path().display()));
    stage.planned(&plugin);
    let question: serde_json::Value = serde_json::from_str(&super::left(&stage, "question")).unwrap();
    let all = ["0000:10:00.0", "0000:11:00.0", "0000:12:00.0", "0000:13:00.0"];
    for (key, value) in [
        ("version", serde_json::json!(1)),
        ("class", serde_json::json!("gpu")),
        ("request", serde_json::json!("gpu")),
        ("available", serde_json::json!(all)),
        ("must_include", serde_json::json!([])),
        ("size", serde_json::json!(2)),
        ("places", serde_json::json!([{"nodes": [0], "count": 2, "available": all}])),
    ] {
        assert_eq!(question[key], value, "{key}");
    }
    let output = stage.numa_run(&["topo", "--json"], &plugin, 1.0).output().unwrap();
    let machine: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(question["machine"], machine, "as `topo --json` has it");
    assert_eq!(machine["pci"][3]["pci"], "0000:13:00.0");
}
