//! Where a launch's cgroup goes, from `/proc` and `/sys` as they are on hosts, in containers and in jobs. What is done there
//! is in `snapshots/cgroup-*.txt`, as shell lines.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests make files of their own")]

mod machines;

use machines::Tree;
use numa_run::assume::{Assume, Holdings};
use numa_run::config::Config;
use numa_run::plan::{self, Facts, Plan, Surroundings};
use numa_run::request::{Cgroup, CpuChoice, CpuRequest, MemoryRequest, Request};
use numa_run::resource::prefer::Answers;
use numa_run::rights::Rights;
use numa_run::step::{self, Exec};
use numa_run::topology::cgroup::Cgroups;
use numa_run::topology::sysfs;
use snapbox::{assert_data_eq, file};
use std::fs;
use std::path::Path;

/// Who launches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Root,
    Ordinary,
}
use User::{Ordinary, Root};

/// Two nodes, and what is said of cgroups.
struct Host {
    tree: Tree,
    cgroup: Cgroup,
    delegated: &'static [&'static str],
    owned: Option<&'static str>,
}

impl Host {
    /// With this `/proc/self/cgroup`.
    fn new(own: &str) -> Host {
        let tree = Tree::of(&[(0, "0-3", 4096, "10 21"), (1, "4-7", 4096, "21 10")]);
        let host = Host { tree, cgroup: Cgroup::Auto, delegated: &[], owned: None };
        host.file("proc/self/cgroup", own)
    }

    /// Version 2 alone, mounted where it usually is, with this process in this group: all groups above it are there.
    fn unified(own: &str) -> Host {
        let mut host = Host::new(&format!("0::{own}\n")).group("", "cpuset cpu memory pids", "");
        let mut path = String::new();
        for part in own.split('/').filter(|part| !part.is_empty()) {
            path += &format!("/{part}");
            host = host.group(&path, "cpuset cpu memory pids", "").group_file(&path, "cgroup.type", "domain");
        }
        host
    }

    fn systemd(self) -> Host {
        self.file("run/systemd/system/x", "").file("proc/1/cgroup", "0::/init.scope\n")
    }

    fn file(self, path: &str, text: &str) -> Host {
        let path = self.tree.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn group(self, path: &str, controllers: &str, passed_on: &str) -> Host {
        self.group_file(path, "cgroup.controllers", controllers)
            .group_file(path, "cgroup.subtree_control", passed_on)
            .group_file(path, "cgroup.procs", "")
            .group_file(path, "cpuset.cpus.effective", "0-7\n")
    }

    fn group_file(self, path: &str, file: &str, text: &str) -> Host {
        self.file(&format!("sys/fs/cgroup{path}/{file}"), text)
    }

    /// With another process in a group.
    fn others(self, path: &str) -> Host {
        self.group_file(path, "cgroup.procs", &format!("{}\n1000000\n", std::process::id()))
    }

    /// The unit of this name has Delegate=.
    fn delegated(self, units: &'static [&'static str]) -> Host {
        Host { delegated: units, ..self }
    }

    /// The groups from this one on are this user's.
    fn owned(self, group: &'static str) -> Host {
        Host { owned: Some(group), ..self }
    }

    fn plan(&self, user: User) -> Plan {
        let root = self.tree.root();
        let marked = |folder: &Path| self.delegated.iter().any(|unit| folder.ends_with(unit));
        let mut cgroups = Cgroups::read(root, &marked);
        if user == Ordinary {
            // The tests may run as root, who may write everywhere.
            let groups = cgroups.unified.iter_mut().flat_map(|unified| &mut unified.groups);
            groups.for_each(|group| group.writable = self.owned.is_some_and(|owned| contains(&group.folder, owned)));
            cgroups.legacy.iter_mut().for_each(|legacy| legacy.writable = false);
        }
        let surroundings = Surroundings { cgroups: Some(cgroups), root: user == Root, ..Surroundings::default() };
        let cpus = CpuRequest {
            choice: CpuChoice::List("2-3,5".parse().unwrap()),
            options: Default::default(),
            smt: Default::default(),
            kind: None,
        };
        let request = Request {
            cpus: Some(cpus),
            memory: Some(MemoryRequest { mib: Some(64), ..MemoryRequest::default() }),
            cgroup: self.cgroup,
            ..Request::default()
        };
        let machine = sysfs::read(root).unwrap();
        let (config, assume, holdings) = (Config::default(), Assume::default(), Holdings::default());
        let answers = Answers::default();
        let facts = Facts {
            machine: &machine,
            config: &config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
            answers: &answers,
        };
        plan::plan(&request, &facts)
    }

