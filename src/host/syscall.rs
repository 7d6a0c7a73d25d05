//! System calls that no crate wraps for masks of any length. The only unsafe code.

use crate::request::MemPolicy;
use crate::topology::{CpuSet, NodeMask};
use nix::unistd::{ForkResult, Pid};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

// From linux/mempolicy.h; the libc crate lacks the last two.
const MPOL_DEFAULT: i32 = 0;
const MPOL_PREFERRED: i32 = 1;
const MPOL_BIND: i32 = 2;
const MPOL_INTERLEAVE: i32 = 3;
const MPOL_LOCAL: i32 = 4;
const MPOL_PREFERRED_MANY: i32 = 5;
const MPOL_WEIGHTED_INTERLEAVE: i32 = 6;
const MPOL_F_MEMS_ALLOWED: libc::c_ulong = 4;

/// Longest mask that is tried, in 64-bit words: no kernel is built for more CPUs.
const MAX_WORDS: usize = 1 << 12;

/// The kernel's number of a mode.
pub fn mode_number(mode: MemPolicy) -> i32 {
    match mode {
        MemPolicy::Default => MPOL_DEFAULT,
        MemPolicy::Preferred => MPOL_PREFERRED,
        MemPolicy::Bind => MPOL_BIND,
        MemPolicy::Interleave => MPOL_INTERLEAVE,
        MemPolicy::Local => MPOL_LOCAL,
        MemPolicy::PreferredMany => MPOL_PREFERRED_MANY,
        MemPolicy::WeightedInterleave => MPOL_WEIGHTED_INTERLEAVE,
    }
}

/// The CPUs that this thread may run on.
///
/// # Errors
/// What sched_getaffinity(2) answers.
pub fn affinity() -> io::Result<CpuSet> {
    affinity_of(0)
}

/// The CPUs that a thread may run on.
///
/// # Errors
/// What sched_getaffinity(2) answers.
pub fn affinity_of(thread: i32) -> io::Result<CpuSet> {
    let mut words = vec![0u64; 16];
    loop {
        // SAFETY: the kernel writes at most the length given, which is the buffer's, a multiple of 8.
        let written =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, words.len() * 8, words.as_mut_ptr()) };
        if written >= 0 {
            words.truncate((written as usize).div_ceil(8));
            return Ok(CpuSet::from_words(words));
        }
        let error = io::Error::last_os_error();
        // EINVAL: the kernel's mask is longer than the buffer.
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() >= MAX_WORDS {
            return Err(error);
        }
        words.resize(words.len() * 2, 0);
    }
}

/// Restricts this thread, and what it execs, to these CPUs.
///
/// # Errors
/// What sched_setaffinity(2) answers.
pub fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    set_affinity_of(0, cpus)
}

/// Restricts a thread to these CPUs.
///
/// # Errors
/// What sched_setaffinity(2) answers.
pub fn set_affinity_of(thread: i32, cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads at most the length given, which is the slice's.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread, words.len() * 8, words.as_ptr()) };
    outcome(result)
}

/// Sets this thread's memory policy, which survives exec.
///
/// # Errors
/// What set_mempolicy(2) answers.
pub fn set_memory_policy(mode: MemPolicy, nodes: &NodeMask) -> io::Result<()> {
    let words = nodes.words();
    let (pointer, bits) = match words.is_empty() {
        true => (std::ptr::null(), 0),
        // The kernel uses one bit less than it is told.
        false => (words.as_ptr(), words.len() * 64 + 1),
    };
    // The kernel reads `bits - 1` bits, rounded up to words: exactly the slice.
    // SAFETY: the pointer is null with no bits, or to a slice of the length that `bits` states.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode_number(mode), pointer, bits) };
    outcome(result)
}

/// This thread's memory policy: the kernel's number of the mode, and the nodes.
///
/// # Errors
/// What get_mempolicy(2) answers.
pub fn memory_policy() -> io::Result<(i32, NodeMask)> {
    policy_of_kind(0)
}

/// Nodes that this thread's cpuset allows memory on.
///
/// # Errors
/// What get_mempolicy(2) answers.
pub fn memory_nodes_allowed() -> io::Result<NodeMask> {
    policy_of_kind(MPOL_F_MEMS_ALLOWED).map(|(_, nodes)| nodes)
}

