//! The file of a lease as it is appended to.

use super::record::{self, Event};
use crate::fault;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// One process at a time appends: who launched, and after it who undoes; rarely
/// another one that hands something on to it. So each line is put behind the last one by the kernel.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Of a lease that has just been written.
    pub fn new(file: File) -> Log {
        // Where this were refused, it would still be appended by position.
        let _ = fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND));
        Log(file)
    }

    /// Of a lease whose launch is no more. A last line that is torn is cut off:
    /// what is behind it would not be believed.
    ///
    /// # Errors
    /// It is gone or not to be written.
    pub fn open(path: &Path) -> io::Result<Log> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64)?;
        }
        Ok(Log(file))
    }

    /// Appends what happened, and comes back when it is on disk.
    ///
    /// # Errors
    /// It could not be written; nothing of it is left.
    pub fn note(&mut self, event: &Event) -> io::Result<()> {
        let line = record::line(event)?;
        let end = self.0.seek(SeekFrom::End(0))?;
        let written = self.0.write_all(line.as_bytes()).and_then(|()| self.0.sync_data());
        if written.is_err() {
            // A full disk may have taken a part.
            let _ = self.0.set_len(end);
        }
        written?;
        fault::point("journal.noted");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Header, VERSION};
    use crate::step::Undo;

    #[test]
    fn what_is_appended_behind_a_torn_line_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a1.lease");
        let header = Header { version: VERSION, lease: "a1".into(), ..Header::default() };
        let undo = Undo::RemoveGroup("/a".into());
        let torn = &record::line(&Event::Running).unwrap()[..12];
        let text = record::begun(&header, "").unwrap() + &record::line(&Event::Undo(undo.clone())).unwrap() + torn;
        std::fs::write(&file, text).unwrap();
        Log::open(&file).unwrap().note(&Event::Stuck("why".into())).unwrap();
        let lease = record::read(&std::fs::read_to_string(&file).unwrap(), "a1", 0).unwrap();
        assert_eq!((lease.running, lease.stuck.as_deref(), lease.journal), (false, Some("why"), vec![undo]));
    }
}
