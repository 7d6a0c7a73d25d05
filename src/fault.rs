//! Points between two effects, at which a test ends this process the hard way.
//! Only programs built with the feature `faults` have them.
//!
//! `NUMA_RUN_FAULT_TRACE=FILE` writes down which points are passed, a line
//! `ROLE POINT TIMES` each; `NUMA_RUN_FAULT=LINE` with such a line is the point
//! where this process kills itself. So a test can list all points that a launch
//! passes, and then stop at each of them.

/// A point that is passed between two effects.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// From here on this process is another one to the tests: a child that was forked.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn role(_name: &'static str) {}

#[cfg(feature = "faults")]
pub use armed::{point, role};

#[cfg(feature = "faults")]
mod armed {
    use std::collections::BTreeMap;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::sync::Mutex;

    /// Who this process is, and how often it has passed each point.
    static PASSED: Mutex<(Option<&'static str>, BTreeMap<String, u32>)> = Mutex::new((None, BTreeMap::new()));

    /// A point that is passed between two effects.
    pub fn point(name: &str) {
        let Ok(mut passed) = PASSED.lock() else { return };
        let role = passed.0.unwrap_or_else(typed);
        let times = passed.1.entry(name.to_owned()).or_default();
        *times += 1;
        let line = format!("{role} {name} {times}");
        drop(passed);
        write_down(&line);
        if std::env::var("NUMA_RUN_FAULT").is_ok_and(|wanted| wanted == line) {
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// From here on this process is another one to the tests: a child that was forked.
    pub fn role(name: &'static str) {
        if let Ok(mut passed) = PASSED.lock() {
            *passed = (Some(name), BTreeMap::new());
        }
    }

    fn typed() -> &'static str {
        match std::env::args().nth(1).as_deref() {
            Some("gc") => "gc",
            Some("release") => "release",
            _ => "launch",
        }
    }

    #[allow(clippy::disallowed_methods)] // The tests' own file.
    fn write_down(line: &str) {
        let file = std::env::var_os("NUMA_RUN_FAULT_TRACE");
        let file = file.and_then(|file| OpenOptions::new().append(true).create(true).open(file).ok());
        let _ = file.map(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }
}
