//! The options that say what becomes of a launch's lease.

use crate::host::audit::Audit;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// What becomes of the lease.
#[derive(Debug, Args)]
pub struct LeaseArgs {
    /// A name for the launch: one at a time has it, and a restart under it gets the same again
    #[arg(long, value_name = "NAME", help_heading = "Lease", hide_env = true, env = "NUMA_RUN_NAME", value_parser = name)]
    pub name: Option<String>,
    /// How long what a named launch held is kept for its restart [default: 10s]
    #[arg(long, value_name = "DURATION", help_heading = "Lease", hide_env = true, env = "NUMA_RUN_GRACE")]
    #[arg(value_parser = duration, requires = "name")]
    pub grace: Option<Duration>,
    /// Wait for what others hold, in the order of asking; without a DURATION as long as it takes
    #[arg(long, value_name = "DURATION", help_heading = "Lease", hide_env = true, env = "NUMA_RUN_WAIT")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "forever", value_parser = wait)]
    pub wait: Option<Duration>,
    /// Stay as the command's parent: pass signals on, and end when all that it held is free
    #[arg(long, help_heading = "Lease", hide_env = true, env = "NUMA_RUN_SUPERVISE", value_parser = super::options::yes())]
    pub supervise: bool,
    /// What becomes of what a supervised command leaves behind when it ends [default: wait]
    #[arg(long, value_name = "WHAT", help_heading = "Lease", hide_env = true, env = "NUMA_RUN_ON_DAEMONIZE")]
    #[arg(requires = "supervise", value_enum)]
    pub on_daemonize: Option<OnDaemonize>,
    /// Where a line for each change goes: auto (journald or syslog), never, or a socket
    #[arg(long, value_name = "WHERE", help_heading = "Lease", hide_env = true, env = "NUMA_RUN_AUDIT", value_parser = audit())]
    pub audit: Option<Audit>,
}

/// What becomes of processes that outlive the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnDaemonize {
    /// The launch goes on until they have ended.
    #[default]
    Wait,
    /// They are killed.
    Kill,
}

/// Reads where audit lines go.
pub fn audit() -> impl TypedValueParser<Value = Audit> {
    OsStringValueParser::new().map(Audit::from)
}

/// How long a named launch's things are kept where nothing else is said.
const GRACE: Duration = Duration::from_secs(10);
/// Ten years: as good as for ever, and the clock can still add it up.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl LeaseArgs {
    /// Seconds for which what it held is kept; 0 for a launch without a name.
    pub fn grace_seconds(&self) -> u64 {
        self.name.as_ref().map_or(0, |_| self.grace.unwrap_or(GRACE).as_secs())
    }
}

fn name(text: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._@:-".contains(letter);
    match (1..=128).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err("write up to 128 letters, digits, and . _ @ : -".into()),
    }
}

/// `30`, `30s`, `500ms`, `5m`; a number alone is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u32>().map(|seconds| Duration::from_secs(seconds.into()));
    let found = seconds.or_else(|_| humantime::parse_duration(text));
    found.map(|found| found.min(FOREVER)).map_err(|_| format!("`{text}` is no duration: write 30s, 5m or 500ms"))
}

fn wait(text: &str) -> Result<Duration, String> {
    if text == "forever" { Ok(FOREVER) } else { duration(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_have_a_unit() {
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(wait("forever"), Ok(FOREVER));
        assert_eq!(duration("4000000years"), Ok(FOREVER));
        for text in ["", "x", "-1", "1.5", "5 parsecs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_safe_in_paths_and_in_sentences() {
        for fine in ["fw1", "numa-run@fw1.service", "a:b_c"] {
            assert_eq!(name(fine).as_deref(), Ok(fine));
        }
        for odd in ["", "a b", "../x", "a/b", "é", &"x".repeat(129)] {
            assert!(name(odd).is_err(), "{odd}");
        }
    }
}
