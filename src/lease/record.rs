//! The file of a lease: lines of `CHECKSUM JSON`. The first is the header, the
//! others say what happened since; they are only ever appended.

use super::belief::is_moderate;
use super::{Header, Lease, VERSION};
use crate::step::Undo;
use serde::{Deserialize, Serialize};

/// What happened to a lease after it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// What undoes the step that comes next.
    Undo(Undo),
    /// This has been undone, or is somebody else's now.
    Undone(Undo),
    /// The workload is about to run.
    Running,
    /// What tells the request from others.
    Request(String),
    /// It has another lock now, with this inode.
    Lock(u64),
    /// Its workload has ended, and what the launch did is being undone.
    Ending,
    /// Something of it does not come back from the kernel: why.
    Stuck(String),
    /// The end was seen, so many seconds after the boot.
    Ended(u64),
}

/// Why a file is no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Nothing is in it.
    #[error("it is empty")]
    Empty,
    /// Its first line is torn or was changed.
    #[error("its first line is damaged")]
    Header,
    /// It is another lease's file.
    #[error("it names another lease")]
    Name(String),
    /// It is a link, a pipe or a folder.
    #[error("it is no plain file")]
    Kind,
    /// Its user's other leases are as much as is read of anybody's.
    #[error("its user has too many")]
    Many,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// Whether a lease can be called so: what else is in the folder is none of ours.
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(plain)
}

/// A line of the file.
pub fn line(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(value)?;
    Ok(format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes())))
}

/// The lines of a new lease.
pub fn begun(header: &Header, request: &str) -> Result<String, serde_json::Error> {
    Ok(line(header)? + &line(&Event::Request(request.to_owned()))?)
}

/// Reads the file that is called `id`. What follows a damaged line is not
/// believed; a lease of another version is as good as its header.
pub fn read(text: &str, id: &str, user: u32) -> Result<Lease, Damage> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().ok_or(Damage::Empty)?;
    let header: Header = value(first).ok_or(Damage::Header)?;
    if !is_moderate(user, &header.held) {
        return Err(Damage::Header);
    }
    if header.lease != id {
        return Err(Damage::Name(header.lease));
    }
    let known = header.version == VERSION;
    let mut lease = Lease { header, user, ..Lease::default() };
    if !known {
        lease.running = true;
        return Ok(lease);
    }
    for event in lines.map_while(value) {
        match event {
            Event::Undo(undo) => lease.journal.push(undo),
            Event::Undone(undo) => {
                let at = lease.journal.iter().rposition(|other| *other == undo);
                _ = at.map(|at| lease.journal.remove(at));
            }
            Event::Lock(inode) => lease.header.lock = inode,
            Event::Ending => lease.ending = true,
            Event::Stuck(reason) => lease.stuck = Some(reason),
            Event::Running => lease.running = true,
            Event::Request(request) => lease.request = request,
            Event::Ended(at) => lease.ended = lease.ended.or(Some(at)),
        }
    }
    Ok(lease)
}

fn value<'a, T: Deserialize<'a>>(line: &'a str) -> Option<T> {
    let (checksum, text) = line.strip_suffix('\n')?.split_once(' ')?;
    let checksum = u32::from_str_radix(checksum, 16).ok()?;
    (crc32fast::hash(text.as_bytes()) == checksum).then(|| serde_json::from_str(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Held;
    use std::path::PathBuf;

    fn header() -> Header {
        let held = Held { cpus: "2-3".parse().unwrap(), ..Held::default() };
        Header { version: VERSION, lease: "a1".into(), held, ..Header::default() }
    }

    fn undo(path: &str) -> Undo {
        Undo::RemoveGroup(PathBuf::from(path))
    }

    fn text(events: &[Event]) -> String {
        let lines = events.iter().map(|event| line(event).unwrap());
        begun(&header(), "--cpus 2").unwrap() + &lines.collect::<String>()
    }

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        let done = ["/a", "/b", "/c"].map(|path| Event::Undo(undo(path)));
        let events = [&done[..], &[Event::Running, Event::Undone(undo("/b")), Event::Lock(9)]].concat();
        let lease = read(&text(&events), "a1", 7).unwrap();
        assert_eq!((&lease.header.held, lease.header.lock), (&header().held, 9));
        assert_eq!((lease.user, lease.running, lease.request.as_str()), (7, true, "--cpus 2"));
        assert_eq!(lease.journal, [undo("/a"), undo("/c")]);
    }

    #[test]
    fn a_torn_line_counts_as_not_written_wherever_it_is_torn() {
        let whole = text(&[Event::Undo(undo("/a"))]);
        let next = line(&Event::Undo(undo("/b"))).unwrap();
        for length in 0..next.len() {
            let lease = read(&format!("{whole}{}", &next[..length]), "a1", 0).unwrap();
            assert_eq!(lease.journal, [undo("/a")], "after {length} bytes");
        }
        let first = line(&header()).unwrap();
        for length in 1..first.len() {
            assert_eq!(read(&first[..length], "a1", 0), Err(Damage::Header));
        }
        assert_eq!(read("", "a1", 0), Err(Damage::Empty));
    }

    #[test]
    fn another_version_still_holds_what_its_header_says() {
        let newer = Header { version: 99, ..header() };
        let lease = read(&format!("{}something else\n", line(&newer).unwrap()), "a1", 0).unwrap();
        assert_eq!(lease.header.held, header().held);
        // Whether it is half made cannot be known: it is left alone.
        assert!(lease.running);
    }

    #[test]
    fn a_lease_under_anothers_name_holds_nothing() {
        assert_eq!(read(&text(&[]), "b2", 0), Err(Damage::Name("a1".into())));
    }
}
