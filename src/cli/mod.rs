//! The command line: flags in, a request out.

pub mod completions;
pub mod devices;
pub mod lease;
pub mod options;
pub mod rights;

pub use completions::CompletionsArgs;
pub use lease::LeaseArgs;
pub use options::{RequestArgs, SourceArgs};
pub use rights::RightsArgs;

use crate::host::audit::{Audit, Lines};
use clap::{ArgAction, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

const USAGE: &str =
    "numa-run [OPTIONS] [--] COMMAND [ARGUMENT]...\n       numa-run plan|topo|status|release|gc [OPTIONS]";

const AFTER: &str = "\
Lists are written as the kernel writes them (0-3,8), also as 0-30:2, all, !0-1 or 0xff; sizes in
powers of 1024 (512M, 8G). Devices are asked for as [NAME=]N[:KEY=VALUE,...], as often as needed:
--gpu 2:vendor=nvidia --vf n3=1:pf=ens1f0; keys are vendor, device, class, driver, pf, interface and
address, where * and ? stand for any letters. Options of What, Where, How, Facts and Who may also be
set as NUMA_RUN_<OPTION>; a flag wins.

Exit status: 125 when numa-run refuses or fails, 126 when the command cannot be executed, 127 when
it is not found, else the command's own.";

/// Start a command where its CPUs, memory and devices are.
#[derive(Debug, Parser)]
#[command(name = "numa-run", version, override_usage = USAGE, after_help = AFTER)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do instead of starting a command.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// The launch.
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// What can be done besides starting a command.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show what a launch would get, and why; changes nothing
    Plan(Box<PlanArgs>),
    /// Show the machine
    Topo(TopoArgs),
    /// Show what launches hold
    Status(StatusArgs),
    /// Put right what a launch left that is no more, and end its lease
    Release(ReleaseArgs),
    /// The same for all launches that are no more
    Gc(LedgerArgs),
    /// Wait for the end of a launch and put right what it left
    #[command(hide = true)]
    Guard(ReleaseArgs),
    /// Print what makes a shell complete the options
    Completions(CompletionsArgs),
    /// Make what the configuration wants to be there from the boot on
    Up(UpArgs),
    /// Answer test vectors line by line
    #[command(hide = true)]
    Debug(DebugArgs),
}

/// A launch.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// What is asked for.
    #[command(flatten)]
    pub request: RequestArgs,
    /// Where facts come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What becomes of the lease.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Who the command is.
    #[command(flatten)]
    pub rights: RightsArgs,
    /// Fill in {cpus}, {nodes}, {gpu.0} and the like in the arguments
    #[arg(long, help_heading = "Command", hide_env = true, env = "NUMA_RUN_TEMPLATE", value_parser = options::yes())]
    pub template: bool,
    /// Print the steps as shell lines and start nothing
    #[arg(long, help_heading = "See")]
    pub dry_run: bool,
    /// Say on stderr how the placement came about
    #[arg(long, help_heading = "See")]
    pub explain: bool,
    /// The command, with its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND", hide = true)]
    pub command: Vec<OsString>,
}

/// `numa-run plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What is asked for.
    #[command(flatten)]
    pub request: RequestArgs,
    /// Where facts come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Print JSON
    #[arg(long, help_heading = "See")]
    pub json: bool,
    /// Say how the placement came about
    #[arg(long, help_heading = "See")]
    pub explain: bool,
    /// A command, which is not started
    #[arg(trailing_var_arg = true, hide = true)]
    pub command: Vec<OsString>,
}