    /// The lines that a dry run shows.
    fn steps(&self, user: User) -> String {
        let plan = self.plan(user);
        assert!(plan.admitted && plan.fence.is_some(), "{:?} {:?}", plan.refusal, plan.unfenced);
        let exec = Exec { command: vec!["./app".into()], ..Exec::default() };
        step::script(&step::steps(&plan, "4d2-1", Rights::default(), exec))
    }

    /// Why there is no group.
    fn none(&self, user: User) -> String {
        let plan = self.plan(user);
        assert!(plan.admitted && plan.fence.is_none(), "{plan:?}");
        plan.unfenced.unwrap()
    }
}

fn contains(folder: &Path, part: &str) -> bool {
    folder.to_string_lossy().contains(part)
}

#[test]
fn without_systemd_roots_groups_are_below_one_of_their_own() {
    assert_data_eq!(Host::unified("/").steps(Root), file!["snapshots/cgroup-first.txt"]);
    let ready = Host::unified("/").group("", "cpuset memory", "cpuset").group("/numa-run", "cpuset", "cpuset");
    assert_data_eq!(ready.steps(Root), file!["snapshots/cgroup-ready.txt"]);
    // A group without limits, like those of OpenRC's services, is left for it, whoever else lives there.
    assert_data_eq!(Host::unified("/sshd").others("/sshd").steps(Root), file!["snapshots/cgroup-first.txt"]);
}

#[test]
fn who_passes_cpusets_on_already_is_not_told_again() {
    let half = Host::unified("/").group("/numa-run", "", "");
    let steps = half.steps(Root);
    assert!(!steps.contains("mkdir -p") && steps.matches("+cpuset").count() == 2, "{steps}");
    let half = Host::unified("/").group("", "cpuset", "cpuset").group("/numa-run", "cpuset", "");
    let steps = half.steps(Root);
    assert!(!steps.contains("mkdir -p") && steps.matches("+cpuset").count() == 1, "{steps}");
}

#[test]
fn a_group_that_limits_its_processes_is_not_left() {
    for (file, text) in
        [("memory.max", "1073741824"), ("cpu.max", "50000 100000"), ("cpuset.cpus", "0-5"), ("pids.max", "9")]
    {
        let host = Host::unified("/jobs/7").group_file("/jobs/7", file, text);
        assert_data_eq!(host.steps(Root), file!["snapshots/cgroup-inside.txt"]);
        let reason = host.others("/jobs/7").none(Root);
        assert!(reason.starts_with("another process lives in /sys/fs/cgroup/jobs/7"), "{file}: {reason}");
    }
    let free = Host::unified("/jobs/7").group_file("/jobs/7", "memory.max", "max");
    assert!(free.group_file("/jobs/7", "cpu.max", "max 100000").steps(Root).contains("/numa-run/4d2-1"));
}

#[test]
fn a_group_whose_cpus_were_taken_from_above_is_not_left() {
    let host = Host::unified("/jobs/7").group_file("/jobs", "cpuset.cpus.effective", "0-5\n");
    let host = host.group_file("/jobs/7", "cpuset.cpus.effective", "0-5\n");
    assert_data_eq!(host.steps(Root), file!["snapshots/cgroup-inside.txt"]);
}

