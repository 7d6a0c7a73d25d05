//! A cgroup for a lease as data: how it comes about, and how this process gets into it.

use super::quoted;
use crate::plan::fence::Place;
use crate::plan::{Fence, Need};
use crate::topology::cgroup::{Cpuset, TOOL};
use std::path::{Path, PathBuf};

/// The file that says what is passed on to the groups below.
pub const SUBTREE: &str = "cgroup.subtree_control";

/// A cgroup of the lease's own, with this process in it: all of it is done, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its folder.
    pub folder: PathBuf,
    /// What is done, in order.
    pub moves: Vec<Move>,
    /// Whether the workload may start without it.
    pub need: Need,
}

/// One move towards a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Making the group that the leases' groups are below. It stays: others use it too.
    Tool(PathBuf),
    /// Passing cpusets on to the groups below one.
    PassOn {
        /// The group.
        group: PathBuf,
        /// The group below it for whose sake alone it is done, and undone; none: it stays, others use it too.
        only: Option<PathBuf>,
    },
    /// Making the lease's group.
    Make(PathBuf),
    /// Writing a list into one of its files.
    Set(Set),
    /// Moving this process into it.
    Join {
        /// The group.
        group: PathBuf,
        /// The group that it comes from.
        home: PathBuf,
    },
    /// Having systemd do all of that.
    Scope(Scope),
}

/// A list in a file of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The file.
    pub file: PathBuf,
    /// The file that says what came of it.
    pub effective: PathBuf,
    /// The list.
    pub value: String,
    /// Whether it was asked for.
    pub need: Need,
}

/// A transient scope of systemd's, with this process in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Its unit's name.
    pub name: String,
    /// The slice that it is in.
    pub slice: String,
    /// Its group.
    pub folder: PathBuf,
    /// The group that this process comes from.
    pub home: PathBuf,
    /// The group of all of systemd's units.
    pub root: PathBuf,
    /// Properties that are masks: the lowest ids first, a byte for eight of them.
    pub masks: Vec<(&'static str, Vec<u8>)>,
    /// What has to come of them.
    pub sets: Vec<Set>,
}

/// The slice of the scopes. A dash is a level: systemd has it below `numa.slice`.
const SLICE: &str = "numa-run.slice";

/// Where a group says which CPUs and nodes it has come to.
const EFFECTIVE: [&str; 2] = ["cpuset.cpus.effective", "cpuset.mems.effective"];
const LEGACY_EFFECTIVE: [&str; 2] = ["cpuset.effective_cpus", "cpuset.effective_mems"];

impl Group {
    /// True where others have to answer for it to come about.
    pub fn waits(&self) -> bool {
        self.moves.iter().any(|step| matches!(step, Move::Scope(_)))
    }

    /// Where processes of ours wait that are not the workload's: who passes on
    /// cpusets may have none of its own. None where they can stay.
    pub fn aside(&self) -> Option<PathBuf> {
        self.moves.iter().find_map(|step| match step {
            Move::PassOn { group, only: Some(_) } => Some(group.join(TOOL)),
            _ => None,
        })
    }

    /// The group of a lease, where the plan puts it.
    pub fn of(fence: &Fence, lease: &str) -> Group {
        let folder = folder(&fence.place, lease);
        let make = Move::Make(folder.clone());
        let join = Move::Join { group: folder.clone(), home: fence.home.clone() };
        let sets = |effective| sets(fence, &folder, effective).into_iter().map(Move::Set).collect::<Vec<_>>();
        let moves = match &fence.place {
            Place::Tool { mount, top, tool } => {
                [prepared(mount, *top, *tool), vec![make], sets(EFFECTIVE), vec![join]].concat()
            }
            // Who passes on cpusets may have no process of its own: this one has to be gone first.
            Place::Inside { parent, pass_on: true } => {
                let pass_on = Move::PassOn { group: parent.clone(), only: Some(folder.clone()) };
                [vec![make, join, pass_on], sets(EFFECTIVE)].concat()
            }
            Place::Inside { pass_on: false, .. } => [vec![make], sets(EFFECTIVE), vec![join]].concat(),
            Place::Legacy { .. } => [vec![make], sets(LEGACY_EFFECTIVE), vec![join]].concat(),
            Place::Scope { root } => vec![Move::Scope(scope(fence, root, lease, &folder))],
        };
        Group { folder, moves, need: fence.need }
    }

