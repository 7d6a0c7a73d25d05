//! What the shells complete.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use numa_run::cli::completions::{Shell, script};
use numa_run::resource::pci::class::CLASSES;
use std::process::Command;

fn completions(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_numa-run")).args(["completions", shell]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What bash offers for the last of these words.
fn offered(words: &str) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("numa-run");
    std::fs::write(&file, completions("bash")).unwrap();
    // As bash calls it: the words, which one, and that one with its neighbour.
    let asked = "source \"$0\" && read -ra known <<< \"$(complete -p numa-run)\" || exit 9\n\
        for at in \"${!known[@]}\"; do [ \"${known[at]}\" != -F ] || name=${known[at + 1]}; done\n\
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1))\n\
        \"$name\" numa-run \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"\n\
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["--norc", "-c", asked]).arg(&file).args(words.split(' ')).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED, NOT TESTED: bash is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[test]
fn bash_completes_options_values_and_subcommands() {
    for (words, wanted) in [
        ("numa-run --gp", &["--gpu"][..]),
        ("numa-run plan --nv", &["--nvme"]),
        ("numa-run --cpus 2 --hugep", &["--hugepages"]),
        ("numa-run pl", &["plan"]),
        ("numa-run --merge re", &["relative"]),
        ("numa-run completions z", &["zsh"]),
        ("numa-run de", &[]),
        // A file of the workload's: bash's own business.
        ("numa-run --cpus 2 -- ./ap", &[]),
    ] {
        let Some(offered) = offered(words) else { return };
        assert_eq!(offered, wanted, "{words}");
    }
}

#[test]
fn every_class_and_every_subcommand_that_help_shows_is_completed_in_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = completions(shell);
        let option = |name: &str| if shell == "fish" { format!(" -l {name} ") } else { format!("--{name}") };
        let classes: Vec<&str> = CLASSES.iter().filter(|row| row.about.is_some()).map(|row| row.name).collect();
        assert!(classes.contains(&"gpu"));
        for name in classes.iter().chain(&["cpus", "create-vfs", "device"]) {
            // For a launch and for a plan.
            assert!(script.matches(&option(name)).count() >= 2, "{shell}: {name}");
        }
        for verb in ["plan", "topo", "status", "completions"] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
        assert!(!script.contains("debug"), "{shell} knows what help hides");
    }
}

#[test]
fn the_scripts_are_the_librarys_and_another_shell_is_a_usage_error() {
    assert_eq!(completions("zsh"), script(Shell::Zsh));
    let output = Command::new(env!("CARGO_BIN_EXE_numa-run")).args(["completions", "tcsh"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("[possible values: bash, zsh, fish]"));
}
