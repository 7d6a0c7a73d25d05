//! The files by which programs open a device, in the hands of the workload's user.

use super::undo::Outcome;
use super::{StepError, bind};
use crate::fault;
use crate::step::device::FUNCTIONS;
use crate::step::{Close, Open, Undo};
use crate::topology::Bdf;
use nix::unistd::Uid;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of a device, whichever driver has it: a VFIO group, nodes of a GPU, a disk.
pub fn files(root: &Path, device: Bdf) -> Vec<PathBuf> {
    let folder = root.join(FUNCTIONS.trim_start_matches('/')).join(device.to_string());
    let dev = root.join("dev");
    let driver = fs::read_link(folder.join("driver")).unwrap_or_default();
    if driver.file_name().is_some_and(|name| name == bind::VFIO) {
        let group = fs::read_link(folder.join("iommu_group")).unwrap_or_default();
        return group.file_name().map(|group| dev.join("vfio").join(group)).into_iter().collect();
    }
    let drawn = names(&folder.join("drm")).into_iter().filter(|name| is_numbered(name, &["card", "renderD"]));
    let mut files: Vec<PathBuf> = drawn.map(|name| dev.join("dri").join(name)).collect();
    files.extend(nvidia(root, device).map(|number| dev.join(format!("nvidia{number}"))));
    for disk in names(&folder.join("nvme")) {
        let parts = names(&folder.join("nvme").join(&disk));
        let number = disk.trim_start_matches("nvme").to_owned();
        let is_part = |name: &String| is_numbered(name, &[&format!("{disk}n"), &format!("ng{number}n")]);
        files.push(dev.join(&disk));
        files.extend(parts.iter().filter(|name| is_part(name)).map(|name| dev.join(name)));
    }
    files.sort_unstable();
    files
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// True for one of these words with a number behind it.
fn is_numbered(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| name.strip_prefix(word).is_some_and(|number| number.parse::<u32>().is_ok()))
}

/// The number of NVIDIA's file for it, as the driver tells it.
fn nvidia(root: &Path, device: Bdf) -> Option<u32> {
    let file = root.join(format!("proc/driver/nvidia/gpus/{device}/information"));
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
    line.trim().parse().ok()
}

/// What takes the files back; none where they are the user's already.
///
/// # Errors
/// They cannot be looked at.
pub fn undo_of(open: &Open) -> Result<Option<Undo>, StepError> {
    let owner = |file: PathBuf| match fs::metadata(&file) {
        Ok(about) => Ok((file, about.uid())),
        Err(source) => Err(StepError::Refused { call: format!("look at {}", file.display()), source }),
    };
    let files = files(Path::new("/"), open.device).into_iter().map(owner).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<(PathBuf, u32)> = files.into_iter().filter(|(_, user)| *user != open.user).collect();
    Ok((!files.is_empty()).then_some(Undo::Close(Close { files, user: open.user })))
}

/// Gives the files to the user.
///
/// # Errors
/// One of them could not be given.
pub fn open(open: &Open) -> Result<(), StepError> {
    for file in files(Path::new("/"), open.device) {
        let call = || format!("chown {} {}", open.user, file.display());
        let given = give(&file, open.user).map_err(|source| StepError::Refused { call: call(), source })?;
        if given != open.user {
            return Err(StepError::Changed { call: call(), found: format!("user {given}") });
        }
        fault::point("node.given");
    }
    Ok(())
}

/// The owner afterwards.
fn give(file: &Path, user: u32) -> io::Result<u32> {
    nix::unistd::chown(file, Some(Uid::from_raw(user)), None)?;
    Ok(fs::metadata(file)?.uid())
}

/// Takes the files back that are still the user's.
///
/// # Errors
/// One of them could not be taken back; the others were.
pub fn close(undo: &Close) -> io::Result<Outcome> {
    let (mut others, mut failed) = (Vec::new(), Ok(()));
    for (file, before) in &undo.files {
        match fs::metadata(file).map(|about| about.uid()) {
            // Its device is gone, or at another driver.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(found) if found == *before => {}
            Ok(found) if found != undo.user => others.push(format!("{} of user {found}", file.display())),
            Ok(_) => failed = failed.and(give(file, *before).map(|_| fault::point("node.taken"))),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed?;
    Ok(if others.is_empty() { Outcome::Done } else { Outcome::NotOurs(others.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn each_kind_of_device_has_the_files_that_its_driver_makes() {
        let root = tempfile::tempdir().unwrap();
        let device: Bdf = "0000:3b:00.0".parse().unwrap();
        let folder = root.path().join("sys/bus/pci/devices/0000:3b:00.0");
        for name in [
            "drm/card1",
            "drm/renderD129",
            "drm/controlX",
            "nvme/nvme2/nvme2n1",
            "nvme/nvme2/ng2n1",
            "nvme/nvme2/power",
        ] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let driver = root.path().join("proc/driver/nvidia/gpus/0000:3b:00.0");
        fs::create_dir_all(&driver).unwrap();
        fs::write(driver.join("information"), "Model: \t A100\nDevice Minor: \t 3\n").unwrap();
        let found = |root: &Path| -> Vec<String> {
            let files = files(root, device).into_iter();
            files.map(|file| file.strip_prefix(root).unwrap().display().to_string()).collect()
        };
        let all = ["dev/dri/card1", "dev/dri/renderD129", "dev/ng2n1", "dev/nvidia3", "dev/nvme2", "dev/nvme2n1"];
        assert_eq!(found(root.path()), all);
        symlink("../../../../bus/pci/drivers/vfio-pci", folder.join("driver")).unwrap();
        symlink("../../../kernel/iommu_groups/31", folder.join("iommu_group")).unwrap();
        assert_eq!(found(root.path()), ["dev/vfio/31"]);
    }
}
