//! CPUs and memory of every node, every memory policy, and who may launch.

use crate::landing::{landing, launch, listed, refused, workload};
use std::collections::BTreeSet;

/// Every node that has both CPUs and memory.
fn whole_nodes() -> Vec<u32> {
    let with_memory = listed("has_memory");
    listed("has_cpu").into_iter().filter(|node| with_memory.contains(node)).collect()
}

fn on_each_node(nodes: &[u32]) {
    assert_eq!(whole_nodes(), nodes);
    for &node in nodes {
        let landing = launch(&format!("--cpus 2 --cpu-nodes {node} --memory 64M --mem-nodes {node}"));
        assert_eq!(landing.not_on(node, 2), None);
        assert_eq!(landing.policy, format!("bind:{node}"));
        assert_eq!(landing.variable("NUMA_RUN_ALLOC_NODES"), node.to_string());
    }
}

#[test]
fn each_node_of_topo4_in_turn() {
    on_each_node(&[0, 1, 2, 3]);
}

#[test]
fn each_node_of_memless_in_turn() {
    on_each_node(&[0, 2]);
}

#[test]
fn each_node_of_hole_in_turn() {
    on_each_node(&[0, 1, 3]);
}

#[test]
fn each_node_of_tiers_in_turn() {
    on_each_node(&[0, 1]);
}

#[test]
fn each_node_of_big_in_turn() {
    on_each_node(&[0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Memory that no node is named for comes from where the CPUs are.
#[test]
fn cpus_and_memory_go_together_to_whichever_node_is_left() {
    for (pool, node) in [("0-1,4-7", 0), ("2-7", 1), ("0,4-7", 2), ("0,2,4,6-7", 3)] {
        let landing = launch(&format!("--merge kubelet --pool {pool} --cpus 2 --memory 64M --policy single-numa-node"));
        assert_eq!(landing.not_on(node, 2), None, "--pool {pool}");
    }
}

/// Only node 3 of giga has as much outside of its hugepages.
#[test]
fn much_memory_goes_to_the_node_that_has_it_and_takes_the_cpus_along() {
    let landing = launch("--cpus 2 --memory 1800M --policy single-numa-node");
    assert_eq!(landing.not_on(3, 2), None);
    let said = refused("--cpus 2 --memory 2400M --policy single-numa-node");
    assert!(said.contains("does not fit any single node"), "{said}");
}

#[test]
fn memory_alone_is_bound_to_its_node_and_leaves_the_cpus() {
    let landing = launch("--memory 64M --mem-nodes 3");
    assert!(landing.pages_only_on(&[3]), "{landing:?}");
    assert_eq!(landing.cpus.to_string(), "0-7");
}

#[test]
fn without_an_amount_memory_is_preferred_where_the_cpus_are() {
    let landing = launch("--cpus 4 --cpu-nodes 2-3");
    assert_eq!((landing.policy.as_str(), landing.cpus.to_string().as_str()), ("prefer (many):2-3", "4-7"));
    assert!(landing.pages.keys().all(|node| [2, 3].contains(node)), "{landing:?}");
}

#[test]
fn every_memory_policy_is_read_back_and_kept() {
    for (mode, kept) in [
        ("bind", "bind:1,3"),
        ("preferred", "prefer:1"),
        ("preferred-many", "prefer (many):1,3"),
        ("interleave", "interleave:1,3"),
        ("weighted-interleave", "weighted interleave:1,3"),
    ] {
        let landing = launch(&format!("--mem-nodes 1,3 --mempolicy {mode}"));
        assert_eq!(landing.policy, kept);
        let nodes: BTreeSet<u32> = landing.pages.keys().copied().collect();
        match mode {
            "bind" | "preferred-many" => assert!(nodes.is_subset(&[1, 3].into()), "{landing:?}"),
            "preferred" => assert!(landing.pages_only_on(&[1]), "{landing:?}"),
            _ => {
                assert!(landing.pages_only_on(&[1, 3]), "{landing:?}");
                // They take turns, at times 2 MiB at once; without turns it would be all and nothing.
                assert!(landing.pages.values().all(|&pages| pages > landing.touched() / 4), "{landing:?}");
            }
        }
    }
    for mode in ["local", "default"] {
        let landing = launch(&format!("--cpus 2 --cpu-nodes 2 --mempolicy {mode}"));
        assert_eq!(landing.policy, mode);
        assert_eq!(landing.not_on(2, 2), None);
    }
}

#[test]
fn a_workload_that_another_tool_put_elsewhere_is_seen_there() {
    let landing = landing(&format!("numactl --cpunodebind=1 --membind=3 {}", workload()));
    assert_eq!((landing.cpus.to_string().as_str(), landing.policy.as_str()), ("2-3", "bind:3"));
    assert!(landing.pages_only_on(&[3]), "{landing:?}");
    assert!(!landing.pages_only_on(&[1]) && !landing.pages_only_on(&[1, 3]));
    assert!((0..4).all(|node| landing.not_on(node, 2).is_some()));
}

#[test]
fn more_cpus_than_there_are_start_nothing() {
    let said = refused("--cpus 9");
    assert!(said.contains("not enough cpus: 9 wanted, 8 free"), "{said}");
    assert_eq!(launch("--cpus 8").cpus.len(), 8);
}

#[test]
fn an_ordinary_user_launches_too() {
    let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    for node in whole_nodes() {
        let options = format!("--cpus 2 --cpu-nodes {node} --memory 64M --policy single-numa-node");
        let landing = landing(&format!("{user} numa-run {options} -- {}", workload()));
        assert_eq!(landing.not_on(node, 2), None);
    }
}
