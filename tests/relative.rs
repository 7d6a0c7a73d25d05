//! The worked examples of the resources-relative merge, as `debug place` answers them.

#![allow(clippy::unwrap_used)]

use numa_run::debug::place::answer;
use serde_json::{Value, json};

/// Two nodes at the usual distance; rows are name, units, free on each node.
/// A name with `~` is an amount.
fn place(policy: &str, rows: &[(&str, u64, &[u64])]) -> Value {
    let nodes = rows[0].2.len();
    let far: Vec<Vec<u32>> = (0..nodes).map(|a| (0..nodes).map(|b| if a == b { 10 } else { 21 }).collect()).collect();
    place_at(policy, &far, rows)
}

fn place_at(policy: &str, distances: &[Vec<u32>], rows: &[(&str, u64, &[u64])]) -> Value {
    let full: Vec<(&str, u64, &[u64], &[u64])> = rows.iter().map(|row| (row.0, row.1, row.2, row.2)).collect();
    place_busy(policy, distances, &full)
}

/// The same with what there is in all, which is more than what is free.
fn place_busy(policy: &str, distances: &[Vec<u32>], rows: &[(&str, u64, &[u64], &[u64])]) -> Value {
    let on_nodes =
        |units: &[u64]| -> Value { units.iter().enumerate().map(|(n, units)| (n.to_string(), json!(units))).collect() };
    let resource = |&(name, units, free, total): &(&str, u64, &[u64], &[u64])| {
        let follows = name.starts_with('~');
        json!({ "name": name.trim_start_matches('~'), "units": units, "free": on_nodes(free), "total": on_nodes(total), "follows": follows })
    };
    let nodes: Vec<usize> = (0..distances.len()).collect();
    let resources: Vec<Value> = rows.iter().map(resource).collect();
    let line = json!({ "nodes": nodes, "dist": distances, "resources": resources, "policy": policy });
    serde_json::from_str(&answer(&line.to_string()).unwrap()).unwrap()
}

fn far(nodes: usize) -> Vec<Vec<u32>> {
    (0..nodes).map(|a| (0..nodes).map(|b| if a == b { 10 } else { 20 }).collect()).collect()
}

#[test]
fn eight_gpus_on_two_nodes_have_half_of_the_cpus_on_each() {
    let out = place("restricted", &[("gpu", 8, &[4, 4]), ("cpu", 32, &[32, 32])]);
    assert_eq!(out["x"], json!({ "gpu": { "0": 4, "1": 4 }, "cpu": { "0": 16, "1": 16 } }));
    assert_eq!((&out["aligned_share"], &out["preferred"], &out["proven"]), (&json!(1.0), &json!(true), &json!(true)));
    assert_eq!(out["mean_distance"], json!(31.0), "half of the pairs 20, half 42");
}

#[test]
fn pages_follow_the_cpus_in_proportion() {
    let out = place("restricted", &[("cpu", 24, &[16, 16]), ("~hugepages-2M", 512, &[512, 512])]);
    assert_eq!(out["x"], json!({ "cpu": { "0": 16, "1": 8 }, "hugepages-2M": { "0": 341, "1": 171 } }));
}

#[test]
fn cpus_leave_room_for_the_memory_beside_them() {
    let out = place("restricted", &[("cpu", 8, &[16, 16]), ("~memory", 300, &[250, 250])]);
    assert_eq!(out["x"], json!({ "cpu": { "0": 6, "1": 2 }, "memory": { "0": 225, "1": 75 } }));
}

#[test]
fn pages_on_another_node_than_the_function_are_refused_by_restricted_only() {
    let rows: [(&str, u64, &[u64]); 3] =
        [("cpu", 4, &[16, 16]), ("~hugepages-2M", 512, &[4096, 0]), ("vf", 1, &[0, 1])];
    let refused = place("restricted", &rows);
    assert_eq!((&refused["admitted"], &refused["x"]), (&json!(false), &json!({})));
    assert_eq!(place("single-numa-node", &rows)["admitted"], json!(false));
    let out = place("best-effort", &rows);
    let expected = json!({ "cpu": { "0": 4 }, "hugepages-2M": { "0": 512 }, "vf": { "1": 1 } });
    assert_eq!((&out["admitted"], &out["preferred"], &out["x"]), (&json!(true), &json!(false), &expected));
}

