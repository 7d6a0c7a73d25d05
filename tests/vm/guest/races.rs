//! Many launches at once. Who had which CPU is judged by what the kernel said to the workloads themselves, written
//! down by each when it began and when it was about to end: in the order of these lines, nobody else is asked.

use crate::landing::run;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const CPUS: usize = 8;
const STARTERS: usize = 16;
const LAUNCHES: usize = 200;

/// The folder of a race: a ledger of its own, and the workloads' lines.
struct Track(tempfile::TempDir);

/// A workload that wrote that it began.
#[derive(Clone, Debug, Default)]
struct Begun {
    cpus: BTreeSet<u32>,
    lease: String,
}

/// What the lines say.
#[derive(Debug, Default)]
struct Judged {
    /// Workloads, by the number of their launch, in the order in which they began.
    begun: Vec<usize>,
    /// The most that were alive at once.
    most: usize,
}

impl Track {
    fn new() -> Track {
        Track(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A shell that says which CPUs the kernel lets it run on, does something, and says that it ends.
    fn workload(&self, launch: usize, what: &str) -> String {
        let log = self.path("log");
        format!(
            "while read -r name cpus; do [ $name != Cpus_allowed_list: ] || break; done </proc/$$/status
             echo \"begun {launch} $cpus ${{NUMA_RUN_ALLOC_LEASE-none}}\" >>{log}
             {what}
             echo \"ends {launch}\" >>{log}",
            log = log.display()
        )
    }

    fn launch(&self, launch: usize, options: &str, what: &str) -> Command {
        let mut command = Command::new("numa-run");
        let options = options.split_ascii_whitespace();
        command.args(["--quiet", "--run-dir"]).arg(self.path("run")).args(options);
        command.args(["--", "sh", "-c", &self.workload(launch, what)]);
        command
    }

    /// A line of the one who starts.
    fn write(&self, line: &str) {
        let mut log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }

    /// As many launches as there are starters for, the next one as soon as one has ended: how each of them ended.
    fn run(&self, options: &str, what: &str) -> Vec<Output> {
        let (next, ended) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
        let start = || loop {
            let launch = next.fetch_add(1, Ordering::SeqCst);
            if launch >= LAUNCHES {
                break;
            }
            self.write(&format!("asked {launch}\n"));
            let output = self.launch(launch, options, what).output().unwrap();
            ended.lock().unwrap().push(output);
        };
        thread::scope(|scope| (0..STARTERS).for_each(|_| _ = scope.spawn(start)));
        ended.into_inner().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }
}

/// Whether ever two of them had the same CPU, or the same lease, at the same time.
fn judge(log: &str) -> Result<Judged, String> {
    let mut alive: BTreeMap<usize, Begun> = BTreeMap::new();
    let mut judged = Judged::default();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let launch = words[1].parse().map_err(|_| format!("what is `{line}`?"))?;
        match words[0] {
            "begun" => {
                let cpus = words[2].parse::<numa_run::topology::CpuSet>().unwrap().iter().collect();
                let begun = Begun { cpus, lease: words[3].to_owned() };
                for (other, held) in &alive {
                    if let Some(cpu) = held.cpus.intersection(&begun.cpus).next() {
                        return Err(format!("launches {other} and {launch} have CPU {cpu} at once"));
                    }
                    if held.lease == begun.lease && held.lease != "none" {
                        return Err(format!("launches {other} and {launch} are both {}", held.lease));
                    }
                }
                alive.insert(launch, begun);
                judged.begun.push(launch);
                judged.most = judged.most.max(alive.len());
            }
            "ends" => _ = alive.remove(&launch).ok_or(format!("launch {launch} ends twice"))?,
            _ => {}
        }
    }
    if alive.is_empty() { Ok(judged) } else { Err(format!("no end of {:?}", alive.keys())) }
}

/// All folders of cgroups.
fn groups() -> BTreeSet<PathBuf> {
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut groups = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(below.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path()));
        groups.insert(folder);
    }
    groups
}

/// Groups of leases: the one that they are in stays, and what systemd does with its own is not our doing.
fn our_groups() -> BTreeSet<PathBuf> {
    let ours = |group: &PathBuf| group.to_string_lossy().contains("numa-run") && !group.ends_with("cgroup/numa-run");
    groups().into_iter().filter(ours).collect()
}

