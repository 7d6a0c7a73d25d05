//! Disks that are mounted, swapped to, or parts of other disks.

use super::{Files, InUse};
use crate::topology::Bdf;
use std::collections::{BTreeMap, BTreeSet};

const BLOCK: &str = "sys/class/block";

/// One disk or partition, and the functions that it hangs on: several where it has several paths.
struct Block {
    name: String,
    functions: BTreeSet<Bdf>,
    number: Option<String>,
}

/// The functions whose disks are used.
pub(super) fn used(files: &Files) -> InUse {
    let blocks = blocks(files);
    if blocks.is_empty() {
        return InUse::new();
    }
    let users = Users::read(files);
    let mut used = InUse::new();
    for block in &blocks {
        if let Some(reason) = users.of(files, block) {
            for bdf in &block.functions {
                used.entry(*bdf).or_insert_with(|| reason.clone());
            }
        }
    }
    used
}

fn blocks(files: &Files) -> Vec<Block> {
    let names = files.names(BLOCK);
    let places: Vec<(String, Vec<String>)> =
        names.into_iter().map(|name| (name.clone(), parts(files, &name))).collect();
    let mut heads: BTreeMap<String, BTreeSet<Bdf>> = BTreeMap::new();
    for (name, parts) in &places {
        if let (Some(head), Some(bdf)) = (head(name), function(parts)) {
            heads.entry(head).or_default().insert(bdf);
        }
    }
    let functions = |parts: &[String]| match function(parts) {
        Some(bdf) => BTreeSet::from([bdf]),
        None => parts.iter().find_map(|part| heads.get(part)).cloned().unwrap_or_default(),
    };
    let block = |(name, parts): (String, Vec<String>)| Block {
        functions: functions(&parts),
        number: files.text(format!("{BLOCK}/{name}/dev")),
        name,
    };
    places.into_iter().map(block).filter(|block| !block.functions.is_empty()).collect()
}

fn parts(files: &Files, name: &str) -> Vec<String> {
    let place = files.link(format!("{BLOCK}/{name}")).unwrap_or_default();
    place.iter().map(|part| part.to_string_lossy().into_owned()).collect()
}

/// The last function on the way to a disk.
fn function(parts: &[String]) -> Option<Bdf> {
    parts.iter().rev().find_map(|part| part.parse().ok())
}

/// `nvme0c1n1`, one path to a disk, belongs to `nvme0n1`, the disk.
fn head(path: &str) -> Option<String> {
    let (subsystem, rest) = path.strip_prefix("nvme")?.split_once('c')?;
    let (controller, disk) = rest.split_once('n')?;
    let numbers = [subsystem, controller].iter().all(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.then(|| format!("nvme{subsystem}n{disk}"))
}

/// What is mounted and swapped to.
struct Users {
    /// Places by device number, and by name: a file system of several disks names one of them.
    mounts: BTreeMap<String, String>,
    swaps: BTreeSet<String>,
}

impl Users {
    fn read(files: &Files) -> Users {
        let mut mounts = BTreeMap::new();
        // The first process's view has what a container does not see.
        for table in ["proc/self/mountinfo", "proc/1/mountinfo"] {
            let table = files.text(table).unwrap_or_default();
            for (key, place) in table.lines().flat_map(mounted) {
                mounts.entry(key).or_insert(place);
            }
        }
        let swaps = files.text("proc/swaps").unwrap_or_default();
        let swaps = swaps.lines().skip(1).filter_map(|line| disk(line.split_whitespace().next()?));
        Users { mounts, swaps: swaps.collect() }
    }

    fn of(&self, files: &Files, block: &Block) -> Option<String> {
        let name = &block.name;
        let number = block.number.as_ref().and_then(|number| self.mounts.get(number));
        if let Some(place) = number.or_else(|| self.mounts.get(name)) {
            return Some(format!("{name} is mounted on {place}"));
        }
        if self.swaps.contains(name) {
            return Some(format!("{name} is swapped to"));
        }
        let holder = files.names(format!("{BLOCK}/{name}/holders")).into_iter().next()?;
        Some(format!("{name} is a part of {holder}"))
    }
}

/// The device number and the name of a line of mountinfo, with the place.
fn mounted(line: &str) -> Vec<(String, String)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [_, _, number, _, place, ..] = fields[..] else { return Vec::new() };
    let source = fields.iter().position(|field| *field == "-").and_then(|at| fields.get(at + 2));
    let name = source.and_then(|source| disk(source));
    let keys = [Some(number.to_owned()), name];
    keys.into_iter().flatten().map(|key| (key, place.to_owned())).collect()
}

fn disk(path: &str) -> Option<String> {
    path.strip_prefix("/dev/").filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_its_disk() {
        assert_eq!(head("nvme0c1n1").as_deref(), Some("nvme0n1"));
        assert_eq!(head("nvme10c12n3").as_deref(), Some("nvme10n3"));
        for name in ["nvme0n1", "nvme0n1p1", "sdc", "dm-0", "nvmecn"] {
            assert!(head(name).is_none_or(|head| head == "nvmen"), "{name}");
        }
    }
}
