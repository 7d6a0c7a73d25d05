//! A ledger's folder, made and checked so that nobody but root and this user
//! can change what it says.

use super::ledger::LedgerError;
use crate::fault;
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What the folder's lock is called.
const LOCK: &str = "lock";
/// Where leases are.
pub const LEASES: &str = "leases";
/// Where tickets are.
pub const QUEUE: &str = "queue";

/// Makes what is missing of a ledger, the leases' folder last: where it is, the rest is too.
///
/// # Errors
/// It cannot be made, or somebody else could change it.
pub fn make(ledger: &Path) -> Result<(), LedgerError> {
    check_above(ledger)?;
    own(ledger, if geteuid().is_root() { 0o755 } else { 0o700 })?;
    let leases = ledger.join(LEASES);
    if fs::symlink_metadata(&leases).is_err() {
        lock(ledger)?;
        shared(&ledger.join(QUEUE))?;
    }
    shared(&leases)
}

/// A folder of the ledger where everybody keeps his own files, if it is root's.
///
/// # Errors
/// It cannot be made, or somebody else could change it.
pub fn shared(path: &Path) -> Result<(), LedgerError> {
    own(path, if geteuid().is_root() { 0o1777 } else { 0o700 })
}

/// True when every user may put leases into this ledger.
pub fn is_open(ledger: &Path) -> bool {
    let roots = |name: &str| fs::symlink_metadata(ledger.join(name)).ok().filter(|about| about.uid() == 0);
    let closed = |about: &Metadata| about.is_dir() && about.mode() & 0o022 == 0;
    let open = |about: &Metadata| about.is_dir() && about.mode() & 0o1777 == 0o1777;
    roots("").is_some_and(|about| closed(&about))
        && roots(LEASES).is_some_and(|about| open(&about))
        && roots(LOCK).is_some_and(|about| about.is_file())
}

