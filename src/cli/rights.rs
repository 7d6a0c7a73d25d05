//! The options that say who the command is and what it may do.

use super::options::{Contradiction, yes};
use crate::rights::{Capabilities, Principal, Rights, UserSpec, account};
use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

/// Who the command runs as.
#[derive(Debug, Args)]
pub struct RightsArgs {
    /// Run the command as this user, in all of his groups, without capabilities
    #[arg(long, value_name = "USER[:GROUP]", help_heading = "Who", hide_env = true, env = "NUMA_RUN_USER")]
    pub user: Option<UserSpec>,
    /// Groups for the command besides those of --user
    #[arg(long, value_name = "GROUP", help_heading = "Who", hide_env = true, env = "NUMA_RUN_GROUP")]
    #[arg(value_delimiter = ',')]
    pub group: Vec<Principal>,
    /// The only capabilities that the command keeps and can ever have: net_raw,ipc_lock or none
    #[arg(long, value_name = "LIST", help_heading = "Who", hide_env = true, env = "NUMA_RUN_CAPS")]
    pub caps: Option<Capabilities>,
    /// Let the command gain no rights by set-uid programs and the like
    #[arg(long, help_heading = "Who", hide_env = true, env = "NUMA_RUN_NO_NEW_PRIVS", value_parser = yes())]
    pub no_new_privs: bool,
}

impl RightsArgs {
    /// What these flags give up.
    ///
    /// # Errors
    /// Flags that have nothing to work on, or a user that is not there.
    pub fn rights(&self) -> anyhow::Result<Rights> {
        if self.user.is_none() && !self.group.is_empty() {
            let message = "--group adds groups to those of --user, but no user is named: add --user USER";
            return Err(Contradiction(message.into()).into());
        }
        let account = self.user.as_ref().map(|user| account::account(user, &self.group));
        Ok(Rights {
            account: account.transpose().context("--user")?,
            capabilities: self.caps,
            no_new_privileges: self.no_new_privs,
        })
    }

    /// Variables are defaults: groups of nobody count as not set.
    pub(super) fn flags_win(&mut self, matches: &ArgMatches) {
        if self.user.is_none() && matches.value_source("group") == Some(ValueSource::EnvVariable) {
            self.group.clear();
        }
    }
}