/// After `gc`, nothing tells that anything was ever launched, but the ledger's own empty folders and the machine as it was read.
fn nothing_is_left(track: &Track, groups: &BTreeSet<PathBuf>) {
    let gc = run(&format!("numa-run gc --run-dir {}", track.path("run").display()));
    assert!(gc.status.success(), "{gc:?}");
    assert_eq!(our_groups().difference(groups).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&track.path("run/leases")), Vec::<String>::new());
    assert_eq!(names(&track.path("run/queue")), Vec::<String>::new());
    let mut kept = names(&track.path("run"));
    kept.retain(|name| !["leases", "queue", "lock"].contains(&name.as_str()));
    assert!(kept.len() <= 1 && kept.iter().all(|name| name.starts_with("machine")), "{kept:?}");
}

fn texts(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn of_200_launches_no_two_ever_have_a_cpu_in_common() {
    let (track, groups) = (Track::new(), our_groups());
    let ended = track.run("--smt share --cpus 1", "sleep 8");
    let (fine, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(|output| output.status.success());
    for output in &refused {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(texts(output).contains("not enough cpus: 1 wanted, 0 free"), "{output:?}");
    }
    let judged = judge(&track.log()).unwrap();
    assert_eq!((judged.begun.len(), fine.len() + refused.len()), (fine.len(), LAUNCHES));
    // All CPUs were in use at once, so that there was something to fight for.
    assert_eq!(judged.most, CPUS);
    assert!(refused.len() > CPUS, "{} refused", refused.len());
    nothing_is_left(&track, &groups);
}

#[test]
fn of_16_launches_at_once_as_many_go_ahead_as_there_are_nics() {
    let (track, groups) = (Track::new(), our_groups());
    let nics = crate::sys::functions(crate::sys::IGB);
    assert_eq!(nics.len(), 2);
    let what = format!("echo \"$NUMA_RUN_ALLOC_NIC\" >>{}; read -r end", track.path("nics").display());
    let start = |launch: usize| {
        let mut command = track.launch(launch, "--smt share --cpus 2 --nic 1:driver=igb", &what);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..STARTERS).map(start).collect();
    // Those that have got one wait for their stdin, the others have ended.
    let (mut refused, mut waiting) = (0, children);
    while waiting.len() > nics.len() {
        let ended = waiting.iter_mut().position(|child| child.try_wait().unwrap().is_some());
        let Some(at) = ended else {
            std::hint::spin_loop();
            thread::yield_now();
            continue;
        };
        let output = waiting.swap_remove(at).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(texts(&output).contains("not enough nic: 1 wanted, 0 free"), "{output:?}");
        refused += 1;
    }
    let granted = || fs::read_to_string(track.path("nics")).unwrap_or_default().lines().count();
    while granted() < nics.len() {
        assert!(waiting.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "one more was refused");
        thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(refused, STARTERS - nics.len());
    for mut child in waiting {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    let granted: BTreeSet<String> =
        fs::read_to_string(track.path("nics")).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(granted, nics.into_iter().collect());
    assert_eq!(judge(&track.log()).unwrap().most, 2);
    nothing_is_left(&track, &groups);
}

#[test]
fn the_judge_notices_two_on_one_cpu() {
    let track = Track::new();
    let pinned = |launch: usize, cpus: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", cpus, "sh", "-c", &track.workload(launch, "read -r end")]).stdin(Stdio::piped());
        command.spawn().unwrap()
    };
    let both = |cpus: [&str; 2]| {
        let _ = fs::remove_file(track.path("log"));
        let children: Vec<_> = (0..).zip(cpus).map(|(launch, cpus)| pinned(launch, cpus)).collect();
        while fs::read_to_string(track.path("log")).unwrap_or_default().lines().count() < 2 {
            thread::sleep(std::time::Duration::from_millis(20));
        }
        for mut child in children {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
        judge(&track.log())
    };
    assert!(both(["3", "2-4"]).unwrap_err().contains("have CPU 3 at once"));
    assert_eq!(both(["3", "4"]).unwrap().most, 2);
    let twice = "begun 0 1 a-1\nbegun 1 2 a-1\n";
    assert_eq!(judge(twice).unwrap_err(), "launches 0 and 1 are both a-1");
    assert!(judge("begun 0 1 a-1\n").unwrap_err().contains("no end"));
}