/// Opens the ledger's lock. Locking needs no right to write: an ordinary user
/// opens root's for reading.
///
/// # Errors
/// It cannot be made, or is somebody else's or no file.
pub fn lock(ledger: &Path) -> Result<File, LedgerError> {
    let path = ledger.join(LOCK);
    let failed = |source| LedgerError::File { path: path.clone(), source };
    let file = open(&path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    match about.is_file() && is_trusted(about.uid()) {
        true => Ok(file),
        false => Err(foreign(&path, &about)),
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Neither through a link nor waiting for somebody to write to a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let open = |options: &mut OpenOptions| options.read(true).custom_flags(flags).open(path);
    match open(&mut OpenOptions::new()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    match whatever_the_umask(|| open(OpenOptions::new().write(true).create_new(true).mode(0o644))) {
        Ok(file) => {
            fault::point("ledger.lock-made");
            Ok(file)
        }
        // Somebody was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(&mut OpenOptions::new()),
        Err(error) => Err(error),
    }
}

/// Makes a folder, or checks that nobody else can have changed it.
fn own(path: &Path, mode: u32) -> Result<(), LedgerError> {
    let failed = |source| LedgerError::File { path: path.to_owned(), source };
    let about = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match made(path, mode).map_err(failed)? {
            Made::Now => return Ok(()),
            Made::BySomebodyFaster => fs::symlink_metadata(path),
        },
        other => other,
    };
    let about = about.map_err(failed)?;
    if !about.is_dir() {
        return Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    let closed = about.mode() & 0o022 == 0 || about.mode() & STICKY != 0;
    if is_trusted(about.uid()) && closed { Ok(()) } else { Err(foreign(path, &about)) }
}

enum Made {
    Now,
    BySomebodyFaster,
}

fn made(path: &Path, mode: u32) -> io::Result<Made> {
    match whatever_the_umask(|| DirBuilder::new().mode(mode).create(path)) {
        Ok(()) => {
            fault::point("ledger.folder-made");
            Ok(Made::Now)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Made::BySomebodyFaster),
        Err(error) => Err(error),
    }
}

/// In a folder with this mode, as /tmp is one, nobody replaces what is another's.
const STICKY: u32 = 0o1000;

/// Refuses a ledger that somebody else could put another in the place of, by
/// one of the folders above. Groups are trusted as those trust them who let them in.
fn check_above(ledger: &Path) -> Result<(), LedgerError> {
    let failed = |source| LedgerError::File { path: ledger.to_owned(), source };
    let typed = std::path::absolute(ledger).map_err(failed)?;
    let Some(parent) = typed.parent() else { return Ok(()) };
    // One that is not there is refused when the ledger is made.
    let real = fs::canonicalize(parent).unwrap_or_default();
    let above = parent.ancestors().chain(if real == parent { Path::new("").ancestors() } else { real.ancestors() });
    let unsafe_one = |folder: &Path| {
        let about = fs::symlink_metadata(folder).ok()?;
        let closed = about.is_symlink() || about.mode() & 0o002 == 0 || about.mode() & STICKY != 0;
        (!closed || !is_trusted(about.uid()) && !is_unmapped(about.uid())).then(|| foreign(folder, &about))
    };
    above.filter(|folder| !folder.as_os_str().is_empty()).find_map(unsafe_one).map_or(Ok(()), Err)
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// In a user namespace, the files of all who are not in it seem to be nobody's.
fn is_unmapped(user: u32) -> bool {
    let number = |file: &str, at: usize| -> Option<u32> {
        fs::read_to_string(file).ok()?.split_ascii_whitespace().nth(at)?.parse().ok()
    };
    // A map of all users, 0 to 4294967294, is the host's own.
    let apart = number("/proc/self/uid_map", 2).is_some_and(|mapped| mapped != u32::MAX);
    apart && number("/proc/sys/kernel/overflowuid", 0) == Some(user)
}

fn foreign(path: &Path, about: &Metadata) -> LedgerError {
    LedgerError::Foreign { path: path.to_owned(), user: about.uid(), mode: about.mode() & 0o7777 }
}

/// Makes something with the very mode that it shall have: changed afterwards, it
/// would stay half made where this process is ended in between.
pub fn whatever_the_umask<T>(make: impl FnOnce() -> T) -> T {
    let before = umask(Mode::empty());
    let made = make();
    umask(before);
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_ledger_is_made_with_its_lock_and_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("run");
        make(&ledger).unwrap();
        make(&ledger).unwrap();
        assert!(lock(&ledger).unwrap().metadata().unwrap().is_file());
        let root = geteuid().is_root();
        assert_eq!(is_open(&ledger), root);
        let inner = if root { 0o1777 } else { 0o700 };
        for name in [LEASES, QUEUE] {
            assert_eq!(fs::metadata(ledger.join(name)).unwrap().mode() & 0o7777, inner);
        }
        fs::remove_file(ledger.join(LOCK)).unwrap();
        assert!(!is_open(&ledger), "without a lock, others could lock nothing");
    }

    #[test]
    fn what_others_could_change_or_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("above");
        fs::create_dir(&above).unwrap();
        let ledger = above.join("run");
        let refused = || matches!(make(&ledger), Err(LedgerError::Foreign { .. }));
        for (of_above, expected) in [(0o777, true), (0o1777, false), (0o775, false), (0o755, false)] {
            mode(&above, of_above);
            assert_eq!(refused(), expected, "{of_above:o}");
        }
        for (of_ledger, expected) in [(0o777, true), (0o775, true), (0o1777, false), (0o755, false)] {
            mode(&ledger, of_ledger);
            assert_eq!(refused(), expected, "{of_ledger:o}");
        }
        mode(&ledger.join(LEASES), 0o777);
        assert!(refused());
    }

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_something_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        make(&other).unwrap();
        let ledger = folder.path().join("run");
        symlink(&other, &ledger).unwrap();
        assert!(make(&ledger).unwrap_err().to_string().contains("cannot record the launch in"));
        fs::remove_file(&ledger).unwrap();
        make(&ledger).unwrap();
        fs::remove_dir(ledger.join(LEASES)).unwrap();
        symlink(other.join(LEASES), ledger.join(LEASES)).unwrap();
        make(&ledger).unwrap_err();
        fs::remove_file(ledger.join(LOCK)).unwrap();
        symlink(other.join(LOCK), ledger.join(LOCK)).unwrap();
        lock(&ledger).unwrap_err();
        fs::remove_file(ledger.join(LOCK)).unwrap();
        nix::unistd::mkfifo(&ledger.join(LOCK), Mode::S_IRWXU).unwrap();
        assert!(matches!(lock(&ledger), Err(LedgerError::Foreign { .. })));
    }

    #[test]
    fn a_link_above_is_followed_as_far_as_it_is_safe() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        fs::create_dir(&real).unwrap();
        symlink(&real, folder.path().join("link")).unwrap();
        let ledger = folder.path().join("link/run");
        make(&ledger).unwrap();
        mode(&real, 0o777);
        assert!(matches!(make(&ledger), Err(LedgerError::Foreign { .. })));
    }
}