/// `numa-run topo`.
#[derive(Debug, Args)]
pub struct TopoArgs {
    /// Where facts come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which ledger.
#[derive(Debug, Args)]
pub struct LedgerArgs {
    /// Where numa-run keeps its own files [default: /run/numa-run, or the user's own]
    #[arg(long, value_name = "DIR", hide_env = true, env = "NUMA_RUN_RUN_DIR")]
    pub run_dir: Option<PathBuf>,
    /// Where a line for each change goes: auto (journald or syslog), never, or a socket
    #[arg(long, value_name = "WHERE", hide_env = true, env = "NUMA_RUN_AUDIT", value_parser = lease::audit())]
    pub audit: Option<Audit>,
}

/// `numa-run status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where to look.
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// Only this lease, or the launch of this name
    pub lease: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `numa-run release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Where to look.
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// For ExecStopPost= of this unit: what it held is kept where it is about to restart
    #[arg(long)]
    pub unit: bool,
    /// The lease, or the name of its launch
    pub lease: String,
}

/// `numa-run up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// What to make
    #[arg(value_enum)]
    pub what: UpWhat,
    /// Configuration [default: /etc/numa-run/config.toml if it exists]
    #[arg(long, value_name = "FILE", hide_env = true, env = "NUMA_RUN_CONFIG")]
    pub config: Option<PathBuf>,
}

/// What there can be from the boot on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum UpWhat {
    /// Hugepages of [boot.hugepages]
    Hugepages,
    /// Virtual functions of [boot.vfs]
    Vfs,
}

/// `numa-run debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// Which answers
    #[arg(value_enum)]
    pub what: DebugWhat,
    /// CPU topologies, for `cpus`; else cpu_topologies.json beside the lines, above them or here
    #[arg(long, value_name = "FILE")]
    pub topologies: Option<PathBuf>,
    /// The lines; else stdin
    pub lines: Option<PathBuf>,
}

/// Kinds of test vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DebugWhat {
    /// Merging hints
    Merge,
    /// Picking CPUs
    Cpus,
    /// Choosing devices
    Devices,
    /// Hinting memory
    Memory,
    /// Placing all resources together
    Place,
}

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// What clap has to say, and the exit code that goes with it: 0 for help, 2
    /// for a wrong subcommand line, 125 for a wrong launch.
    pub fn read(arguments: Vec<OsString>) -> Result<Cli, (clap::Error, u8)> {
        if let Some(launch) = LaunchArgs::quickly(&arguments) {
            return Ok(Cli { verb: None, launch });
        }
        let mut command = Cli::command().mut_args(set_variables_only);
        command = command.mut_subcommands(|verb| verb.mut_args(set_variables_only));
        let arguments = verb_first(&command, arguments);
        let verb = arguments.get(1).and_then(|word| word.to_str());
        let usage = if verb.is_some_and(|word| command.find_subcommand(word).is_some()) { 2 } else { 125 };
        if usage == 2 {
            // The variables of a launch that is none are nobody's business here.
            command = command.mut_args(|arg| arg.env(None::<&str>));
        }
        let matches = command.try_get_matches_from_mut(arguments);
        let cli = matches.and_then(|matches| {
            let mut cli = Cli::from_arg_matches(&matches)?;
            match (&mut cli.verb, matches.subcommand()) {
                (Some(Verb::Plan(plan)), Some((_, matches))) => plan.request.flags_win(matches),
                _ => cli.launch.flags_win(&matches),
            }
            Ok(cli)
        });
        cli.map_err(|error| {
            let code = if error.use_stderr() { usage } else { 0 };
            (error, code)
        })
    }
}

impl LaunchArgs {
    /// Reads a launch without building the subcommands, which every start would
    /// pay for; none where it is not plainly one.
    fn quickly(arguments: &[OsString]) -> Option<LaunchArgs> {
        let plain = Command::new("numa-run").disable_help_flag(true).no_binary_name(true);
        let mut command = LaunchArgs::augment_args(plain).mut_args(set_variables_only);
        let matches = command.try_get_matches_from_mut(arguments.get(1..)?).ok()?;
        let mut launch = LaunchArgs::from_arg_matches(&matches).ok()?;
        launch.flags_win(&matches);
        let first = launch.command.first()?;
        let verb = first.to_str().is_some_and(Verb::has_subcommand);
        let marked = arguments.len().checked_sub(launch.command.len() + 1).is_some_and(|at| arguments[at] == "--");
        (marked || !verb).then_some(launch)
    }

