//! Where the launch goes, given what others hold: beside them, inside of the
//! lease that we are in, or again where it was before.

use crate::assume::Holdings;
use crate::cli::LaunchArgs;
use crate::consult::Consultation;
use crate::lease::belief;
use crate::lease::bell::Bell;
use crate::lease::queue::Ticket;
use crate::lease::recover::{self, Effort, Recovered};
use crate::lease::{Lease, Ledger, Locked, nest};
use crate::observe::Observed;
use crate::plan::{self, Plan};
use crate::report;
use crate::request::Request;
use anyhow::bail;
use nix::unistd::geteuid;
use std::time::Instant;

/// What a launch goes by. The ledger stays locked until its lease is in it.
#[derive(Debug)]
pub struct Place<'a> {
    /// The plan, or its refusal.
    pub plan: Plan,
    /// The lock; none where nothing is held.
    pub locked: Option<Locked<'a>>,
    /// The lease that this one is part of.
    pub parent: Option<String>,
    /// The lease of the same name that it takes over.
    pub before: Option<Lease>,
    /// Leases that hold something which is about to come free.
    ending: Vec<String>,
}

impl Place<'_> {
    /// Of a launch that holds nothing.
    pub fn unheld(plan: Plan) -> Self {
        Place { plan, locked: None, parent: None, before: None, ending: Vec::new() }
    }
}

/// Places the launch, waiting for what others hold if that was asked for.
///
/// # Errors
/// The ledger cannot be used, or the name is taken.
pub fn place<'a>(
    arguments: &LaunchArgs,
    request: &Request,
    observed: &mut Observed,
    ledger: &'a Ledger,
) -> anyhow::Result<Place<'a>> {
    let mut consultation = Consultation::new(request, &observed.config)?;
    let Some(limit) = arguments.lease.wait else {
        return soon(arguments, request, observed, ledger, &mut consultation);
    };
    let end = Instant::now() + limit;
    let ticket = Ticket::take(ledger)?;
    let bell = Bell::of(&ledger.leases());
    let mut in_time = ticket.wait_for_turn(end);
    loop {
        let place = advised(arguments, request, observed, ledger, &mut consultation)?;
        if place.plan.refusal.is_none() || !in_time || !ever(request, observed) {
            return Ok(place);
        }
        drop(place);
        in_time = bell.wait(end);
    }
}

/// Whether it would be admitted with nothing held.
fn ever(request: &Request, observed: &mut Observed) -> bool {
    let held = std::mem::take(&mut observed.holdings);
    let admitted = plan::plan(request, &observed.facts()).admitted;
    observed.holdings = held;
    admitted
}

/// Places with what plugins have to say. Others go on while one thinks: the
/// ledger is not locked then, and what is there is looked at again afterwards.
fn advised<'a>(
    arguments: &LaunchArgs,
    request: &Request,
    observed: &mut Observed,
    ledger: &'a Ledger,
    consultation: &mut Consultation,
) -> anyhow::Result<Place<'a>> {
    loop {
        let mut place = now(arguments, request, observed, ledger, None)?;
        if !consultation.goes_on(&mut place.plan) {
            return Ok(place);
        }
        let questions = place.plan.questions.clone();
        drop(place);
        consultation.ask(&questions, observed);
    }
}

/// What has ended and is only being put right is waited for, rather than missed.
fn soon<'a>(
    arguments: &LaunchArgs,
    request: &Request,
    observed: &mut Observed,
    ledger: &'a Ledger,
    consultation: &mut Consultation,
) -> anyhow::Result<Place<'a>> {
    let place = advised(arguments, request, observed, ledger, consultation)?;
    if place.plan.refusal.is_none() || place.ending.is_empty() {
        return Ok(place);
    }
    let Place { locked, ending, .. } = place;
    drop(locked);
    recover::wait_for(ledger, &ending);
    advised(arguments, request, observed, ledger, consultation)
}

fn now<'a>(
    arguments: &LaunchArgs,
    request: &Request,
    observed: &mut Observed,
    ledger: &'a Ledger,
    discard: Option<&str>,
) -> anyhow::Result<Place<'a>> {
    let (locked, mut recovered) = recover::settle(ledger, Effort::Once, discard)?;
    let name = arguments.lease.name.as_deref();
    let before = name.map(|name| namesake(name, &mut recovered)).transpose()?.flatten();
    observed.look_again(request);
    recovered.disbelieve(|lease| !belief::is_possible(lease, &observed.machine));
    recovered.remarks.iter().for_each(|remark| report::say(format!("numa-run: {remark}\n")));
    let parent = nest::parent(ledger, &recovered.live);
    observed.surroundings.inside = observed.part.clone().or_else(|| parent.map(Lease::holdings));
    observed.holdings = parent.map_or_else(|| recovered.holdings(), |parent| within(parent, &recovered));
    let parent = parent.map(|parent| parent.header.lease.clone());
    let again = before.as_ref().and_then(|before| as_before(request, observed, before));
    match (again, before) {
        (None, Some(before)) => {
            // It asks for something else now, or cannot have the same again.
            drop(locked);
            now(arguments, request, observed, ledger, Some(&before.header.lease))
        }
        (again, before) => {
            let plan = again.unwrap_or_else(|| plan::plan(request, &observed.facts()));
            Ok(Place { plan, locked: Some(locked), parent, before, ending: recovered.ending() })
        }
    }
}

/// The lease that the last launch of this name has left, taken out of those that are kept.
fn namesake(name: &str, recovered: &mut Recovered) -> anyhow::Result<Option<Lease>> {
    let user = geteuid().as_raw();
    let same = |lease: &Lease| lease.user == user && lease.header.name.as_deref() == Some(name);
    if let Some(lease) = recovered.live.iter().find(|lease| same(lease)) {
        let pid = lease.header.owner.pid;
        bail!("the name {name} is in use by process {pid}: end it first, or choose another --name");
    }
    let at = recovered.waiting.iter().position(same);
    Ok(at.map(|at| recovered.waiting.remove(at)))
}

/// What is held of a lease: by the leases that were taken out of it.
fn within(parent: &Lease, recovered: &Recovered) -> Holdings {
    let all = recovered.live.iter().chain(&recovered.waiting).chain(&recovered.stuck);
    // Who has nothing to do with it could take it up by a lease that only says so.
    let inside = |lease: &&Lease| lease.user == parent.user || belief::is_believed(lease.user);
    let children = all.filter(|lease| lease.header.parent.as_ref() == Some(&parent.header.lease)).filter(inside);
    children.fold(Holdings::default(), |sum, child| sum.plus(&child.holdings()))
}

/// The same CPUs, pages and devices as before, if the same is asked for and still to be had.
fn as_before(request: &Request, observed: &mut Observed, before: &Lease) -> Option<Plan> {
    if before.request != super::identified(request) {
        return None;
    }
    let inside = observed.surroundings.inside.replace(before.holdings());
    let plan = plan::plan(request, &observed.facts());
    observed.surroundings.inside = inside;
    plan.admitted.then_some(plan)
}
