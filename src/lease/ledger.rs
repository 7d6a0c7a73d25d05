//! The folder of leases and its lock.
//!
//! `lock` belongs to who owns the folder and anybody may lock it; `leases` is
//! a folder like /tmp, where everybody makes files and removes only his own.

use super::belief::Budget;
use super::folder::{self, whatever_the_umask};
use super::journal::{take_back, undone};
use super::life::{self, Life, Signs};
use super::listing::{self, Folder};
use super::log::Log;
use super::patience::patiently;
use super::record::{self, Damage};
use super::{Header, Held, Identity, Lease};
use crate::fault;
use crate::host::syscall::{self, Lock};
use crate::observe::RUN_DIR;
use nix::fcntl::Flock;
use nix::unistd::geteuid;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the names of locks end.
pub(super) const LOCK: &str = ".lock";

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
    /// Why its file is not believed, where the lease is what its cgroup still tells.
    pub damage: Option<Damage>,
    /// The cgroup of a damaged lease, if it has one.
    pub group: Option<PathBuf>,
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
        let usable = geteuid().is_root() || folder::is_open(Path::new(RUN_DIR));
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
        self.folder.join(folder::LEASES)
    }

    /// A file of a lease.
    pub fn file(&self, id: &str, kind: &str) -> PathBuf {
        self.leases().join(format!("{id}.{kind}"))
    }

    /// What the lock of a lease is called.
    pub fn lock_name(header: &Header) -> Cow<'_, str> {
        let plain = |name: &&str| record::is_id(name) && name.ends_with(LOCK);
        let named = header.lock_file.as_deref().filter(plain);
        named.map_or_else(|| format!("{}{LOCK}", header.lease).into(), Cow::Borrowed)
    }

    /// The lock of a lease.
    pub fn lock_path(&self, header: &Header) -> PathBuf {
        self.leases().join(&*Ledger::lock_name(header))
    }

    /// Locks it, making it where it is not there.
    ///
    /// # Errors
    /// It cannot be made, is not safe from others, or somebody has had its lock for this long.
    pub fn lock(&self, limit: Duration) -> Result<Locked<'_>, LedgerError> {
        folder::make(&self.folder)?;
        let file = folder::lock(&self.folder)?;
        let lock = patiently(file, &self.folder, limit)?;
        fault::point("ledger.locked");
        Ok(Locked { ledger: self, _lock: lock })
    }

    /// Everything in it, in the order of names. A ledger that is not there is empty.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, LedgerError> {
        Ok(self.everything()?.0)
    }

    /// The same, and the names of all that is in its folder.
    pub(super) fn everything(&self) -> Result<(Vec<Entry>, Vec<String>), LedgerError> {
        let path = self.leases();
        let failed = |source| LedgerError::File { path: path.clone(), source };
        let folder = match Folder::open(&path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
            Err(error) => return Err(failed(error)),
        };
        let names = folder.names().map_err(failed)?;
        let mut ids: Vec<&str> = listing::ids(&names).collect();
        ids.sort_unstable();
        let mut reader = Reader::new(folder, &self.root);
        let mut entries = Vec::with_capacity(ids.len());
        entries.extend(ids.into_iter().filter_map(|id| reader.entry(id)));
        Ok((entries, names))
    }

    /// One of them; none where it is gone.
    pub fn look_up(&self, id: &str) -> Option<Entry> {
        Reader::new(Folder::open(&self.leases()).ok()?, &self.root).entry(id)
    }

    /// The folder of those who wait.
    pub(super) fn queue(&self) -> Result<PathBuf, LedgerError> {
        folder::make(&self.folder)?;
        let path = self.folder.join(folder::QUEUE);
        folder::shared(&path)?;
        Ok(path)
    }

    /// Appends to a lease that is nobody's any more.
    ///
    /// # Errors
    /// It could not be written.
    pub fn note(&self, id: &str, event: &record::Event) -> io::Result<()> {
        Log::open(&self.file(id, "lease"))?.note(event)
    }
}

/// What reads one lease after the other.
struct Reader {
    folder: Folder,
    signs: Signs,
    budget: Budget,
    bytes: Vec<u8>,
}

impl Reader {
    fn new(folder: Folder, root: &Path) -> Reader {
        Reader { folder, signs: Signs::read(root), budget: Budget::default(), bytes: Vec::with_capacity(4096) }
    }

    /// None for what is gone.
    fn entry(&mut self, id: &str) -> Option<Entry> {
        let (signs, id) = (&self.signs, id.to_owned());
        let (text, user) = self.folder.text(&format!("{id}.lease"), &mut self.budget, &mut self.bytes)?;
        let read = text.and_then(|bytes| record::read(&as_text(bytes), &id, user));
        // A group that is called as only our launches call theirs.
        let group = read.as_ref().err().filter(|_| is_made_id(&id)).and_then(|_| signs.group_of(&id, user));
        let rebuilt = group.as_ref().and_then(|group| signs.rebuilt(group, &id, user));
        let (lease, damage) = match (read, rebuilt) {
            (Err(damage), Some(lease)) => (Ok(lease), Some(damage)),
            (read, _) => (read, None),
        };
        let life = match &lease {
            Ok(_) if damage.is_some() => Life::Alive,
            Ok(lease) => signs.life(lease, &self.folder, &Ledger::lock_name(&lease.header)),
            Err(_) => Life::Dead,
        };
        Some(Entry { lease, damage, group, id, user, life })
    }
}

