//! Nodes that are not whole: without memory, without CPUs, not there.

use crate::landing::{launch, refused};

#[test]
fn a_node_without_memory_lends_its_cpus_and_the_nearest_node_its_memory() {
    let landing = launch("--cpus 2 --cpu-nodes 1");
    assert_eq!((landing.cpus.to_string().as_str(), landing.policy.as_str()), ("2-3", "prefer (many):0"));
    assert!(landing.pages_only_on(&[0]), "{landing:?}");
}

#[test]
fn memory_of_a_node_without_memory_is_refused_in_a_sentence() {
    for options in
        ["--memory 64M --mem-nodes 1", "--mem-nodes 1", "--cpus 2 --cpu-nodes 1 --memory 64M --mem-nodes 0-1"]
    {
        let said = refused(options);
        assert!(said.contains("--mem-nodes: node 1 has no memory"), "{options}: {said}");
    }
}

#[test]
fn a_single_node_with_memory_is_never_the_one_without() {
    let landing = launch("--cpus 2 --pool 2-7 --memory 64M --policy single-numa-node");
    assert_eq!(landing.not_on(2, 2), None);
    let said = refused("--cpus 2 --cpu-nodes 1 --memory 64M --policy single-numa-node");
    assert!(said.contains("node 1 lacks memory"), "{said}");
}

#[test]
fn a_node_of_memory_alone_is_used_only_by_name() {
    let landing = launch("--memory 64M --mem-nodes 3");
    assert!(landing.pages_only_on(&[3]), "{landing:?}");
    // Nodes 0 and 2 hold less than this together, and node 3 would make up for it.
    let said = refused("--memory 3200M");
    assert!(said.contains("not enough memory: 3200M wanted") && !said.contains("node 3"), "{said}");
    let landing = launch("--memory 2500M");
    assert_eq!(landing.policy, "bind:0,2");
    let said = refused("--cpus 1 --cpu-nodes 3");
    assert!(said.contains("--cpu-nodes: node 3 has no CPUs"), "{said}");
}

#[test]
fn a_hole_in_the_node_numbers_is_no_node() {
    for (options, flag) in [("--cpus 1 --cpu-nodes 2", "--cpu-nodes"), ("--memory 64M --mem-nodes 2", "--mem-nodes")] {
        let said = refused(options);
        assert!(said.contains(&format!("{flag}: node 2 does not exist (this machine has 0-1,3)")), "{said}");
    }
    let landing = launch("--cpus 2 --pool 4-5 --memory 64M");
    assert_eq!(landing.not_on(3, 2), None);
    let landing = launch("--cpus 6");
    assert_eq!((landing.cpus.to_string().as_str(), landing.policy.as_str()), ("0-5", "prefer (many):0-1,3"));
}

#[test]
fn slow_memory_is_used_only_by_name_or_by_its_kind() {
    for options in ["--memory 64M --mem-kind cxl", "--memory 64M --mem-nodes 2"] {
        assert!(launch(options).pages_only_on(&[2]), "{options}");
    }
    // All the fast memory there is, and nothing of the slow.
    let landing = launch("--memory 2600M");
    assert_eq!(landing.policy, "bind:0-1");
    let said = refused("--memory 3200M");
    assert!(said.contains("not enough memory: 3200M wanted"), "{said}");
}
