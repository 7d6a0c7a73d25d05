//! Asking the plugin of a device class. Whatever becomes of it, the launch goes on.

use super::syscall;
use crate::topology::child::{self, Ended, Outcome, Terms};
use nix::errno::Errno;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An answer of any size is far below.
const LARGEST_ANSWER: usize = 1 << 20;
/// All that a plugin finds in its environment.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Links that a path may have, as for the kernel.
const LINKS: usize = 40;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// It did not start, or could not be listened to.
    #[error("it cannot be run: {0}")]
    Start(#[from] io::Error),
    /// It did not end in time.
    #[error("it gave no answer within {} s and was stopped", .0.as_secs_f32())]
    Late(Duration),
    /// It printed and printed.
    #[error("it printed more than {} MiB and was stopped", LARGEST_ANSWER >> 20)]
    TooMuch,
    /// It ended otherwise than well.
    #[error("it {0}")]
    Failed(String),
}

/// A plugin that others than root can change, which root does not run.
#[derive(Debug, thiserror::Error)]
#[error(
    "plugin {}: {} {problem}: root runs a plugin only where nobody else can change it (chown root, chmod go-w)",
    program.display(), path.display()
)]
pub struct Distrust {
    program: PathBuf,
    path: PathBuf,
    problem: &'static str,
}

/// Runs a plugin with a question as its stdin, and gives its stdout. It gets
/// no descriptors of ours, PATH as its environment, and a process group of its
/// own, of which nothing is left when this comes back.
///
/// # Errors
/// It gave no answer.
pub fn ask(program: &Path, question: &[u8], limit: Duration) -> Result<Vec<u8>, Silence> {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).current_dir("/").process_group(0);
    syscall::isolate(&mut command)?;
    match child::run(command, &Terms { input: question, time: limit, answer: LARGEST_ANSWER })? {
        Outcome::Ended(ended) if ended.status.success() => Ok(ended.output),
        Outcome::Ended(ended) => Err(Silence::Failed(failure(&ended))),
        Outcome::Late => Err(Silence::Late(limit)),
        Outcome::TooMuch => Err(Silence::TooMuch),
    }
}

fn failure(ended: &Ended) -> String {
    if let Some(number) = ended.status.signal() {
        return format!("died of signal {}", child::signal(number));
    }
    let errors = String::from_utf8_lossy(&ended.errors);
    // Its words must do a terminal no harm.
    let words = child::last_line(&errors).map(|line| line.trim().chars().take(200).flat_map(char::escape_debug));
    let words = words.map(|words| format!(": {}", words.collect::<String>())).unwrap_or_default();
    format!("ended with status {}{words}", ended.status.code().unwrap_or(-1))
}

/// Looks whether only root can change what a program is: the file, its folder,
/// and every folder and link on the way. A folder on the way may be open to all
/// where it is sticky. A program that does not exist does no harm.
///
/// # Errors
/// Somebody else could put another program in its place.
pub fn trusted(program: &Path) -> Result<(), Distrust> {
    let distrust = |(path, problem)| Distrust { program: program.to_owned(), path, problem };
    match Walk::along(program).weakness() {
        Ok(Some(weakness)) => Err(distrust(weakness)),
        Ok(None) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        Err(_) => Err(distrust((program.to_owned(), "cannot be looked at"))),
    }
}

/// A place on the way to a program, and what is wrong with it.
type Weakness = (PathBuf, &'static str);

/// A path that is followed step by step.
struct Walk {
    at: PathBuf,
    left: Vec<OsString>,
    links: usize,
}

impl Walk {
    fn along(program: &Path) -> Walk {
        let mut walk = Walk { at: PathBuf::from("/"), left: Vec::new(), links: 0 };
        walk.ahead(program);
        walk
    }

    fn ahead(&mut self, path: &Path) {
        if path.is_absolute() {
            self.at = PathBuf::from("/");
        }
        let steps = path.components().rev().filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir));
        self.left.extend(steps.map(|step| step.as_os_str().to_owned()));
    }

    fn weakness(mut self) -> io::Result<Option<Weakness>> {
        let mut folder = fs::symlink_metadata(&self.at)?;
        if let Some(problem) = problem(&folder) {
            return Ok(Some((self.at, problem)));
        }
        while let Some(step) = self.left.pop() {
            if step == ".." {
                // No link is in what is behind.
                self.at.pop();
                folder = fs::symlink_metadata(&self.at)?;
                continue;
            }
            let next = self.at.join(&step);
            let about = fs::symlink_metadata(&next)?;
            if let Some(problem) = problem(&about) {
                return Ok(Some((next, problem)));
            }
            if about.is_symlink() {
                self.links += 1;
                if self.links > LINKS {
                    return Err(Errno::ELOOP.into());
                }
                self.ahead(&fs::read_link(&next)?);
                continue;
            }
            if !about.is_dir() && open_to_others(&folder) {
                return Ok(Some((self.at, "may be written to by others")));
            }
            self.at = next;
            folder = about;
        }
        Ok(None)
    }
}

fn problem(about: &Metadata) -> Option<&'static str> {
    let sticky = about.is_dir() && about.mode() & libc::S_ISVTX != 0;
    match about.uid() {
        0 if about.is_symlink() || sticky => None,
        0 => open_to_others(about).then_some("may be written to by others"),
        _ => Some("does not belong to root"),
    }
}

fn open_to_others(about: &Metadata) -> bool {
    let mode = about.permissions().mode();
    mode & libc::S_IWOTH != 0 || (mode & libc::S_IWGRP != 0 && about.gid() != 0)
}
