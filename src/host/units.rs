//! What systemd is about to do with a unit.

use crate::topology::child::{self, Outcome, Terms};
use std::process::Command;
use std::time::Duration;

/// systemd answers at once or is in trouble.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of an answer: a few lines.
const LONGEST: usize = 1 << 16;

/// True when this unit, which has just ended, will be started again: by a
/// restart that was asked for, or by `Restart=`. Asked from `ExecStopPost=`.
pub fn restarts(unit: &str) -> bool {
    let jobs = answer(&["list-jobs", "--no-legend", "--plain", unit]).unwrap_or_default();
    let kinds: Vec<&str> = jobs.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)).collect();
    if !kinds.is_empty() {
        return kinds.iter().any(|kind| matches!(*kind, "restart" | "start"));
    }
    let policy = answer(&["show", "--property=Restart", "--value", unit]).unwrap_or_default();
    !matches!(policy.trim(), "" | "no")
}

fn answer(words: &[&str]) -> Option<String> {
    let mut command = Command::new("systemctl");
    command.args(words);
    match child::run(command, &Terms { input: &[], time: LIMIT, answer: LONGEST }) {
        Ok(Outcome::Ended(ended)) if ended.status.success() => {
            Some(String::from_utf8_lossy(&ended.output).into_owned())
        }
        _ => None,
    }
}
