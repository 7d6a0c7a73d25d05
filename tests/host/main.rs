//! Launches on the host that runs the tests, as the user who runs them and, for
//! root, as an ordinary user too. Nothing outside their own folder is changed.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests start programs, and fail where they cannot")]

#[cfg(feature = "faults")]
mod blocked;
#[cfg(feature = "faults")]
mod crash;
mod dry_run;
mod exit_codes;
mod full;
#[cfg(feature = "faults")]
mod guardian;
mod inherited;
mod leases;
mod placed;
mod refused;
mod rights;
#[cfg(feature = "faults")]
mod scene;
mod supervised;
mod told;
mod topologies;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The program under test.
const NUMA_RUN: &str = env!("CARGO_BIN_EXE_numa-run");

/// A user id without any rights, whether or not it has a name.
const ORDINARY: &str = "65534";

/// Who types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// Who runs the tests.
    Same,
    /// An ordinary user; tests run by root only.
    Ordinary,
}

/// Everybody as whom things can be tried here.
fn users() -> Vec<User> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED, NOT TESTED: as root");
        return vec![User::Same];
    }
    let reachable = typed(User::Ordinary, "test").args(["-x", NUMA_RUN]).status();
    if reachable.is_ok_and(|status| status.success()) {
        return vec![User::Same, User::Ordinary];
    }
    eprintln!("SKIPPED, NOT TESTED: as an ordinary user (setpriv is missing, or {NUMA_RUN} is in a closed folder)");
    vec![User::Same]
}

/// A program started by this user.
fn typed(user: User, program: impl AsRef<OsStr>) -> Command {
    match user {
        User::Same => Command::new(program),
        User::Ordinary => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups", "--"]).arg(program);
            command
        }
    }
}

/// A folder of the test's own that everyone may write to.
struct Stage(TempDir);

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        Stage(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with a mode.
    fn file(&self, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Sets what keeps a launch to this folder, and takes the caller's settings away.
    fn set_up(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"NUMA_RUN_")) {
            command.env_remove(name);
        }
        for name in ["OMP_NUM_THREADS", "OMP_PLACES"] {
            command.env_remove(name);
        }
        // A launch would make a cgroup, and this host's are none of the tests' business.
        command.env("NUMA_RUN_CGROUP", "never");
        command.env("NUMA_RUN_CONFIG", "/dev/null").stdin(Stdio::null());
    }

    /// `numa-run` typed by this user, with a run directory of their own.
    fn numa_run(&self, user: User) -> Command {
        let mut command = typed(user, NUMA_RUN);
        self.set_up(&mut command);
        command.env("NUMA_RUN_RUN_DIR", self.path(&format!("run-{user:?}")));
        command
    }
}

/// How a program ended and what it printed.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    errors: String,
}

impl Ended {
    fn of(command: &mut Command) -> Ended {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { code: status.code(), out: text(stdout), errors: text(stderr) }
    }

    /// What it printed; it must have gone well.
    fn fine(command: &mut Command) -> String {
        let ended = Ended::of(command);
        assert_eq!(ended.code, Some(0), "{command:?}: {ended:?}");
        ended.out
    }
}

/// True where a program can be found.
fn installed(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(program).exists());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{program} is not installed, and CI leaves nothing out");
        eprintln!("SKIPPED, NOT TESTED: {program} is not installed");
    }
    found
}

/// CPUs that the tests may run on.
fn allowed_cpus() -> numa_run::topology::CpuSet {
    numa_run::host::syscall::affinity().unwrap()
}

/// A file that is there only if something was started.
fn started(path: &Path) -> bool {
    path.exists()
}
