//! How the launcher gets a Machine: a child program reads it through libhwloc.
//! libhwloc crashes on damaged files; a child's death is only an error here.

use super::source::TopologySource;
use super::sysfs::{self, SysfsError};
use super::{Machine, child};
use child::{Outcome, Terms};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// A healthy host answers in tens of milliseconds.
const LIMIT: Duration = Duration::from_secs(10);
/// More is no machine.
const LARGEST_ANSWER: usize = 64 << 20;
const NAME: &str = "numa-run-probe";
const LIBEXEC: &str = "/usr/libexec/numa-run";

/// Why there is no Machine.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Only the probe can read this.
    #[error(
        "{0} can be read by numa-run-probe only, which is not installed: build it with `cargo build --release \
         --features probe` (it needs libhwloc-dev) and put it beside numa-run or in /usr/libexec/numa-run"
    )]
    Missing(TopologySource),
    /// It did not start.
    #[error("cannot start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It crashed.
    #[error("numa-run-probe died of signal {signal} while reading {source_name}{hint}")]
    Died {
        /// Number and name.
        signal: String,
        /// What it read.
        source_name: String,
        /// What that means for the user, with a leading colon; may be empty.
        hint: &'static str,
    },
    /// It said why not.
    #[error("{message}")]
    Failed {
        /// Its words.
        message: String,
    },
    /// It answered something else than a Machine.
    #[error("numa-run-probe gave no machine for {source_name}: is it of another version?")]
    Garbage {
        /// What it read.
        source_name: String,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
    /// Its answer had no end.
    #[error("numa-run-probe gave more than {} MiB for {source_name}", LARGEST_ANSWER >> 20)]
    TooMuch {
        /// What it read.
        source_name: String,
    },
    /// It did not answer in time.
    #[error("numa-run-probe did not answer within {} s while reading {source_name}", limit.as_secs_f32())]
    Timeout {
        /// What it read.
        source_name: String,
        /// The limit.
        limit: Duration,
    },
    /// Without the probe, sysfs is read here.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

/// The Machine that a source describes, by the probe that is installed.
pub fn machine(source: &TopologySource) -> Result<Machine, ProbeError> {
    read(Probe::find().as_ref(), source)
}

/// The Machine that a source describes. This host and other roots can be read
/// without a probe too: then sysfs alone is used, with a warning.
pub fn read(probe: Option<&Probe>, source: &TopologySource) -> Result<Machine, ProbeError> {
    let probed = match probe {
        Some(probe) => probe.machine(source),
        None => Err(ProbeError::Missing(source.clone())),
    };
    let root = match source {
        TopologySource::Live => Path::new("/"),
        TopologySource::Root(root) => root,
        TopologySource::Xml(_) | TopologySource::Synthetic(_) => return probed,
    };
    probed.or_else(|error| {
        // What held up the probe would hold up this process too, without a limit.
        if matches!((&error, source), (ProbeError::Timeout { .. }, TopologySource::Root(_))) {
            return Err(error);
        }
        let mut machine = sysfs::read(root)?;
        let reason = match error {
            ProbeError::Missing(_) => "numa-run-probe is not installed".to_owned(),
            error => error.to_string(),
        };
        machine.unprobed = Some(format!("{reason}: read from sysfs alone, without libhwloc"));
        Ok(machine)
    })
}

/// The program that links libhwloc.
#[derive(Clone, Debug)]
pub struct Probe {
    program: PathBuf,
    limit: Duration,
}

impl Probe {
    /// The one that `NUMA_RUN_PROBE` names, or the one installed with this program.
    pub fn find() -> Option<Probe> {
        let named = env::var_os("NUMA_RUN_PROBE").filter(|path| !path.is_empty()).map(PathBuf::from);
        let program = named.or_else(|| installed(env::current_exe().ok().as_deref()))?;
        Some(Probe::at(program, LIMIT))
    }

    /// One at a place of your choice.
    pub fn at(program: impl Into<PathBuf>, limit: Duration) -> Probe {
        Probe { program: program.into(), limit }
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it. Whatever becomes of it, the caller gets a Machine or an error.
    pub fn machine(&self, source: &TopologySource) -> Result<Machine, ProbeError> {
        let source_name = source.to_string();
        let terms = Terms { input: &[], time: self.limit, answer: LARGEST_ANSWER };
        let ended = match child::run(command(&self.program, source), &terms) {
            Ok(Outcome::Ended(ended)) => ended,
            Ok(Outcome::Late) => return Err(ProbeError::Timeout { source_name, limit: self.limit }),
            Ok(Outcome::TooMuch) => return Err(ProbeError::TooMuch { source_name }),
            Err(source) => return Err(ProbeError::Start { program: self.program.clone(), source }),
        };
        if !ended.status.success() {
            return Err(failure(source, ended.status, &String::from_utf8_lossy(&ended.errors)));
        }
        serde_json::from_slice(&ended.output).map_err(|source| ProbeError::Garbage { source_name, source })
    }
}

fn installed(launcher: Option<&Path>) -> Option<PathBuf> {
    let bin = launcher.and_then(Path::parent);
    let beside = bin.map(|bin| bin.join(NAME));
    let libexec = bin.and_then(Path::parent).map(|prefix| prefix.join("libexec/numa-run").join(NAME));
    let places = [beside, libexec, Some(Path::new(LIBEXEC).join(NAME))];
    places.into_iter().flatten().find(|place| place.is_file())
}

fn failure(source: &TopologySource, status: ExitStatus, errors: &str) -> ProbeError {
    let source_name = source.to_string();
    if let Some(number) = status.signal() {
        let hint = match source {
            TopologySource::Xml(_) => ": the file is damaged",
            _ => "",
        };
        return ProbeError::Died { signal: child::signal(number), source_name, hint };
    }
    let message = match child::last_line(errors) {
        Some(line) => line.to_owned(),
        None => format!("numa-run-probe failed with status {} and no message", status.code().unwrap_or(-1)),
    };
    ProbeError::Failed { message }
}

/// The probe's command line for a source, with the environment that libhwloc
/// needs: none of the user's `HWLOC_*` (they would make it describe something
/// else), no plugins (each load tries OpenCL and ten X displays).
pub fn command(program: &Path, source: &TopologySource) -> Command {
    #[allow(clippy::disallowed_methods)] // The probe only reads.
    let mut command = Command::new(program);
    match source {
        TopologySource::Live => &mut command,
        TopologySource::Xml(path) => command.arg("--xml").arg(path),
        TopologySource::Synthetic(spec) => command.arg("--synthetic").arg(spec),
        TopologySource::Root(root) => command.arg("--root").arg(root),
    };
    hwloc_variables().for_each(|(name, _)| {
        command.env_remove(name);
    });
    command.envs(wanted(source));
    command
}

/// True where this process has the environment that [`command`] sets.
pub fn is_clean(source: &TopologySource) -> bool {
    let mut have: Vec<_> = hwloc_variables().collect();
    let mut wanted: Vec<_> = wanted(source).into_iter().map(|(name, value)| (name.into(), value)).collect();
    have.sort_unstable();
    wanted.sort_unstable();
    have == wanted
}

fn hwloc_variables() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"HWLOC_"))
}

