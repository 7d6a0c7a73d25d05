//! One change as data: what it is, and how it prints as a shell line.

pub mod device;
pub mod group;

pub use device::{Bind, Close, MakeVfs, Open, Rebind, RemoveVfs};
pub use group::{Group, Move, Scope, Set};

use crate::host::audit::TARGET;
use crate::plan::{MemoryBinding, Need, Plan};
use crate::request::MemPolicy;
use crate::rights::Rights;
use crate::topology::{CpuSet, NodeMask};
use group::SUBTREE;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// One change. All but the first kind set what is the process's own and survives exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A change to the host, which is undone when the workload has ended.
    Host(Change),
    /// A cgroup of the lease's own, with this process in it.
    Group(Group),
    /// `sched_setaffinity`.
    Affinity(CpuSet),
    /// `set_mempolicy` with a mode over nodes.
    MemoryPolicy {
        /// The mode.
        mode: MemPolicy,
        /// The nodes; empty for the modes that take none.
        nodes: NodeMask,
        /// Whether the workload may start without it.
        need: Need,
    },
    /// Giving up rights for good.
    Rights(Rights),
    /// Becoming the workload.
    Exec(Exec),
}

/// A change to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value in a file of the kernel's, which gets its old one back.
    Write {
        /// The file.
        file: PathBuf,
        /// What it shall hold.
        value: String,
    },
    /// Virtual functions of a port that has none.
    MakeVfs(MakeVfs),
    /// A function at another driver.
    Bind(Bind),
    /// A device that a user may open.
    Open(Open),
}

/// How long the kernel may take for one change to a device or to pages.
pub const LIMIT: Duration = Duration::from_secs(10);

/// What undoes a change to the host. It is written down before the change is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undo {
    /// Removing a cgroup.
    RemoveGroup(PathBuf),
    /// Moving a process back into the group that it came from, if it is still in the other.
    Return {
        /// The group that it was moved into.
        group: PathBuf,
        /// The group that it came from.
        home: PathBuf,
        /// The process.
        process: u32,
    },
    /// Passing cpusets no longer on to the groups below one, unless another than this child has come to use them.
    KeepBack {
        /// The group.
        group: PathBuf,
        /// The group below it for which they were passed on.
        child: PathBuf,
    },
    /// Writing an old value back into a file that still has ours.
    Restore {
        /// The file.
        file: PathBuf,
        /// What it had.
        old: String,
        /// What we wrote.
        ours: String,
    },
    /// Removing virtual functions.
    RemoveVfs(RemoveVfs),
    /// Giving a function back to its driver.
    Rebind(Rebind),
    /// Taking the files of a device back.
    Close(Close),
}

impl Undo {
    /// True where others on this host feel the change as long as it stands: it
    /// is undone as soon as the workload has ended, not by the next launch. What
    /// concerns the workload alone holds nothing any more once that is gone.
    pub fn is_host_wide(&self) -> bool {
        match self {
            Undo::RemoveGroup(_) | Undo::Return { .. } | Undo::KeepBack { .. } => false,
            Undo::Restore { .. } | Undo::RemoveVfs(_) | Undo::Rebind(_) | Undo::Close(_) => true,
        }
    }

    /// How long it may take where it may block in the kernel: it is done by a
    /// child and never under the ledger's lock. None for what does not block.
    pub fn limit(&self) -> Option<Duration> {
        match self {
            Undo::RemoveGroup(_) | Undo::Return { .. } | Undo::KeepBack { .. } | Undo::Close(_) => None,
            Undo::Restore { .. } | Undo::RemoveVfs(_) | Undo::Rebind(_) => Some(LIMIT),
        }
    }
}

