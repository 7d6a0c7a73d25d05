//! The launcher: reads the command line, does what it says, ends with its code.

use numa_run::cli::{Cli, Verb};
use numa_run::{boot, host, inspect, launch, ledger, report};
use std::process::ExitCode;

/// musl's own allocator asks the kernel for pages again and again.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    // Before anything is read: a plan starts the probe that a variable names, and opens files.
    if host::syscall::runs_with_foreign_rights() {
        report::say("numa-run: numa-run does not run set-uid: its callers would get its rights\n");
        return ExitCode::from(125);
    }
    let cli = match Cli::read(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err((error, code)) => {
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    numa_run::cli::log(&cli);
    match &cli.verb {
        None => ended(launch::launch(&cli.launch), launch::exit_code),
        Some(Verb::Plan(arguments)) => ended(inspect::plan(arguments), inspect::exit_code),
        Some(Verb::Topo(arguments)) => ended(inspect::topo(arguments), inspect::exit_code),
        Some(Verb::Status(arguments)) => ended(ledger::status(arguments), inspect::exit_code),
        Some(Verb::Release(arguments)) => ended(ledger::release(arguments), inspect::exit_code),
        Some(Verb::Gc(arguments)) => ended(ledger::gc(arguments), inspect::exit_code),
        Some(Verb::Guard(arguments)) => ended(ledger::guard(arguments), inspect::exit_code),
        Some(Verb::Completions(arguments)) => ended(inspect::completions(arguments), inspect::exit_code),
        Some(Verb::Up(arguments)) => ended(boot::up(arguments), inspect::exit_code),
        Some(Verb::Debug(arguments)) => ended(inspect::debug(arguments), inspect::exit_code),
    }
}

fn ended(result: anyhow::Result<u8>, code: fn(&anyhow::Error) -> u8) -> ExitCode {
    result.map_or_else(
        |error| {
            report::say(format!("numa-run: {error:#}\n"));
            ExitCode::from(code(&error))
        },
        ExitCode::from,
    )
}
