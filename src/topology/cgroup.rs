//! The cgroups of the launching process: which ones it is in, and what may be done there.

mod place;

pub use place::{Place, cpusets, nearest, unified};

use super::{CpuSet, NodeMask};
use std::path::{Path, PathBuf};

/// Where a cpuset of a launch's own could be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// The hierarchy of version 2, where one is mounted and this process is to be seen in it.
    pub unified: Option<Unified>,
    /// This process's cpuset in a hierarchy of version 1.
    pub legacy: Option<Legacy>,
}

/// The hierarchy of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unified {
    /// The groups that this process is in: the mount's own first, the innermost last; at least one.
    pub groups: Vec<Group>,
    /// What becomes of cpusets in the group [`TOOL`] of the mount; none where there is no such group.
    pub tool: Option<Cpuset>,
    /// CPUs of this process's cpuset, where they are fewer than the mount's.
    pub given: Option<CpuSet>,
    /// systemd, where it manages this hierarchy.
    pub systemd: Option<Systemd>,
}

/// The group of this program's own, with a group for each lease.
pub const TOOL: &str = "numa-run";

/// A group of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its folder.
    pub folder: PathBuf,
    /// What may live in it.
    pub kind: Kind,
    /// What it has of cpusets.
    pub cpuset: Cpuset,
    /// Processes in it besides this one; not counted in the root.
    pub others: usize,
    /// Whether this user may make groups in it and move processes below it.
    pub writable: bool,
    /// Files that say that its processes may not use as much as there is.
    pub limits: Vec<&'static str>,
}

/// Files that limit what is in a group, unless they are empty or begin with `max`.
const LIMITS: [&str; 6] = ["memory.max", "memory.high", "cpu.max", "pids.max", "cpuset.cpus", "cpuset.mems"];

/// What may live in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's own root: processes may live in it whatever it passes on.
    #[default]
    Root,
    /// Processes.
    Domain,
    /// Threads, or nothing; the kernel's word for it.
    Other(String),
}

/// What a group has of the cpuset controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cpuset {
    /// Nothing.
    #[default]
    Absent,
    /// It could pass it on to the groups below.
    Here,
    /// It passes it on.
    PassedOn,
}

/// What systemd has to do with this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Systemd {
    /// The group that all of its units are below.
    pub root: PathBuf,
    /// The innermost unit that this process is in.
    pub unit: Option<Unit>,
}

/// A unit of systemd's, or of a user's manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Which of the groups it is.
    pub at: usize,
    /// Whether what is below it is left to its processes.
    pub delegated: bool,
}

/// A cpuset of version 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legacy {
    /// Its folder.
    pub folder: PathBuf,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its nodes.
    pub mems: NodeMask,
    /// Whether this user may make groups in it.
    pub writable: bool,
}

impl Cgroups {
    /// Reads them. `delegated` tells of a unit's folder whether systemd has marked it so.
    pub fn read(root: &Path, delegated: &dyn Fn(&Path) -> bool) -> Cgroups {
        let Ok(own) = std::fs::read_to_string(root.join("proc/self/cgroup")) else { return Cgroups::default() };
        let reader = Reader { root, delegated };
        Cgroups {
            unified: unified(root, &own).map(|place| reader.unified(&place)),
            legacy: cpusets(root, &own).and_then(|place| reader.legacy(&place)),
        }
    }
}

impl Unified {
    /// The group that the process itself is in.
    pub fn own(&self) -> &Group {
        &self.groups[self.groups.len() - 1]
    }

    /// The unit's group, if it is in one.
    pub fn unit(&self) -> Option<&Group> {
        self.groups.get(self.systemd.as_ref()?.unit.as_ref()?.at)
    }
}

struct Reader<'a> {
    root: &'a Path,
    delegated: &'a dyn Fn(&Path) -> bool,
}

