//! A ledger that several users share, one of whom is up to no good: he neither
//! gets what others hold, nor forges, blocks or deletes anything of theirs.
//!
//! Only root can play all parts. Everything happens in a folder of the test's own.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests start programs, and fail where they cannot")]

mod attackers;
mod damage;
mod forgery;
mod lock;
mod own;

use numa_run::lease::{Header, Identity, record};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NUMA_RUN: &str = env!("CARGO_BIN_EXE_numa-run");

const ROOT: u32 = 0;
/// A user who behaves.
const ALICE: u32 = 61_001;
/// One who does not.
const MALLORY: u32 = 61_002;
/// One who helps him.
const OSCAR: u32 = 61_003;

/// False, loudly, where these tests cannot be played.
fn stage_is_set() -> bool {
    let reachable =
        |program: &str| typed(ALICE, "test").args(["-x", program]).status().is_ok_and(|ended| ended.success());
    if nix::unistd::geteuid().is_root() && reachable(NUMA_RUN) {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "CI runs as root and leaves nothing out");
    eprintln!("SKIPPED, NOT TESTED: only root, with setpriv, plays several users, who must reach {NUMA_RUN}");
    false
}

/// A program started by this user.
fn typed(user: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    let id = user.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--", program]);
    command.stdin(Stdio::null()).current_dir("/");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"NUMA_RUN_")) {
        command.env_remove(name);
    }
    command.env("NUMA_RUN_CONFIG", "/dev/null").env("NUMA_RUN_CGROUP", "never").env_remove("XDG_RUNTIME_DIR");
    command
}

/// How a program ended and what it said.
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

    #[track_caller]
    fn fine(self) -> Ended {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    fn refused(self, says: &str) -> Ended {
        assert_eq!((self.code, self.out.as_str()), (Some(125), ""), "{self:?}");
        assert!(self.errors.contains(says), "{says}: {self:?}");
        self
    }
}

/// A ledger of root's, as the first launch by root leaves it.
struct Shared {
    folder: TempDir,
}

impl Shared {
    fn new() -> Shared {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let shared = Shared { folder };
        shared.launch(ROOT, &["--cpus", "1"]).fine();
        shared
    }

    fn run_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn leases(&self) -> PathBuf {
        self.run_dir().join("leases")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.leases().join(name)
    }

    fn numa_run(&self, user: u32, words: &[&str]) -> Command {
        let mut command = typed(user, NUMA_RUN);
        command.args(words).env("NUMA_RUN_RUN_DIR", self.run_dir());
        command
    }

    /// A launch that says its CPUs.
    fn launch(&self, user: u32, options: &[&str]) -> Ended {
        let mut command = self.numa_run(user, options);
        Ended::of(command.args([
            "--smt",
            "share",
            "--isolated",
            "never",
            "--",
            "sh",
            "-c",
            "echo $NUMA_RUN_ALLOC_CPUS",
        ]))
    }

    /// A launch that lives until it is dropped.
    fn holder(&self, user: u32, options: &[&str]) -> Holder {
        let before = self.names();
        let mut command = self.numa_run(user, options);
        command.args(["--smt", "share", "--isolated", "never", "--", "sleep", "1000"]);
        let child = command.spawn().unwrap();
        let is_new = |name: &String| name.ends_with(".lease") && !before.contains(name);
        let id = wait_for(|| self.names().into_iter().find(is_new)).replace(".lease", "");
        let running = |text: &String| text.contains("running");
        let text = wait_for(|| fs::read_to_string(self.file(&format!("{id}.lease"))).ok().filter(running));
        let lock = record::read(&text, &id, user).unwrap().header.lock_file.unwrap();
        Holder { child, id, lock }
    }

    fn gc(&self, user: u32) -> Ended {
        Ended::of(&mut self.numa_run(user, &["gc"]))
    }

    /// What is in the leases' folder.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.leases()).unwrap().flatten();
        let mut names: Vec<String> = names.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// What a user does by hand, in the leases' folder.
    fn by_hand(&self, user: u32, script: &str) -> Ended {
        Ended::of(typed(user, "sh").args(["-c", script]).current_dir(self.leases()))
    }

    /// A file that a user writes by hand.
    fn write(&self, user: u32, name: &str, text: &str) {
        let file = self.file(name);
        fs::write(&file, text).unwrap();
        nix::unistd::chown(&file, Some(user.into()), Some(user.into())).unwrap();
    }

    /// The text of a lease that is well made but for what it says.
    fn text(&self, header: Header, rest: &str) -> String {
        record::begun(&header, "").unwrap() + rest
    }

    /// Makes the lock of a lease, and has somebody keep it; its inode.
    fn locked(&self, user: u32, id: &str, keeper: u32) -> (u64, Killed) {
        self.write(user, &format!("{id}.lock"), "");
        let lock = self.file(&format!("{id}.lock"));
        let mode = if user == keeper { 0o400 } else { 0o444 };
        fs::set_permissions(&lock, fs::Permissions::from_mode(mode)).unwrap();
        let child = typed(keeper, "flock").args(["-x", lock.to_str().unwrap(), "sleep", "1000"]).spawn().unwrap();
        let inode = fs::metadata(&lock).unwrap().ino();
        let is_locked = || fs::read_to_string("/proc/locks").unwrap().contains(&format!(":{inode} "));
        wait_for(|| is_locked().then_some(()));
        (inode, Killed(child))
    }
}

/// Something that lives until the end of a test; what it started ends with it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id())).unwrap_or_default();
        for child in children.split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", child]).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A launch that lives.
struct Holder {
    child: Child,
    id: String,
    /// What the lock of its lease is called.
    lock: String,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All CPUs that a launch may get here.
fn all_cpus() -> String {
    numa_run::host::syscall::affinity().unwrap().to_string()
}

/// A process of nobody's that could be taken for an owner.
fn dead() -> Identity {
    Identity { pid: 0, start: 0, boot: numa_run::lease::identity::boot(Path::new("/")) }
}