#[test]
fn what_fits_one_node_is_admitted_by_every_policy() {
    for policy in ["best-effort", "restricted", "single-numa-node", "be", "re", "sn"] {
        let out = place(policy, &[("cpu", 2, &[8, 8]), ("nic", 1, &[2, 1]), ("gpu", 1, &[1, 2])]);
        assert_eq!((&out["span"], &out["preferred"], &out["admitted"]), (&json!([0]), &json!(true), &json!(true)));
    }
}

#[test]
fn a_taken_gpu_leaves_nothing_preferred() {
    let rows: [(&str, u64, &[u64], &[u64]); 3] =
        [("cpu", 2, &[8, 8], &[8, 8]), ("nic", 1, &[2, 1], &[2, 1]), ("gpu", 2, &[1, 1], &[1, 2])];
    for policy in ["restricted", "single-numa-node"] {
        assert_eq!(place_busy(policy, &far(2), &rows)["admitted"], json!(false));
    }
    let out = place_busy("best-effort", &far(2), &rows);
    assert_eq!((&out["preferred"], &out["x"]["gpu"]), (&json!(false), &json!({ "0": 1, "1": 1 })));
}

#[test]
fn all_devices_and_a_cpu_beside_each_part_are_preferred_on_both_nodes() {
    let devices: [(&str, u64, &[u64]); 2] = [("nic", 3, &[2, 1]), ("gpu", 3, &[1, 2])];
    let out = place("restricted", &devices);
    assert_eq!((&out["admitted"], &out["span"]), (&json!(true), &json!([0, 1])));
    let with_cpus = [&devices[..], &[("cpu", 2, &[8, 8])]].concat();
    let out = place("restricted", &with_cpus);
    assert_eq!((&out["admitted"], &out["x"]["cpu"]), (&json!(true), &json!({ "0": 1, "1": 1 })));
    assert_eq!(place("single-numa-node", &with_cpus)["admitted"], json!(false));
}

#[test]
fn what_needs_two_nodes_takes_the_rest_along() {
    let a06 = place("restricted", &[("cpu", 24, &[16, 16]), ("~hugepages-2M", 100, &[512, 512])]);
    assert_eq!((&a06["admitted"], &a06["span"]), (&json!(true), &json!([0, 1])));
    let d16 = place("restricted", &[("cpu", 2, &[8, 8]), ("~hugepages-2M", 1400, &[1290, 758])]);
    assert_eq!((&d16["admitted"], &d16["span"]), (&json!(true), &json!([0, 1])));
    let fits = place("single-numa-node", &[("cpu", 2, &[8, 8]), ("~hugepages-2M", 1024, &[1290, 758])]);
    assert_eq!((&fits["admitted"], &fits["span"]), (&json!(true), &json!([0])));
}

#[test]
fn a_width_that_an_idle_machine_would_not_need_is_refused_by_restricted() {
    let rows: [(&str, u64, &[u64], &[u64]); 1] = [("cpu", 4, &[2, 2, 2], &[6, 6, 6])];
    assert_eq!(place_busy("restricted", &far(3), &rows)["admitted"], json!(false));
    let out = place_busy("best-effort", &far(3), &rows);
    assert_eq!((&out["x"]["cpu"], &out["preferred"]), (&json!({ "0": 2, "1": 2 }), &json!(false)));
}

#[test]
fn the_near_pair_is_taken_though_another_has_lower_ids() {
    let table = [[10, 21, 11, 21], [21, 10, 21, 11], [11, 21, 10, 21], [21, 11, 21, 10]].map(Vec::from);
    let out = place_at("restricted", &table, &[("cpu", 40, &[26, 26, 26, 26])]);
    assert_eq!((&out["span"], &out["x"]["cpu"]), (&json!([0, 2]), &json!({ "0": 26, "2": 14 })));
}

#[test]
fn one_gpu_is_no_reason_for_a_sliver_of_pages() {
    let out = place("best-effort", &[("cpu", 24, &[16, 16]), ("gpu", 1, &[1, 0]), ("~hugepages-2M", 512, &[512, 512])]);
    assert_eq!(out["x"]["hugepages-2M"], json!({ "0": 512 }), "one node holds them all");
    let split =
        place("best-effort", &[("cpu", 24, &[16, 16]), ("gpu", 1, &[1, 0]), ("~hugepages-2M", 600, &[512, 512])]);
    assert_eq!(split["x"]["hugepages-2M"], json!({ "0": 400, "1": 200 }), "none does: they follow the CPUs");
}