impl Reader<'_> {
    fn unified(&self, place: &Place) -> Unified {
        let folders: Vec<PathBuf> = place.groups().collect();
        let systemd = self.systemd(place, &folders);
        let tool = self.cpuset(&place.mount.join(TOOL));
        // What is passed on below has been passed on above.
        let top = tool.filter(|tool| *tool == Cpuset::PassedOn);
        let top = top.or_else(|| self.cpuset(&place.mount)).unwrap_or_default();
        let below = folders[1..].iter().map(|folder| self.group(folder, self.cpuset(folder).unwrap_or_default()));
        Unified {
            given: if folders.len() > 1 { self.fewer_cpus(place) } else { None },
            groups: std::iter::once(self.group(&place.mount, top)).chain(below).collect(),
            tool,
            systemd,
        }
    }

    fn group(&self, folder: &Path, cpuset: Cpuset) -> Group {
        let kind = match self.text(folder, "cgroup.type") {
            None => Kind::Root,
            Some(kind) if kind.trim() == "domain" => Kind::Domain,
            Some(kind) => Kind::Other(kind.trim().to_owned()),
        };
        let inner = kind != Kind::Root;
        Group {
            folder: folder.to_owned(),
            cpuset,
            others: if inner { self.others(folder) } else { 0 },
            // Whoever owns the root's folder owns its files.
            writable: self
                .writable(folder, if inner { &["", "cgroup.procs", "cgroup.subtree_control"] } else { &[""] }),
            limits: if inner { self.limits(folder) } else { Vec::new() },
            kind,
        }
    }

    /// None where there is no such group.
    fn cpuset(&self, folder: &Path) -> Option<Cpuset> {
        let passed_on = self.text(folder, "cgroup.subtree_control")?;
        let named = |text: String| text.split_whitespace().any(|controller| controller == "cpuset");
        Some(match named(passed_on) {
            true => Cpuset::PassedOn,
            false if self.text(folder, "cgroup.controllers").is_some_and(named) => Cpuset::Here,
            false => Cpuset::Absent,
        })
    }

    /// Of a threaded group the kernel does not list the processes.
    fn others(&self, folder: &Path) -> usize {
        let own = std::process::id().to_string();
        self.text(folder, "cgroup.procs").map_or(0, |pids| pids.lines().filter(|&pid| pid != own).count())
    }

    fn limits(&self, folder: &Path) -> Vec<&'static str> {
        let limited = |file: &&str| {
            let text = self.text(folder, file).unwrap_or_default();
            text.split_whitespace().next().is_some_and(|first| first != "max")
        };
        LIMITS.into_iter().filter(limited).collect()
    }

    fn fewer_cpus(&self, place: &Place) -> Option<CpuSet> {
        let file = "cpuset.cpus.effective";
        let all = self.text(&place.mount, file)?.parse::<CpuSet>().ok()?;
        let given = nearest(self.root, place, file)?.parse::<CpuSet>().ok()?;
        (!all.is_subset(&given)).then_some(given)
    }

    fn systemd(&self, place: &Place, folders: &[PathBuf]) -> Option<Systemd> {
        // sd_booted(3).
        if !self.root.join("run/systemd/system").is_dir() {
            return None;
        }
        let root = place::below(&place.mount, &place::systemd_root(self.root));
        let below = folders.iter().position(|folder| *folder == root).map_or(folders.len(), |at| at + 1);
        let names = folders[below..].iter().map(|folder| folder.file_name().unwrap_or_default().to_string_lossy());
        let at = place::innermost_unit(names).map(|at| below + at);
        let unit = at.map(|at| Unit { at, delegated: (self.delegated)(&self.at(&folders[at])) });
        Some(Systemd { root, unit })
    }

    fn legacy(&self, place: &Place) -> Option<Legacy> {
        let folder = place.folder();
        let list = |file| self.text(&folder, file);
        Some(Legacy {
            cpus: list("cpuset.effective_cpus")?.parse().ok()?,
            mems: list("cpuset.effective_mems")?.parse().ok()?,
            writable: self.writable(&folder, &["", "cgroup.procs"]),
            folder,
        })
    }

    fn writable(&self, folder: &Path, files: &[&str]) -> bool {
        let may =
            |file: &&str| nix::unistd::access(&self.at(folder).join(file), nix::unistd::AccessFlags::W_OK).is_ok();
        files.iter().all(may)
    }

    fn text(&self, folder: &Path, file: &str) -> Option<String> {
        std::fs::read_to_string(self.at(folder).join(file)).ok()
    }

    fn at(&self, folder: &Path) -> PathBuf {
        place::under(self.root, folder)
    }
}
