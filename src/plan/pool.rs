//! Which CPUs launches may use here.

use super::{Refusal, RefusalKind, Surroundings};
use crate::config::Config;
use crate::request::{CpuChoice, Isolated, ListSpec, Request};
use crate::topology::{CpuSet, Machine};

/// CPUs by what they may be used for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// What a launch may have for itself.
    pub exclusive: CpuSet,
    /// What launches without CPUs of their own share; reserved ones among them.
    pub shared: CpuSet,
}

/// Online CPUs in the cgroup's cpuset and in the inherited affinity (or the
/// pool that takes its place), with or without the isolated ones, less what
/// the configuration reserves.
pub fn pool(
    request: &Request,
    machine: &Machine,
    config: &Config,
    surroundings: &Surroundings,
) -> Result<Pool, Refusal> {
    let online = machine.online();
    let cgroup = surroundings.cgroup_cpus.as_ref().map_or(online.clone(), |cpus| cpus.and(&online));
    let base = stated_pool(request, machine, config, &cgroup)?;
    let base = base.unwrap_or_else(|| surroundings.affinity.as_ref().map_or(cgroup.clone(), |cpus| cpus.and(&cgroup)));
    let isolated: CpuSet = machine.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    let isolated = isolated.and(&cgroup);
    let usual = if surroundings.root && !isolated.is_empty() && request.cpus.is_some() {
        Isolated::Only
    } else {
        Isolated::Never
    };
    let shared = base.minus(&isolated);
    let pool = match request.isolated.unwrap_or(usual) {
        Isolated::Only if isolated.is_empty() => return Err(no_isolated()),
        Isolated::Only => isolated,
        Isolated::Also => base.or(&isolated),
        Isolated::Never => base.minus(&isolated),
    };
    let exclusive = pool.minus(&config.reserved.cpus).minus(&far_from_memory(request, machine)?);
    Ok(Pool { exclusive, shared })
}

/// CPUs of unknown node where memory is asked for: none can be near to them.
fn far_from_memory(request: &Request, machine: &Machine) -> Result<CpuSet, Refusal> {
    if request.memory.as_ref().is_none_or(|memory| memory.mib.is_none()) {
        return Ok(CpuSet::new());
    }
    let nodeless = machine.cpus.iter().filter(|cpu| cpu.online && cpu.node.is_none());
    let nodeless: CpuSet = nodeless.map(|cpu| cpu.id).collect();
    let named = match request.cpus.as_ref().map(|cpus| &cpus.choice) {
        Some(CpuChoice::List(ListSpec::Ids(list))) => list.and(&nodeless),
        _ => CpuSet::new(),
    };
    if named.is_empty() {
        return Ok(nodeless);
    }
    let message = format!("--cpu-list: the node of {named} is unknown, so that no memory is near: leave --memory out");
    Err(Refusal { kind: RefusalKind::Impossible, resource: Some("cpu".into()), message })
}

/// The pool that `--pool` or the configuration states. What `--pool` names and
/// what cannot be used is an error; the configuration's is a fact of the host
/// that CPUs going offline does not turn into one.
fn stated_pool(
    request: &Request,
    machine: &Machine,
    config: &Config,
    cgroup: &CpuSet,
) -> Result<Option<CpuSet>, Refusal> {
    let Some(spec) = &request.pool else {
        return Ok(config.pool.as_ref().map(|pool| pool.and(cgroup)));
    };
    let named = spec.resolve(cgroup);
    let absent = named.minus(&machine.online());
    let outside = named.minus(cgroup).minus(&absent);
    if !absent.is_empty() {
        return Err(Refusal::usage("cpu", format!("--pool {named}: {}", not_online(machine, &absent))));
    }
    if !outside.is_empty() {
        return Err(Refusal::usage("cpu", format!("--pool {named}: {outside} is outside the cpuset ({cgroup})")));
    }
    Ok(Some(named))
}

/// Says of CPUs that are not online whether they exist.
pub fn not_online(machine: &Machine, cpus: &CpuSet) -> String {
    let (offline, absent): (CpuSet, CpuSet) = {
        let known = |id: &u32| machine.cpu(*id).is_some();
        (cpus.iter().filter(known).collect(), cpus.iter().filter(|id| !known(id)).collect())
    };
    let word = |cpus: &CpuSet, one: &str, more: &str| match cpus.len() {
        1 => format!("CPU {cpus} {one}"),
        _ => format!("CPUs {cpus} {more}"),
    };
    match (offline.is_empty(), absent.is_empty()) {
        (false, true) => word(&offline, "is offline", "are offline"),
        (false, false) => format!(
            "{}, {}",
            word(&offline, "is offline", "are offline"),
            word(&absent, "does not exist", "do not exist")
        ),
        _ => word(&absent, "does not exist", "do not exist"),
    }
}

fn no_isolated() -> Refusal {
    let message = "--isolated only: this host has no isolated CPUs (isolcpus=, nohz_full=)".to_owned();
    Refusal { kind: RefusalKind::Impossible, resource: Some("cpu".into()), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assume::{Assume, Holdings};
    use crate::plan::{Facts, plan};
    use crate::request::CpuRequest;
    use crate::resource::prefer::Answers;
    use crate::topology::{Cpu, Node};

    /// What root is told who names these CPUs where 4-7 are isolated.
    fn refused(list: &str, isolated: Option<Isolated>) -> Option<String> {
        let cpus: CpuSet = (0..8).collect();
        let place = |id: u32| Cpu { id, online: true, node: Some(0), core: id, isolated: id > 3, ..Cpu::default() };
        let node = Node { local_cpus: cpus.clone(), cpus: cpus.clone(), ..Node::default() };
        let machine = Machine { cpus: cpus.iter().map(place).collect(), nodes: vec![node], ..Machine::default() };
        let choice = CpuChoice::List(list.parse().unwrap());
        let cpus = CpuRequest { choice, options: Default::default(), smt: Default::default(), kind: None };
        let request = Request { cpus: Some(cpus), isolated, ..Request::default() };
        let surroundings = Surroundings { root: true, affinity: Some((0..4).collect()), ..Surroundings::default() };
        let (config, assume, holdings) = (Config::default(), Assume::default(), Holdings::default());
        let answers = Answers::default();
        let facts = Facts {
            machine: &machine,
            config: &config,
            assume: &assume,
            holdings: &holdings,
            surroundings: &surroundings,
            answers: &answers,
        };
        plan(&request, &facts).refusal.map(|refusal| refusal.message)
    }

    #[test]
    fn root_is_told_how_to_get_cpus_that_are_not_isolated() {
        let message = refused("3-4", None).unwrap_or_default();
        assert!(
            message.starts_with("CPU 3 is outside the CPUs that are allowed here (4-7): only isolated"),
            "{message}"
        );
        assert!(message.contains("--isolated also") && message.contains("--isolated never"), "{message}");
        assert_eq!(refused("3-4", Some(Isolated::Also)), None);
        assert_eq!(refused("3", Some(Isolated::Never)), None);
        let message = refused("3-4", Some(Isolated::Never)).unwrap_or_default();
        assert!(message.contains("--isolated only"), "{message}");
        let message = refused("9", None).unwrap_or_default();
        assert!(!message.contains("--isolated"), "isolation has nothing to do with it: {message}");
    }
}
