//! A run directory that is full or cannot be written: nothing is started
//! without a record, and what runs is left alone.

use super::{Ended, NUMA_RUN, Stage, installed};
use std::process::Command;

/// Runs a script that may mount things, with `$RUN` a small file system of its own.
fn in_a_small_folder(script: &str) -> Option<Ended> {
    let namespace: &[&str] = if nix::unistd::geteuid().is_root() { &["-m"] } else { &["-rm"] };
    let able = installed("unshare") && Command::new("unshare").args(namespace).arg("true").status().unwrap().success();
    if !able {
        assert!(std::env::var_os("CI").is_none(), "no mount namespace can be had, and CI leaves nothing out");
        eprintln!("SKIPPED, NOT TESTED: no mount namespace can be had here");
        return None;
    }
    let stage = Stage::new();
    let begin = "set -e; mkdir $STAGE/run; mount -t tmpfs -o size=256k,mode=755 small $STAGE/run; export RUN=$STAGE/run\n\
                 leases() { (cd $RUN/leases && cat *.lease | cksum); }\n\
                 numa_run --cpu-list 1 true; numa_run gc\n\
                 numa_run --supervise --cpu-list 0 -- sh -c 'while ! test -e $STAGE/end; do sleep 0.01; done; exit 7' & running=$!\n\
                 until numa_run status | grep -q ' running '; do sleep 0.01; done\n";
    let mut command = Command::new("unshare");
    stage.set_up(&mut command);
    command.env("NUMA_RUN_RUN_DIR", stage.path("run")).env("STAGE", stage.path("")).args(namespace);
    let numa_run = format!("numa_run() {{ {NUMA_RUN} \"$@\"; }}\n");
    let ended = Ended::of(command.args(["sh", "-c", &(numa_run + begin + script)]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    Some(ended)
}

#[test]
fn in_a_full_folder_nothing_is_started_and_what_runs_ends_as_ever() {
    let ended = in_a_small_folder(
        "before=$(leases); dd if=/dev/zero of=$RUN/filler bs=1k 2>/dev/null || true\n\
         numa_run --cpu-list 1 -- echo started && exit 90; test $? = 125\n\
         test \"$before\" = \"$(leases)\"; test \"$(ls $RUN/leases | wc -l)\" = 2\n\
         touch $STAGE/end; wait $running && exit 91; test $? = 7\n\
         test \"$(ls $RUN/leases | wc -l)\" = 0\n",
    );
    let Some(ended) = ended else { return };
    assert_eq!(ended.out, "");
    assert!(ended.errors.contains("cannot record the launch in "), "{ended:?}");
    assert!(ended.errors.contains("No space left on device"), "{ended:?}");
}

#[test]
fn in_a_folder_that_cannot_be_written_nothing_is_started_and_statuses_are_kept() {
    let ended = in_a_small_folder(
        "before=$(leases); mount -o remount,ro $RUN\n\
         numa_run --cpu-list 1 -- echo started && exit 90; test $? = 125\n\
         numa_run gc; test \"$before\" = \"$(leases)\"\n\
         touch $STAGE/end; wait $running && exit 91; test $? = 7\n\
         test \"$(ls $RUN/leases | wc -l)\" = 2\n\
         mount -o remount,rw $RUN; numa_run gc; test \"$(ls $RUN/leases | wc -l)\" = 0\n",
    );
    let Some(ended) = ended else { return };
    assert_eq!(ended.out, "");
    assert!(ended.errors.contains("cannot record the launch in "), "{ended:?}");
    assert!(ended.errors.contains("Read-only file system"), "{ended:?}");
    // What could not be removed is said by who wanted to.
    assert!(ended.errors.contains("cannot be removed: "), "{ended:?}");
}

/// A lease that is renamed before its text is on disk would be empty after a power cut.
#[test]
fn a_lease_is_on_disk_before_it_has_its_name_and_its_folder_afterwards() {
    if !installed("strace") {
        return;
    }
    let stage = Stage::new();
    let trace = stage.path("trace");
    let mut command = Command::new("strace");
    stage.set_up(&mut command);
    command.env("NUMA_RUN_RUN_DIR", stage.path("run")).arg("-o").arg(&trace);
    command.args(["-qqye", "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat", NUMA_RUN]);
    let ended = Ended::of(command.args(["--cpus", "1", "--", "true"]));
    let Ok(text) = std::fs::read_to_string(&trace) else {
        eprintln!("SKIPPED, NOT TESTED: strace cannot trace here: {ended:?}");
        return;
    };
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let at = |what: &dyn Fn(&str) -> bool| text.lines().position(what).unwrap_or_else(|| panic!("{text}"));
    let synced = at(&|line| line.contains("sync(") && line.contains("/leases/.lease"));
    let named = at(&|line| (line.starts_with("rename") || line.starts_with("link")) && line.contains(".lease\""));
    let folder = at(&|line| line.starts_with("fsync(") && line.contains("/leases>"));
    assert!(synced < named && named < folder, "{text}");
}
