//! Kinds of CPUs on hybrid machines. Never guessed from frequencies: favoured
//! cores of one kind differ in theirs.

use super::Tree;
use crate::topology::{Cpu, CpuSet};
use std::collections::BTreeSet;

/// The kernel's performance counters tell which CPUs are of which kind.
const PMUS: [(&str, &str); 3] =
    [("devices/cpu_core/cpus", "P"), ("devices/cpu_atom/cpus", "E"), ("devices/cpu_lowpower/cpus", "LPE")];

/// Names the kind of each online CPU, where there is more than one.
pub(super) fn read(tree: &Tree, cpus: &mut [Cpu]) {
    let by_pmu: Vec<(CpuSet, &str)> = PMUS.iter().filter_map(|&(path, kind)| Some((pmu(tree, path)?, kind))).collect();
    let kind = |id: u32| by_pmu.iter().find(|(set, _)| set.contains(id)).map(|&(_, kind)| kind.to_owned());
    name(cpus, kind);
    name(cpus, |id| core_type(tree, id));
    name(cpus, |id| Some(format!("capacity-{}", tree.number::<u32>(cpu(id, "cpu_capacity"))?)));
}

/// Applies one source of kinds, unless an earlier one knew them or all CPUs
/// are alike to it.
fn name(cpus: &mut [Cpu], kind: impl Fn(u32) -> Option<String>) {
    if cpus.iter().any(|cpu| cpu.kind.is_some()) {
        return;
    }
    let kinds: Vec<Option<String>> = cpus.iter().map(|cpu| kind(cpu.id).filter(|_| cpu.online)).collect();
    if kinds.iter().flatten().collect::<BTreeSet<_>>().len() > 1 {
        cpus.iter_mut().zip(kinds).for_each(|(cpu, kind)| cpu.kind = kind);
    }
}

fn pmu(tree: &Tree, path: &str) -> Option<CpuSet> {
    tree.text(path)?.parse().ok()
}

fn core_type(tree: &Tree, id: u32) -> Option<String> {
    let text = tree.text(cpu(id, "topology/core_type"))?.to_lowercase();
    let known = [("atom", "E"), ("core", "P")].iter().find(|(word, _)| text.contains(word));
    Some(known.map_or(text.clone(), |&(_, kind)| kind.to_owned()))
}

fn cpu(id: u32, file: &str) -> String {
    format!("devices/system/cpu/cpu{id}/{file}")
}
