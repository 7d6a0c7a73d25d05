//! Plans for several members: each placed by itself, or all together.

use super::divide::Whole;
use super::{
    Facts, MemoryBinding, Need, Plan, Refusal, RefusalKind, alignment, binding, place_one, rounded, situation,
};
use crate::hint::policy::Policy;
use crate::request::{Members, Request, Scope};
use crate::resource::pci::creation::Creation;
use crate::resource::{Allocation, Granted, Situation};
use crate::topology::{Bdf, NodeMask};
use std::collections::BTreeMap;

/// Members whose own remarks are told one by one.
const TOLD: usize = 8;

/// Places all members.
pub fn place(request: &Request, members: Members, facts: &Facts<'_>) -> Plan {
    match members.scope {
        Scope::Member => one_by_one(request, members, facts),
        Scope::Group => together(request, members, facts),
    }
}

/// Each member takes what it wants from what the ones before it have left.
fn one_by_one(request: &Request, members: Members, facts: &Facts<'_>) -> Plan {
    let request = Request { members: None, ..request.clone() };
    let mut holdings = facts.holdings.clone();
    let mut placed: Vec<Plan> = Vec::new();
    for member in 0..members.count {
        let plan = place_one(&request, &Facts { holdings: &holdings, ..*facts });
        if let Some(refusal) = &plan.refusal {
            let refusal = about(refusal, &format!("member {member} of {}", members.count));
            return Plan { refusal: Some(refusal), members_before: member, ..plan };
        }
        holdings = holdings.with(&plan.allocations);
        placed.push(plan);
    }
    collected(placed)
}

/// Says whose refusal it is; a request that contradicts the machine is wrong for everybody.
fn about(refusal: &Refusal, whose: &str) -> Refusal {
    match refusal.kind {
        RefusalKind::Usage | RefusalKind::Limit => refusal.clone(),
        _ => Refusal { message: format!("{whose}: {}", refusal.message), ..refusal.clone() },
    }
}

/// One plan for all members that were placed one by one.
fn collected(members: Vec<Plan>) -> Plan {
    let Some(first) = members.first() else { return Plan::default() };
    let all = |holds: fn(&Plan) -> bool| members.iter().all(holds);
    Plan {
        admitted: true,
        preferred: all(|plan| plan.preferred),
        proven: all(|plan| plan.proven),
        affinity: members.iter().map(|plan| plan.affinity.clone()).reduce(|a, b| Some(a?.or(&b?))).flatten(),
        score: None,
        candidates: first.candidates.clone(),
        span: members.iter().fold(NodeMask::new(), |span, plan| span.or(&plan.span)),
        aligned: all(|plan| plan.aligned),
        pool: first.pool.clone(),
        shared_cpus: members.last().map(|plan| plan.shared_cpus.clone()).unwrap_or_default(),
        resources: first.resources.clone(),
        allocations: sum(members.iter().map(|plan| &plan.allocations[..])),
        memory: members.iter().map(|plan| plan.memory.clone()).reduce(both).flatten(),
        remarks: told(&members),
        left_out: first.left_out.clone(),
        creations: creations(&members),
        // What later members ask depends on what the ones before them get.
        questions: members
            .iter()
            .map(|plan| plan.questions.clone())
            .find(|asked| !asked.is_empty())
            .unwrap_or_default(),
        refusal: None,
        members_before: 0,
        fence: None,
        unfenced: None,
        members,
    }
}

/// A port makes all of its virtual functions at once, for whichever members.
fn creations(members: &[Plan]) -> Vec<Creation> {
    let all = members.iter().flat_map(|plan| &plan.creations);
    let by_port: BTreeMap<Bdf, &Creation> = all.map(|creation| (creation.physical_function, creation)).collect();
    by_port.into_values().cloned().collect()
}

fn both(a: Option<MemoryBinding>, b: Option<MemoryBinding>) -> Option<MemoryBinding> {
    let (Some(a), Some(b)) = (&a, &b) else { return a.or(b) };
    let need = if a.need == Need::Must { a.need } else { b.need };
    Some(MemoryBinding { policy: a.policy, nodes: a.nodes.or(&b.nodes), need })
}

