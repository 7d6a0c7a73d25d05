//! Worked cases: real machines on which CPU picking went wrong somewhere.

use super::layout::grid;
use super::*;
use crate::topology::{Cpu, CpuSet, Machine, Node, NodeMask};
use proptest::prelude::*;

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn options(names: &[&str]) -> CpuOptions {
    CpuOptions::parse(names).unwrap()
}

fn taken(layout: &CpuLayout, free: &str, wanted: usize, names: &[&str]) -> String {
    take(layout, &cpus(free), wanted, &options(names)).unwrap().to_string()
}

/// What one more launch gets, on these nodes.
fn launched(layout: &CpuLayout, shared: &str, reserved: &str, wanted: usize, nodes: &str) -> Result<String, CpuError> {
    let [shared, reserved] = [shared, reserved].map(cpus);
    let mask = Some(nodes.parse::<NodeMask>().unwrap());
    let ask = Ask { wanted, mask, shared, reserved, reusable: CpuSet::new() };
    alloc(layout, &ask, &options(&["full-cores"])).map(|grant| grant.cpus.to_string())
}

fn machine(places: Vec<CpuPlace>, offline: &[u32]) -> Machine {
    let cpu = |place: CpuPlace| match offline.contains(&place.cpu) {
        true => Cpu { id: place.cpu, ..Cpu::default() },
        false => Cpu {
            id: place.cpu,
            online: true,
            node: place.node,
            socket: place.socket,
            core: place.core,
            ..Cpu::default()
        },
    };
    Machine { cpus: places.into_iter().map(cpu).collect(), nodes: vec![Node::default()], ..Machine::default() }
}

#[test]
fn a_core_with_an_offline_thread_is_not_handed_out_as_a_whole_one() {
    let machine = machine(grid(1, 1, 4, 2), &[5]);
    let layout = CpuLayout::of(&machine, &machine.online());
    let launch = |wanted| launched(&layout, "0-4,6-7", "0,4", wanted, "0");
    assert_eq!(launch(4).unwrap(), "2-3,6-7");
    assert_eq!(launch(3).unwrap_err().to_string(), "3 is not a multiple of 2 threads per core");
    assert_eq!(launch(6), Err(CpuError::NotEnoughFreeCores { wanted: 6, free: 4 }));
    assert_eq!(launch(7), Err(CpuError::NotAMultiple { wanted: 7, threads: 2 }));
    assert_eq!(layout.whole_cores(&cpus("0-7")), cpus("0,2-4,6-7"));
}

#[test]
fn whole_cores_of_one_thread_allow_odd_numbers() {
    let layout = CpuLayout::new(&grid(2, 2, 16, 1), 0);
    assert_eq!(launched(&layout, "0-15", "0,8", 7, "0").unwrap(), "1-7");
    assert_eq!(launched(&layout, "0,8-15", "0,8", 7, "1").unwrap(), "9-15");
    assert_eq!(launched(&layout, "0,8", "0,8", 1, "0"), Err(CpuError::NotEnoughFreeCores { wanted: 1, free: 0 }));
}

#[test]
fn the_l3_group_that_fits_best_is_taken() {
    let l3 = |place: CpuPlace| CpuPlace { l3: Some(place.core / 4 * 4), ..place };
    let places: Vec<CpuPlace> = grid(1, 1, 16, 2).into_iter().map(l3).collect();
    let layout = CpuLayout::new(&places, 0);
    let free = "0-3,16-19,4,5,20,8,9,24,25,12-15,28-31";
    assert_eq!(taken(&layout, free, 4, &["prefer-l3"]), "8-9,24-25");
    assert_eq!(taken(&layout, free, 12, &["prefer-l3"]), "0-3,8-9,16-19,24-25");
    let error = take(&layout, &cpus(free), 24, &options(&["prefer-l3"])).unwrap_err();
    assert_eq!(error.to_string(), "not enough cpus: 24 wanted, 23 free");
}

#[test]
fn isolated_cpus_between_others_are_left_out_of_whole_cores() {
    let place = |cpu| {
        let node = cpu % 4;
        CpuPlace { cpu, core: cpu % 56, socket: node % 2, node: Some(node), l3: None }
    };
    let machine = machine((0..112).map(place).collect(), &[]);
    let layout = CpuLayout::of(&machine, &machine.online().minus(&cpus("4-7,60-63")));
    let node = layout.cpus_on(&NodeMask::one(0));
    assert_eq!(node.len(), 26);
    assert_eq!(take(&layout, &node, 4, &options(&["full-cores"])).unwrap(), cpus("0,8,56,64"));
    let stock = Stock { allocatable: layout.cpus().clone(), free: layout.cpus().clone(), ..Stock::default() };
    let hints = capacity(&layout, &stock, 26, &CpuOptions::default()).hints().unwrap();
    let preferred: Vec<_> = hints.into_iter().filter(|hint| hint.preferred).filter_map(|hint| hint.affinity).collect();
    assert_eq!(preferred, [0, 1, 2, 3].map(NodeMask::one));
}

