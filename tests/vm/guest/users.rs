//! Who launches, as whom, and what several users' launches do to each other.

use crate::landing::{landing, launch, listed, printed, refusal, run, workload};
use crate::sys::{Changed, read};
use numa_run::lease::{Header, Held, Identity, VERSION, identity, record};
use numa_run::topology::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const LEASES: &str = "/run/numa-run/leases";
const ALICE: u32 = 61_001;
const MALLORY: u32 = 61_002;

fn by(user: u32, command: &str) -> String {
    format!("setpriv --reuid={user} --regid={user} --clear-groups {command}")
}

/// The ledger that root's first launch makes.
fn ledger_of_the_host() {
    launch("--cpus 1");
    assert!(Path::new(LEASES).is_dir());
}

/// Something in the background, ended with the test.
struct Background(Child);

impl Background {
    fn start(command: &str) -> Background {
        let mut words = command.split(' ');
        let mut process = Command::new(words.next().unwrap());
        Background(process.args(words).stdin(Stdio::null()).spawn().unwrap())
    }

    fn end(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is() {
        assert!(begun.elapsed().as_secs() < 30, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Groups that launches have now.
fn groups() -> usize {
    let entries = fs::read_dir("/sys/fs/cgroup/numa-run").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().unwrap().is_dir()).count()
}

fn running() -> usize {
    let status: serde_json::Value = serde_json::from_str(&printed("numa-run status --json")).unwrap();
    status["leases"].as_array().unwrap().iter().filter(|lease| lease["state"] == "running").count()
}

fn status(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name, value.split_whitespace().collect())).collect()
}

#[test]
fn another_user_is_in_all_his_groups_and_lands_as_root_would() {
    let passwd = format!("{}\napp:x:1234:1234::/srv/app:/bin/false", read("/etc/passwd"));
    let group = format!("{}\napp:x:1234:\nhuge:x:77:daemon,app\nvfio:x:78:\nothers:x:79:daemon", read("/etc/group"));
    let _passwd = Changed::to("/etc/passwd", &(passwd + "\n"));
    let _group = Changed::to("/etc/group", &(group + "\n"));
    for (options, gid, groups) in [
        ("--user app", "1234", &["77", "1234"][..]),
        ("--user 1234", "1234", &["77", "1234"]),
        ("--user app:vfio --group others", "78", &["77", "78", "79"]),
        ("--user 4242:app", "1234", &["1234"]),
    ] {
        let text =
            printed(&format!("numa-run --cpus 2 --cpu-nodes 2 --caps ipc_lock {options} -- cat /proc/self/status"));
        let status = status(&text);
        assert_eq!(status["Gid"], [gid; 4], "{options}");
        assert_eq!(status["Groups"], groups, "{options}");
        assert_eq!(status["CapEff"], ["0000000000004000"], "{options}");
        assert_eq!(status["CapBnd"], ["0000000000004000"], "{options}");
        assert_eq!(status["Cpus_allowed_list"], ["4-5"], "{options}");
    }
    for node in listed("has_memory") {
        let landing = launch(&format!("--user app --cpus 2 --cpu-nodes {node} --memory 64M --policy single-numa-node"));
        assert_eq!(landing.not_on(node, 2), None);
    }
    assert_eq!(printed("numa-run --user app -- printenv HOME USER SHELL"), "/srv/app\napp\n/bin/false\n");
}

#[test]
fn a_command_that_its_user_may_not_execute_leaves_nothing() {
    ledger_of_the_host();
    fs::write("/tmp/root-only", "#!/bin/sh\n").unwrap();
    fs::set_permissions("/tmp/root-only", std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    printed("numa-run gc");
    for (program, code) in [("/tmp/root-only", 126), ("/no/such", 127)] {
        let output = run(&format!("numa-run --cpus 1 --require-cgroup --user nobody -- {program}"));
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_dir(LEASES).unwrap().count(), 0);
        assert_eq!(groups(), 0);
    }
}

#[test]
fn roots_first_launch_makes_the_ledger_that_all_users_share() {
    // Whoever ran before: it is as if nobody had.
    let aside = "/run/numa-run.aside";
    let _ = fs::rename("/run/numa-run", aside);
    let own = landing(&by(ALICE, &format!("numa-run --cpus 8 -- {}", workload())));
    assert!(own.said.contains("only launches of user 61001 keep off this one"), "{}", own.said);
    let kept = fs::metadata("/tmp/numa-run-61001/leases").unwrap();
    assert_eq!((kept.uid(), kept.mode() & 0o7777), (ALICE, 0o700));
    ledger_of_the_host();
    let about = fs::metadata(LEASES).unwrap();
    assert_eq!((about.uid(), about.mode() & 0o7777), (0, 0o1777));
    let holder = Background::start(&by(ALICE, "numa-run --cpu-list 2-3 -- sleep 1000"));
    wait_for("the holder runs", || running() == 1);
    let shared = landing(&by(MALLORY, &format!("numa-run --cpus 4 -- {}", workload())));
    assert!(!shared.said.contains("keep off this one"), "{}", shared.said);
    assert!(shared.cpus.is_disjoint(&"2-3".parse().unwrap()), "{shared:?}");
    for user in [0, MALLORY] {
        let said = refusal(&by(user, &format!("numa-run --cpu-list 2-3 -- {}", workload())));
        assert!(said.contains("held by another launch"), "{said}");
    }
    holder.end();
    fs::remove_dir_all("/tmp/numa-run-61001").unwrap();
    fs::remove_dir_all("/run/numa-run").unwrap();
    let _ = fs::rename(aside, "/run/numa-run");
}

/// 18 launches by three users on 2 CPUs: each CPU has one holder at a time.
#[test]
fn launches_of_several_users_at_once_never_have_a_cpu_in_common() {
    ledger_of_the_host();
    fs::create_dir_all("/tmp/claims").unwrap();
    fs::set_permissions("/tmp/claims", std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    // Whoever finds his CPU's folder there shares it.
    fs::write(
        "/tmp/claim",
        "mkdir /tmp/claims/$NUMA_RUN_ALLOC_CPUS || echo shared; sleep 0.3; rmdir /tmp/claims/$NUMA_RUN_ALLOC_CPUS\n",
    )
    .unwrap();
    let starter = |user: u32| {
        let line = by(user, "numa-run --quiet --smt share --pool 0-1 --wait=50 --cpus 1 -- sh /tmp/claim");
        std::thread::spawn(move || (0..3).map(|_| run(&line)).collect::<Vec<_>>())
    };
    let starters: Vec<_> = (0..6).map(|at| starter([0, ALICE, MALLORY][at % 3])).collect();
    for output in starters.into_iter().flat_map(|starter| starter.join().unwrap()) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    }
    printed("numa-run gc");
    assert_eq!(fs::read_dir(LEASES).unwrap().count(), 0);
}

/// A lease of a user's, written by hand.
fn forge(user: u32, id: &str, header: Header) {
    let owner = Identity { boot: identity::boot(Path::new("/")), ..header.owner.clone() };
    let header = Header { version: VERSION, lease: id.into(), owner, ..header };
    let file = format!("{LEASES}/{id}.lease");
    fs::write(&file, record::begun(&header, "").unwrap()).unwrap();
    chown(&file, Some(user), Some(user)).unwrap();
}

fn all_cpus() -> Held {
    Held { cpus: "0-7".parse().unwrap(), ..Held::default() }
}

#[test]
fn a_lease_does_not_live_by_a_group_that_is_not_its_users() {
    ledger_of_the_host();
    for group in ["/sys/fs/cgroup", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/init.scope"] {
        assert!(
            read(&format!("{group}/cgroup.procs")).len() + read(&format!("{group}/cgroup.subtree_control")).len() > 0
        );
        forge(MALLORY, "1-1-000001", Header { held: all_cpus(), group: Some(group.into()), ..Header::default() });
        assert_eq!(landing(&by(ALICE, &format!("numa-run --cpus 8 -- {}", workload()))).cpus.len(), 8, "{group}");
        assert_eq!(launch("--isolated never --cpus 8").cpus.len(), 8, "{group}");
    }
    forge(
        0,
        "1-1-000002",
        Header { held: all_cpus(), group: Some("/sys/fs/cgroup/init.scope".into()), ..Header::default() },
    );
    let said = refusal(&format!("numa-run --cpus 1 -- {}", workload()));
    assert!(said.contains("0 free"), "root's own is believed: {said}");
    fs::remove_file(format!("{LEASES}/1-1-000002.lease")).unwrap();
}

/// A process inside of a lease gets what the lease holds: nobody else's lease is one to be inside of.
#[test]
fn nobody_is_lured_into_anothers_lease_to_take_what_a_third_one_holds() {
    ledger_of_the_host();
    let group = "/sys/fs/cgroup/outer/inner";
    fs::create_dir_all(group).unwrap();
    let holder = Background::start("numa-run --cpu-list 2-3 -- sleep 1000");
    wait_for("the holder runs", || running() == 1);
    let lock = format!("{LEASES}/1-1-000001.lock");
    fs::write(&lock, "").unwrap();
    chown(&lock, Some(MALLORY), Some(MALLORY)).unwrap();
    fs::set_permissions(&lock, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    let keeper = Background::start(&by(MALLORY, &format!("flock -o -x {lock} sleep 1000")));
    let inode = fs::metadata(&lock).unwrap().ino();
    wait_for("the lock is held", || read("/proc/locks").contains(&format!(":{inode} ")));
    let held = Held { cpus: "2-3".parse().unwrap(), ..Held::default() };
    forge(MALLORY, "1-1-000001", Header { held, group: Some(group.into()), lock: inode, ..Header::default() });
    fs::write("/tmp/join", format!("echo $$ >{group}/cgroup.procs\nexec \"$@\"\n")).unwrap();
    for user in [0, ALICE] {
        let line =
            |options: &str| format!("sh /tmp/join {}", by(user, &format!("numa-run {options} -- {}", workload())));
        let said = refusal(&line("--cpu-list 2"));
        assert!(said.contains("held by another launch"), "{said}");
        let cpus: CpuSet = landing(&line("--cpus 2")).cpus;
        assert!(cpus.is_disjoint(&"2-3".parse().unwrap()), "{cpus}");
    }
    keeper.end();
    holder.end();
    printed("numa-run gc");
    fs::remove_dir(group).unwrap();
    fs::remove_dir("/sys/fs/cgroup/outer").unwrap();
}

#[test]
fn a_damaged_lease_holds_what_its_group_does_as_long_as_somebody_lives_there() {
    ledger_of_the_host();
    printed("numa-run gc");
    let workload_of_root = Background::start("numa-run --cpu-list 2-3 --require-cgroup -- sleep 1000");
    wait_for("the workload runs", || running() == 1);
    let files = || fs::read_dir(LEASES).unwrap().map(|file| file.unwrap().path());
    let with = |ending: &str| files().find(|file| file.extension().is_some_and(|extension| extension == ending));
    fs::write(with("lease").unwrap(), "torn").unwrap();
    let said = refusal(&format!("numa-run --cpu-list 2 -- {}", workload()));
    assert!(said.contains("its first line is damaged: it holds CPUs 2-3, as its cgroup does"), "{said}");
    assert!(said.contains("held by another launch"), "{said}");
    let others = landing(&by(ALICE, &format!("numa-run --cpus 6 -- {}", workload())));
    assert_eq!(others.cpus.to_string(), "0-1,4-7");
    workload_of_root.end();
    let landing = launch("--cpu-list 2-3");
    assert!(landing.said.contains("set aside as") && !landing.said.contains("stays"), "{}", landing.said);
    fs::remove_file(with("damaged").unwrap()).unwrap();
    printed("numa-run gc");
    assert_eq!((files().count(), groups()), (0, 0));
}
