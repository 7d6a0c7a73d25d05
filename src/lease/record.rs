//! The file of a lease: lines of `CHECKSUM JSON`. The first is the header, the
//! others say what happened since; they are only ever appended.

use super::{Header, Lease, VERSION};
use crate::step::Undo;
use serde::{Deserialize, Serialize};

/// What happened to a lease after it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// What undoes the step that comes next.
    Undo(Undo),
    /// The last of those that are not undone has been undone.
    Undone,
    /// The workload is about to run.
    Running,
    /// What tells the request from others.
    Request(String),
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
    #[error("it names the lease `{0}`")]
    Name(String),
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
            Event::Undone => _ = lease.journal.pop(),
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
        let events = [Event::Undo(undo("/a")), Event::Undo(undo("/b")), Event::Undone, Event::Running];
        let lease = read(&text(&events), "a1", 7).unwrap();
        assert_eq!((lease.header, lease.user, lease.running), (header(), 7, true));
        assert_eq!((lease.journal, lease.request.as_str()), (vec![undo("/a")], "--cpus 2"));
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
