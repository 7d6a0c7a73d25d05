//! Other processes of ours: a child that does what may block in the kernel, and
//! one that outlives us.

use super::StepError;
use super::syscall::{self, Fork};
use crate::fault;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, execve, getppid, pipe2, setsid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// How long a killed child may take to go; one that hangs in the kernel stays.
const BURIAL: Duration = Duration::from_millis(200);

/// Work that a child did not bring to its end.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It was ended at the limit.
    #[error("not done within {} s", limit.as_secs_f32())]
    Late {
        /// What it was given.
        limit: Duration,
    },
    /// It was to be ended at the limit, and the kernel does not let it go.
    #[error("not done within {} s, and process {pid} hangs in the kernel with it", limit.as_secs_f32())]
    Hangs {
        /// What it was given.
        limit: Duration,
        /// Who hangs.
        pid: Pid,
    },
    /// Somebody else ended it.
    #[error("the process that did it was ended")]
    Ended,
    /// There could not be one.
    #[error("no process for it")]
    None(#[source] io::Error),
}

/// An error as a child tells it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failure {
    call: String,
    errno: Option<i32>,
    reason: String,
}

impl Failure {
    /// What was tried, and why it failed.
    pub fn parts(self) -> (String, io::Error) {
        let source = self.errno.map_or_else(|| io::Error::other(self.reason), io::Error::from_raw_os_error);
        (self.call, source)
    }
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Failure {
        match error {
            StepError::Refused { call, source } => (call, source).into(),
            StepError::Changed { call, found } => {
                Failure { call, errno: None, reason: format!("the kernel kept {found} instead") }
            }
            other => Failure {
                call: other.to_string(),
                errno: None,
                reason: other.source().map(crate::report::chain).unwrap_or_default(),
            },
        }
    }
}

impl From<(String, io::Error)> for Failure {
    fn from((call, source): (String, io::Error)) -> Failure {
        Failure { call, errno: source.raw_os_error(), reason: source.to_string() }
    }
}

/// Has a child do this, and waits for it no longer than the limit. The child
/// keeps the lease's lock: as long as the kernel does not let it go, the lease
/// lives on, whatever becomes of us.
///
/// # Errors
/// It did not come to its end.
pub fn within<T>(limit: Duration, lock: BorrowedFd<'_>, work: impl FnOnce() -> T) -> Result<T, ChildError>
where
    T: Serialize + DeserializeOwned,
{
    let limit = fault::limit(limit);
    let (answer, question) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| ChildError::None(errno.into()))?;
    let parent = nix::unistd::getpid();
    fault::child(false);
    let Fork::Parent(child) = syscall::fork().map_err(ChildError::None)? else {
        fault::child(true);
        alone(&[lock.as_raw_fd(), question.as_raw_fd()]);
        // Nobody would hear the answer.
        let orphan = prctl::set_pdeathsig(Signal::SIGKILL).is_err() || getppid() != parent;
        if !orphan {
            let _ = serde_json::to_vec(&work()).map(|bytes| File::from(question).write_all(&bytes));
            syscall::end(0);
        }
        syscall::end(1)
    };
    drop(question);
    let end = Instant::now() + limit;
    let told = heard(&answer, end);
    if told.is_none() {
        let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
    }
    match (buried(child), told) {
        (false, _) => Err(ChildError::Hangs { limit, pid: child }),
        (true, None) => Err(ChildError::Late { limit }),
        (true, Some(bytes)) => serde_json::from_slice(&bytes).map_err(|_| ChildError::Ended),
    }
}

/// All that comes through a pipe until nobody can write to it any more; none at the end of the time.
fn heard(pipe: &OwnedFd, end: Instant) -> Option<Vec<u8>> {
    let mut file = File::from(pipe.try_clone().ok()?);
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let wait = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(0) if left.is_zero() => return None,
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(_) => return None,
        }
        match file.read(&mut part) {
            Ok(0) => return Some(bytes),
            Ok(length) => bytes.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Takes leave of a child that has ended or been killed; false where it stays.
fn buried(child: Pid) -> bool {
    let end = Instant::now() + BURIAL;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if Instant::now() >= end => return false,
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_micros(200)),
            Err(Errno::EINTR) => {}
            // Where the caller ignores SIGCHLD, the kernel has buried it.
            Ok(_) | Err(_) => return true,
        }
    }
}

/// Starts this program once more, apart from everything: a session of its own,
/// no descriptors, no variables, `/` as its folder, and nobody's child.
///
/// # Errors
/// It could not be started.
pub fn apart(arguments: &[&OsStr]) -> io::Result<()> {
    let c_string = |word: &&OsStr| CString::new(word.as_bytes()).map_err(io::Error::other);
    let arguments = arguments.iter().map(c_string).collect::<io::Result<Vec<CString>>>()?;
    let (answer, question) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let Fork::Parent(child) = syscall::fork()? else {
        // The leader of the session ends at once, so that no terminal can ever become this session's.
        if setsid().is_ok() && matches!(syscall::fork(), Ok(Fork::Child)) {
            fault::role("guard");
            fault::point("guard.forked");
            let error = again(&arguments, question.as_raw_fd());
            let _ = File::from(question).write_all(&(error as i32).to_ne_bytes());
        }
        syscall::end(0)
    };
    drop(question);
    while waitpid(child, None) == Err(Errno::EINTR) {}
    let mut errno = Vec::new();
    File::from(answer).read_to_end(&mut errno)?;
    match <[u8; 4]>::try_from(errno) {
        Ok(errno) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
        Err(_) => Ok(()),
    }
}

fn again(arguments: &[CString], pipe: RawFd) -> Errno {
    alone(&[pipe]);
    let _ = std::env::set_current_dir("/");
    // Who ends all processes of a unit or of a terminal would end this one when it is needed.
    let _ = SigSet::all().thread_set_mask();
    match execve(c"/proc/self/exe", arguments, &fault::environment()) {
        Ok(never) => match never {},
        Err(errno) => errno,
    }
}

/// Lets go of all that was inherited but these descriptors: who waits for the
/// end of our output must not wait for this process.
fn alone(keep: &[RawFd]) {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = (dup2_stdin(&null), dup2_stdout(&null), dup2_stderr(&null));
    }
    syscall::close_all_but(keep);
}