fn policy_of_kind(flags: libc::c_ulong) -> io::Result<(i32, NodeMask)> {
    let mut words = vec![0u64; 16];
    loop {
        let mut mode = 0i32;
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: `mode` is an int, and the buffer holds the `words * 64` bits that are stated.
        let result = unsafe {
            libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, words.as_mut_ptr(), words.len() * 64, none, flags)
        };
        match outcome(result) {
            Ok(()) => return Ok((mode, NodeMask::from_words(words))),
            // EINVAL: the kernel knows more nodes than the buffer has bits.
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) || words.len() >= MAX_WORDS => return Err(error),
            Err(_) => words.resize(words.len() * 2, 0),
        }
    }
}

fn outcome(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An extended attribute of a file; none where it has none, or none that this user may read.
pub fn attribute(path: &Path, name: &CStr) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut value = vec![0u8; 64];
    // SAFETY: both names end with a NUL byte, and the kernel writes at most the length given, which is the buffer's.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

/// True when the kernel started this program with more rights than its caller
/// has (set-uid, file capabilities).
pub fn runs_with_foreign_rights() -> bool {
    // SAFETY: getauxval reads the vector that the kernel left for this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The environment as it was inherited, entry by entry; the standard library
/// leaves out those without a name or a `=`.
pub fn environment() -> Vec<CString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: the C library's array ends with a null pointer, its entries with a NUL byte, and nothing here changes it.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

/// Bytes that this process may write to a file (RLIMIT_FSIZE).
pub fn largest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in the structure that it is given.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if result == 0 { limit.rlim_cur } else { 0 }
}

/// Which of the two processes this is after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The one that was there before, with the pid of the other.
    Parent(Pid),
    /// The new one.
    Child,
}

/// Makes a copy of this process.
///
/// # Errors
/// What fork(2) answers.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: this program has one thread, so that the copy finds no lock taken by another.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Fork::Parent(child)),
        ForkResult::Child => Ok(Fork::Child),
    }
}

/// Ends this process, a copy, without touching what the original still uses.
pub fn end(status: i32) -> ! {
    // SAFETY: _exit takes any number and runs nothing.
    unsafe { libc::_exit(status) }
}

/// Takes a capability, by its number, out of what this process and its children can ever have.
///
/// # Errors
/// What prctl(2) answers.
pub fn drop_from_bounding_set(capability: u32) -> io::Result<()> {
    // SAFETY: PR_CAPBSET_DROP takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
    outcome(result.into())
}

/// Lets a program inherit nothing of this process but its stdin, stdout and
/// stderr, and has it killed when this process ends first.
///
/// # Errors
/// What is open here is not known.
pub fn isolate(command: &mut Command) -> io::Result<()> {
    let open = std::fs::read_dir("/proc/self/fd")?;
    let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok();
    let inherited: Vec<RawFd> = open.filter_map(number).filter(|&descriptor| descriptor > 2).collect();
    let alone = move || {
        for &descriptor in &inherited {
            // SAFETY: F_SETFD takes an int and changes nothing but a flag; a closed descriptor is an error, no harm.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: PR_SET_PDEATHSIG takes a signal number, as a long.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only calls are made that signal handlers may make too; nothing is allocated.
    unsafe { command.pre_exec(alone) };
    Ok(())
}

/// Whether SIGPIPE was ignored when this process started.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime, which ignores SIGPIPE: what the caller had set
/// is the workload's to inherit.
#[used]
// SAFETY: the section holds pointers to functions that the C library calls before main.
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember_pipe;

extern "C" fn remember_pipe() {
    // SAFETY: sigaction with a null new action only reads; the structure is plain data and may be zero.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    PIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Gives SIGPIPE back the meaning that it had when this process started.
pub fn restore_pipe() {
    pipe(if PIPE_IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL });
}

/// Ignores SIGPIPE, as Rust's runtime does: who reads no more ends nobody.
pub fn ignore_pipe() {
    pipe(libc::SIG_IGN);
}

fn pipe(action: libc::sighandler_t) {
    // SAFETY: callers pass constants that signal(2) takes; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, action) };
}

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// For one alone; refused where anybody has it.
    Alone,
    /// Beside others who only ask; waits until nobody has it alone.
    Asking,
}

/// Locks an open file until the last copy of this descriptor is closed, those
/// of children and of the workload too: nothing unlocks it before.
///
/// # Errors
/// What flock(2) answers: EWOULDBLOCK where somebody else has it.
pub fn lock(file: &File, lock: Lock) -> io::Result<()> {
    let operation = match lock {
        Lock::Alone => libc::LOCK_EX | libc::LOCK_NB,
        Lock::Asking => libc::LOCK_SH,
    };
    loop {
        // SAFETY: the descriptor is open as long as the file is borrowed.
        let result = outcome(unsafe { libc::flock(file.as_raw_fd(), operation) }.into());
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Closes every descriptor above stderr but these. What has owned them in this
/// process must not be used or dropped any more.
pub fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().filter_map(|&fd| u32::try_from(fd).ok()).filter(|&fd| fd > 2).collect();
    keep.sort_unstable();
    let ends = keep.iter().map(|&fd| fd.saturating_sub(1)).chain([u32::MAX]);
    let starts = [3].into_iter().chain(keep.iter().map(|&fd| fd + 1));
    for (first, last) in starts.zip(ends).filter(|(first, last)| first <= last) {
        // SAFETY: close_range(2) takes any range; the caller vouches for the owners.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } < 0 {
            close_each(first, last);
        }
    }
}

/// For Linux before 5.9.
fn close_each(first: u32, last: u32) {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let open: Vec<RawFd> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|&fd| u32::try_from(fd).is_ok_and(|fd| (first..=last).contains(&fd))) {
        // SAFETY: close(2) takes any number; the caller vouches for the owners.
        unsafe { libc::close(fd) };
    }
}

