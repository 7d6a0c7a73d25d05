//! What a launch ends with: the command's own status, or 125, 126, 127.

use super::{Ended, Stage, User, users};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

#[test]
fn the_status_is_the_commands_own() {
    for status in [0, 1, 2, 42, 125, 126, 127, 255] {
        let stage = Stage::new();
        let ended =
            Ended::of(stage.numa_run(User::Same).args(["--cpus", "1", "--", "sh", "-c", &format!("exit {status}")]));
        assert_eq!(ended.code, Some(status));
        assert_eq!(ended.errors, "");
    }
}

#[test]
fn a_signal_that_ends_the_command_ends_the_launch() {
    use std::os::unix::process::ExitStatusExt;
    let stage = Stage::new();
    let status = stage.numa_run(User::Same).args(["--", "sh", "-c", "kill -TERM $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn a_command_that_cannot_be_executed_is_126_and_one_that_is_not_there_127() {
    for user in users() {
        let stage = Stage::new();
        let script = |name: &str, text: &[u8], mode: u32| stage.file(name, text, mode).display().to_string();
        let cases = [
            ("/no/such".to_owned(), 127, "no such program"),
            ("no-such-program-anywhere".to_owned(), 127, "no such program"),
            (script("no-x", b"#!/bin/sh\n", 0o644), 126, "Permission denied"),
            ("/tmp".to_owned(), 126, "Permission denied"),
            (script("no-interpreter", b"#!/no/such/interpreter\n", 0o755), 127, "interpreter"),
            (script("no-shebang", b"echo this must not run\n", 0o755), 126, "#!"),
        ];
        for (program, code, says) in cases {
            let ended = Ended::of(stage.numa_run(user).args(["--cpus", "1", "--", &program]));
            assert_eq!(ended.code, Some(code), "{user:?} {program}: {ended:?}");
            assert!(ended.errors.contains(says), "{user:?} {program}: {ended:?}");
            assert_eq!(ended.out, "", "{user:?} {program}");
        }
    }
}

#[test]
fn a_file_in_path_without_x_is_126() {
    let stage = Stage::new();
    stage.file("tool-without-x", b"#!/bin/sh\n", 0o644);
    let ended = Ended::of(stage.numa_run(User::Same).env("PATH", stage.path("")).args(["--", "tool-without-x"]));
    assert_eq!(ended.code, Some(126), "{ended:?}");
}

#[test]
fn an_argument_that_the_kernel_takes_is_passed_on_and_one_that_grows_beyond_is_126() {
    // 131072 bytes with the one that ends it are the kernel's limit, for us too:
    // only a template makes an argument longer than one that we were given.
    let longest = OsString::from_vec(vec![b'a'; 131_071]);
    let growing = OsString::from_vec([vec![b'a'; 131_050], b"{lease}{lease}{lease}".to_vec()].concat());
    for (argument, template, code) in [(&longest, false, 0), (&growing, false, 0), (&growing, true, 126)] {
        let stage = Stage::new();
        let mut command = stage.numa_run(User::Same);
        let options: &[&str] = if template { &["--template", "--cpus", "1"] } else { &["--cpus", "1"] };
        let ended = Ended::of(command.args(options).args(["--", "true"]).arg(argument));
        assert_eq!(ended.code, Some(code), "{}", ended.errors);
        assert_eq!(ended.errors.contains("too long"), code == 126, "{}", ended.errors);
    }
}

#[test]
fn a_closed_folder_in_path_hides_no_program_and_is_none() {
    for user in users() {
        let stage = Stage::new();
        let closed = stage.path("closed");
        std::fs::create_dir(&closed).unwrap();
        stage.file("closed/tool", b"#!/bin/sh\n", 0o755);
        std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
        let path = format!("{}:/usr/bin:/bin", closed.display());
        let run =
            |program: &str| Ended::of(stage.numa_run(user).env("PATH", &path).args(["--cpus", "1", "--", program]));
        assert_eq!(run("true").code, Some(0), "{user:?}");
        assert_eq!(run("no-such-program-anywhere").code, Some(127), "{user:?}");
    }
}