    fn flags_win(&mut self, matches: &clap::ArgMatches) {
        self.request.flags_win(matches);
        self.rights.flags_win(matches);
    }
}

/// A variable that is set to nothing says nothing.
fn set_variables_only(arg: clap::Arg) -> clap::Arg {
    let empty = arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    if empty { arg.env(None::<&str>) } else { arg }
}

/// Sets up what is said on the way, on stderr: nothing unless `--verbose` asks for it.
pub fn log(cli: &Cli) {
    let source = match &cli.verb {
        None => Some(&cli.launch.source),
        Some(Verb::Plan(plan)) => Some(&plan.source),
        Some(Verb::Topo(topo)) => Some(&topo.source),
        Some(_) => None,
    };
    let audit = match &cli.verb {
        None => cli.launch.lease.audit.clone(),
        Some(
            Verb::Release(ReleaseArgs { ledger, .. }) | Verb::Guard(ReleaseArgs { ledger, .. }) | Verb::Gc(ledger),
        ) => ledger.audit.clone(),
        Some(_) => Some(Audit::Never),
    };
    let said = match source.map_or(0, |source| source.verbose) {
        0 => LevelFilter::OFF,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let registry = tracing_subscriber::registry().with(Lines::new(audit.unwrap_or_default()).boxed());
    if said == LevelFilter::OFF {
        return registry.init();
    }
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour);
    registry.with(stderr.without_time().with_target(false).with_filter(said)).init();
}

/// Moves a subcommand that follows options to the front: `--cpus 2 plan` means
/// `plan --cpus 2`. The first word that is no option starts the command, unless
/// it is a subcommand's name; after `--` it always does.
fn verb_first(command: &Command, mut arguments: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    while let Some(word) = arguments.get(at) {
        let Some(text) = word.to_str().filter(|&text| text != "--") else { break };
        if !text.starts_with('-') || text == "-" {
            if at > 1 && command.find_subcommand(text).is_some() {
                let verb = arguments.remove(at);
                arguments.insert(1, verb);
            }
            break;
        }
        at += if takes_next(command, text) { 2 } else { 1 };
    }
    arguments
}

fn takes_next(command: &Command, text: &str) -> bool {
    let takes = |action: &ArgAction| matches!(action, ArgAction::Set | ArgAction::Append);
    let long = text.strip_prefix("--");
    let named = |arg: &&clap::Arg| match long {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short() == text.chars().nth(1).filter(|_| text.len() == 2),
    };
    command.get_arguments().find(named).is_some_and(|arg| takes(arg.get_action()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, (clap::Error, u8)> {
        Cli::read(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_first_word_that_is_no_option_starts_the_command() {
        let cli = read("numa-run --cpus 2 ./app --cpus 3 plan").unwrap();
        assert_eq!(cli.launch.command, ["./app", "--cpus", "3", "plan"]);
        assert!(cli.verb.is_none());
        assert_eq!(read("numa-run -- plan").unwrap().launch.command, ["plan"]);
        assert_eq!(read("numa-run --cpus 2 -- plan").unwrap().launch.command, ["plan"]);
    }

    #[test]
    fn a_subcommand_may_follow_options() {
        for line in ["numa-run --cpus 2 plan --json", "numa-run plan --cpus=2 --json", "numa-run --cpus=2 plan --json"]
        {
            let Some(Verb::Plan(plan)) = read(line).unwrap().verb else { panic!("{line}") };
            assert!(plan.json);
        }
    }

    #[test]
    fn a_wrong_launch_ends_with_125_and_a_wrong_plan_with_2() {
        assert_eq!(read("numa-run --cpus x -- true").unwrap_err().1, 125);
        assert_eq!(read("numa-run plan --cpus x").unwrap_err().1, 2);
        assert_eq!(read("numa-run --nonsense ./app").unwrap_err().1, 125);
        assert_eq!(read("numa-run --nonsense plan").unwrap_err().1, 2);
        assert_eq!(read("numa-run --help").unwrap_err().1, 0);
    }
}
