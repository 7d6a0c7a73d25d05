//! Which process is meant: a pid alone comes back with another process.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::OnceLock;

/// A process of a boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// Its pid.
    pub pid: u32,
    /// When it started, in clock ticks since the boot (proc(5), `stat`, field 22).
    pub start: u64,
    /// The boot (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
}

impl Identity {
    /// This process.
    pub fn own(root: &Path) -> Identity {
        Identity::of(root, std::process::id()).unwrap_or_default()
    }

    /// The process that has this pid now; none where there is none, or only a zombie.
    pub fn of(root: &Path, pid: u32) -> Option<Identity> {
        read(root, pid).filter(|(_, state)| !matches!(state.as_str(), "Z" | "X")).map(|(identity, _)| identity)
    }

    /// The same for a child that nobody has waited for.
    pub fn even_if_ended(root: &Path, pid: u32) -> Option<Identity> {
        read(root, pid).map(|(identity, _)| identity)
    }

    /// True while this very process runs.
    pub fn runs(&self, root: &Path) -> bool {
        self.pid != 0 && Identity::of(root, self.pid).as_ref() == Some(self)
    }
}

impl Identity {
    /// Whether it is this user's, by any of its user ids: a set-uid program keeps the real one.
    pub fn belongs_to(&self, root: &Path, user: u32) -> bool {
        let status = std::fs::read_to_string(root.join(format!("proc/{}/status", self.pid))).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        ids.split_ascii_whitespace().any(|id| id.parse() == Ok(user))
    }
}

/// A process with its state.
fn read(root: &Path, pid: u32) -> Option<(Identity, String)> {
    let stat = std::fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?;
    // The program's name stands in brackets and may hold blanks and brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.to_owned();
    let start = fields.nth(18)?.parse().ok()?;
    Some((Identity { pid, start, boot: boot(root) }, state))
}

/// Seconds since the boot, which no clock that is set can change.
pub fn uptime(root: &Path) -> u64 {
    let text = std::fs::read_to_string(root.join("proc/uptime")).unwrap_or_default();
    text.split('.').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

/// Names this boot.
pub fn boot(root: &Path) -> String {
    // No process lives on from one boot to the next.
    static OWN: OnceLock<String> = OnceLock::new();
    let read = || {
        let text = std::fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default();
        text.trim().to_owned()
    };
    if root == Path::new("/") { OWN.get_or_init(read).clone() } else { read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_no_other_with_its_pid() {
        let root = Path::new("/");
        let own = Identity::own(root);
        assert!(own.runs(root));
        assert!(!Identity { start: own.start + 1, ..own.clone() }.runs(root));
        assert!(!Identity { boot: "another".into(), ..own.clone() }.runs(root));
        assert!(!Identity { pid: 0, ..own }.runs(root));
    }

    #[test]
    fn a_name_with_blanks_and_brackets_hides_nothing_and_a_zombie_does_not_run() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let rest = (4..=21).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let write = |state: &str| {
            let line = format!("7 (a) b (c)) {state} {rest} 4242 0 0\n");
            std::fs::write(root.path().join("proc/7/stat"), line).unwrap();
        };
        write("S");
        assert_eq!(Identity::of(root.path(), 7).unwrap().start, 4242);
        write("Z");
        assert_eq!(Identity::of(root.path(), 7), None);
        assert_eq!(Identity::even_if_ended(root.path(), 7).unwrap().start, 4242);
    }
}
