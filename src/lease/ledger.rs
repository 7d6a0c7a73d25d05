//! The folder of leases and its lock.
//!
//! `lock` belongs to who owns the folder and anybody may lock it; `leases` is
//! a folder like /tmp, where everybody makes files and removes only his own.

use super::journal::take_back;
use super::life::{self, Life, Signs};
use super::record::{self, Damage};
use super::{Header, Held, Lease, identity};
use crate::fault;
use crate::observe::RUN_DIR;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No lease is longer.
const LARGEST: u64 = 1 << 20;

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file of it cannot be made, read or written.
    #[error("cannot record the launch in {}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else could change it.
    #[error("{} belongs to user {user} with mode {mode:o}, so that others could change what it holds: choose another --run-dir", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        user: u32,
        /// Its mode.
        mode: u32,
    },
    /// Its lock is not given back.
    #[error("the ledger {} has been locked for {} s by {holder}: end that process, or try again", path.display(), waited.as_secs())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// For how long it was tried.
        waited: Duration,
        /// Who has it.
        holder: String,
    },
}

/// How far what the ledger says reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All launches of this host keep to it.
    Host,
    /// Only the launches of this user do: there is no ledger of the host's that he could use.
    Own,
    /// The launches that name this folder.
    Named,
}

/// A folder of leases.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: PathBuf,
    reach: Reach,
    root: PathBuf,
}

/// A file of the ledger.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its lease, or why there is none in it.
    pub lease: Result<Lease, Damage>,
    /// What the file is called.
    pub id: String,
    /// Whose file it is.
    pub user: u32,
    /// Whether the workload lives; what cannot be read counts as dead.
    pub life: Life,
}

impl Ledger {
    /// The ledger in this folder, else the host's, else the user's own.
    pub fn find(named: Option<&Path>, own: &Path) -> Ledger {
        let usable = geteuid().is_root() || leases_are_open(Path::new(RUN_DIR));
        let (folder, reach) = match named {
            Some(folder) => (folder, Reach::Named),
            None if usable => (Path::new(RUN_DIR), Reach::Host),
            None => (own, Reach::Own),
        };
        Ledger { folder: folder.to_owned(), reach, root: PathBuf::from("/") }
    }

    /// How far it reaches.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the leases' files.
    pub fn leases(&self) -> PathBuf {
        self.folder.join("leases")
    }

    /// A file of a lease.
    pub fn file(&self, id: &str, kind: &str) -> PathBuf {
        self.leases().join(format!("{id}.{kind}"))
    }

    /// Locks it, making it where it is not there.
    ///
    /// # Errors
    /// It cannot be made, is not safe from others, or somebody has had its lock for this long.
    pub fn lock(&self, limit: Duration) -> Result<Locked<'_>, LedgerError> {
        self.make()?;
        let path = self.folder.join("lock");
        let file = lock_file(&path).map_err(|source| LedgerError::File { path: path.clone(), source })?;
        let lock = patiently(file, &path, limit)?;
        fault::point("ledger.locked");
        Ok(Locked { ledger: self, _lock: lock })
    }

    /// Everything in it, in the order of names. A ledger that is not there is empty.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, LedgerError> {
        let folder = self.leases();
        let failed = |source| LedgerError::File { path: folder.clone(), source };
        let files = match fs::read_dir(&folder) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let signs = Signs::read(&self.root);
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let ids = names.filter_map(|name| name.strip_suffix(".lease").map(str::to_owned));
        let mut entries: Vec<Entry> = ids.filter_map(|id| self.entry(&signs, id)).collect();
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(entries)
    }

    /// None for what is no file, or is gone.
    fn entry(&self, signs: &Signs, id: String) -> Option<Entry> {
        let (text, user) = text(&self.file(&id, "lease")).ok()??;
        let lease = record::read(&text, &id, user);
        let life = lease.as_ref().map_or(Life::Dead, |lease| signs.life(lease, &self.file(&id, "lock")));
        Some(Entry { lease, id, user, life })
    }

    /// The folder of those who wait.
    pub(super) fn queue(&self) -> Result<PathBuf, LedgerError> {
        self.make()?;
        let path = self.folder.join("queue");
        folder(&path, inner_mode())?;
        Ok(path)
    }

    /// Appends to a lease that is nobody's any more.
    ///
    /// # Errors
    /// It could not be written.
    pub fn note(&self, id: &str, event: &record::Event) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut log = options.append(true).custom_flags(libc::O_NOFOLLOW).open(self.file(id, "lease"))?;
        log.write_all(record::line(event)?.as_bytes())?;
        log.sync_data()
    }

    fn make(&self) -> Result<(), LedgerError> {
        folder(&self.folder, if geteuid().is_root() { 0o755 } else { 0o700 })?;
        folder(&self.leases(), inner_mode())
    }
}

