//! The subcommands that only look.

use crate::cli::options::Contradiction;
use crate::cli::{CompletionsArgs, DebugArgs, DebugWhat, PlanArgs, TopoArgs, completions};
use crate::observe::{self, Observed};
use crate::plan::{Facts, RefusalKind};
use crate::request::Request;
use crate::resource::pci;
use crate::{config, consult, debug, report};
use anyhow::Context;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// `numa-run plan`: 0 aligned, 1 not aligned or refused.
///
/// # Errors
/// Nothing could be planned.
pub fn plan(arguments: &PlanArgs) -> anyhow::Result<u8> {
    let request = arguments.request.request()?;
    let mut observed = observe::observe(&request, &arguments.source)?;
    observed.holdings = observed.holdings.plus(&observe::held(&arguments.source, &observed.machine)?);
    if arguments.source.topology.is_none() {
        observed.look_at_groups(&request);
    }
    let mut plan = consult::plan(&request, &mut observed)?;
    let facts = observed.facts();
    plan.remarks.extend(links_unknown(&request, &facts));
    if arguments.source.topology.is_none() {
        plan.remarks.extend(nothing_reserved(&observed));
    }
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

/// Which devices go well together is guessed where their links are unknown.
fn links_unknown(request: &Request, facts: &Facts<'_>) -> Option<String> {
    let reason = facts.machine.unprobed.as_ref().filter(|_| facts.machine.links.is_empty())?;
    pci::may_be_linked(request, facts.config).then(|| format!("links between GPUs are not known: {reason}"))
}

/// On a host of some size, the operating system wants CPUs of its own.
fn nothing_reserved(observed: &Observed) -> Option<String> {
    let bare = observed.config.reserved.cpus.is_empty() && observed.machine.online().len() > 4;
    let example = "[reserved] cpus = \"0\"";
    bare.then(|| format!("no CPUs are reserved for the host itself: {example} in {} does that", config::PATH))
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

/// `numa-run completions`.
///
/// # Errors
/// The script cannot be written.
pub fn completions(arguments: &CompletionsArgs) -> anyhow::Result<u8> {
    report::answer(&completions::script(arguments.shell)).context("cannot write the script")?;
    Ok(0)
}

/// `numa-run debug`: a line out for each line in.
///
/// # Errors
/// A line that is no test vector.
pub fn debug(arguments: &DebugArgs) -> anyhow::Result<u8> {
    let file = arguments.lines.clone().unwrap_or_else(|| PathBuf::from("/dev/stdin"));
    let lines = File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let answer = answers(arguments, &file)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (number, line) in BufReader::new(lines).lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() {
            writeln!(out, "{}", answer(&line).with_context(|| format!("line {}", number + 1))?)?;
        }
    }
    out.flush()?;
    Ok(0)
}

type Answer = Box<dyn Fn(&str) -> anyhow::Result<String>>;

fn answers(arguments: &DebugArgs, lines: &Path) -> anyhow::Result<Answer> {
    Ok(match arguments.what {
        DebugWhat::Merge => Box::new(|line| Ok(debug::merge::answer(line)?)),
        DebugWhat::Devices => Box::new(|line| Ok(debug::devices::answer(line)?)),
        DebugWhat::Place => Box::new(|line| Ok(debug::place::answer(line)?)),
        DebugWhat::Memory => Box::new(|line| Ok(debug::memory::answer(line)?)),
        DebugWhat::Cpus => {
            let file = arguments.topologies.clone().unwrap_or_else(|| topologies(lines));
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let topologies = debug::cpus::Topologies::from_json(&text)?;
            Box::new(move |line| Ok(debug::cpus::answer(line, &topologies)?))
        }
    })
}

/// The topologies that belong to a file of lines, which may have come as stdin.
fn topologies(lines: &Path) -> PathBuf {
    let name = "cpu_topologies.json";
    let real = std::fs::canonicalize(lines).unwrap_or_default();
    let places = real.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    places.into_iter().find(|file| file.exists()).unwrap_or_else(|| PathBuf::from(name))
}

/// 2 for a command line that contradicts itself, 125 for anything that failed.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Contradiction>() { 2 } else { 125 }
}