    /// Lines for a shell that do the same.
    pub fn shell(&self) -> String {
        self.moves.iter().map(Move::shell).collect::<Vec<_>>().join("\n")
    }
}

fn folder(place: &Place, lease: &str) -> PathBuf {
    match place {
        Place::Tool { mount, .. } => mount.join(TOOL).join(lease),
        Place::Inside { parent, .. } | Place::Legacy { parent, .. } => parent.join(format!("{TOOL}-{lease}")),
        Place::Scope { root } => {
            let above = SLICE.match_indices('-').map(|(at, _)| format!("{}.slice", &SLICE[..at]));
            above.fold(root.clone(), |folder, slice| folder.join(slice)).join(SLICE).join(scope_name(lease))
        }
    }
}

fn scope_name(lease: &str) -> String {
    format!("{TOOL}-{lease}.scope")
}

/// What has to be there before the first group of a lease.
fn prepared(mount: &Path, top: Cpuset, tool: Option<Cpuset>) -> Vec<Move> {
    let pass_on = |group: PathBuf| Move::PassOn { group, only: None };
    let moves = [
        (top != Cpuset::PassedOn).then(|| pass_on(mount.to_owned())),
        tool.is_none().then(|| Move::Tool(mount.join(TOOL))),
        (tool != Some(Cpuset::PassedOn)).then(|| pass_on(mount.join(TOOL))),
    ];
    moves.into_iter().flatten().collect()
}

fn sets(fence: &Fence, folder: &Path, effective: [&str; 2]) -> Vec<Set> {
    let set = |file: &str, effective: &str, value: String, need: Need| Set {
        file: folder.join(file),
        effective: folder.join(effective),
        value,
        need,
    };
    let cpus = fence.cpus.iter().map(|cpus| set("cpuset.cpus", effective[0], cpus.to.to_string(), cpus.need));
    let mems = fence.mems.iter().map(|mems| set("cpuset.mems", effective[1], mems.to.to_string(), mems.need));
    cpus.chain(mems).collect()
}

fn scope(fence: &Fence, root: &Path, lease: &str, folder: &Path) -> Scope {
    let cpus = fence.cpus.as_ref().map(|cpus| ("AllowedCPUs", bytes(cpus.to.words())));
    let mems = fence.mems.as_ref().map(|mems| ("AllowedMemoryNodes", bytes(mems.to.words())));
    Scope {
        name: scope_name(lease),
        slice: SLICE.to_owned(),
        home: fence.home.clone(),
        root: root.to_owned(),
        sets: sets(fence, folder, EFFECTIVE),
        masks: cpus.into_iter().chain(mems).collect(),
        folder: folder.to_owned(),
    }
}

impl Move {
    fn shell(&self) -> String {
        match self {
            Move::Tool(folder) => format!("mkdir -p {}", shown(folder)),
            Move::PassOn { group, .. } => format!("echo +cpuset > {}", shown(&group.join(SUBTREE))),
            Move::Make(folder) => format!("mkdir {}", shown(folder)),
            Move::Set(set) => format!("echo {} > {}", set.value, shown(&set.file)),
            Move::Join { group, .. } => format!("echo $$ > {}", shown(&group.join("cgroup.procs"))),
            Move::Scope(scope) => scope.shell(),
        }
    }
}

impl Scope {
    fn shell(&self) -> String {
        let values = self.masks.iter().map(|(name, bytes)| {
            let numbers: String = bytes.iter().map(|byte| format!(" {byte}")).collect();
            format!(" {name} ay {}{numbers}", bytes.len())
        });
        format!(
            "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager \
             StartTransientUnit 'ssa(sv)a(sa(sv))' {} fail {} PIDs au 1 $$ Slice s {}{} 0",
            self.name,
            2 + self.masks.len(),
            self.slice,
            values.collect::<String>()
        )
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
    bytes
}

fn shown(path: &Path) -> String {
    quoted(path.as_os_str())
}