/// A descriptor that becomes readable when this process ends.
///
/// # Errors
/// What pidfd_open(2) answers: ESRCH where there is no such process.
pub fn process_descriptor(pid: u32) -> io::Result<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: the call takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    outcome(fd)?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us, close-on-exec, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal by its number: those without a name too.
///
/// # Errors
/// What kill(2) answers.
pub fn send(pid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes two integers.
    outcome(unsafe { libc::kill(pid.as_raw(), signal) }.into())
}

/// Whether a process hears of the end of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// It waits for them.
    Heard,
    /// It ignores SIGCHLD, and the kernel buries them.
    Ignored,
}

/// Sets that, and tells how it was.
///
/// # Errors
/// What signal(2) answers.
pub fn hear_of_children(children: Children) -> io::Result<Children> {
    let action = if children == Children::Ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: both actions are constants that signal(2) takes; no handler of ours is involved.
    match unsafe { libc::signal(libc::SIGCHLD, action) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        libc::SIG_IGN => Ok(Children::Ignored),
        _ => Ok(Children::Heard),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_descriptor_tells_when_the_process_has_ended() {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let descriptor = process_descriptor(child.id()).unwrap();
        let ready = |wait: PollTimeout| poll(&mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)], wait).unwrap();
        assert_eq!(ready(PollTimeout::ZERO), 0);
        child.kill().unwrap();
        assert_eq!(ready(PollTimeout::NONE), 1);
        child.wait().unwrap();
        assert_eq!(process_descriptor(child.id()).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn affinity_reads_back_what_was_set() {
        std::thread::spawn(|| {
            let all = affinity().unwrap();
            let one = CpuSet::one(all.last().unwrap());
            set_affinity(&one).unwrap();
            assert_eq!(affinity().unwrap(), one);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_affinity_without_any_cpu_is_refused() {
        assert_eq!(set_affinity(&CpuSet::one(5000)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn every_memory_policy_reads_back_with_its_nodes() {
        std::thread::spawn(|| {
            let node = NodeMask::one(0);
            let modes = [MemPolicy::Bind, MemPolicy::Preferred, MemPolicy::PreferredMany, MemPolicy::Interleave];
            for mode in modes {
                set_memory_policy(mode, &node).unwrap();
                assert_eq!(memory_policy().unwrap(), (mode_number(mode), node.clone()), "{mode:?}");
            }
            for mode in [MemPolicy::Local, MemPolicy::Default] {
                set_memory_policy(mode, &NodeMask::new()).unwrap();
                assert_eq!(memory_policy().unwrap(), (mode_number(mode), NodeMask::new()), "{mode:?}");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_policy_over_a_node_that_does_not_exist_is_refused() {
        let error = set_memory_policy(MemPolicy::Bind, &NodeMask::one(900)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