/// In root's ledger everybody keeps his own files.
fn inner_mode() -> u32 {
    if geteuid().is_root() { 0o1777 } else { 0o700 }
}

/// True when this folder is one that every user may put leases into.
fn leases_are_open(folder: &Path) -> bool {
    let about = |path: &Path| fs::symlink_metadata(path).ok().filter(|about| about.is_dir() && about.uid() == 0);
    let shared = |about: fs::Metadata| about.mode() & 0o1777 == 0o1777;
    about(folder).is_some_and(|about| about.mode() & 0o022 == 0) && about(&folder.join("leases")).is_some_and(shared)
}

/// Makes a folder, or checks that nobody but root and this user can have changed it.
fn folder(path: &Path, mode: u32) -> Result<(), LedgerError> {
    let failed = |source| LedgerError::File { path: path.to_owned(), source };
    match whatever_the_umask(|| DirBuilder::new().mode(mode).create(path)) {
        Ok(()) => {
            fault::point("ledger.folder-made");
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.raw_os_error() == Some(libc::EROFS) && path.is_dir() => {}
        Err(error) => return Err(failed(error)),
    }
    let about = fs::symlink_metadata(path).map_err(failed)?;
    if !about.is_dir() {
        return Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    let ours = about.uid() == 0 || about.uid() == geteuid().as_raw();
    let closed = about.mode() & 0o022 == 0 || about.mode() & 0o1000 != 0;
    match ours && closed {
        true => Ok(()),
        false => Err(LedgerError::Foreign { path: path.to_owned(), user: about.uid(), mode: about.mode() & 0o7777 }),
    }
}

/// Makes something with the very mode that it shall have: changed afterwards, it
/// would stay half made where this process is ended in between.
fn whatever_the_umask<T>(make: impl FnOnce() -> T) -> T {
    let before = umask(Mode::empty());
    let made = make();
    umask(before);
    made
}

/// Locking needs no right to write: an ordinary user opens root's file for reading.
fn lock_file(path: &Path) -> io::Result<File> {
    let open = |options: &mut OpenOptions| options.read(true).custom_flags(libc::O_NOFOLLOW).open(path);
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

fn patiently(mut file: File, path: &Path, limit: Duration) -> Result<Flock<File>, LedgerError> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        let errno;
        (file, errno) = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err(refused) => refused,
        };
        if errno != Errno::EWOULDBLOCK && errno != Errno::EINTR {
            return Err(LedgerError::File { path: path.to_owned(), source: errno.into() });
        }
        if begun.elapsed() >= limit {
            let holder = holder(&file).unwrap_or_else(|| "a process that cannot be seen from here".into());
            return Err(LedgerError::Locked { path: path.to_owned(), waited: limit, holder });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// `process 4711 (numa-run)`.
fn holder(file: &File) -> Option<String> {
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let fields = locks.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut holders = fields.filter(|fields| fields.get(1) == Some(&"FLOCK"));
    let held = holders.find(|fields| fields.get(5).is_some_and(|place| place.ends_with(&format!(":{inode}"))))?;
    let pid = held.get(4)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_else(|_| "gone".into());
    Some(format!("process {pid} ({})", name.trim()))
}

/// A regular file's text and owner; none for anything else that has its name.
fn text(path: &Path) -> io::Result<Option<(String, u32)>> {
    let file = life::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(about.len().min(LARGEST) as usize + 1);
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), about.uid())))
}

/// The ledger while nobody else changes it.
#[derive(Debug)]
pub struct Locked<'a> {
    ledger: &'a Ledger,
    _lock: Flock<File>,
}

/// A lease of this process.
#[derive(Debug)]
pub struct Own {
    /// What it is called.
    pub id: String,
    /// What it holds.
    pub held: Held,
    file: PathBuf,
    log: File,
    /// Closed, it ends the lease; the workload inherits it.
    pub lock: Flock<File>,
    lock_path: PathBuf,
}

