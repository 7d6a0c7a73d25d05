//! The subcommands that only look.

use crate::cli::options::Contradiction;
use crate::cli::{DebugArgs, DebugWhat, PlanArgs, TopoArgs};
use crate::plan::{self, RefusalKind};
use crate::{debug, observe, report};
use anyhow::Context;
use std::io::{BufRead, Write};

/// `numa-run plan`: 0 aligned, 1 not aligned or refused.
///
/// # Errors
/// Nothing could be planned.
pub fn plan(arguments: &PlanArgs) -> anyhow::Result<u8> {
    let request = arguments.request.request()?;
    let observed = observe::observe(&request, &arguments.source)?;
    let facts = observed.facts();
    let plan = plan::plan(&request, &facts);
    let explanation = if arguments.explain { report::explain(&request, &facts, &plan) } else { String::new() };
    let text = match arguments.json {
        true => {
            report::say(explanation);
            format!("{}\n", report::json::plan(&request, &plan))
        }
        false => explanation + &report::plan::text(&request, facts.machine, &plan),
    };
    report::answer(&text).context("cannot write the answer")?;
    Ok(match &plan.refusal {
        Some(refusal) if refusal.kind == RefusalKind::Usage => 2,
        Some(_) => 1,
        None => u8::from(!plan.aligned),
    })
}

/// `numa-run topo`.
///
/// # Errors
/// The machine could not be read.
pub fn topo(arguments: &TopoArgs) -> anyhow::Result<u8> {
    let machine = observe::machine(&arguments.source)?;
    let text = match arguments.json {
        true => format!("{}\n", report::topo::json(&machine)),
        false => report::topo::text(&machine),
    };
    report::answer(&text).context("cannot write the answer")?;
    Ok(0)
}

/// `numa-run debug`: a line out for each line in.
///
/// # Errors
/// A line that is no test vector.
pub fn debug(arguments: &DebugArgs) -> anyhow::Result<u8> {
    let topologies = match arguments.what {
        DebugWhat::Cpus => {
            let file = &arguments.topologies;
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            Some(debug::cpus::Topologies::from_json(&text)?)
        }
        _ => None,
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = match (arguments.what, &topologies) {
            (DebugWhat::Merge, _) => debug::merge::answer(&line).map_err(anyhow::Error::from),
            (DebugWhat::Devices, _) => debug::devices::answer(&line).map_err(anyhow::Error::from),
            (DebugWhat::Memory, _) => debug::memory::answer(&line).map_err(anyhow::Error::from),
            (DebugWhat::Cpus, Some(topologies)) => debug::cpus::answer(&line, topologies).map_err(anyhow::Error::from),
            (DebugWhat::Cpus, None) => unreachable!("topologies are read for cpus"),
        };
        writeln!(out, "{}", answer.with_context(|| format!("line {}", number + 1))?)?;
    }
    out.flush()?;
    Ok(0)
}

/// 2 for a command line that contradicts itself, 125 for anything that failed.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Contradiction>() { 2 } else { 125 }
}