#[test]
fn a_core_of_which_a_thread_may_not_be_used_is_no_whole_one() {
    let machine = machine(grid(1, 1, 4, 2), &[]);
    let layout = CpuLayout::of(&machine, &cpus("0-5"));
    assert_eq!(layout.whole_cores(layout.cpus()), cpus("0-1,4-5"));
    assert_eq!(taken(&layout, "0-5", 4, &["full-cores"]), "0-1,4-5");
}

/// Eight cores of two threads, 0-15, then eight of one, 16-23.
fn hybrid() -> CpuLayout {
    let place = |cpu: u32| CpuPlace {
        cpu,
        core: if cpu < 16 { cpu / 2 * 2 } else { cpu },
        socket: 0,
        node: Some(0),
        l3: Some(0),
    };
    CpuLayout::new(&(0..24).map(place).collect::<Vec<_>>(), 0)
}

#[test]
fn on_a_hybrid_machine_whole_cores_of_both_widths_add_up() {
    let layout = hybrid();
    let launch = |shared, wanted| launched(&layout, shared, "", wanted, "0");
    assert_eq!(launch("0-23", 3).unwrap(), "16-18", "the narrowest cores first");
    assert_eq!(launch("0-15,20", 3).unwrap(), "0-1,20", "one core of each width");
    assert_eq!(launch("0-15,20-21", 3).unwrap(), "0-1,20", "two narrow ones would leave half of a wide one");
    assert_eq!(launch("0-15", 3), Err(CpuError::NotEnoughFreeCores { wanted: 3, free: 16 }));
    assert_eq!(launch("1-15,20", 16), Err(CpuError::NotEnoughFreeCores { wanted: 16, free: 15 }));
    assert_eq!(launch("0-23", 24).unwrap(), "0-23");
    assert_eq!(launch("0-23", 25), Err(CpuError::NotEnoughFreeCores { wanted: 25, free: 24 }));
    assert_eq!(taken(&layout, "0-15,20-21", 3, &[]), "0-1,20", "no core is broken without need by default either");
}

#[test]
fn on_a_machine_with_offline_threads_only_cores_with_both_are_whole() {
    // Siblings are 12 apart; 3, 9 and 14 are offline.
    let places: Vec<CpuPlace> =
        grid(2, 2, 12, 2).into_iter().filter(|place| ![3, 9, 14].contains(&place.cpu)).collect();
    let layout = CpuLayout::new(&places, 3);
    assert_eq!(layout.whole_cores(layout.cpus()), cpus("0-1,4-8,10-13,16-20,22-23"));
    let shared = layout.cpus().to_string();
    let launch = |wanted| launched(&layout, &shared, "0", wanted, "0");
    assert_eq!(launch(6).unwrap(), "1,4-5,13,16-17");
    assert_eq!(launch(8).unwrap(), "1,4-6,13,16-18", "the other node's core, not 2 and 15 of this one");
    assert_eq!(launch(5), Err(CpuError::NotAMultiple { wanted: 5, threads: 2 }));
    assert_eq!(launch(18), Err(CpuError::NotEnoughFreeCores { wanted: 18, free: 16 }));
    assert_eq!(
        taken(&layout, "0-2,4-5,12-13,15-17", 10, &[]),
        "0-2,4-5,12-13,15-17",
        "a whole socket is what exists of it"
    );
}

#[test]
fn cores_that_are_narrow_by_nature_are_whole_although_a_cpu_is_offline() {
    let mut places = hybrid().places().to_vec();
    places.retain(|place| place.cpu != 23);
    assert!(CpuLayout::new(&places, 1).whole_cores(&cpus("16-22")).contains(16));
}

#[test]
fn an_exclusive_core_is_not_shared_and_a_shared_one_is() {
    let machine = machine(grid(1, 1, 4, 2), &[]);
    let layout = CpuLayout::of(&machine, &cpus("1-7"));
    let free = |mode| exclusive_free(&layout, &cpus("0-7"), &cpus("0,1"), mode);
    assert_eq!(free(SmtMode::ExclusiveCore), cpus("2-3,6-7"), "0 is held, although it may not be used");
    assert_eq!(free(SmtMode::OnePerCore), cpus("2-3,6-7"));
    assert_eq!(free(SmtMode::Share), cpus("2-7"));
}

#[test]
fn one_per_core_hands_out_the_first_threads_of_free_cores() {
    let layout = CpuLayout::new(&grid(2, 2, 8, 2), 0);
    let chosen = |free: &str, cores| one_per_core(&layout, &cpus(free), cores, &CpuOptions::default());
    assert_eq!(chosen("0-15", 3).unwrap(), cpus("0-2"));
    assert_eq!(chosen("0-15", 4).unwrap(), cpus("0-3"));
    assert_eq!(
        chosen("1-15", 3).unwrap(),
        cpus("1-3"),
        "8 is free, its core is not, and best fit stays on that socket"
    );
    assert_eq!(chosen("1-15", 8), Err(CpuError::NotEnough { wanted: 8, free: 7 }));
    assert_eq!(
        one_per_core(&hybrid(), &cpus("0-23"), 16, &CpuOptions::default()).unwrap(),
        cpus("0,2,4,6,8,10,12,14,16-23")
    );
}