#[test]
fn from_a_session_root_gets_a_scope_of_systemds() {
    for own in ["/user.slice/user-0.slice/session-4.scope", "/system.slice/run-r1.scope", "/init.scope", "/user.slice"]
    {
        let host = Host::unified(own).systemd().others(own).group_file(own, "pids.max", "4000");
        assert_data_eq!(host.steps(Root), file!["snapshots/cgroup-scope.txt"]);
    }
    let terminal = "/user.slice/user-7.slice/user@7.service/app.slice/terminal.scope";
    let host = Host::unified(terminal).systemd().others(terminal).delegated(&["user@7.service"]);
    assert_data_eq!(host.steps(Root), file!["snapshots/cgroup-scope.txt"]);
}

#[test]
fn a_scope_that_limits_its_processes_is_not_left() {
    let own = "/system.slice/run-r1.scope";
    let host = Host::unified(own).systemd().group_file(own, "memory.max", "1073741824");
    let reason = host.none(Root);
    assert!(reason.contains("run-r1.scope limits its processes by memory.max") && reason.contains("Delegate=yes"));
    assert!(host.delegated(&["run-r1.scope"]).steps(Root).contains("/run-r1.scope/numa-run-4d2-1\n"));
}

#[test]
fn where_systemd_is_in_a_container_its_scopes_are_there_too() {
    let own = "/machine.slice/box.service/payload/system.slice/run-r1.scope";
    let host = Host::unified(own).systemd();
    let host = host.file("proc/1/cgroup", "0::/machine.slice/box.service/payload/init.scope\n");
    let plan = host.plan(Root);
    let group = step::Group::of(plan.fence.as_ref().unwrap(), "x");
    let slice = "/sys/fs/cgroup/machine.slice/box.service/payload/numa.slice/numa-run.slice";
    assert_eq!(group.folder, Path::new(slice).join("numa-run-x.scope"));
}

#[test]
fn a_service_keeps_its_unit_and_gets_a_group_in_it_where_it_is_delegated() {
    let own = "/system.slice/app.service";
    let host = Host::unified(own).systemd();
    assert_eq!(host.none(Root), "app.service is not delegated: add Delegate=yes to it");
    let host = host.delegated(&["app.service"]);
    assert_data_eq!(host.steps(Root), file!["snapshots/cgroup-service.txt"]);
    // User= with Delegate=: the unit's folder is the user's.
    assert_data_eq!(host.owned("app.service").steps(Ordinary), file!["snapshots/cgroup-service.txt"]);
    let reason = Host::unified(own).systemd().delegated(&["app.service"]).others(own).none(Root);
    assert!(reason.starts_with("another process lives in /sys/fs/cgroup/system.slice/app.service"), "{reason}");
    assert!(reason.contains("systemd-run"), "{reason}");
}

#[test]
fn a_service_whose_processes_have_made_room_has_its_group_beside_them() {
    let own = "/system.slice/app.service/main";
    let host = Host::unified(own).systemd().delegated(&["app.service"]).others(own);
    let steps = host.steps(Root);
    assert!(steps.contains("mkdir /sys/fs/cgroup/system.slice/app.service/numa-run-4d2-1\n"), "{steps}");
    let service = "/system.slice/app.service";
    let host = host.group(service, "cpuset memory", "cpuset");
    let steps = host.steps(Root);
    // Nobody is to be moved out first, so that the group is filled before it is joined.
    let (cpus, join) = (steps.find("cpuset.cpus\n").unwrap(), steps.find("cgroup.procs\n").unwrap());
    assert!(cpus < join && !steps.contains("+cpuset"), "{steps}");
    // But not out of a part that has limits of its own.
    let reason = host.group_file(own, "memory.max", "4096").none(Root);
    assert!(reason.starts_with("another process lives in"), "{reason}");
}

