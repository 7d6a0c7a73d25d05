//! Giving up rights for good: another user, fewer capabilities, none to be gained.
//! All of it survives exec, and is read back from /proc.

use super::{StepError, syscall};
use crate::rights::{Account, Capabilities, Rights};
use caps::CapSet;
use caps::errors::CapsError;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use std::fs;
use std::io;

/// Gives them up, in the order in which each step still has the rights that it needs.
///
/// # Errors
/// The kernel refused, or something is left that was to be given up.
pub fn give_up(rights: &Rights) -> Result<(), StepError> {
    if let Some(kept) = rights.capabilities {
        bound(kept)?;
    }
    if let Some(account) = &rights.account {
        become_user(account, rights.capabilities.unwrap_or_default())?;
    }
    if let Some(held) = rights.held() {
        hold(held)?;
    }
    if rights.no_new_privileges {
        prctl::set_no_new_privs().map_err(refused("prctl(PR_SET_NO_NEW_PRIVS)"))?;
    }
    verify(rights)
}

/// Those of these capabilities that this process does not have to give.
///
/// # Errors
/// The kernel does not tell.
pub fn missing(wanted: Capabilities) -> io::Result<Capabilities> {
    let status = Status::read()?;
    Ok(wanted.minus(Capabilities(status.permitted & status.bounding)))
}

fn refused<E: Into<io::Error>>(call: impl Into<String>) -> impl FnOnce(E) -> StepError {
    let call = call.into();
    |source| StepError::Refused { call, source: source.into() }
}

/// The bounding set is what set-uid programs and root himself can have at most.
fn bound(kept: Capabilities) -> Result<(), StepError> {
    for number in 0..=last_capability()? {
        if kept.0 & 1 << number == 0 {
            syscall::drop_from_bounding_set(number).map_err(refused(format!("prctl(PR_CAPBSET_DROP, {number})")))?;
        }
    }
    Ok(())
}

/// The kernel may have more capabilities than anybody knows by name.
fn last_capability() -> Result<u32, StepError> {
    let file = "/proc/sys/kernel/cap_last_cap";
    let text = fs::read_to_string(file).map_err(refused(format!("read {file}")))?;
    let number = text.trim().parse::<u32>().ok().filter(|&number| number < 64);
    number.ok_or_else(|| refused(format!("read {file}"))(io::Error::from(io::ErrorKind::InvalidData)))
}

/// Groups first: without root's user id there is no changing them. The ids that
/// are saved, and those for files, follow.
fn become_user(account: &Account, kept: Capabilities) -> Result<(), StepError> {
    let groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(refused(format!("setgroups({})", list(&account.groups))))?;
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    setresgid(gid, gid, gid).map_err(refused(format!("setresgid({gid})")))?;
    if !kept.is_empty() {
        prctl::set_keepcaps(true).map_err(refused("prctl(PR_SET_KEEPCAPS)"))?;
    }
    setresuid(uid, uid, uid).map_err(refused(format!("setresuid({uid})")))?;
    prctl::set_keepcaps(false).map_err(refused("prctl(PR_SET_KEEPCAPS)"))
}

/// Leaves exactly these. The ambient set is what another user's program starts with.
fn hold(held: Capabilities) -> Result<(), StepError> {
    let known = held.known();
    let failed = |error: CapsError| refused(format!("capset({held})"))(io::Error::other(error));
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    // What is in effect has to be permitted: it goes first, and comes last.
    caps::clear(None, CapSet::Effective).map_err(failed)?;
    for set in [CapSet::Inheritable, CapSet::Permitted, CapSet::Effective] {
        caps::set(None, set, &known).map_err(failed)?;
    }
    known.into_iter().try_for_each(|capability| caps::raise(None, CapSet::Ambient, capability)).map_err(failed)
}

fn verify(rights: &Rights) -> Result<(), StepError> {
    let status = Status::read().map_err(refused("read /proc/thread-self/status"))?;
    if let Some(account) = &rights.account {
        same("user ids", list(&[account.uid; 4]), list(&status.users))?;
        same("group ids", list(&[account.gid; 4]), list(&status.group_ids))?;
        same("groups", list(&account.groups), list(&status.groups))?;
    }
    if let Some(held) = rights.held() {
        for found in [status.inheritable, status.permitted, status.effective, status.ambient] {
            same("capabilities", hexadecimal(held.0), hexadecimal(found))?;
        }
    }
    if let Some(kept) = rights.capabilities {
        same("bounding set", hexadecimal(kept.0), hexadecimal(status.bounding))?;
    }
    same("no_new_privs", rights.no_new_privileges | status.no_new_privileges, status.no_new_privileges)
}

fn same<T: PartialEq + std::fmt::Display>(what: &str, wanted: T, found: T) -> Result<(), StepError> {
    match wanted == found {
        true => Ok(()),
        false => Err(StepError::Changed { call: format!("{what} {wanted}"), found: found.to_string() }),
    }
}

fn hexadecimal(set: u64) -> String {
    format!("{set:016x}")
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// What /proc says of this thread.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    users: Vec<u32>,
    group_ids: Vec<u32>,
    groups: Vec<u32>,
    inheritable: u64,
    permitted: u64,
    effective: u64,
    bounding: u64,
    ambient: u64,
    no_new_privileges: bool,
}

impl Status {
    fn read() -> io::Result<Status> {
        Ok(Status::parse(&fs::read_to_string("/proc/thread-self/status")?))
    }

    fn parse(text: &str) -> Status {
        let mut status = Status::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let ids = || value.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>();
            let set = || u64::from_str_radix(value.trim(), 16).unwrap_or(u64::MAX);
            match name {
                "Uid" => status.users = ids(),
                "Gid" => status.group_ids = ids(),
                "Groups" => status.groups = ids(),
                "CapInh" => status.inheritable = set(),
                "CapPrm" => status.permitted = set(),
                "CapEff" => status.effective = set(),
                "CapBnd" => status.bounding = set(),
                "CapAmb" => status.ambient = set(),
                "NoNewPrivs" => status.no_new_privileges = value.trim() == "1",
                _ => {}
            }
        }
        status
    }
}