#[test]
fn a_cpu_of_unknown_node_is_taken_last_and_is_in_no_mask() {
    let mut places = grid(1, 2, 4, 1);
    places[0].node = None;
    let layout = CpuLayout::new(&places, 0);
    assert_eq!(layout.nodes(), "0-1".parse().unwrap());
    assert_eq!(taken(&layout, "0-3", 1, &[]), "1");
    assert_eq!(taken(&layout, "0-3", 3, &[]), "1-3");
    assert_eq!(taken(&layout, "0-3", 3, &["spread-nodes"]), "1-3");
    let stock = Stock { allocatable: cpus("0-3"), free: cpus("0-3"), ..Stock::default() };
    assert_eq!(capacity(&layout, &stock, 4, &CpuOptions::default()).hints().unwrap(), []);
}

#[test]
fn reserved_cpus_leave_the_shared_pool_only_when_asked() {
    let layout = CpuLayout::new(&grid(1, 1, 4, 2), 0);
    let reserved = reserve(&layout, 1, &CpuOptions::default()).unwrap();
    assert_eq!(reserved, Reserved { cpus: cpus("0"), cores: cpus("0,4") });
    assert_eq!(shared_pool(&layout, &reserved.cpus, &CpuOptions::default()), cpus("0-7"));
    assert_eq!(shared_pool(&layout, &reserved.cpus, &options(&["strict-reservation"])), cpus("1-7"));
}

/// Every set of options that does not clash.
fn all_options() -> Vec<CpuOptions> {
    let names = ["full-cores", "spread-nodes", "spread-cores", "align-socket", "prefer-l3"];
    let chosen = |bits: u32| (0..5).filter(move |at| bits >> at & 1 == 1).map(|at| names[at as usize]);
    (0..32).filter_map(|bits| CpuOptions::parse(chosen(bits)).ok()).collect()
}

#[test]
fn a_thousand_cpus_are_chosen_at_once() {
    for (sockets, nodes) in [(2, 2), (8, 64), (64, 64), (1, 16)] {
        // The last core has lost a thread, so that sums of whole cores are looked for.
        let layout = CpuLayout::new(&grid(sockets, nodes, 512, 2)[..1023], 1);
        let free: CpuSet = layout.cpus().iter().filter(|cpu| cpu % 37 > 1).collect();
        for options in all_options() {
            for wanted in [1, 96, 500, 902] {
                let start = std::time::Instant::now();
                assert_eq!(take(&layout, &free, wanted, &options).unwrap().len(), wanted);
                // Generous for a busy machine and no optimisation: what grows too fast takes minutes.
                assert!(start.elapsed().as_secs() < 2, "{options:?} {wanted} of {sockets} sockets, {nodes} nodes");
            }
        }
    }
}

prop_compose! {
    /// Any shape: cores of any width, nodes and caches that need not nest.
    fn any_places()(rows in prop::collection::vec((0u32..3, prop::option::of(0u32..4), prop::option::of(0u32..5), 1u32..4), 1..12)) -> Vec<CpuPlace> {
        let mut places = Vec::new();
        for (socket, node, l3, threads) in rows {
            let core = places.len() as u32;
            places.extend((core..core + threads).map(|cpu| CpuPlace { cpu, core, socket, node, l3 }));
        }
        places
    }
}

proptest! {
    #[test]
    fn as_many_free_cpus_are_taken_as_were_asked_for_in_any_order_of_rows(
        places in any_places(), free: u64, wanted in 0usize..40, chosen in 0usize..32, offline in 0usize..3,
    ) {
        let layout = CpuLayout::new(&places, offline);
        let reversed: Vec<CpuPlace> = places.iter().rev().copied().collect();
        let free = CpuSet::from_bits(free);
        let known = free.and(layout.cpus()).len();
        let options = all_options();
        let options = options[chosen % options.len()];
        match take(&layout, &free, wanted, &options) {
            Ok(taken) => {
                prop_assert_eq!(taken.len(), wanted);
                prop_assert!(taken.is_subset(&free));
                prop_assert_eq!(take(&CpuLayout::new(&reversed, offline), &free, wanted, &options), Ok(taken));
            }
            Err(error) => {
                prop_assert_eq!(error, CpuError::NotEnough { wanted, free: known });
                prop_assert!(known < wanted);
            }
        }
    }

    #[test]
    fn full_cores_are_whole_where_cores_differ(places in any_places(), free: u64, wanted in 1usize..20, chosen in 0usize..32, mask in prop::option::of(1u64..16)) {
        let layout = CpuLayout::new(&places, 0);
        let options = all_options();
        let options = CpuOptions { full_cores: true, spread_cores: false, ..options[chosen % options.len()] };
        let shared = CpuSet::from_bits(free);
        let ask = Ask { wanted, shared, mask: mask.map(NodeMask::from_bits), ..Ask::default() };
        if let (false, Ok(grant)) = (layout.is_uniform(), alloc(&layout, &ask, &options)) {
            prop_assert_eq!(grant.cpus.len(), wanted);
            prop_assert_eq!(layout.whole_cores(&grant.cpus), grant.cpus);
        }
    }
}
