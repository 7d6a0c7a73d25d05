//! A child program that must answer within a limit.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// More is no answer.
const LARGEST_ANSWER: u64 = 64 << 20;
/// How long a killed child may take to go; one that hangs in the kernel stays.
const BURIAL: Duration = Duration::from_millis(200);

/// What a child left.
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout.
    pub output: Vec<u8>,
    /// Its stderr.
    pub errors: Vec<u8>,
}

/// Runs it to its end; none when it had to be killed at the limit.
pub fn run(mut command: Command, limit: Duration) -> io::Result<Option<Ended>> {
    let end = Instant::now() + limit;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (output, errors) = (drain(child.stdout.take()), drain(child.stderr.take()));
    // A grandchild may hold the pipes open: they get the same limit.
    let left = || end.saturating_duration_since(Instant::now());
    if let (Ok(output), Ok(errors)) = (output.recv_timeout(left()), errors.recv_timeout(left()))
        && let Some(status) = wait(&mut child, end)?
    {
        return Ok(Some(Ended { status, output, errors }));
    }
    child.kill()?;
    wait(&mut child, Instant::now() + BURIAL)?;
    Ok(None)
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.map(|pipe| pipe.take(LARGEST_ANSWER).read_to_end(&mut bytes));
        // What was read before an error counts; nobody listens after the limit.
        let _ = (read, sender.send(bytes));
    });
    receiver
}

fn wait(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        thread::sleep(Duration::from_micros(200));
    }
}