impl fmt::Display for Undo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undo::RemoveGroup(folder) => write!(out, "rmdir {}", folder.display()),
            Undo::Return { home, .. } => write!(out, "move back to {}", home.display()),
            Undo::KeepBack { group, .. } => write!(out, "write -cpuset to {}", group.join(SUBTREE).display()),
            Undo::Restore { file, old, .. } => write!(out, "write {old} to {}", file.display()),
            Undo::RemoveVfs(undo) => undo.fmt(out),
            Undo::Rebind(undo) => undo.fmt(out),
            Undo::Close(undo) => undo.fmt(out),
        }
    }
}

impl Undo {
    /// Says for the journal of the system which change is about to be made.
    pub fn announce(&self, lease: &str) {
        match self {
            Undo::RemoveGroup(folder) => {
                tracing::info!(target: TARGET, lease, file = %folder.display(), "a group is made");
            }
            Undo::Return { group, home, process } => {
                let (file, old) = (group.display(), home.display());
                tracing::info!(target: TARGET, lease, %file, %old, "process {process} is moved into a group");
            }
            Undo::KeepBack { group, .. } => {
                let file = group.join(SUBTREE);
                tracing::info!(target: TARGET, lease, file = %file.display(), new = "+cpuset", "cpusets are passed on");
            }
            Undo::Restore { file, old, ours } => {
                tracing::info!(target: TARGET, lease, file = %file.display(), old, new = ours, "a file is changed");
            }
            Undo::RemoveVfs(undo) => undo.announce(lease),
            Undo::Rebind(undo) => undo.announce(lease),
            Undo::Close(undo) => undo.announce(lease),
        }
    }
}

/// The workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// Program and arguments, at least one.
    pub command: Vec<OsString>,
    /// Variables set besides those that were inherited.
    pub set: Vec<(String, OsString)>,
    /// Variables that are not inherited.
    pub unset: Vec<String>,
}

/// The steps of a plan that was admitted, in order. The group comes first: on
/// Linux before 6.2, a process that moves into a cpuset loses its affinity.
pub fn steps(plan: &Plan, lease: &str, rights: Rights, exec: Exec) -> Vec<Step> {
    let group = plan.fence.as_ref().map(|fence| Step::Group(Group::of(fence, lease)));
    let affinity = plan.cpus().map(|cpus| cpus.or(&plan.shared_cpus));
    let shared_only = (!plan.shared_cpus.is_empty()).then(|| plan.shared_cpus.clone());
    let memory = plan.memory.clone().map(|MemoryBinding { policy, nodes, need }| Step::MemoryPolicy {
        mode: policy,
        nodes,
        need,
    });
    let affinity = affinity.or(shared_only).map(Step::Affinity);
    // Everything before may need the rights.
    let rights = (!rights.are_kept()).then_some(Step::Rights(rights));
    group.into_iter().chain(affinity).chain(memory).chain(rights).chain([Step::Exec(exec)]).collect()
}

impl Step {
    /// As [`Undo::is_host_wide`] of what undoes it.
    pub fn is_host_wide(&self) -> bool {
        match self {
            Step::Host(_) => true,
            Step::Group(_) | Step::Affinity(_) | Step::MemoryPolicy { .. } | Step::Rights(_) | Step::Exec(_) => false,
        }
    }

    /// A line for a shell that does the same, as far as common tools can.
    pub fn shell(&self) -> String {
        match self {
            Step::Host(change) => change.shell(),
            Step::Group(group) => group.shell(),
            Step::Affinity(cpus) => format!("taskset --cpu-list --pid {cpus} $$"),
            Step::MemoryPolicy { mode, nodes, .. } => memory_line(*mode, nodes),
            Step::Rights(rights) => rights.shell(),
            Step::Exec(exec) => exec.shell(),
        }
    }
}

/// A whole script. Memory policy and rights become prefixes of the last line,
/// because a shell cannot set its own.
pub fn script(steps: &[Step]) -> String {
    let mut lines = Vec::new();
    let mut prefix = String::new();
    for step in steps {
        match step {
            Step::MemoryPolicy { .. } | Step::Rights(_) => prefix = prefix + &step.shell() + " ",
            Step::Host(_) | Step::Group(_) | Step::Affinity(_) => lines.push(step.shell()),
            Step::Exec(exec) => {
                lines.extend(exec.unset.iter().map(|name| format!("unset {name}")));
                lines.extend(exec.set.iter().map(|(name, value)| format!("export {name}={}", quoted(value))));
                lines.push(format!("exec {prefix}{}", exec.shell()));
            }
        }
    }
    lines.join("\n") + "\n"
}