#[test]
fn an_ordinary_user_has_a_group_only_where_he_owns_one_with_the_controller() {
    let session = "/user.slice/user-7.slice/session-4.scope";
    let reason = Host::unified(session).systemd().none(Ordinary);
    assert!(
        reason.contains("session-4.scope is not this user's: systemd-run --user --scope -p Delegate=yes"),
        "{reason}"
    );
    let own = "/user.slice/user-7.slice/user@7.service/app.slice/run-1.scope";
    let host = || Host::unified(own).systemd().delegated(&["user@7.service", "run-1.scope"]).owned("user@7.service");
    assert!(host().steps(Ordinary).contains("run-1.scope/numa-run-4d2-1/cpuset.cpus\n"));
    // A scope that belongs to root although it is delegated has been seen.
    let reason = host().owned("nothing").none(Ordinary);
    assert!(reason.contains("run-1.scope is not this user's to divide"), "{reason}");
    let reason = host().group(own, "memory pids", "").none(Ordinary);
    assert!(reason.contains("run-1.scope has no cpuset controller: add Delegate=cpuset"), "{reason}");
    let reason = Host::unified("/").none(Ordinary);
    assert_eq!(reason, "only root can make one in /sys/fs/cgroup");
    assert!(Host::unified("/mine").owned("/mine").steps(Ordinary).contains("/mine/numa-run-4d2-1"));
}

#[test]
fn a_container_is_the_world() {
    let container = || Host::unified("/").group_file("", "cgroup.type", "domain");
    // Its only process may divide it.
    assert!(container().steps(Root).contains("mkdir /sys/fs/cgroup/numa-run-4d2-1\n"));
    let reason = container().others("").none(Root);
    assert!(reason.ends_with("lives in /sys/fs/cgroup, which so cannot be divided"), "{reason}");
    let reason = Host::new("0::/docker/1\n")
        .file("proc/self/mountinfo", "31 23 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n")
        .group("", "memory", "")
        .group_file("", "cgroup.type", "domain")
        .none(Root);
    assert_eq!(reason, "there is no cpuset controller here");
    assert_eq!(Host::new("0::/docker/1\n").none(Root), "no cgroups are to be seen here");
}

#[test]
fn what_slurm_has_made_is_left_as_it_is() {
    for own in ["/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "/slurm/uid_7/job_7"] {
        let reason = Host::unified(own).systemd().delegated(&["slurmstepd.scope"]).none(Root);
        assert!(reason.ends_with("is Slurm's, and left as it is"), "{reason}");
    }
}

#[test]
fn nothing_can_live_below_threads() {
    for kind in ["threaded", "domain threaded", "domain invalid"] {
        let host = Host::unified("/jobs").group_file("/jobs", "pids.max", "9").group_file("/jobs", "cgroup.type", kind);
        assert_eq!(host.none(Root), format!("/sys/fs/cgroup/jobs is {kind}: no process can live below it"));
    }
}

#[test]
fn a_cpuset_of_version_1_is_filled_before_it_is_joined() {
    let host = Host::new("3:cpuset:/jobs/7\n2:memory:/\n0::/\n")
        .file("proc/self/mountinfo", "33 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n")
        .file("sys/fs/cgroup/cpuset/jobs/7/cpuset.effective_cpus", "0-5\n")
        .file("sys/fs/cgroup/cpuset/jobs/7/cpuset.effective_mems", "0-1\n")
        .file("sys/fs/cgroup/cpuset/jobs/7/cgroup.procs", "1000000\n");
    assert_data_eq!(host.steps(Root), file!["snapshots/cgroup-version-1.txt"]);
    assert_eq!(host.none(Ordinary), "/sys/fs/cgroup/cpuset/jobs/7 is not this user's to divide");
    // Without a wish of its own it is a copy of the one above: an empty one takes nobody.
    let mut plan = host.plan(Root);
    let fence = plan.fence.as_mut().unwrap();
    assert!(fence.mems.is_some() && fence.cpus.is_some());
}

#[test]
fn who_requires_a_group_is_refused_where_there_is_none_and_who_wants_none_is_told_nothing() {
    let mut host = Host::unified("/system.slice/app.service").systemd();
    host.cgroup = Cgroup::Required;
    let refusal = host.plan(Root).refusal.unwrap();
    let message = "no cgroup can be had (--require-cgroup): app.service is not delegated: add Delegate=yes to it";
    assert_eq!(refusal.message, message);
    host.cgroup = Cgroup::Never;
    let plan = host.plan(Root);
    assert!(plan.admitted && plan.fence.is_none() && plan.unfenced.is_none());
}
