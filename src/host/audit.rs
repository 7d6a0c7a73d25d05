//! One line in the system's journal for every change to the host, refusal and recovery.
//!
//! The lines are [`tracing`] events of the target [`TARGET`], with the fields
//! `lease`, `file`, `old` and `new` where there are such. They go to journald
//! with a field for each, else to syslog as text; where neither is, nowhere.
//! A log that does not keep up stops nothing.

use nix::unistd::getuid;
use std::ffi::OsStr;
use std::fmt::{Debug, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// What marks an event as one for the journal.
pub const TARGET: &str = "numa_run::audit";

/// Where the lines go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Audit {
    /// To journald or syslog, whichever is there.
    #[default]
    Auto,
    /// Nowhere.
    Never,
    /// To this socket, as syslog has them.
    Socket(PathBuf),
}

impl Audit {
    /// As it is typed.
    pub fn word(&self) -> &OsStr {
        match self {
            Audit::Auto => OsStr::new("auto"),
            Audit::Never => OsStr::new("never"),
            Audit::Socket(path) => path.as_os_str(),
        }
    }
}

impl From<std::ffi::OsString> for Audit {
    fn from(text: std::ffi::OsString) -> Audit {
        match text.to_str() {
            Some("auto") => Audit::Auto,
            Some("never") => Audit::Never,
            _ => Audit::Socket(text.into()),
        }
    }
}

/// Sends audit events, opening the socket with the first of them.
#[derive(Debug)]
pub struct Lines {
    to: Audit,
    socket: OnceLock<Option<Socket>>,
}

#[derive(Debug)]
enum Socket {
    Journal(UnixDatagram),
    Syslog(UnixDatagram),
}

impl Lines {
    /// Lines that go there.
    pub fn new(to: Audit) -> Lines {
        Lines { to, socket: OnceLock::new() }
    }

    fn open(&self) -> Option<Socket> {
        match &self.to {
            Audit::Never => None,
            Audit::Socket(path) => connected(path).map(Socket::Syslog),
            Audit::Auto => {
                let journal = || connected(Path::new("/run/systemd/journal/socket")).map(Socket::Journal);
                journal().or_else(|| connected(Path::new("/dev/log")).map(Socket::Syslog))
            }
        }
    }
}

fn connected(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let user = getuid().as_raw();
        // A full or missing log is no reason to stop a launch.
        let _ = match self.socket.get_or_init(|| self.open()) {
            None => Ok(0),
            Some(Socket::Journal(socket)) => socket.send(line.journal(user).as_bytes()),
            Some(Socket::Syslog(socket)) => socket.send(line.syslog(user).as_bytes()),
        };
    }
}

/// An event's text and fields.
#[derive(Debug, Default)]
struct Line {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        // One line, whatever is in a file's name.
        let value: String = value.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl Line {
    /// The text with its fields behind it.
    fn text(&self, user: u32) -> String {
        let mut text = format!("{}; user={user}", self.message);
        self.fields.iter().for_each(|(name, value)| _ = write!(text, " {name}={value:?}"));
        text
    }

    fn journal(&self, user: u32) -> String {
        let mut lines = format!("MESSAGE={}\nPRIORITY=5\nSYSLOG_IDENTIFIER=numa-run\n", self.text(user));
        _ = writeln!(lines, "NUMA_RUN_USER={user}");
        self.fields.iter().for_each(|(name, value)| _ = writeln!(lines, "NUMA_RUN_{}={value}", name.to_uppercase()));
        lines
    }

    fn syslog(&self, user: u32) -> String {
        // Facility daemon, severity notice.
        format!("<29>numa-run[{}]: {}", std::process::id(), self.text(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    fn sent(act: impl FnOnce()) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        log.set_nonblocking(true).unwrap();
        let lines = Lines::new(Audit::Socket(path));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), act);
        let next = || {
            let mut bytes = [0; 4096];
            let length = log.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_change_is_one_line_with_what_was_and_what_is() {
        let lines = sent(|| {
            tracing::info!(target: TARGET, lease = "a1", file = "/sys/x\ny", old = "1", new = "2", "changed");
            tracing::info!("not for the journal");
        });
        let user = getuid();
        let text = format!("changed; user={user} lease=\"a1\" file=\"/sys/x?y\" old=\"1\" new=\"2\"");
        assert_eq!(lines, [format!("<29>numa-run[{}]: {text}", std::process::id())]);
    }

    #[test]
    fn journald_gets_a_field_for_each_thing() {
        let line = Line { message: "changed".into(), fields: vec![("lease", "a1".into())] };
        let expected = "MESSAGE=changed; user=7 lease=\"a1\"\nPRIORITY=5\nSYSLOG_IDENTIFIER=numa-run\n\
                        NUMA_RUN_USER=7\nNUMA_RUN_LEASE=a1\n";
        assert_eq!(line.journal(7), expected);
    }

    #[test]
    fn without_a_log_nothing_happens() {
        let lines = Lines::new(Audit::Socket("/no/such".into()));
        let act = || tracing::info!(target: TARGET, "changed");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), act);
    }
}