fn memory_line(mode: MemPolicy, nodes: &NodeMask) -> String {
    match mode {
        MemPolicy::Bind => format!("numactl --membind={nodes} --"),
        MemPolicy::Preferred => format!("numactl --preferred={} --", nodes.first().unwrap_or(0)),
        MemPolicy::PreferredMany => format!("numactl --preferred-many={nodes} --"),
        MemPolicy::Interleave => format!("numactl --interleave={nodes} --"),
        MemPolicy::WeightedInterleave => format!("numactl --weighted-interleave={nodes} --"),
        MemPolicy::Local => "numactl --localalloc --".to_owned(),
        MemPolicy::Default => "numactl --all --".to_owned(),
    }
}

impl Change {
    /// As [`Undo::limit`] of what undoes it.
    pub fn limit(&self) -> Option<Duration> {
        match self {
            Change::Write { .. } | Change::MakeVfs(_) | Change::Bind(_) => Some(LIMIT),
            Change::Open(_) => None,
        }
    }

    /// A line for a shell that does the same.
    pub fn shell(&self) -> String {
        match self {
            Change::Write { file, value } => {
                format!("echo {} > {}", quoted(OsStr::new(value)), quoted(file.as_os_str()))
            }
            Change::MakeVfs(make) => make.shell(),
            Change::Bind(bind) => bind.shell(),
            Change::Open(open) => open.shell(),
        }
    }
}

impl Exec {
    fn shell(&self) -> String {
        self.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

/// A word as a POSIX shell reads it back, whatever bytes it holds.
pub fn quoted(word: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"@%_+=:,./-".contains(byte);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => format!("\"$(printf '{}')\"", bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>()),
    }
}

/// An argument with its templates filled in.
pub fn filled(word: &OsStr, value: impl Fn(&str) -> Option<String>) -> Result<OsString, String> {
    let mut out = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(start) = rest.iter().position(|&byte| byte == b'{') {
        let inner = &rest[start + 1..];
        let Some(end) = inner.iter().position(|&byte| byte == b'}') else { break };
        let name = String::from_utf8_lossy(&inner[..end]).into_owned();
        out.extend_from_slice(&rest[..start]);
        match name.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_".contains(letter)) && !name.is_empty() {
            true => out.extend(value(&name).ok_or(name)?.into_bytes()),
            false => out.extend_from_slice(&rest[start..=start + 1 + end]),
        }
        rest = &inner[end + 1..];
    }
    out.extend_from_slice(rest);
    Ok(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_reads_back_as_the_same_words() {
        for word in ["plain", "two words", "it's", "$HOME `x` \"y\"", "", "new\nline"] {
            let script = format!("printf %s {}", quoted(OsStr::new(word)));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, word.as_bytes(), "{script}");
        }
        let script = format!("printf %s {}", quoted(OsStr::from_bytes(b"\xff\x01")));
        assert_eq!(std::process::Command::new("sh").args(["-c", &script]).output().unwrap().stdout, b"\xff\x01");
    }

    #[test]
    fn templates_are_filled_and_an_unknown_one_is_named() {
        let value = |name: &str| (name == "cpus").then(|| "0-3".to_owned());
        let fill = |word: &str| filled(OsStr::new(word), value).map(|word| word.into_string().unwrap());
        assert_eq!(fill("-l={cpus}!"), Ok("-l=0-3!".into()));
        assert_eq!(fill("{nope}"), Err("nope".into()));
        assert_eq!(fill("{\"json\": 1} {} {open"), Ok("{\"json\": 1} {} {open".into()));
    }
}
