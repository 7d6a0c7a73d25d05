//! The line itself: observe, place, apply, exec.

mod devices;
mod placing;
mod ranks;
mod signals;
mod standby;
mod supervise;
mod transaction;

use crate::cli::{LaunchArgs, RightsArgs};
use crate::environment::{self, Start};
use crate::host::audit::TARGET;
use crate::lease::ledger::Reach;
use crate::lease::{self, Header, Held, Identity, Ledger};
use crate::observe::{self, Observed, RUN_DIR};
use crate::plan::Plan;
use crate::request::Request;
use crate::resource::Granted;
use crate::rights::Rights;
use crate::step::{self, Exec, Step};
use crate::topology::gpu;
use crate::{consult, fault, host, report};
use anyhow::{Context, bail};
use placing::Place;
use ranks::Rank;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use transaction::{Aftermath, Manner};

/// Starts the command in place of this process. Comes back only when nothing
/// was to be started (`--dry-run`), or with the command's status where this
/// process was to stay (`--supervise`).
///
/// # Errors
/// Nothing was started. The exit code of it is [`exit_code`].
pub fn launch(arguments: &LaunchArgs) -> anyhow::Result<u8> {
    if !arguments.lease.supervise || arguments.dry_run {
        return line(arguments, Aftermath::Guardian).map(|()| 0);
    }
    let ledger = observe::ledger(arguments.source.run_dir.as_deref());
    let orphans = arguments.lease.on_daemonize.unwrap_or_default();
    supervise::supervise(&ledger, orphans, || line(arguments, Aftermath::Supervisor))
}

fn line(arguments: &LaunchArgs, aftermath: Aftermath) -> anyhow::Result<()> {
    let request = arguments.request.request()?;
    let rights = arguments.rights.rights()?;
    check(arguments)?;
    applicable(&request)?;
    let mut observed = observe::observe(&request, &arguments.source)?;
    if arguments.dry_run {
        observed.holdings = observed.holdings.plus(&observe::held(&arguments.source, &observed.machine)?);
        if arguments.source.topology.is_none() {
            observed.look_at_groups(&request);
        }
        let plan = consult::plan(&request, &mut observed)?;
        let plan = told(arguments, &request, &observed, plan)?;
        let lease = lease::ledger::new_id(&Identity::own(Path::new("/")));
        return report::answer(&step::script(&steps(arguments, &observed, &plan, rights, &lease)?))
            .context("cannot write the steps");
    }
    let ledger = observe::ledger(arguments.source.run_dir.as_deref());
    let rank = Rank::of(|name| std::env::var(name).ok()).filter(|_| !request.holds());
    let part = rank.map(|rank| ranks::part(rank, &request, &observed, &ledger)).transpose()?.flatten();
    let (request, part) = part.map_or((request, None), |(request, part)| (request, Some(part)));
    observed.part = part;
    let place = match request.holds() || arguments.lease.name.is_some() {
        true => {
            if !arguments.source.quiet {
                limits(&request, &ledger).iter().for_each(|limit| report::say(format!("numa-run: {limit}\n")));
            }
            placing::place(arguments, &request, &mut observed, &ledger)?
        }
        false => Place::unheld(consult::plan(&request, &mut observed)?),
    };
    let plan = told(arguments, &request, &observed, place.plan.clone())?;
    let own = Identity::own(Path::new("/"));
    let lease = lease::ledger::new_id(&own);
    let steps = steps(arguments, &observed, &plan, rights, &lease)?;
    let header = header(arguments, &place, &steps, lease, own);
    let audit = arguments.lease.audit.clone().unwrap_or_default();
    let manner = Manner { aftermath, audit, quiet: arguments.source.quiet };
    match transaction::run(&steps, place, header, &identified(&request), manner)? {}
}

/// From whom what this launch gets is not kept.
fn limits(request: &Request, ledger: &Ledger) -> Vec<String> {
    let user = nix::unistd::geteuid();
    let mut limits = Vec::new();
    if ledger.reach() == Reach::Own {
        limits.push(format!(
            "only launches of user {user} keep off this one, and it off theirs: there is no {RUN_DIR} for all users \
             (the first launch by root makes it)"
        ));
    }
    if !request.devices.is_empty() && !user.is_root() {
        limits.push("others may get the same devices: only launches by root keep theirs".into());
    }
    limits
}

/// The plan, if it is one to go by; what there is to be said of it is said.
fn told(arguments: &LaunchArgs, request: &Request, observed: &Observed, plan: Plan) -> anyhow::Result<Plan> {
    if arguments.explain {
        report::say(report::explain(request, &observed.facts(), &plan));
    }
    if let Some(refusal) = &plan.refusal {
        if !arguments.dry_run {
            tracing::info!(target: TARGET, "refused: {refusal}");
        }
        return Err(refusal.clone().into());
    }
    if !arguments.dry_run {
        devices::able(&plan, &observed.config, &observed.machine)?;
    }
    // Of another machine's devices this one's files say nothing.
    if arguments.source.topology.is_none() {
        devices::viable(&plan, &observed.config, Path::new(step::device::FUNCTIONS))?;
    }
    if !arguments.source.quiet {
        let unfenced = plan.unfenced.iter().map(|reason| format!("{UNFENCED}: {reason}"));
        let chosen = devices::chosen(&plan, &observed.config);
        plan.remarks
            .iter()
            .cloned()
            .chain(unfenced)
            .chain(chosen)
            .for_each(|remark| report::say(format!("numa-run: {remark}\n")));
    }
    Ok(plan)
}

