//! What does not come back from the kernel keeps nobody else waiting. A pipe
//! that nobody reads stands for a device that does not let go.

use super::Ended;
use super::scene::{Scene, until};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

impl Scene {
    /// A pipe: who writes to it waits for a reader.
    fn pipe(&self) -> PathBuf {
        let pipe = self.stage.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        pipe
    }

    /// Lets go who waits to write, and leaves to him what he has written.
    fn reader(&self) -> File {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.stage.path("pipe")).unwrap()
    }

    /// A lease of CPU 0 that is left by a launch which is no more; to undo it is to write to the pipe.
    fn dead_lease(&self) {
        let pipe = self.pipe();
        let mut launch = self.command(&["--cpu-list", "0", "--", "sleep", "600"]).spawn().unwrap();
        until(|| super::scene::comm(launch.id()) == "sleep");
        let undo = numa_run::step::Undo::Restore { file: pipe, old: "old".into(), ours: String::new() };
        let line = numa_run::lease::record::line(&numa_run::lease::record::Event::Undo(undo)).unwrap();
        let file = self.lease_file();
        fs::write(&file, fs::read_to_string(&file).unwrap() + &line).unwrap();
        launch.kill().unwrap();
        launch.wait().unwrap();
    }

    fn lease_file(&self) -> PathBuf {
        self.only("lease")
    }

    fn leases(&self) -> Vec<PathBuf> {
        self.files("lease")
    }

    fn files(&self, kind: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(self.stage.path("run-Same/leases")).unwrap().flatten().map(|file| file.path());
        files.filter(|file| file.extension().is_some_and(|other| other == kind)).collect()
    }

    /// The only file of this kind among the leases.
    fn only(&self, kind: &str) -> PathBuf {
        let found = self.files(kind);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    fn states(&self) -> Vec<String> {
        let status: serde_json::Value = serde_json::from_str(&self.run(&["status", "--json"]).out).unwrap();
        let leases = status["leases"].as_array().unwrap().iter();
        leases.map(|lease| lease["state"].as_str().unwrap().to_owned()).collect()
    }

    fn with_limit(&self, milliseconds: u32, words: &[&str]) -> Command {
        let mut command = self.command(words);
        command.env("NUMA_RUN_FAULT_LIMIT", milliseconds.to_string());
        command
    }

    fn start(command: &mut Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn ended(child: Child) -> Ended {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), errors: text(output.stderr) }
}

/// Others get their CPUs while this one is blocked for much longer than they take.
const LONG: u32 = 3_000;

#[test]
fn while_a_step_blocks_others_are_launched_and_afterwards_nothing_is_left() {
    let scene = Scene::new();
    let pipe = scene.pipe();
    let mut blocked = scene.with_limit(LONG, &["--cpu-list", "0", "--", "echo", "started"]);
    let mut blocked = Scene::start(blocked.env("NUMA_RUN_FAULT_WRITE", format!("{}=new", pipe.display())));
    until(|| scene.states() == ["starting"]);
    let other = scene.run(&["--cpu-list", "1", "--", "echo", "other"]);
    assert_eq!((other.code, other.out.as_str()), (Some(0), "other\n"), "{other:?}");
    assert_eq!(scene.run(&["--cpu-list", "0", "--", "true"]).code, Some(125));
    assert_eq!(blocked.try_wait().unwrap(), None);
    let ended = ended(blocked);
    assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{ended:?}");
    assert!(ended.errors.contains("pipe: not done within 3 s"), "{ended:?}");
    scene.run(&["gc"]);
    scene.wait_for_others();
    fs::remove_file(pipe).unwrap();
    assert!(scene.is_as_before());
}

#[test]
fn what_cannot_be_undone_in_time_is_put_aside_and_others_go_on() {
    let scene = Scene::new();
    scene.dead_lease();
    let mut gc = Scene::start(&mut scene.with_limit(LONG, &["gc"]));
    until(|| scene.states() == ["ending"]);
    let other = scene.run(&["--cpu-list", "1", "--", "echo", "other"]);
    assert_eq!((other.code, other.out.as_str()), (Some(0), "other\n"), "{other:?}");
    assert_eq!(gc.try_wait().unwrap(), None);
    let tried = ended(gc);
    assert_eq!(tried.code, Some(125), "{tried:?}");
    assert!(tried.errors.contains("not undone: write old to") && tried.errors.contains("not put right: "), "{tried:?}");

    // Its CPU is held, it is said why, and no launch tries again: that would take as long each time.
    let status = scene.run(&["status"]).out;
    assert!(status.contains(" is stuck: write old to ") && status.contains("not done within 3 s"), "{status}");
    let trace = scene.stage.path("trace");
    let refused = Ended::of(scene.command(&["--cpu-list", "0", "true"]).env("NUMA_RUN_FAULT_TRACE", &trace));
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(!fs::read_to_string(&trace).unwrap().contains("claim."));
    fs::remove_file(trace).unwrap();
    assert_eq!(scene.run(&["--cpu-list", "1", "true"]).code, Some(0));

    // Tried again in vain, the lease does not grow.
    let length = || {
        scene
            .leases()
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .find(|text| text.contains("pipe"))
            .unwrap()
            .len()
    };
    let before = length();
    assert_eq!(ended(Scene::start(&mut scene.with_limit(100, &["gc"]))).code, Some(125));
    let once = length();
    assert_eq!(ended(Scene::start(&mut scene.with_limit(100, &["gc"]))).code, Some(125));
    assert_eq!(length(), once, "{before}");

    let _reader = scene.reader();
    let done = scene.run(&["gc"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    fs::remove_file(scene.stage.path("pipe")).unwrap();
    assert!(scene.is_as_before());
}

#[test]
fn a_launch_gives_up_in_time_on_what_another_left_and_starts_all_the_same() {
    let scene = Scene::new();
    scene.dead_lease();
    let launch = ended(Scene::start(&mut scene.with_limit(200, &["--cpu-list", "1", "--", "echo", "started"])));
    assert_eq!((launch.code, launch.out.as_str()), (Some(0), "started\n"), "{launch:?}");
    assert!(launch.errors.contains("not undone: write old to"), "{launch:?}");
    assert_eq!(scene.run(&["--cpu-list", "0", "true"]).code, Some(125));
}

/// Refused would be wrong: what it wants is free in a moment.
#[test]
fn a_launch_waits_for_what_is_just_being_undone() {
    let scene = Scene::new();
    scene.dead_lease();
    let gc = Scene::start(&mut scene.with_limit(20_000, &["gc"]));
    until(|| scene.states() == ["ending"]);
    let mut launch = Scene::start(&mut scene.command(&["--cpu-list", "0", "--", "echo", "started"]));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(launch.try_wait().unwrap(), None);
    let _reader = scene.reader();
    let launch = ended(launch);
    assert_eq!((launch.code, launch.out.as_str()), (Some(0), "started\n"), "{launch:?}");
    assert_eq!(ended(gc).code, Some(0));
}

#[test]
fn a_lock_that_was_removed_by_hand_keeps_no_lease() {
    let scene = Scene::new();
    scene.leave_a_dead_launch(&[]);
    fs::remove_file(scene.only("lock")).unwrap();
    assert_eq!(scene.run(&["gc"]).code, Some(0));
    assert!(scene.is_as_before());
}