impl Locked<'_> {
    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        self.ledger
    }

    /// Puts a lease into the ledger: it is there, with its lock held, or it is not.
    ///
    /// # Errors
    /// It cannot be written; nothing of it is left.
    pub fn publish(&self, header: Header, request: &str) -> Result<Own, LedgerError> {
        let (id, held) = (header.lease.clone(), header.held.clone());
        let (lock_path, file) = (self.ledger.file(&id, "lock"), self.ledger.file(&id, "lease"));
        let lock = new_lock(&lock_path).map_err(|source| LedgerError::File { path: lock_path.clone(), source })?;
        let written = lock.metadata().and_then(|about| {
            let header = Header { lock: about.ino(), version: super::VERSION, ..header };
            self.write(&file, &record::begun(&header, request)?)
        });
        match written {
            Ok(log) => Ok(Own { id, held, file, log, lock, lock_path }),
            Err(source) => {
                let _ = fs::remove_file(&lock_path);
                Err(LedgerError::File { path: file, source })
            }
        }
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<File> {
        let mut log = tempfile::Builder::new().prefix(".lease").tempfile_in(self.ledger.leases())?;
        log.write_all(text.as_bytes())?;
        log.as_file().set_permissions(Permissions::from_mode(0o644))?;
        log.as_file().sync_data()?;
        fault::point("lease.written");
        let log = log.persist_noclobber(file).map_err(|error| error.error)?;
        fault::point("lease.renamed");
        File::open(self.ledger.leases())?.sync_all()?;
        fault::point("lease.published");
        Ok(log)
    }

    /// Takes a dead lease out. Somebody else's stays his to remove; it holds nothing any more.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        remove(&self.ledger.file(id, "lease"), &self.ledger.file(id, "lock"))
    }

    /// Puts what is no lease aside, where it is not looked at again.
    pub fn set_aside(&self, id: &str) -> io::Result<PathBuf> {
        let aside = self.ledger.file(id, "damaged");
        fs::rename(self.ledger.file(id, "lease"), &aside)?;
        fault::point("lease.set-aside");
        gone(fs::remove_file(self.ledger.file(id, "lock")))?;
        Ok(aside)
    }

    /// Removes locks and half-written files of launches that were ended before they had a lease.
    pub fn sweep(&self) {
        let names = fs::read_dir(self.ledger.leases()).into_iter().flatten().flatten();
        for name in names.filter_map(|file| file.file_name().into_string().ok()) {
            let path = self.ledger.leases().join(&name);
            let orphan = match name.strip_suffix(".lock") {
                Some(id) => !self.ledger.file(id, "lease").exists(),
                None => name.starts_with(".lease"),
            };
            if orphan && fs::symlink_metadata(&path).is_ok_and(|about| about.uid() == geteuid().as_raw()) {
                let _ = fs::remove_file(path);
                fault::point("ledger.swept");
            }
        }
    }
}

/// Makes a lock and takes it.
pub(super) fn new_lock(path: &Path) -> io::Result<Flock<File>> {
    // Others must not open it: a lock of theirs would keep this lease alive.
    whatever_the_umask(|| OpenOptions::new().write(true).create_new(true).mode(0o400).open(path))?;
    fault::point("lease.lock-made");
    // What the workload inherits is open for reading only.
    let file = life::open(path)?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
    fault::point("lease.lock-held");
    Ok(lock)
}

/// A lease ends with the unlink of its file; a lock without one is swept.
fn remove(lease: &Path, lock: &Path) -> io::Result<()> {
    gone(fs::remove_file(lease))?;
    fault::point("lease.removed");
    gone(fs::remove_file(lock))?;
    fault::point("lease.lock-removed");
    Ok(())
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Own {
    /// Appends what happened, and comes back when it is on disk.
    ///
    /// # Errors
    /// It could not be written.
    pub fn note(&mut self, event: &record::Event) -> io::Result<()> {
        self.log.write_all(record::line(event)?.as_bytes())?;
        self.log.sync_data()?;
        fault::point("journal.noted");
        Ok(())
    }

    /// The lease as others find it.
    pub fn written(&self) -> Written {
        Written { id: self.id.clone(), file: self.file.clone(), lock_path: self.lock_path.clone() }
    }

    /// Ends the lease.
    ///
    /// # Errors
    /// Its file is still there: it holds nothing any more once this process ends.
    pub fn release(self) -> io::Result<()> {
        remove(&self.file, &self.lock_path)
    }
}

/// A lease on disk, for a process that is not its owner.
#[derive(Clone, Debug)]
pub struct Written {
    id: String,
    file: PathBuf,
    lock_path: PathBuf,
}

impl Written {
    /// Undoes what its journal has by now, and ends it. What cannot be undone
    /// is told, and the lease stays for the next launch to try again.
    pub fn take_back(&self, tell: &mut dyn FnMut(String)) {
        let read =
            text(&self.file).map(|found| found.and_then(|(text, user)| record::read(&text, &self.id, user).ok()));
        let done = match read {
            Ok(Some(lease)) => take_back(&lease.journal, tell).is_ok(),
            _ => return tell(format!("the lease {} cannot be read", self.file.display())),
        };
        let removed = || gone(fs::remove_file(&self.file)).and_then(|()| gone(fs::remove_file(&self.lock_path)));
        if done && let Err(error) = removed() {
            tell(format!("the lease could not be removed: {error}"));
        }
    }
}

/// A name that no live lease has: unique, and safe in paths.
pub fn new_id(root: &Path) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let own = identity::Identity::own(root);
    format!("{:x}-{:x}-{:06x}", own.pid, own.start, now.subsec_nanos() & 0xff_ffff)
}
