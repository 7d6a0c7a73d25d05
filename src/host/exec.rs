//! Becoming the workload.

use super::syscall;
use crate::step::Exec;
use nix::errno::Errno;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The workload cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", program.to_string_lossy())]
pub struct ExecError {
    /// What was to be run.
    pub program: OsString,
    /// Why it was not.
    pub reason: String,
    found: bool,
}

impl ExecError {
    /// There is no workload.
    pub fn nothing() -> ExecError {
        ExecError { program: OsString::new(), reason: "nothing to run".into(), found: true }
    }

    /// 127 when there is no such program, 126 when it cannot be executed.
    pub fn exit_code(&self) -> u8 {
        if self.found { 126 } else { 127 }
    }
}

/// Replaces this process by the workload; returns only when that fails. Signal
/// mask, ignored signals and descriptors are left as they were inherited.
pub fn exec(exec: &Exec) -> ExecError {
    let Some(program) = exec.command.first() else { return ExecError::nothing() };
    let error = |reason: String, found: bool| ExecError { program: program.clone(), reason, found };
    let (arguments, environment) = match (c_strings(&exec.command), environment(exec)) {
        (Ok(arguments), Ok(environment)) => (arguments, environment),
        _ => return error("an argument or variable holds a NUL byte".into(), true),
    };
    syscall::restore_pipe();
    let errno = match program.as_bytes().contains(&b'/') {
        true => run(Path::new(program), &arguments, &environment),
        false => search(program, &arguments, &environment),
    };
    // It goes on as before: what was done is taken back, and somebody is told.
    syscall::ignore_pipe();
    error(reason(errno, program), errno != Errno::ENOENT)
}

fn reason(errno: Errno, program: &OsStr) -> String {
    match errno {
        Errno::ENOENT if Path::new(program).exists() => "the interpreter in its first line does not exist".into(),
        Errno::ENOENT => "no such program".into(),
        Errno::ENOEXEC => "not a program and without a #! line".into(),
        Errno::E2BIG => "an argument, or all arguments and variables together, are too long".into(),
        other => io::Error::from(other).to_string(),
    }
}

/// Looks for the program in PATH as execvp(3) does, but never falls back to a shell.
fn search(program: &OsStr, arguments: &[CString], environment: &[CString]) -> Errno {
    if program.is_empty() {
        return Errno::ENOENT;
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let mut worst = Errno::ENOENT;
    for folder in std::env::split_paths(&path) {
        let folder = if folder.as_os_str().is_empty() { Path::new(".").to_owned() } else { folder };
        let file = folder.join(program);
        match run(&file, arguments, environment) {
            Errno::ENOENT | Errno::ENOTDIR => {}
            // A folder that is closed to this user has no program for him.
            Errno::EACCES if file.exists() => worst = Errno::EACCES,
            Errno::EACCES => {}
            other => return other,
        }
    }
    worst
}

fn run(file: &Path, arguments: &[CString], environment: &[CString]) -> Errno {
    let Ok(file) = CString::new(file.as_os_str().as_bytes()) else { return Errno::EINVAL };
    match nix::unistd::execve(&file, arguments, environment) {
        Ok(never) => match never {},
        Err(errno) => errno,
    }
}

fn c_strings(words: &[OsString]) -> Result<Vec<CString>, NulError> {
    words.iter().map(|word| CString::new(word.as_bytes())).collect()
}

/// What was inherited, with some variables set and some left out.
fn environment(exec: &Exec) -> Result<Vec<CString>, NulError> {
    let replaced = |entry: &CString| {
        let name = entry.to_bytes().split(|&byte| byte == b'=').next();
        let mut names = exec.set.iter().map(|(name, _)| name).chain(&exec.unset);
        names.any(|other| name == Some(other.as_bytes()))
    };
    let ours = exec.set.iter().map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()));
    // Whatever is there is passed on, entries without a `=` too.
    syscall::environment().into_iter().filter(|entry| !replaced(entry)).map(Ok).chain(ours).collect()
}
