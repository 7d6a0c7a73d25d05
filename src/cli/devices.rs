//! One flag for each device class, from the table of classes.

use crate::request::DeviceRequest;
use crate::resource::pci::CLASSES;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

/// Counts of devices by class.
#[derive(Clone, Debug, Default)]
pub struct DeviceArgs(pub Vec<DeviceRequest>);

impl Args for DeviceArgs {
    fn augment_args(command: Command) -> Command {
        CLASSES.iter().fold(command, |command, class| {
            let variable = format!("NUMA_RUN_{}", class.name.to_uppercase());
            let arg = Arg::new(class.name)
                .long(class.name)
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..))
                .help(class.about)
                .hide_env(true)
                .help_heading("What");
            // Class names live as long as the program, the names of their variables have to.
            command.arg(arg.env(&*Box::leak(variable.into_boxed_str())))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DeviceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let asked = CLASSES.iter().filter_map(|class| {
            let count = *matches.get_one::<u32>(class.name)?;
            Some(DeviceRequest { class: class.name.to_owned(), count })
        });
        Ok(DeviceArgs(asked.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
