//! Points between two effects, at which a test ends this process the hard way.
//! Only programs built with the feature `faults` have them.
//!
//! `NUMA_RUN_FAULT_TRACE=FILE` writes down which points are passed, a line
//! `ROLE POINT TIMES` each; `NUMA_RUN_FAULT=LINE;...` with such lines are the
//! points where a process kills itself. So a test can list all points that a
//! launch passes, and then stop at each of them.

#[cfg(not(feature = "faults"))]
pub use absent::{changes, child, environment, limit, point, role};

#[cfg(feature = "faults")]
pub use armed::{changes, child, environment, limit, point, role};

/// What is shipped.
#[cfg(not(feature = "faults"))]
mod absent {
    use crate::step::Change;
    use std::ffi::CString;
    use std::time::Duration;

    /// A point that is passed between two effects.
    #[inline(always)]
    pub fn point(_name: &str) {}

    /// From here on this process is another one to the tests.
    #[inline(always)]
    pub fn role(_name: &'static str) {}

    /// The same for one of several children, before the fork and after it.
    #[inline(always)]
    pub fn child(_forked: bool) {}

    /// Changes to the host that a test wants to see made and undone.
    #[inline(always)]
    pub fn changes() -> Vec<Change> {
        Vec::new()
    }

    /// How long a child may take.
    #[inline(always)]
    pub fn limit(limit: Duration) -> Duration {
        limit
    }

    /// What a program of ours that starts with no variables needs of them.
    #[inline(always)]
    pub fn environment() -> Vec<CString> {
        Vec::new()
    }
}

#[cfg(feature = "faults")]
mod armed {
    use crate::step::Change;
    use std::collections::BTreeMap;
    use std::ffi::CString;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Mutex;
    use std::time::Duration;

    /// Who this process is, how many children it has had, and how often it has passed each point.
    static PASSED: Mutex<(Option<String>, u32, BTreeMap<String, u32>)> = Mutex::new((None, 0, BTreeMap::new()));

    /// A point that is passed between two effects.
    pub fn point(name: &str) {
        let Ok(mut passed) = PASSED.lock() else { return };
        let role = passed.0.clone().unwrap_or_else(typed);
        let times = passed.2.entry(name.to_owned()).or_default();
        *times += 1;
        let line = format!("{role} {name} {times}");
        drop(passed);
        write_down(&line);
        if std::env::var("NUMA_RUN_FAULT").is_ok_and(|wanted| wanted.split(';').any(|wanted| wanted == line)) {
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// From here on this process is another one to the tests.
    pub fn role(name: &'static str) {
        if let Ok(mut passed) = PASSED.lock() {
            *passed = (Some(name.to_owned()), 0, BTreeMap::new());
        }
    }

    /// The same for one of several children, before the fork and after it.
    pub fn child(forked: bool) {
        let Ok(mut passed) = PASSED.lock() else { return };
        match forked {
            false => passed.1 += 1,
            true => {
                *passed = (
                    Some(format!("child-{}-of-{}", passed.1, passed.0.clone().unwrap_or_else(typed))),
                    0,
                    BTreeMap::new(),
                )
            }
        }
    }

    fn typed() -> String {
        let verb = std::env::args().nth(1).filter(|verb| ["gc", "release", "guard"].contains(&verb.as_str()));
        verb.unwrap_or_else(|| "launch".to_owned())
    }

    #[allow(clippy::disallowed_methods)] // The tests' own file.
    fn write_down(line: &str) {
        let file = std::env::var_os("NUMA_RUN_FAULT_TRACE");
        let file = file.and_then(|file| OpenOptions::new().append(true).create(true).open(file).ok());
        let _ = file.map(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }

    /// Changes to the host that a test wants to see made and undone:
    /// `NUMA_RUN_FAULT_WRITE="FILE=VALUE ..."`.
    pub fn changes() -> Vec<Change> {
        let wanted = std::env::var("NUMA_RUN_FAULT_WRITE").unwrap_or_default();
        let pairs = wanted.split_whitespace().filter_map(|pair| pair.rsplit_once('='));
        pairs.map(|(file, value)| Change::Write { file: file.into(), value: value.into() }).collect()
    }

    /// How long a child may take: `NUMA_RUN_FAULT_LIMIT`, in milliseconds.
    pub fn limit(limit: Duration) -> Duration {
        let wanted = std::env::var("NUMA_RUN_FAULT_LIMIT").ok().and_then(|wanted| wanted.parse().ok());
        wanted.map_or(limit, Duration::from_millis)
    }

    /// What a program of ours that starts with no variables needs of them.
    pub fn environment() -> Vec<CString> {
        let ours = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"NUMA_RUN_FAULT"));
        ours.filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()).collect()
    }
}
