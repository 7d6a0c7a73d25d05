//! The line itself: observe, place, apply, exec.

use crate::cli::LaunchArgs;
use crate::environment::{self, Start};
use crate::observe::{self, Observed};
use crate::plan::{self, Plan};
use crate::resource::Granted;
use crate::step::{self, Exec, Step};
use crate::topology::gpu;
use crate::{host, report};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Starts the command in place of this process. Comes back only when nothing
/// was to be started (`--dry-run`).
///
/// # Errors
/// Nothing was started. The exit code of it is [`exit_code`].
pub fn launch(arguments: &LaunchArgs) -> anyhow::Result<()> {
    let request = arguments.request.request()?;
    check(arguments)?;
    let observed = observe::observe(&request, &arguments.source)?;
    let plan = plan::plan(&request, &observed.facts());
    if arguments.explain {
        report::say(report::explain(&request, &observed.facts(), &plan));
    }
    if let Some(refusal) = &plan.refusal {
        return Err(refusal.clone().into());
    }
    let steps = steps(arguments, &observed, &plan)?;
    if !arguments.source.quiet {
        plan.remarks.iter().for_each(|remark| report::say(format!("numa-run: {remark}\n")));
    }
    if arguments.dry_run {
        return report::answer(&step::script(&steps)).context("cannot write the steps");
    }
    match apply(&steps, arguments.source.quiet)? {}
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

fn steps(arguments: &LaunchArgs, observed: &Observed, plan: &Plan) -> anyhow::Result<Vec<Step>> {
    let start = start(plan);
    let mut command = arguments.command.clone();
    if arguments.template {
        for word in &mut command {
            *word = step::filled(word, |name| environment::template(name, plan, &start)).map_err(|name| {
                anyhow::anyhow!("{{{name}}} in `{}` stands for nothing here", word.to_string_lossy())
            })?;
        }
    }
    let set: Vec<(String, OsString)> = environment::variables(plan, &observed.machine, &start);
    Ok(step::steps(plan, Exec { command, set }))
}

fn start(plan: &Plan) -> Start {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    Start {
        lease: format!("{:x}-{:x}", std::process::id(), now.as_nanos()),
        gpu_uuids: gpu_uuids(plan),
        inherited: names.collect(),
    }
}

fn gpu_uuids(plan: &Plan) -> BTreeMap<crate::topology::Bdf, String> {
    let devices = plan.allocations.iter().filter_map(|allocation| match &allocation.granted {
        Granted::Devices(devices) => Some(devices),
        _ => None,
    });
    devices.flatten().filter_map(|device| Some((device.bdf, gpu::uuid(Path::new("/"), device.bdf)?))).collect()
}

fn apply(steps: &[Step], quiet: bool) -> Result<Infallible, anyhow::Error> {
    let left_out = |error: &host::StepError| {
        let reason = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        if !quiet {
            report::say(format!("numa-run: memory is left unbound: {error}{reason}\n"));
        }
    };
    let error = match host::apply(steps, left_out) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let hint = match &error {
        host::StepError::Refused { source, .. } if source.raw_os_error() == Some(libc::EPERM) => {
            Some("forbidden here (seccomp or a missing right)")
        }
        _ => None,
    };
    match hint {
        Some(hint) => Err(error).context(hint),
        None => Err(error.into()),
    }
}