/// What several have, by resource.
fn sum<'a>(granted: impl Iterator<Item = &'a [Allocation]>) -> Vec<Allocation> {
    let mut all: Vec<Allocation> = Vec::new();
    for (at, part) in granted.flat_map(|parts| parts.iter().enumerate()) {
        match all.get_mut(at) {
            Some(sum) => add(sum, part),
            None => all.push(part.clone()),
        }
    }
    all
}

fn add(sum: &mut Allocation, part: &Allocation) {
    part.per_node.iter().for_each(|(&node, units)| *sum.per_node.entry(node).or_default() += units);
    sum.unknown += part.unknown;
    match (&mut sum.granted, &part.granted) {
        (Granted::Cpus(sum), Granted::Cpus(part)) => *sum = sum.or(part),
        (Granted::Mib(sum), Granted::Mib(part)) => *sum += part,
        (Granted::Pages { count: sum, .. }, Granted::Pages { count: part, .. }) => *sum += part,
        (Granted::Devices(sum), Granted::Devices(part)) => {
            sum.devices.extend(part.devices.clone());
            sum.advice = None;
        }
        _ => {}
    }
}

/// The members' remarks: what all of them share once, else with whose it is.
fn told(members: &[Plan]) -> Vec<String> {
    let mut whose: BTreeMap<&String, NodeMask> = BTreeMap::new();
    let mut order: Vec<&String> = Vec::new();
    for (member, plan) in (0..).zip(members) {
        for remark in &plan.remarks {
            whose.entry(remark).or_insert_with(|| {
                order.push(remark);
                NodeMask::new()
            });
            whose.entry(remark).and_modify(|members| members.insert(member));
        }
    }
    let line = |remark: &&String| match &whose[remark] {
        all if all.len() == members.len() => (*remark).clone(),
        one if one.len() == 1 => format!("{remark} (member {one})"),
        some => format!("{remark} (members {some})"),
    };
    let mut lines: Vec<String> = order.iter().take(TOLD).map(line).collect();
    if order.len() > TOLD {
        let aligned = members.iter().filter(|plan| plan.aligned).count();
        lines.push(format!("and more such: {aligned} of {} members are aligned", members.len()));
    }
    lines
}

/// The sum of all members is placed like one launch, and then divided.
fn together(request: &Request, members: Members, facts: &Facts<'_>) -> Plan {
    // What one member cannot get anywhere, such as half a core where cores are whole, is impossible for all.
    let one = place_one(&Request { members: None, policy: Policy::None, ..request.clone() }, facts);
    if one.refusal.is_some() {
        return one;
    }
    let mut plan = place_one(&request.times(members.count), facts);
    if let Some(refusal) = &plan.refusal {
        plan.refusal = Some(about(refusal, &format!("{} members together", members.count)));
        return plan;
    }
    if let Ok(situation) = situation(request, facts) {
        plan.members = shares(request, members.count, &situation, &plan);
    }
    plan.remarks
        .extend(told(&plan.members).into_iter().filter(|line| !plan.remarks.contains(line)).collect::<Vec<_>>());
    plan.remarks.extend(rounded(request));
    plan
}

fn shares(request: &Request, members: u32, situation: &Situation<'_>, group: &Plan) -> Vec<Plan> {
    let options = request.cpus.as_ref().map(|cpus| cpus.options).unwrap_or_default();
    let Situation { machine, config, .. } = situation;
    let whole = Whole { machine, config, options, granted: &group.allocations };
    let share = |allocations: Vec<Allocation>| {
        let span = allocations.iter().fold(NodeMask::new(), |span, part| span.or(&part.nodes()));
        let mut share = Plan {
            admitted: true,
            preferred: group.preferred,
            proven: group.proven,
            allocations,
            span,
            ..Plan::default()
        };
        share.memory = binding::binding(request, situation, &share);
        alignment::look(machine, &mut share);
        share
    };
    whole.parts(members).into_iter().map(share).collect()
}
