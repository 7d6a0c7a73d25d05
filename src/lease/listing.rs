//! The folder of leases as it is read: the names in it once, and its files from
//! where it is. With a thousand leases each call to the kernel counts.

use super::belief::Budget;
use super::record::{self, Damage};
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// An opened folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    file: File,
}

impl Folder {
    /// Opens it.
    ///
    /// # Errors
    /// It is not there, no folder, or not to be read.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let file = File::open(path)?;
        Ok(Folder { path: path.to_owned(), file })
    }

    /// What a name in it stands for, not what a link leads to.
    pub fn about(&self, name: &str) -> io::Result<FileStat> {
        Ok(fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Opens a file of it for reading, without following a link or waiting for a pipe.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(openat(&self.file, name, flags, Mode::empty())?.into())
    }

    /// All names in it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    /// A file's text, or why there is none, and its owner; nothing where it is gone.
    /// What is read is put into `bytes`.
    pub(super) fn text<'a>(
        &self,
        name: &str,
        budget: &mut Budget,
        bytes: &'a mut Vec<u8>,
    ) -> Option<(Result<&'a [u8], Damage>, u32)> {
        let unreadable = |error: io::Error| Damage::Unreadable(error.to_string());
        let file = match self.file(name) {
            Ok(file) => file,
            Err(error) => {
                let about = self.about(name).ok()?;
                return Some((Err(if is_plain(&about) { unreadable(error) } else { Damage::Kind }), about.st_uid));
            }
        };
        let about = fstat(&file).ok()?;
        let user = about.st_uid;
        if !is_plain(&about) {
            return Some((Err(Damage::Kind), user));
        }
        let length = u64::try_from(about.st_size).unwrap_or(0);
        let Some(most) = budget.of(user, length) else { return Some((Err(Damage::Many), user)) };
        bytes.clear();
        let read = read_at_once(&file, length.min(most), bytes);
        Some((read.map(|()| &bytes[..]).map_err(unreadable), user))
    }
}

/// True for a file that is neither a link, nor a folder, nor a pipe.
pub fn is_plain(about: &FileStat) -> bool {
    SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
}

/// Reads so much of a file. What is appended meanwhile need not be seen; less
/// than what there was is read again, until nothing more comes.
fn read_at_once(mut file: &File, length: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    bytes.resize(length, 0);
    let mut filled = 0;
    while filled < length {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(())
}

/// The leases among the names.
pub fn ids(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().filter_map(|name| name.strip_suffix(".lease").filter(|id| record::is_id(id)))
}

/// Names of what is nobody's: locks that no lease names, and leases half written.
pub fn orphans<'a>(names: &'a [String], locks: &'a BTreeSet<String>) -> impl Iterator<Item = &'a String> {
    names.iter().filter(|name| {
        name.starts_with(".lease") || name.ends_with(super::ledger::LOCK) && !locks.contains(name.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_no_plain_file_is_told_from_what_is_gone() {
        let path = tempfile::tempdir().unwrap();
        fs::write(path.path().join("a.lease"), "text").unwrap();
        fs::create_dir(path.path().join("b.lease")).unwrap();
        symlink("a.lease", path.path().join("c.lease")).unwrap();
        nix::unistd::mkfifo(&path.path().join("d.lease"), Mode::S_IRWXU).unwrap();
        let folder = Folder::open(path.path()).unwrap();
        let (mut budget, mut bytes) = (Budget::default(), Vec::new());
        let mut read = |name| folder.text(name, &mut budget, &mut bytes).map(|(text, _)| text.map(<[u8]>::to_owned));
        assert_eq!(read("a.lease"), Some(Ok(b"text".to_vec())));
        for name in ["b.lease", "c.lease", "d.lease"] {
            assert_eq!(read(name), Some(Err(Damage::Kind)), "{name}");
        }
        assert_eq!(read("e.lease"), None);
        assert_eq!(ids(&folder.names().unwrap()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn orphans_are_locks_of_no_lease_and_leases_half_written() {
        let names = [".leaseX1", "0f.lock", "1f.lock", "a.lease", "a.damaged"].map(str::to_owned);
        let locks = BTreeSet::from(["1f.lock".to_owned()]);
        assert_eq!(orphans(&names, &locks).collect::<Vec<_>>(), [".leaseX1", "0f.lock"]);
    }
}
