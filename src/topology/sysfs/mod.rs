//! A [`Machine`] from a `/sys` tree under any root.
//!
//! Only what a Machine needs to exist at all (the CPUs that are online) can
//! fail; anything else that is missing or odd is left out and becomes a warning.

mod cpus;
mod kfd;
mod kinds;
mod locality;
mod memory;
mod nodes;
mod pages;
mod pci;

pub use nodes::refresh_memory;
pub use pages::refresh_pages;
pub use pci::refresh_function;

use super::mask::ListError;
use super::{CpuSet, Machine};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Why a tree describes no machine.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// The list of CPUs is no list.
    #[error("{}: {reason}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: ListError,
    },
    /// No CPU is online: this is no /sys tree.
    #[error("{} names no online CPU: is there a /sys tree?", .0.display())]
    Empty(PathBuf),
}

/// The machine that `root/sys` describes; `/` is this host.
pub fn read(root: &Path) -> Result<Machine, SysfsError> {
    let mut tree = Tree::at(root);
    let online = cpus::online(&tree)?;
    let nodes = nodes::read(&mut tree, &online);
    let mut machine = Machine { source: source(root), nodes, ..Machine::default() };
    machine.distances = nodes::distances(&mut tree, &machine.nodes);
    machine.cpus = cpus::read(&mut tree, &machine.nodes, &online);
    kinds::read(&tree, &mut machine.cpus);
    memory::read(&tree, &mut machine.nodes);
    machine.promised_pages = pages::promised(&tree);
    machine.pci = pci::read(&mut tree, &machine);
    machine.links = kfd::links(&tree, &machine.pci);
    machine.warnings = tree.warnings;
    super::check::warn_of_contradictions(&mut machine);
    Ok(machine)
}

fn source(root: &Path) -> String {
    match root == Path::new("/") {
        true => "this host".to_owned(),
        false => root.display().to_string(),
    }
}

/// A tree that is being read, and what was odd about it.
struct Tree {
    root: PathBuf,
    sys: PathBuf,
    warnings: Vec<String>,
}

impl Tree {
    fn at(root: &Path) -> Tree {
        Tree { sys: root.join("sys"), root: root.to_owned(), warnings: Vec::new() }
    }

    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        bounded(&self.sys.join(path)).ok()
    }

    /// The machine's own meminfo, which is not in /sys.
    fn meminfo(&self) -> Option<String> {
        bounded(&self.root.join("proc/meminfo")).ok()
    }

    fn number<T: FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// A list of ids. The kernel prints `(null)` for a mask that was never
    /// made: that is an empty one. What is no list is a warning.
    fn list<T: FromStr>(&mut self, path: impl AsRef<Path>) -> Option<T>
    where
        T::Err: std::fmt::Display,
    {
        let text = self.text(&path)?;
        let text = if text == "(null)" { "" } else { &text };
        text.parse().inspect_err(|error| self.warnings.push(format!("{}: {error}", self.sys.join(path).display()))).ok()
    }

    /// Names in a folder, sorted; empty where there is none.
    fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.sys.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Ids of the entries called `prefix` and a number.
    fn numbered<T: FromIterator<u32>>(&self, path: impl AsRef<Path>, prefix: &str) -> T {
        let id = |name: &String| name.strip_prefix(prefix)?.parse::<u32>().ok();
        self.names(path).iter().filter_map(id).collect()
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

/// No file of sysfs is longer.
const LARGEST: u64 = 1 << 20;

/// A file's text. A captured tree may hold anything: a pipe must not block,
/// and a device without an end must not be read for ever.
fn bounded(file: &Path) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    // Old captures pad files with zero bytes.
    let padding = |c: char| c.is_whitespace() || c == '\0';
    Ok(String::from_utf8_lossy(&bytes).trim_matches(padding).to_owned())
}

/// CPUs that the tree's machine has, online or not.
fn present(tree: &mut Tree, online: &CpuSet) -> CpuSet {
    // Trees captured from old kernels have CPUs that are online and not present.
    tree.list::<CpuSet>("devices/system/cpu/present").unwrap_or_default().or(online)
}
