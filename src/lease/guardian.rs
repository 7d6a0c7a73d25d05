//! A process that is left behind by a launch which has changed what others on
//! the host feel: it waits for the workload's end and undoes that at once.
//!
//! It never has the workload's lock: it asks for it, beside others who ask, so
//! that to everybody the lease ends when the workload ends. Where it is killed,
//! the next launch or `numa-run gc` does the same.

use super::ledger::Own;
use super::recover::{self, Effort};
use super::{Ledger, LedgerError, Life, watch};
use crate::fault;
use crate::host::audit::Audit;
use crate::host::child;
use std::ffi::OsStr;
use std::io;
use std::time::Duration;

/// Between looks at a lease that is kept for a restart, or at a ledger that cannot be used.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a ledger that cannot be locked or read is tried.
const TRIES: u32 = 600;

/// Leaves a guardian behind for this lease.
///
/// # Errors
/// It could not be started.
pub fn start(own: &Own, audit: &Audit) -> io::Result<()> {
    // It lives in another folder than we do.
    let folder = std::path::absolute(own.ledger_folder())?;
    let [program, verb, run_dir, to] = ["numa-run", "guard", "--run-dir", "--audit"].map(OsStr::new);
    child::apart(&[program, verb, run_dir, folder.as_os_str(), to, audit.word(), OsStr::new(&own.id)])
}

/// What the guardian does.
///
/// # Errors
/// The ledger could not be used again and again.
pub fn guard(ledger: &Ledger, id: &str) -> anyhow::Result<()> {
    let _ = nix::sys::prctl::set_name(c"numa-run-guard");
    let mut tries = 0;
    fault::point("guard.waits");
    while watch::until_dead(ledger, id)? {
        fault::point("guard.woken");
        match recover::these(ledger, Effort::Again, None, &|entry| entry.id == id) {
            Ok((_, recovered)) if recovered.stuck.is_empty() && recovered.waiting.is_empty() => break,
            // Whoever hangs in the kernel has the lock: it is tried once more when he is back.
            Ok((_, recovered)) if !recovered.stuck.is_empty() && !lives(ledger, id) => break,
            Ok(_) => {}
            Err(LedgerError::Locked { .. } | LedgerError::File { .. }) if tries < TRIES => tries += 1,
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn lives(ledger: &Ledger, id: &str) -> bool {
    ledger.look_up(id).is_some_and(|entry| entry.life == Life::Alive)
}