/// Looks for what is no text only where there is some: a thousand leases are read at every launch.
fn as_text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
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
    log: Log,
    /// Closed, it ends the lease; the workload inherits it.
    pub lock: File,
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
        // By the lock's name nobody can tell how the lease will be called, and be
        // there before it: in this folder, only its owner removes a file.
        let lock_file = Some(format!("{:016x}{LOCK}", random()));
        let header = Header { lock_file, ..header };
        let (lock_path, file) = (self.ledger.lock_path(&header), self.ledger.file(&id, "lease"));
        let lock = new_lock(&lock_path).map_err(|source| LedgerError::File { path: lock_path.clone(), source })?;
        let written = lock.metadata().and_then(|about| {
            let header = Header { lock: about.ino(), version: super::VERSION, ..header };
            self.write(&file, &record::begun(&header, request)?)
        });
        match written {
            Ok(log) => Ok(Own { id, held, file, log: Log::new(log), lock, lock_path }),
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
    pub fn remove(&self, lease: &Lease) -> io::Result<()> {
        let lock = self.ledger.lock_path(&lease.header);
        // Any user's lease can name any lock.
        let its = fs::symlink_metadata(&lock).is_ok_and(|about| about.uid() == lease.user);
        remove(&self.ledger.file(&lease.header.lease, "lease"), its.then_some(&lock))
    }

    /// Puts what is no lease aside, where it is not looked at again.
    pub fn set_aside(&self, id: &str) -> io::Result<PathBuf> {
        let aside = self.ledger.file(id, "damaged");
        fs::rename(self.ledger.file(id, "lease"), &aside)?;
        fault::point("lease.set-aside");
        Ok(aside)
    }

    /// Removes locks that are no lease's and half-written files, of launches
    /// that were ended before they had a lease or after they had lost it.
    pub fn sweep(&self, names: &[String], locks: &BTreeSet<String>) {
        for name in listing::orphans(names, locks) {
            let path = self.ledger.leases().join(name);
            if fs::symlink_metadata(&path).is_ok_and(|about| about.uid() == geteuid().as_raw()) {
                let _ = fs::remove_file(path);
                fault::point("ledger.swept");
            }
        }
    }
}

/// Makes a lock and takes it.
pub(super) fn new_lock(path: &Path) -> io::Result<File> {
    // Others must not open it: a lock of theirs would keep this lease alive.
    whatever_the_umask(|| OpenOptions::new().write(true).create_new(true).mode(0o400).open(path))?;
    fault::point("lease.lock-made");
    // What the workload inherits is open for reading only.
    let file = life::open(path)?;
    syscall::lock(&file, Lock::Alone)?;
    fault::point("lease.lock-held");
    Ok(file)
}

/// A lease ends with the unlink of its file; a lock without one is swept.
fn remove(lease: &Path, lock: Option<&PathBuf>) -> io::Result<()> {
    gone(fs::remove_file(lease))?;
    fault::point("lease.removed");
    gone(lock.map_or(Ok(()), fs::remove_file))?;
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
    /// The folder of its ledger.
    pub fn ledger_folder(&self) -> &Path {
        let leases = self.file.parent();
        leases.and_then(Path::parent).unwrap_or(Path::new("/"))
    }

    /// The lock and the file with its place, to undo what this launch did.
    pub fn parts(&mut self) -> (BorrowedFd<'_>, &mut Log, &Path) {
        (self.lock.as_fd(), &mut self.log, &self.file)
    }

    /// Appends what happened, and comes back when it is on disk.
    ///
    /// # Errors
    /// It could not be written.
    pub fn note(&mut self, event: &record::Event) -> io::Result<()> {
        self.log.note(event)
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
        remove(&self.file, Some(&self.lock_path))
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
        let taken = self.opened().map(|(lease, lock, mut log)| {
            take_back(&lease.journal, &mut |undo| undone(undo, lock.as_fd(), (&mut log, &self.file), None), tell)
        });
        let removed = match taken {
            Ok(Ok(())) => remove(&self.file, Some(&self.lock_path)),
            Ok(Err(_)) => Ok(()),
            Err(error) => return tell(format!("the lease {} cannot be read: {error}", self.file.display())),
        };
        if let Err(error) = removed {
            tell(format!("the lease could not be removed: {error}"));
        }
    }

    fn opened(&self) -> io::Result<(Lease, File, Log)> {
        let folder = Folder::open(self.file.parent().unwrap_or(Path::new("/")))?;
        let (mut budget, mut bytes) = (Budget::default(), Vec::new());
        let text = folder.text(&format!("{}.lease", self.id), &mut budget, &mut bytes);
        let (text, user) = text.ok_or(io::ErrorKind::NotFound)?;
        let read = |text| record::read(&String::from_utf8_lossy(text), &self.id, user);
        let lease = text.and_then(read).map_err(io::Error::other)?;
        Ok((lease, life::open(&self.lock_path)?, Log::open(&self.file)?))
    }
}

/// A name that no live lease has: unique, safe in paths, and not to be foreseen.
pub fn new_id(own: &Identity) -> String {
    format!("{:x}-{:x}-{:06x}", own.pid, own.start, random() & 0xff_ffff)
}

/// A number from the kernel, by way of what the standard library guards its tables with.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Whether an id is one that [`new_id`] makes.
pub fn is_made_id(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hexadecimal = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    parts.len() == 3
        && parts[2].len() == 6
        && parts.iter().all(|part| !part.is_empty())
        && parts.iter().all(hexadecimal)
}
