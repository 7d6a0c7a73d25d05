//! Launches that are killed after every single step, and those who clean up
//! after them too: whatever comes next, the host is as before.
//!
//! Which steps there are is not written here: a launch lists the points that it
//! passes (`src/fault.rs`), and is then killed at each of them.

use super::scene::Scene;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Those who may come next.
const GC: &[&str] = &["gc"];
const LAUNCH: &[&str] = &["--cpus", "1", "--", "sh", "-c", "echo $NUMA_RUN_ALLOC_LEASE"];
/// The guardian's first point: killed here, it does nothing.
const NO_GUARDIAN: &str = "guard guard.waits 1";

/// Kills one after the other who passes these points; once with the guardian, who may put things right, and once without.
fn kill_at_each(words: &[&str], prepare: &dyn Fn(&Scene), next: &[&str]) {
    let scene = Scene::new();
    prepare(&scene);
    let points = scene.points(words);
    scene.is_put_right(GC, "nobody was killed");
    assert!(points.len() > 5, "{points:?}");
    for point in &points {
        let guardians = point.starts_with("guard ") || point.contains("-of-guard ");
        let without = vec![NO_GUARDIAN];
        for others in [vec![], without].into_iter().take(if guardians { 1 } else { 2 }) {
            // Some points are passed only where the guardian is awake before the workload has ended.
            let killed = |_| {
                prepare(&scene);
                let killed = scene.killed_at(words, &[&[point.as_str()][..], &others].concat());
                scene.is_put_right(next, &format!("killed at {point} {others:?}"));
                killed
            };
            assert!((0..20).any(killed), "{point} {others:?} was never passed again");
        }
    }
}

const WORKLOAD: &[&str] = &["--cpus", "1", "--", "true"];
const NO_WORKLOAD: &[&str] = &["--cpus", "1", "--", "/no/such"];
const NAMED: &[&str] = &["--name", "x", "--grace", "0", "--cpus", "1", "--", "true"];
const NAMED_OTHERWISE: &[&str] =
    &["--name", "x", "--grace", "0", "--mempolicy", "local", "--", "sh", "-c", "echo $NUMA_RUN_ALLOC_LEASE"];

#[test]
fn a_launch_and_its_guardian_killed_at_any_point_are_put_right_by_gc() {
    kill_at_each(WORKLOAD, &|_| (), GC);
}

#[test]
fn a_launch_and_its_guardian_killed_at_any_point_are_put_right_by_the_next_launch() {
    kill_at_each(WORKLOAD, &|_| (), LAUNCH);
}

#[test]
fn a_launch_killed_while_it_takes_back_what_it_did_is_put_right() {
    kill_at_each(NO_WORKLOAD, &|_| (), GC);
    kill_at_each(NO_WORKLOAD, &|_| (), LAUNCH);
}

const SUPERVISED: &[&str] = &["--supervise", "--cpus", "1", "--", "true"];

#[test]
fn a_launch_or_its_supervisor_killed_at_any_point_is_put_right() {
    kill_at_each(SUPERVISED, &|_| (), GC);
    kill_at_each(SUPERVISED, &|_| (), LAUNCH);
}

fn dead_launch(scene: &Scene) {
    scene.leave_a_dead_launch(&[]);
}

#[test]
fn a_gc_killed_at_any_point_is_finished_by_another_or_by_a_launch() {
    kill_at_each(GC, &dead_launch, GC);
    kill_at_each(GC, &dead_launch, LAUNCH);
}

#[test]
fn a_launch_killed_while_it_recovers_another_leaves_neither() {
    kill_at_each(WORKLOAD, &dead_launch, GC);
}

/// What is kept for a restart ends with one that asks for something else.
#[test]
fn a_restart_killed_while_it_takes_over_loses_nothing() {
    let kept = |scene: &Scene| scene.leave_a_dead_launch(&["--name", "x", "--grace", "600"]);
    kill_at_each(NAMED, &kept, NAMED_OTHERWISE);
}

/// Every point that is written in the source is passed by one of these.
#[test]
fn no_point_is_left_out() {
    let mut passed = BTreeSet::new();
    let scene = Scene::new();
    let mut pass = |words: &[&str]| passed.extend(scene.points(words).iter().map(|line| name(line)));
    pass(WORKLOAD);
    pass(NO_WORKLOAD);
    scene.leave_a_dead_launch(&[]);
    pass(GC);
    // The first launch in a folder makes the ledger.
    pass(&["--run-dir", scene.stage.path("new").to_str().unwrap(), "--cpus", "1", "--", "true"]);
    let leases = scene.stage.path("run-Same/leases");
    fs::write(leases.join("a1.lease"), "damaged").unwrap();
    fs::write(leases.join("b2.lock"), "").unwrap();
    pass(GC);
    let mut written = BTreeSet::new();
    points_in(Path::new("src"), &mut written);
    assert!(written.len() > 20, "{written:?}");
    // Those of cgroups and devices are passed in the guest, by tests that name them.
    let in_the_guest =
        ["crash.rs", "handed.rs"].map(|file| fs::read_to_string(format!("tests/vm/guest/{file}")).unwrap());
    let no_name = |letter: char| !letter.is_alphanumeric() && !".-".contains(letter);
    let named: BTreeSet<&str> = in_the_guest.iter().flat_map(|text| text.split(no_name)).collect();
    let left_out = |point: &&String| !passed.contains(*point) && !named.contains(&***point);
    assert_eq!(written.iter().filter(left_out).collect::<Vec<_>>(), Vec::<&String>::new());
}

fn name(line: &str) -> String {
    line.split(' ').nth(1).unwrap().to_owned()
}

fn points_in(folder: &Path, points: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            points_in(&path, points);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let calls = text.split("fault::point(\"").skip(1);
        points.extend(calls.map(|call| call.split('"').next().unwrap().to_owned()));
    }
}
