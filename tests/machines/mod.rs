//! Machines for tests: /sys trees written into a temporary folder, and real
//! ones captured by others, where they are at hand.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "only tests and benches are built with it")]
#![allow(clippy::disallowed_methods, reason = "tests make and remove files of their own")]

pub mod described;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A root with a /sys tree.
pub struct Tree(TempDir);

/// One node: id, CPUs, MiB, row of the distance table.
pub type NodeRow<'a> = (u32, &'a str, u64, &'a str);

impl Tree {
    /// An empty one.
    pub fn new() -> Tree {
        Tree(scratch())
    }

    /// A machine of these nodes. Each CPU is a core of its own and each node a
    /// package, until told otherwise.
    pub fn of(nodes: &[NodeRow<'_>]) -> Tree {
        let tree = Tree::new();
        let ids: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
        let cpus: Vec<&str> = nodes.iter().map(|node| node.1).filter(|cpus| !cpus.is_empty()).collect();
        tree.file("devices/system/node/online", &ids.join(","));
        tree.file("devices/system/cpu/online", &cpus.join(","));
        tree.file("devices/system/cpu/present", &cpus.join(","));
        for &(id, cpus, mib, distance) in nodes {
            let folder = format!("devices/system/node/node{id}");
            tree.file(&format!("{folder}/cpulist"), cpus);
            tree.file(&format!("{folder}/distance"), distance);
            tree.file(&format!("{folder}/meminfo"), &format!("Node {id} MemTotal:  {} kB", mib * 1024));
            each(cpus, |cpu| {
                tree.core(&cpu.to_string());
                tree.topology(cpu, "physical_package_id", &id.to_string());
            });
        }
        tree
    }

    /// The root.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file below /sys.
    pub fn file(&self, path: &str, text: &str) -> &Tree {
        let path = self.root().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    /// Makes a link below /sys.
    pub fn link(&self, path: &str, target: &str) -> &Tree {
        let path = self.root().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    /// Says that these CPUs are one core.
    pub fn core(&self, siblings: &str) -> &Tree {
        each(siblings, |cpu| self.topology(cpu, "thread_siblings_list", siblings));
        self
    }

    /// Says that these CPUs share an L3.
    pub fn l3(&self, cpus: &str) -> &Tree {
        each(cpus, |cpu| {
            for (index, level) in ["1", "1", "2", "3"].iter().enumerate() {
                let cache = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
                self.file(&format!("{cache}/level"), level);
                let shared = if *level == "3" { cpus.to_owned() } else { cpu.to_string() };
                self.file(&format!("{cache}/shared_cpu_list"), &shared);
            }
        });
        self
    }

    /// Writes a file of a CPU's topology folder.
    pub fn topology(&self, cpu: u32, file: &str, text: &str) {
        self.file(&format!("devices/system/cpu/cpu{cpu}/topology/{file}"), text);
    }

    /// Puts hugepages on a node: size in KiB, all, free.
    pub fn pages(&self, node: u32, size_kib: u64, total: u64, free: u64) -> &Tree {
        let pool = format!("devices/system/node/node{node}/hugepages/hugepages-{size_kib}kB");
        self.file(&format!("{pool}/nr_hugepages"), &total.to_string());
        self.file(&format!("{pool}/free_hugepages"), &free.to_string())
    }

    /// Adds a PCI function below a path such as `pci0000:00` or one with bridges.
    pub fn pci(&self, above: &str, name: &str, class: &str, node: i64, local: &str) -> &Tree {
        let folder = format!("devices/{above}/{name}");
        self.file(&format!("{folder}/class"), class);
        self.file(&format!("{folder}/vendor"), "0x8086");
        self.file(&format!("{folder}/device"), "0x1572");
        self.file(&format!("{folder}/numa_node"), &node.to_string());
        self.file(&format!("{folder}/local_cpulist"), local);
        self.link(&format!("bus/pci/devices/{name}"), &format!("../../../{folder}"))
    }
}

fn each(cpus: &str, action: impl FnMut(u32)) {
    let cpus: numa_run::topology::CpuSet = cpus.parse().unwrap();
    cpus.iter().for_each(action);
}

/// A file or folder of the captured machines beside the project. They are not
/// part of it: where they are not at hand, the test says so, loudly.
pub fn captured(path: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/machines");
    if !folder.is_dir() {
        eprintln!("SKIPPED, NOT TESTED: {} is not there", folder.display());
        return None;
    }
    let file = folder.join(path);
    assert!(file.exists(), "{} is missing", file.display());
    Some(file)
}

/// A file of the machines that were captured from the QEMU guest.
pub fn guest_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/guest").join(name)
}

/// The root of a machine that was captured from the QEMU guest, and the folder that holds it.
pub fn guest(shape: &str) -> (TempDir, PathBuf) {
    let folder = scratch();
    let root = folder.path().join(shape);
    fs::create_dir(&root).unwrap();
    unpack(&guest_file(&format!("{shape}.tar.gz")), &root, ".");
    (folder, root)
}

fn unpack(archive: &Path, folder: &Path, tree: &str) {
    let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder).arg(tree).status();
    let hint = "it needs gzip, for the machines of others bzip2 and xz";
    assert!(status.expect("tar is installed").success(), "tar cannot unpack {} ({hint})", archive.display());
}

/// A program with this text. Another process writes it: a test in another
/// thread that starts something just then would keep it open for writing.
pub fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.text")), folder.join(name));
    fs::write(&source, text).unwrap();
    let status = Command::new("install").args(["-m", "755"]).arg(&source).arg(&program).status();
    assert!(status.expect("install is there").success());
    program
}

/// A folder in memory where there is one: the trees have thousands of files.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// One captured tree of an archive, unpacked, and its root. Where the archive
/// is one tree, it is named `sys`.
pub fn unpacked(archive: &str, tree: &str) -> Option<(TempDir, PathBuf)> {
    let archive = captured(archive)?;
    let folder = scratch();
    unpack(&archive, folder.path(), tree);
    let root = if tree == "sys" { folder.path().to_owned() } else { folder.path().join(tree) };
    Some((folder, root))
}
