//! A child program that must answer within a limit.
//!
//! Nothing that it does holds up the caller: it may read nothing, print without
//! an end, close its pipes, or leave them to children of its own.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgid};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The end of stderr that is kept.
const LAST_WORDS: usize = 64 << 10;
/// How long a killed child may take to go; one that hangs in the kernel stays.
const BURIAL: Duration = Duration::from_millis(200);
/// A child that is gone while others hold its pipes is noticed after this, in milliseconds.
const TICK: u16 = 10;
/// How often a child is looked at that has closed its pipes.
const PAUSE: Duration = Duration::from_micros(200);

/// What a child is told, and what it may take.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Its stdin; it need not read it.
    pub input: &'a [u8],
    /// How long it may run.
    pub time: Duration,
    /// Bytes that it may print.
    pub answer: usize,
}

/// What became of a child.
#[derive(Debug)]
pub enum Outcome {
    /// It ended by itself.
    Ended(Ended),
    /// It did not end in time and was killed.
    Late,
    /// It printed more than it may and was killed.
    TooMuch,
}

/// What a child left.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it had printed by then.
    pub output: Vec<u8>,
    /// The end of its stderr.
    pub errors: Vec<u8>,
}

/// Runs it to its end, or kills it: with its whole process group if it leads
/// one of its own, of which nothing is left then either way.
///
/// # Errors
/// It cannot be started or watched.
pub fn run(mut command: Command, terms: &Terms<'_>) -> io::Result<Outcome> {
    let stdin = if terms.input.is_empty() { Stdio::null() } else { Stdio::piped() };
    let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let heard = Talk::with(&mut child, terms).and_then(|talk| talk.until(Instant::now() + terms.time, terms.answer));
    let status = bury(&mut child);
    Ok(match heard? {
        Heard::Late => Outcome::Late,
        Heard::TooMuch => Outcome::TooMuch,
        Heard::All { output, errors } => {
            status?.map_or(Outcome::Late, |status| Outcome::Ended(Ended { status, output, errors }))
        }
    })
}

/// A signal's number and name.
pub fn signal(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| number.to_string(), |name| format!("{number} ({name})"))
}

/// What says why, of what was printed on stderr: warnings come first.
pub fn last_line(errors: &str) -> Option<&str> {
    errors.lines().rev().find(|line| !line.trim().is_empty())
}

/// What was heard of a child.
enum Heard {
    All { output: Vec<u8>, errors: Vec<u8> },
    Late,
    TooMuch,
}

/// A child that is being talked to.
struct Talk<'a> {
    pid: Pid,
    stdin: Option<ChildStdin>,
    input: &'a [u8],
    output: Stream,
    errors: Stream,
}

impl<'a> Talk<'a> {
    fn with(child: &mut Child, terms: &Terms<'a>) -> io::Result<Talk<'a>> {
        let stdin = child.stdin.take();
        if let Some(stdin) = &stdin {
            never_wait(stdin)?;
        }
        Ok(Talk {
            pid: pid(child),
            stdin,
            input: terms.input,
            output: Stream::of(child.stdout.take())?,
            errors: Stream::of(child.stderr.take())?,
        })
    }

    fn until(mut self, end: Instant, largest: usize) -> io::Result<Heard> {
        loop {
            let ended = ended(self.pid)?;
            self.tell();
            while self.output.bytes.len() <= largest && self.output.listen()? {}
            self.errors.listen()?;
            self.errors.keep(LAST_WORDS);
            if self.output.bytes.len() > largest {
                return Ok(Heard::TooMuch);
            }
            if ended {
                return Ok(Heard::All { output: self.output.bytes, errors: self.errors.bytes });
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Heard::Late);
            }
            self.wait(left)?;
        }
    }

    /// Writes as much as the pipe takes. A child that does not want it all has heard enough.
    fn tell(&mut self) {
        while let Some(stdin) = &mut self.stdin {
            match stdin.write(self.input) {
                Ok(written) => self.input = &self.input[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.input = &[],
            }
            if self.input.is_empty() {
                self.stdin = None;
            }
        }
    }

    fn wait(&self, left: Duration) -> io::Result<()> {
        let pipes = [self.output.pipe.as_deref(), self.errors.pipe.as_deref()];
        let mut open: Vec<PollFd<'_>> =
            pipes.into_iter().flatten().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)).collect();
        open.extend(self.stdin.iter().map(|stdin| PollFd::new(stdin.as_fd(), PollFlags::POLLOUT)));
        if open.is_empty() {
            thread::sleep(PAUSE.min(left));
            return Ok(());
        }
        let most = u16::try_from(left.as_millis()).unwrap_or(TICK).clamp(1, TICK);
        match poll(&mut open, PollTimeout::from(most)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

trait Pipe: Read + AsFd {}
impl<T: Read + AsFd> Pipe for T {}

/// One pipe from a child.
struct Stream {
    pipe: Option<Box<dyn Pipe>>,
    bytes: Vec<u8>,
}

impl Stream {
    fn of(pipe: Option<impl Pipe + 'static>) -> io::Result<Stream> {
        if let Some(pipe) = &pipe {
            never_wait(pipe)?;
        }
        Ok(Stream { pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Pipe>), bytes: Vec::new() })
    }

    /// Takes some of what has come; false when that was all for now.
    fn listen(&mut self) -> io::Result<bool> {
        let Some(pipe) = &mut self.pipe else { return Ok(false) };
        let mut buffer = [0; 64 << 10];
        match pipe.read(&mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Forgets all but the end.
    fn keep(&mut self, last: usize) {
        if self.bytes.len() > 2 * last {
            self.bytes.drain(..self.bytes.len() - last);
        }
    }
}

fn never_wait(pipe: impl AsFd) -> io::Result<()> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// True for one that has ended; it is not reaped, so that its number stays its own.
fn ended(pid: Pid) -> io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(pid), flags)? != WaitStatus::StillAlive)
}

/// Kills what is left and reaps it; none for a child that hangs in the kernel.
fn bury(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + BURIAL;
    let pid = pid(child);
    let leads = getpgid(Some(pid)) == Ok(pid);
    match leads {
        true => drop(killpg(pid, Signal::SIGKILL)),
        false => drop(child.kill()),
    }
    let status = loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= end {
            break status;
        }
        thread::sleep(PAUSE);
    };
    // The orphans of its group are ours where this process is the first of its PID namespace.
    while leads && Instant::now() < end {
        match waitpid(Pid::from_raw(-pid.as_raw()), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => thread::sleep(PAUSE),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(status)
}
