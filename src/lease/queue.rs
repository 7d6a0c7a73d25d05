//! Who waits for what others hold: tickets in a folder, served in the order of their names.

use super::bell::Bell;
use super::ledger::{LedgerError, new_lock};
use super::life::{self, Signs};
use super::{Ledger, identity};
use nix::unistd::geteuid;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A place in the queue, given up when dropped.
#[derive(Debug)]
pub struct Ticket {
    path: PathBuf,
    _lock: File,
}

impl Ticket {
    /// The last place.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn take(ledger: &Ledger) -> Result<Ticket, LedgerError> {
        let folder = ledger.queue()?;
        // No clock that is set can change the order.
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        let own = identity::Identity::own(Path::new("/"));
        let path = folder.join(format!("{:020}-{:x}-{:x}.ticket", now.as_nanos(), own.pid, own.start));
        match new_lock(&path) {
            Ok(lock) => Ok(Ticket { path, _lock: lock }),
            Err(source) => Err(LedgerError::File { path, source }),
        }
    }

    /// Comes back when all who came before are served or gone; false when the time is over before.
    pub fn wait_for_turn(&self, end: Instant) -> bool {
        let bell = Bell::of(self.path.parent().unwrap_or(Path::new("/")));
        while self.others_come_first() {
            if !bell.wait(end) {
                return false;
            }
        }
        true
    }

    fn others_come_first(&self) -> bool {
        let (Some(folder), Some(own)) = (self.path.parent(), self.path.file_name()) else { return false };
        let signs = Signs::read(Path::new("/"));
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let earlier = files.filter(|file| file.file_name().as_os_str() < own).map(|file| file.path());
        let mut earlier = earlier.filter(|path| path.extension().is_some_and(|kind| kind == "ticket"));
        earlier.any(|path| counts(&signs, &path))
    }
}

/// A ticket whose owner is alive. Root does not wait for others: they could wait for ever.
fn counts(signs: &Signs, path: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(path) else { return false };
    let root = geteuid().is_root();
    if root && about.uid() != 0 || !about.is_file() {
        return false;
    }
    let alive = signs.locked((about.dev(), about.ino()), || life::open(path));
    if !alive && (root || about.uid() == geteuid().as_raw()) {
        let _ = fs::remove_file(path);
    }
    alive
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_served_in_the_order_of_asking_and_the_dead_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::find(Some(folder.path()), folder.path());
        drop(ledger.lock(Duration::ZERO).unwrap());
        let first = Ticket::take(&ledger).unwrap();
        let second = Ticket::take(&ledger).unwrap();
        assert!(!first.others_come_first());
        assert!(second.others_come_first());
        assert!(!second.wait_for_turn(Instant::now() + Duration::from_millis(50)));
        drop(first);
        assert!(second.wait_for_turn(Instant::now()));
        // Of one that was killed, the file is left and nobody has its lock.
        let dead = folder.path().join("queue/00000000000000000001-1-1.ticket");
        File::create(&dead).unwrap();
        assert!(second.wait_for_turn(Instant::now()));
        assert!(!dead.exists());
    }
}
