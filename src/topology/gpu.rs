//! The names by which GPU runtimes know a device.

use super::Bdf;
use std::path::Path;

/// UUID of a GPU: NVIDIA's driver tells it in /proc, AMD's in sysfs; none
/// where no driver does.
pub fn uuid(root: &Path, bdf: Bdf) -> Option<String> {
    nvidia(root, bdf).or_else(|| amd(root, bdf))
}

fn nvidia(root: &Path, bdf: Bdf) -> Option<String> {
    let file = root.join(format!("proc/driver/nvidia/gpus/{bdf}/information"));
    let text = std::fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?.trim();
    // A driver that has not initialised the device prints question marks.
    (value.starts_with("GPU-") && !value.contains('?')).then(|| value.to_owned())
}

fn amd(root: &Path, bdf: Bdf) -> Option<String> {
    let text = std::fs::read_to_string(root.join(format!("sys/bus/pci/devices/{bdf}/unique_id"))).ok()?;
    let value = text.trim();
    (!value.is_empty()).then(|| format!("GPU-{value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_comes_from_the_driver_that_knows_it() {
        let root = tempfile::tempdir().unwrap();
        let bdf: Bdf = "3b:00.0".parse().unwrap();
        let folder = root.path().join("proc/driver/nvidia/gpus/0000:3b:00.0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("information"), "Model: \t X\nGPU UUID: \t GPU-1234-ab\n").unwrap();
        assert_eq!(uuid(root.path(), bdf).as_deref(), Some("GPU-1234-ab"));
        std::fs::write(folder.join("information"), "GPU UUID: \t GPU-????\n").unwrap();
        assert_eq!(uuid(root.path(), bdf), None);
        let folder = root.path().join("sys/bus/pci/devices/0000:3b:00.0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("unique_id"), "5a1b\n").unwrap();
        assert_eq!(uuid(root.path(), bdf).as_deref(), Some("GPU-5a1b"));
    }
}
