//! Signals that wait to be read, with who has sent them.

use crate::host::syscall::{self, Children};
use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::io;

/// `si_code` of what the kernel sends by itself, for the terminal too; the libc crate lacks it.
const SI_KERNEL: i32 = 0x80;

/// All signals of this process, which act no more but wait to be read.
#[derive(Debug)]
pub struct Signals {
    queue: SignalFd,
    mask: SigSet,
    children: Children,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Who has sent it.
    pub sender: Option<Pid>,
    /// Whether the kernel has, for the terminal or by itself.
    pub is_the_kernels: bool,
}

impl Signals {
    /// Takes them from here on.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn take() -> io::Result<Signals> {
        let mask = SigSet::thread_get_mask()?;
        SigSet::all().thread_set_mask()?;
        // Who ignores SIGCHLD never hears how a child has ended.
        let children = syscall::hear_of_children(Children::Heard)?;
        let queue = SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { queue, mask, children })
    }

    /// Gives a child everything back as it was inherited.
    pub fn give_back(&self) {
        let _ = syscall::hear_of_children(self.children);
        let _ = self.mask.thread_set_mask();
    }

    /// The next one.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn wait(&self) -> io::Result<Received> {
        loop {
            match self.queue.read_signal() {
                Ok(Some(info)) => {
                    let sender = i32::try_from(info.ssi_pid).ok().filter(|&pid| pid > 0).map(Pid::from_raw);
                    let signal = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
                    return Ok(Received { signal, sender, is_the_kernels: info.ssi_code == SI_KERNEL });
                }
                Ok(None) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Received {
    /// True where it only says that a child has ended or was stopped.
    pub fn is_of_a_child(&self) -> bool {
        self.signal == libc::SIGCHLD
    }
}