fn wanted(source: &TopologySource) -> Vec<(&'static str, OsString)> {
    // Its banners about contradictions become warnings of ours.
    let mut wanted = vec![("HWLOC_PLUGINS_PATH", "/nonexistent".into()), ("HWLOC_HIDE_ERRORS", "2".into())];
    if let TopologySource::Root(root) = source {
        let root = root.canonicalize().unwrap_or_else(|_| root.clone());
        wanted.push(("HWLOC_FSROOT", root.into()));
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_the_probe_has_nothing_of_the_users() {
        let root = env::current_dir().unwrap();
        let command = command(Path::new("probe"), &TopologySource::Root(root.clone()));
        let set: Vec<_> = command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?))).collect();
        assert!(set.contains(&("HWLOC_FSROOT", root.as_os_str())));
        assert!(set.contains(&("HWLOC_PLUGINS_PATH", "/nonexistent".as_ref())));
        assert!(!is_clean(&TopologySource::Live), "tests run without these variables");
    }

    #[test]
    fn a_death_names_its_signal_and_the_file() {
        let source = TopologySource::Xml("topology.xml".into());
        let error = failure(&source, ExitStatus::from_raw(11), "");
        assert_eq!(
            error.to_string(),
            "numa-run-probe died of signal 11 (SIGSEGV) while reading topology.xml: the file is damaged"
        );
    }

    #[test]
    fn the_probe_is_looked_for_beside_the_launcher_and_then_in_libexec() {
        let prefix = tempfile::tempdir().unwrap();
        let launcher = prefix.path().join("bin/numa-run");
        for folder in ["libexec/numa-run", "bin"] {
            let folder = prefix.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(NAME), "").unwrap();
            assert_eq!(installed(Some(&launcher)), Some(folder.join(NAME)));
        }
    }
}