/// What a launch has that has no cgroup.
const UNFENCED: &str = "kept in place by affinity and memory policy alone, without a cgroup";

/// What tells a request from others: a restart under the same name asks for the same.
fn identified(request: &Request) -> String {
    let mut hasher = DefaultHasher::new();
    format!("{request:?}").hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn header(arguments: &LaunchArgs, place: &Place<'_>, steps: &[Step], lease: String, owner: Identity) -> Header {
    let group = steps.iter().find_map(|step| match step {
        Step::Group(group) => Some(group.folder.clone()),
        _ => None,
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Header {
        lease,
        name: arguments.lease.name.clone(),
        owner,
        held: Held::by(&place.plan),
        group,
        parent: place.parent.clone(),
        grace: arguments.lease.grace_seconds(),
        since: now.as_secs(),
        command: arguments.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default(),
        ..Header::default()
    }
}

/// 125, or 126 and 127 when it was the command that could not be started.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<host::StepError>().map_or(125, host::StepError::exit_code)
}

fn check(arguments: &LaunchArgs) -> anyhow::Result<()> {
    if arguments.command.is_empty() {
        bail!("nothing to run: numa-run [OPTIONS] [--] COMMAND; `numa-run plan` shows a placement without one");
    }
    if arguments.dry_run {
        return Ok(());
    }
    able(&arguments.rights)?;
    if arguments.source.topology.is_some() {
        bail!(
            "--topology describes another machine, and a command is started on this one: use `numa-run plan` or --dry-run"
        );
    }
    if arguments.source.assume.is_some() {
        bail!(
            "--assume takes things for granted, and a command is started on what there is: use `numa-run plan` or --dry-run"
        );
    }
    Ok(())
}

/// Whether this process may become another user, and has the capabilities that it is to leave.
fn able(rights: &RightsArgs) -> anyhow::Result<()> {
    let asked = [(rights.user.is_some(), "--user"), (rights.caps.is_some(), "--caps")];
    let user = nix::unistd::geteuid();
    if let Some((_, flag)) = asked.iter().find(|(given, _)| *given && !user.is_root()) {
        bail!(
            "{flag} needs root, and this is user {user}: start numa-run as root (sudo numa-run ...), or leave it out"
        );
    }
    let missing = rights.caps.map(host::rights::missing).transpose().context("capabilities")?;
    if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
        bail!(
            "--caps: {missing} cannot be given, because this process does not have it (a container or a unit may limit root)"
        );
    }
    Ok(())
}

/// What was asked for is applied or the launch fails: settings of virtual functions are not, so far.
fn applicable(request: &Request) -> anyhow::Result<()> {
    let asked = request.devices.iter().find(|device| !device.settings.is_empty());
    match asked {
        Some(device) => bail!(
            "{}: {}: not applied by this version yet, and so refused; `numa-run plan` shows the placement",
            device.label(),
            device.settings
        ),
        None => Ok(()),
    }
}

fn steps(
    arguments: &LaunchArgs,
    observed: &Observed,
    plan: &Plan,
    rights: Rights,
    lease: &str,
) -> anyhow::Result<Vec<Step>> {
    let start = start(plan, lease);
    let mut command = arguments.command.clone();
    if arguments.template {
        for word in &mut command {
            *word = step::filled(word, |name| environment::template(name, plan, &start)).map_err(|name| {
                anyhow::anyhow!("{{{name}}} in `{}` stands for nothing here", word.to_string_lossy())
            })?;
        }
    }
    let mut set: Vec<(String, OsString)> = environment::variables(plan, &observed.machine, &start);
    set.extend(rights.variables());
    let unset = rights.unset();
    let user = rights.account.as_ref().map(|account| account.uid).filter(|&user| user != 0);
    let changes = fault::changes().into_iter().chain(devices::changes(plan, &observed.config, user));
    Ok(changes.map(Step::Host).chain(step::steps(plan, lease, rights, Exec { command, set, unset })).collect())
}

fn start(plan: &Plan, lease: &str) -> Start {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    Start { lease: lease.to_owned(), gpu_uuids: gpu_uuids(plan), inherited: names.collect() }
}

fn gpu_uuids(plan: &Plan) -> BTreeMap<crate::topology::Bdf, String> {
    let devices = plan.allocations.iter().filter_map(|allocation| match &allocation.granted {
        Granted::Devices(grant) => Some(&grant.devices),
        _ => None,
    });
    devices.flatten().filter_map(|device| Some((device.bdf, gpu::uuid(Path::new("/"), device.bdf)?))).collect()
}
