//! Prints the machine that libhwloc and sysfs describe, as one line of JSON.

use anyhow::Context;
use clap::Parser;
use numa_run::topology::{TopologySource, hwloc, probe};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Reads a machine through libhwloc: this host, unless another source is named.
#[derive(Parser)]
#[command(version)]
#[group(multiple = false)]
struct Options {
    /// An XML export of hwloc 1 or 2.
    #[arg(long, value_name = "FILE")]
    xml: Option<PathBuf>,
    /// A synthetic string of hwloc.
    #[arg(long, value_name = "SPEC")]
    synthetic: Option<String>,
    /// A folder with a captured sys and proc.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl Options {
    fn source(self) -> TopologySource {
        let xml = self.xml.map(TopologySource::Xml);
        let other = xml.or(self.synthetic.map(TopologySource::Synthetic)).or(self.root.map(TopologySource::Root));
        other.unwrap_or(TopologySource::Live)
    }
}

fn main() -> ExitCode {
    let result = match Options::try_parse() {
        Ok(options) => print(&options.source()),
        Err(error) => error.print().map_err(Into::into).and_then(|()| match error.use_stderr() {
            true => Err(anyhow::anyhow!("see --help")),
            false => Ok(()),
        }),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("numa-run-probe: {error:#}");
    ExitCode::from(125)
}

#[allow(clippy::disallowed_methods, reason = "libhwloc reads its settings from the environment: start over with ours")]
fn print(source: &TopologySource) -> anyhow::Result<()> {
    if !probe::is_clean(source) {
        let error = probe::command(&std::env::current_exe()?, source).exec();
        return Err(error).context("cannot start over with a clean environment");
    }
    let machine = hwloc::read(source)?;
    machine.warnings.iter().for_each(|warning| eprintln!("numa-run-probe: warning: {warning}"));
    let line = serde_json::to_string(&machine)?;
    writeln!(std::io::stdout(), "{line}").context("cannot write the machine")
}
