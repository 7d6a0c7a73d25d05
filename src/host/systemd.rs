//! A transient scope, asked of the systemd that runs. What came of it is read
//! from the kernel: some versions report a scope dead that has just started.

mod message;

use super::StepError;
use super::affinities::Affinities;
use super::cgroup::{keeping_affinity, passes_on};
use crate::step::group::SUBTREE;
use crate::step::{Scope, Set};
use message::{Body, Call, Reply};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long systemd is waited for: others wait for this launch meanwhile.
const LIMIT: Duration = Duration::from_secs(5);

/// Where systemd listens to root itself, without a bus daemon in between.
const PRIVATE: &str = "/run/systemd/private";
const BUS: &str = "/run/dbus/system_bus_socket";

/// Has systemd start the scope with this process in it, and waits until it is.
///
/// # Errors
/// systemd refused, or cannot be asked.
pub fn start(scope: &Scope) -> Result<(), StepError> {
    let begun = Instant::now();
    let pinned = match passes_on(&scope.root.join(SUBTREE)) {
        true => Affinities::default(),
        false => Affinities::below(&scope.root),
    };
    let started = keeping_affinity(std::process::id(), || ask(scope).and_then(|()| arrived(scope, begun)));
    pinned.put_back();
    started.map_err(|source| StepError::refused(format!("start {} (systemd)", scope.name), source))
}

fn ask(scope: &Scope) -> io::Result<()> {
    let request = Call {
        to: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "StartTransientUnit",
        signature: "ssa(sv)a(sa(sv))",
        body: properties(scope),
    };
    match Connection::open(Path::new(PRIVATE)) {
        Ok(mut systemd) => systemd.call(&request),
        Err(_) => {
            let mut bus = Connection::open(Path::new(BUS))?;
            bus.call(&Call::HELLO)?;
            bus.call(&request)
        }
    }
}

fn properties(scope: &Scope) -> Body {
    let mut body = Body::default();
    body.text(&scope.name);
    body.text("fail");
    body.array(8, |list| {
        list.property("Description", "s", |value| {
            value.text(&format!("A launch of numa-run ({})", std::process::id()))
        });
        list.property("Slice", "s", |value| value.text(&scope.slice));
        // It is forgotten when it ends, however it ends.
        list.property("CollectMode", "s", |value| value.text("inactive-or-failed"));
        list.property("PIDs", "au", |value| value.array(4, |pids| pids.number(std::process::id())));
        for (name, bytes) in &scope.masks {
            list.property(name, "ay", |value| value.array(1, |mask| mask.bytes(bytes)));
        }
    });
    body.array(8, |_| {});
    body
}

/// How long the cpuset may come later than the process.
const GRACE: Duration = Duration::from_millis(200);

/// Waits until this process is in the scope, with what it is limited to.
fn arrived(scope: &Scope, begun: Instant) -> io::Result<()> {
    let own = std::process::id().to_string();
    let mut pause = Duration::from_micros(100);
    let mut inside = None;
    loop {
        let pids = fs::read_to_string(scope.folder.join("cgroup.procs")).unwrap_or_default();
        if pids.lines().any(|pid| pid == own) {
            let since = *inside.get_or_insert_with(Instant::now);
            let set = |set: &Set| fs::read_to_string(&set.effective).is_ok_and(|text| text.trim() == set.value);
            // What has come of it then, the caller reads.
            if scope.sets.iter().all(set) || since.elapsed() >= GRACE {
                return Ok(());
            }
        } else if begun.elapsed() >= LIMIT {
            return Err(io::Error::other(format!("not in {} after {} s", scope.folder.display(), LIMIT.as_secs())));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// A connection on which calls are made one after another.
struct Connection {
    stream: UnixStream,
    serial: u32,
    begun: Instant,
}

impl Connection {
    /// Connects, and says who this is: the kernel vouches for it.
    fn open(socket: &Path) -> io::Result<Connection> {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", socket.display()));
        let mut stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let user: String = nix::unistd::geteuid().to_string().bytes().map(|digit| format!("{digit:x}")).collect();
        stream.write_all(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes())?;
        let answer = line(&mut stream)?;
        if !answer.starts_with("OK ") {
            return Err(failed(io::Error::other(answer)));
        }
        stream.write_all(b"BEGIN\r\n")?;
        Ok(Connection { stream, serial: 0, begun: Instant::now() })
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        self.serial += 1;
        self.stream.write_all(&call.message(self.serial))?;
        while self.begun.elapsed() < LIMIT {
            let reply = Reply::read(&mut self.stream)?;
            // Signals come in between.
            if reply.to == Some(self.serial) {
                let words = |name| reply.text.clone().unwrap_or(name);
                return reply.error.clone().map_or(Ok(()), |name| Err(io::Error::other(words(name))));
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// A line of the conversation that comes before the first message, without its end.
fn line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    // Byte by byte: what follows is not text any more.
    let mut byte = [0];
    while !line.ends_with(b"\r\n") && line.len() < 1024 {
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Somebody who answers a connection as he is told, and hands back what he heard.
    fn answering(socket: &Path, answers: Vec<Vec<u8>>) -> std::thread::JoinHandle<Vec<u8>> {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = Vec::new();
            for answer in answers {
                let mut part = [0; 4096];
                let length = stream.read(&mut part).unwrap();
                heard.extend(&part[..length]);
                stream.write_all(&answer).unwrap();
            }
            heard
        })
    }

    #[test]
    fn who_is_no_systemd_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        assert!(Connection::open(&socket).is_err_and(|error| error.to_string().contains("No such file")));
        let other = answering(&socket, vec![b"REJECTED\r\n".to_vec()]);
        let error = Connection::open(&socket).err().unwrap();
        assert!(error.to_string().ends_with("socket: REJECTED"), "{error}");
        let user: String = nix::unistd::geteuid().to_string().bytes().map(|digit| format!("{digit:x}")).collect();
        assert_eq!(other.join().unwrap(), format!("\0AUTH EXTERNAL {user}\r\n").into_bytes());
    }
}
