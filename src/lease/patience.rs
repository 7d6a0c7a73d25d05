//! Waiting for the ledger's lock, as long as those who have it take turns.

use super::holder::holder;
use super::ledger::LedgerError;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Locks a file of this ledger; one who keeps it locked for longer than the limit is an error.
///
/// # Errors
/// It cannot be locked, or not in time.
pub fn patiently(file: File, path: &Path, limit: Duration) -> Result<Flock<File>, LedgerError> {
    let failed = |source| LedgerError::File { path: path.to_owned(), source };
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, errno)) => return Err(failed(errno.into())),
    };
    let looked_at = file.try_clone().map_err(failed)?;
    let (tell, told) = mpsc::channel();
    // The kernel serves in order those who wait in it. Whoever has given up
    // before it is his turn gives the lock back by dropping it.
    let wait = move || tell.send(in_turn(file));
    thread::Builder::new().spawn(wait).map_err(failed)?;
    let mut patience = Patience::new(limit);
    loop {
        match told.recv_timeout(patience.look.saturating_duration_since(Instant::now())) {
            Ok(lock) => return lock.map_err(|errno| failed(errno.into())),
            Err(RecvTimeoutError::Timeout) if !patience.is_over(&looked_at) => {}
            Err(_) => break,
        }
    }
    let holder = patience.holder.unwrap_or_else(|| "a process that cannot be seen from here".into());
    Err(LedgerError::Locked { path: path.to_owned(), waited: limit, holder })
}

fn in_turn(mut file: File) -> Result<Flock<File>, Errno> {
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(lock) => return Ok(lock),
            Err((file, Errno::EINTR)) => file,
            Err((_, errno)) => return Err(errno),
        };
    }
}

/// So many limits are waited for at most, whoever has the lock.
const TURNS: u32 = 6;

/// Waiting for a lock: one who keeps it has as long as the limit, those who
/// take turns may come before us again and again.
struct Patience {
    limit: Duration,
    /// When it is looked again who has it.
    look: Instant,
    ends: Instant,
    /// Who had it when it was looked, if he could be seen.
    holder: Option<String>,
    looked: bool,
}

impl Patience {
    fn new(limit: Duration) -> Patience {
        let now = Instant::now();
        // Most have it for less than that; who has it is not read for them.
        Patience { limit, look: now + limit / 20, ends: now + limit * TURNS, holder: None, looked: false }
    }

    fn is_over(&mut self, file: &File) -> bool {
        let now = Instant::now();
        if now < self.look {
            return false;
        }
        self.look = now + self.limit;
        let before = std::mem::replace(&mut self.holder, holder(Path::new("/"), file));
        let again = std::mem::replace(&mut self.looked, true) && self.holder == before;
        again || now >= self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that has the lock, or stands in line for it.
    fn in_line(path: &Path, seconds: &str) -> Child {
        let child = Command::new("flock").arg("--no-fork").arg(path).args(["sleep", seconds]).spawn().unwrap();
        let own = format!(" {} ", child.id());
        while !std::fs::read_to_string("/proc/locks").unwrap().lines().any(|lock| lock.contains(&own)) {
            thread::sleep(Duration::from_millis(1));
        }
        child
    }

    #[test]
    fn many_who_take_turns_are_waited_for_and_one_who_keeps_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        File::create(&path).unwrap();
        let wait = |limit: Duration| patiently(File::open(&path).unwrap(), &path, limit);
        // They take no turn before all of them, and then we, stand in line.
        let gate = Flock::lock(File::open(&path).unwrap(), FlockArg::LockExclusive).unwrap();
        let turns: Vec<Child> = (0..5).map(|_| in_line(&path, "0.3")).collect();
        let opened = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(gate);
        });
        let begun = Instant::now();
        drop(wait(Duration::from_secs(1)).unwrap());
        opened.join().unwrap();
        assert!(begun.elapsed() > Duration::from_secs(1), "it was free after {:?}", begun.elapsed());
        turns.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        let mut keeps = in_line(&path, "2");
        let begun = Instant::now();
        let error = wait(Duration::from_millis(200)).unwrap_err().to_string();
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(error.contains("by process") && error.contains("end that process"), "{error}");
        keeps.kill().unwrap();
        keeps.wait().unwrap();
    }
}