#[test]
fn cpus_alone_keep_off_the_node_of_a_gpu_that_nobody_asked_for() {
    let out = place("best-effort", &[("cpu", 4, &[8, 8]), ("gpu", 0, &[1, 0])]);
    assert_eq!(out["span"], json!([1]));
    assert!(out["x"].get("gpu").is_none());
}

#[test]
fn the_fullest_node_that_fits_is_taken() {
    let rows: [(&str, u64, &[u64], &[u64]); 1] = [("cpu", 4, &[8, 5, 8], &[8, 8, 8])];
    assert_eq!(place_busy("best-effort", &far(3), &rows)["span"], json!([1]));
}

#[test]
fn without_alignment_the_lowest_ids_come_first() {
    let out = place("none", &[("cpu", 4, &[1, 8]), ("gpu", 1, &[0, 1]), ("~memory", 10, &[20, 20])]);
    assert_eq!(out["x"], json!({ "cpu": { "0": 1, "1": 3 }, "gpu": { "1": 1 }, "memory": { "0": 10 } }));
    assert_eq!(out["admitted"], json!(true));
}

#[test]
fn more_than_is_free_anywhere_is_impossible_under_every_policy() {
    for policy in ["none", "best-effort", "restricted", "single-numa-node"] {
        let out = place(policy, &[("cpu", 40, &[16, 16])]);
        assert_eq!((&out["admitted"], &out["x"]), (&json!(false), &json!({})));
        assert_eq!(out["impossible"], json!("not enough cpu: 40 wanted, 32 free"));
    }
}

#[test]
fn a_request_for_nothing_is_admitted() {
    for policy in ["none", "best-effort", "restricted", "single-numa-node"] {
        let out = place(policy, &[("cpu", 0, &[16, 16])]);
        assert_eq!((&out["admitted"], &out["x"], &out["span"]), (&json!(true), &json!({}), &json!([])));
    }
}

#[test]
fn one_huge_page_cannot_make_two_masks_equal() {
    let out = place("restricted", &[("cpu", 2, &[1, 1]), ("~hugepages-1G", 1, &[4, 4])]);
    assert_eq!(out["admitted"], json!(false));
}

#[test]
fn numbers_of_any_size_are_exact() {
    let much = u64::MAX / 4;
    let rows: [(&str, u64, &[u64]); 5] = [
        ("cpu", 8, &[16, 16]),
        ("~memory", much - 1, &[much / 2, much / 2]),
        ("~hugepages-2M", 999_999_999_989, &[999_999_999_989, 999_999_999_989]),
        ("~hugepages-1G", 1_000_003, &[1_000_003, 1_000_003]),
        ("gpu", 7, &[4, 4]),
    ];
    let out = place("restricted", &rows);
    let sum = |name: &str| ["0", "1"].iter().filter_map(|n| out["x"][name][n].as_u64()).sum::<u64>();
    for (name, units, _) in rows {
        assert_eq!(sum(name.trim_start_matches('~')), units);
    }
    assert_eq!((&out["proven"], &out["admitted"]), (&json!(true), &json!(true)));
}

#[test]
fn lines_that_contradict_themselves_are_errors() {
    let wrong = |line: &str| answer(line).unwrap_err().to_string();
    assert!(wrong("{").starts_with("not a line of resources"));
    let rows = r#""resources":[{"name":"cpu","units":1,"free":{"2":1}}]"#;
    assert_eq!(
        wrong(&format!(r#"{{"nodes":[0,1],{rows}}}"#)),
        "node 2 is there twice, or holds something and is not among the nodes"
    );
    assert_eq!(
        wrong(r#"{"nodes":[0,1],"dist":[[10]],"resources":[]}"#),
        "the distances have 1 rows, one of 1 columns, for 2 nodes"
    );
    assert!(wrong(r#"{"nodes":[0],"resources":[],"policy":"strict"}"#).contains("`strict` is no policy"));
}
