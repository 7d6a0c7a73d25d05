//! Users and groups by name or number, from /etc/passwd and /etc/group.

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// A user or group as it is typed: digits are a number, whatever else is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Its number.
    Id(u32),
    /// Its name.
    Name(String),
}

/// `USER[:GROUP]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSpec {
    /// The user.
    pub user: Principal,
    /// The group; none: the user's own.
    pub group: Option<Principal>,
}

/// Whom a launch becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// All groups, the one above too, in order.
    pub groups: Vec<u32>,
    /// The user's name, or the number of one who has none.
    pub name: String,
    /// The home directory.
    pub home: PathBuf,
    /// The login shell.
    pub shell: PathBuf,
}

/// Why there is no such account.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// Nothing, or a number that means "nobody" to the kernel.
    #[error("`{0}` is no user or group: write a name or a number, as in --user app, --user 1000:1000")]
    Syntax(String),
    /// A name that is not there.
    #[error("there is no {kind} `{name}` in {file}: check the name; a number is taken as it is (--user 1000:1000)")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// As typed.
        name: String,
        /// Where it was looked for.
        file: &'static str,
    },
    /// A number that is not there has no group of its own.
    #[error("user {0} is not in /etc/passwd, so that his group is not known: write --user {0}:GROUP")]
    Group(u32),
    /// The files cannot be read.
    #[error("cannot look up {0}")]
    Lookup(String, #[source] io::Error),
}

impl FromStr for Principal {
    type Err = AccountError;

    fn from_str(text: &str) -> Result<Principal, AccountError> {
        let odd = |letter: char| letter.is_whitespace() || letter.is_control() || ":,/\0".contains(letter);
        if text.is_empty() || text.starts_with('-') || text.contains(odd) {
            return Err(AccountError::Syntax(text.to_owned()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Principal::Name(text.to_owned()));
        }
        // For the kernel, the highest number means "as it is": root would stay root.
        let id = text.parse::<u32>().ok().filter(|&id| id != u32::MAX);
        id.map(Principal::Id).ok_or_else(|| AccountError::Syntax(text.to_owned()))
    }
}

impl FromStr for UserSpec {
    type Err = AccountError;

    fn from_str(text: &str) -> Result<UserSpec, AccountError> {
        match text.split_once(':') {
            None => Ok(UserSpec { user: text.parse()?, group: None }),
            Some((user, group)) => Ok(UserSpec { user: user.parse()?, group: Some(group.parse()?) }),
        }
    }
}

/// The account of a user, who is in his own groups, in the one that is named
/// with him, and in these others.
///
/// # Errors
/// A user or group is not there.
pub fn account(user: &UserSpec, others: &[Principal]) -> Result<Account, AccountError> {
    let known = known(&user.user)?;
    let gid = match (&user.group, &known) {
        (Some(group), _) => gid(group)?,
        (None, Ok(known)) => known.gid.as_raw(),
        (None, Err(uid)) => return Err(AccountError::Group(*uid)),
    };
    let mut groups = match &known {
        Ok(known) => of_user(known, gid)?,
        Err(_) => vec![gid],
    };
    for group in others {
        groups.push(self::gid(group)?);
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(match known {
        Ok(User { name, uid, dir, shell, .. }) => Account { uid: uid.as_raw(), gid, groups, name, home: dir, shell },
        // What is left of root's would be wrong, and programs rely on there being something.
        Err(uid) => Account { uid, gid, groups, name: uid.to_string(), home: "/".into(), shell: "/bin/sh".into() },
    })
}

/// The entry of a user, or the number of one who has none.
fn known(user: &Principal) -> Result<Result<User, u32>, AccountError> {
    let (found, text) = match user {
        Principal::Id(uid) => (User::from_uid(Uid::from_raw(*uid)), uid.to_string()),
        Principal::Name(name) => (User::from_name(name), name.clone()),
    };
    match (found.map_err(|errno| AccountError::Lookup(format!("user {text}"), errno.into()))?, user) {
        (Some(known), _) => Ok(Ok(known)),
        (None, Principal::Id(uid)) => Ok(Err(*uid)),
        (None, Principal::Name(_)) => Err(AccountError::Unknown { kind: "user", name: text, file: "/etc/passwd" }),
    }
}

fn gid(group: &Principal) -> Result<u32, AccountError> {
    match group {
        Principal::Id(gid) => Ok(*gid),
        Principal::Name(name) => {
            let found = Group::from_name(name);
            let found = found.map_err(|errno| AccountError::Lookup(format!("group {name}"), errno.into()))?;
            let unknown = || AccountError::Unknown { kind: "group", name: name.clone(), file: "/etc/group" };
            found.map(|group| group.gid.as_raw()).ok_or_else(unknown)
        }
    }
}

/// The groups that list him, as initgroups(3) finds them, and this one.
fn of_user(user: &User, gid: u32) -> Result<Vec<u32>, AccountError> {
    let failed = |source| AccountError::Lookup(format!("the groups of {}", user.name), source);
    let name = CString::new(user.name.as_str()).map_err(|error| failed(error.into()))?;
    let groups = getgrouplist(&name, Gid::from_raw(gid)).map_err(|errno| failed(errno.into()))?;
    Ok(groups.into_iter().map(Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_name_or_a_number_with_or_without_a_group() {
        let name = |name: &str| Principal::Name(name.into());
        for (text, user, group) in [
            ("app", name("app"), None),
            ("1000", Principal::Id(1000), None),
            ("1000:100", Principal::Id(1000), Some(Principal::Id(100))),
            ("app:dpdk", name("app"), Some(name("dpdk"))),
            ("0", Principal::Id(0), None),
        ] {
            assert_eq!(text.parse::<UserSpec>().unwrap(), UserSpec { user, group }, "{text}");
        }
    }

    #[test]
    fn what_names_nobody_is_refused() {
        for text in
            ["", ":", "app:", ":100", "a:b:c", "4294967295", "4294967296", "99999999999", "-1", "a b", "a,b", "a\n"]
        {
            assert!(matches!(text.parse::<UserSpec>(), Err(AccountError::Syntax(_))), "{text:?}");
        }
    }

    #[test]
    fn a_number_that_nobody_has_needs_a_group_and_gets_no_home_of_roots() {
        let nobody: UserSpec = "4200000000".parse().unwrap();
        assert!(matches!(account(&nobody, &[]), Err(AccountError::Group(4_200_000_000))));
        let grouped: UserSpec = "4200000000:7".parse().unwrap();
        let account = account(&grouped, &[Principal::Id(9), Principal::Id(7), Principal::Id(8)]).unwrap();
        assert_eq!((account.uid, account.gid, account.groups), (4_200_000_000, 7, vec![7, 8, 9]));
        assert_eq!(account.home, PathBuf::from("/"));
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_the_file() {
        let nobody = account(&"no-such-user-anywhere".parse().unwrap(), &[]).unwrap_err().to_string();
        assert!(nobody.contains("no user `no-such-user-anywhere` in /etc/passwd"), "{nobody}");
        let group = account(&"root:no-such-group".parse().unwrap(), &[]).unwrap_err().to_string();
        assert!(group.contains("no group `no-such-group` in /etc/group"), "{group}");
    }
}
