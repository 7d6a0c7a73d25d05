//! Being told when a lease or a place in the queue is given up. Nothing depends
//! on it but how soon: who waits looks again in any case, from time to time.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked at most; without a bell, always.
const OFTEN: Duration = Duration::from_millis(25);
/// How often it is looked at least: what has no lock, nobody rings for.
const SELDOM: Duration = Duration::from_millis(500);

/// Rings when a lock in a folder is closed by the last who had it, or a file is removed.
#[derive(Debug)]
pub struct Bell(Option<Inotify>);

impl Bell {
    /// Of a folder. It never rings where the kernel has none left for this user.
    pub fn of(folder: &Path) -> Bell {
        let bell = || {
            let bell = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            bell.add_watch(folder, AddWatchFlags::IN_CLOSE_NOWRITE | AddWatchFlags::IN_DELETE)?;
            nix::Result::Ok(bell)
        };
        Bell(bell().ok())
    }

    /// Waits a little; false when the time was over before.
    pub fn wait(&self, end: Instant) -> bool {
        let begun = Instant::now();
        let left = end.saturating_duration_since(begun);
        let seldom = begun + SELDOM.min(left);
        while self.0.as_ref().is_some_and(|bell| silent(bell, seldom)) {}
        // Whoever looks may ring the bell itself.
        thread::sleep(OFTEN.min(left).saturating_sub(begun.elapsed()));
        !left.is_zero()
    }
}

/// True where it has to be waited on: it has woken us for something else.
fn silent(bell: &Inotify, end: Instant) -> bool {
    let left = end.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    if left.is_zero() || poll(&mut [PollFd::new(bell.as_fd(), PollFlags::POLLIN)], timeout).is_err() {
        return false;
    }
    !bell.read_events().is_ok_and(|events| events.iter().any(rings))
}

/// Closing happens to what is only read, too.
fn rings(event: &InotifyEvent) -> bool {
    let is_lock = |name: &[u8]| name.ends_with(b".lock") || name.ends_with(b".ticket");
    let removed = event.mask.contains(AddWatchFlags::IN_DELETE);
    removed || event.name.as_ref().is_none_or(|name| is_lock(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn it_rings_for_a_lock_that_is_closed_and_not_for_a_lease_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (lock, lease) = (folder.path().join("a.lock"), folder.path().join("a.lease"));
        for path in [&lock, &lease] {
            File::create(path).unwrap();
        }
        let bell = Bell::of(folder.path());
        let waits = |what: &dyn Fn()| {
            let begun = Instant::now();
            what();
            assert!(bell.wait(begun + Duration::from_secs(60)));
            begun.elapsed()
        };
        assert!(waits(&|| drop(File::open(&lease).unwrap())) >= SELDOM);
        let soon = [waits(&|| drop(File::open(&lock).unwrap())), waits(&|| std::fs::remove_file(&lease).unwrap())];
        assert!(soon.iter().all(|time| (OFTEN..SELDOM).contains(time)), "{soon:?}");
        assert!(!bell.wait(Instant::now()));
        assert!(Bell::of(Path::new("/nowhere")).wait(Instant::now() + Duration::from_secs(1)));
    }
}
