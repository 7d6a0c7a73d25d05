//! Completion for shells, from the same table of options as the help.

use super::{Cli, LaunchArgs};
use clap::{Args, Command, CommandFactory, ValueEnum};

/// `numa-run completions`.
#[derive(Debug, Args)]
#[command(after_help = "bash: numa-run completions bash > ~/.local/share/bash-completion/completions/numa-run\n\
zsh:  numa-run completions zsh > FOLDER/_numa-run, FOLDER being one of $fpath\n\
fish: numa-run completions fish > ~/.config/fish/completions/numa-run.fish")]
pub struct CompletionsArgs {
    /// The shell that is to read it
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Shells that are completed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU bash
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly one
    Fish,
}

/// The script for a shell.
pub fn script(shell: Shell) -> String {
    let generated = |generator: clap_complete::Shell, name: &str| {
        let mut script = Vec::new();
        clap_complete::generate(generator, &mut visible(), name, &mut script);
        String::from_utf8_lossy(&script).into_owned()
    };
    match shell {
        // The generator for bash writes the hyphen of a name in two ways: none of its subcommands would be found.
        Shell::Bash => generated(clap_complete::Shell::Bash, "numa_run").replace(" numa_run\n", " numa-run\n"),
        Shell::Zsh => generated(clap_complete::Shell::Zsh, "numa-run"),
        Shell::Fish => generated(clap_complete::Shell::Fish, "numa-run"),
    }
}

/// The command line without what its help does not show.
fn visible() -> Command {
    let full = Cli::command();
    let shown = full.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let bare = Command::new("numa-run").version("").disable_help_subcommand(true);
    LaunchArgs::augment_args(bare).subcommands(shown)
}
