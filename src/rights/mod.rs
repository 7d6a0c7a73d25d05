//! Who the workload is and what it may do, where that is not what its caller is and may.

pub mod account;
pub mod capabilities;

pub use account::{Account, AccountError, Principal, UserSpec};
pub use capabilities::Capabilities;

use std::ffi::OsString;

/// What a launch gives up before its workload runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Whom it becomes; none: nobody else.
    pub account: Option<Account>,
    /// The only capabilities that are left; none: those that the user has anyway.
    pub capabilities: Option<Capabilities>,
    /// Whether nothing that is executed from then on gains rights.
    pub no_new_privileges: bool,
}

/// Variables of the caller that name what is his alone.
const CALLERS_OWN: [&str; 1] = ["XDG_RUNTIME_DIR"];

impl Rights {
    /// True when nothing is given up.
    pub fn are_kept(&self) -> bool {
        *self == Rights::default()
    }

    /// What is left in each set of the process: nothing for another user, unless
    /// it is asked for; none where the sets stay as they are.
    pub fn held(&self) -> Option<Capabilities> {
        let other = self.account.as_ref().is_some_and(|account| account.uid != 0);
        self.capabilities.or(other.then(Capabilities::default))
    }

    /// Variables of the user, as systemd sets them for `User=`.
    pub fn variables(&self) -> Vec<(String, OsString)> {
        let Some(account) = &self.account else { return Vec::new() };
        let name = OsString::from(&account.name);
        let home = account.home.clone().into_os_string();
        let shell = account.shell.clone().into_os_string();
        let set = [("HOME", home), ("USER", name.clone()), ("LOGNAME", name), ("SHELL", shell)];
        set.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Variables that the workload does not inherit.
    pub fn unset(&self) -> Vec<String> {
        let names: &[&str] = if self.account.is_some() { &CALLERS_OWN } else { &[] };
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// The start of a shell line that does the same.
    pub fn shell(&self) -> String {
        let mut words = vec!["setpriv".to_owned()];
        if let Some(Account { uid, gid, groups, .. }) = &self.account {
            let groups = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            words.extend([format!("--reuid {uid}"), format!("--regid {gid}"), format!("--groups {groups}")]);
        }
        if let Some(held) = self.held() {
            let set: String = held.names().iter().map(|name| format!(",+{name}")).collect();
            let sets: &[&str] = match self.capabilities {
                Some(_) => &["--inh-caps", "--ambient-caps", "--bounding-set"],
                None => &["--inh-caps"],
            };
            words.extend(sets.iter().map(|option| format!("{option}=-all{set}")));
        }
        if self.no_new_privileges {
            words.push("--no-new-privs".into());
        }
        words.join(" ") + " --"
    }
}
