//! One flag for each device class, from the table of classes; `--device` for
//! those of the configuration, `--pci` for the very function.

use crate::request::DeviceRequest;
use crate::request::device::{DeviceError, told_apart};
use crate::resource::pci::class::{self, CLASSES, FUNCTION};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Devices by class, in the order of the classes.
#[derive(Clone, Debug, Default)]
pub struct DeviceArgs(pub Vec<DeviceRequest>);

const DEVICE: &str = "device";

impl Args for DeviceArgs {
    fn augment_args(command: Command) -> Command {
        let of_class = CLASSES.iter().filter_map(|row| Some((row, row.about?)));
        let command = of_class.fold(command, |command, (row, about)| {
            let read = |text: &str| DeviceRequest::parse(row.name, text, row.settable);
            command.arg(flag(row.name, "N", about).value_parser(read))
        });
        let about = "Devices of a class of the configuration";
        let command = command.arg(flag(DEVICE, "CLASS=N", about).value_parser(of_any_class));
        let about = "The very function at this address, or the one with this interface";
        let read = |text: &str| DeviceRequest::parse_function(FUNCTION.name, text);
        command.arg(flag(FUNCTION.name, "ADDRESS", about).value_parser(read))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(name: &'static str, value: &'static str, about: &'static str) -> Arg {
    let variable = format!("NUMA_RUN_{}", name.to_uppercase());
    let arg = Arg::new(name).long(name).value_name(value).help(about).help_heading("What");
    // In one variable, several requests are parted by blanks.
    let arg = arg.action(ArgAction::Append).value_delimiter(' ').hide_env(true);
    // Class names live as long as the program, the names of their variables have to.
    arg.env(&*Box::leak(variable.into_boxed_str()))
}

fn of_any_class(text: &str) -> Result<DeviceRequest, DeviceError> {
    let (class, rest) = text.split_once('=').ok_or_else(|| DeviceError::Class(text.to_owned()))?;
    let class = class.trim();
    if class.is_empty() {
        return Err(DeviceError::Class(text.to_owned()));
    }
    DeviceRequest::parse(class, rest, class::settable(class))
}

impl FromArgMatches for DeviceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let names = CLASSES.iter().map(|row| row.name).chain([DEVICE, FUNCTION.name]);
        let asked = names.filter_map(|name| matches.get_many::<DeviceRequest>(name)).flatten().cloned();
        let mut asked: Vec<DeviceRequest> = asked.collect();
        // `--device gpu=1` belongs with `--gpu 1`.
        let place = |request: &DeviceRequest| CLASSES.iter().position(|row| row.name == request.class);
        asked.sort_by_key(|request| place(request).unwrap_or(CLASSES.len()));
        told_apart(asked).map(DeviceArgs).map_err(|label| {
            clap::Error::raw(
                ErrorKind::ArgumentConflict,
                format!("{label} is asked for twice: names tell devices apart\n"),
            )
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
