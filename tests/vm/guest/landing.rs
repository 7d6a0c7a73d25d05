//! Launches, and where the workload says it has landed: what the kernel wrote about it, not what was planned.

use crate::sys::{node, read};
use numa_run::topology::CpuSet;
use std::collections::BTreeMap;
use std::process::{Command, Output};

/// MiB that the workload touches, and that as the kernel's 4 KiB pages.
const TOUCHED_MIB: u64 = 32;
const TOUCHED_PAGES: u64 = TOUCHED_MIB * 256;

/// Where a workload is.
#[derive(Debug)]
pub struct Landing {
    /// Its affinity.
    pub cpus: CpuSet,
    /// The memory policy that its mapping is under, in the kernel's words.
    pub policy: String,
    /// Anonymous pages of its mapping, by node.
    pub pages: BTreeMap<u32, u64>,
    /// What it was told.
    pub environment: BTreeMap<String, String>,
    /// What the launcher said on stderr.
    pub said: String,
}

impl Landing {
    /// What of it is not on this node; nothing when CPUs (this many) and all pages are there and nowhere else.
    pub fn not_on(&self, id: u32, cpus: usize) -> Option<String> {
        let own: CpuSet = node(id, "cpulist").parse().unwrap();
        let right = self.cpus.is_subset(&own) && self.cpus.len() == cpus && self.pages_only_on(&[id]);
        (!right).then(|| format!("not {cpus} CPUs and all pages on node {id} (its CPUs are {own}): {self:?}"))
    }

    /// Whether the memory lies on these nodes, each of them, and on no other.
    pub fn pages_only_on(&self, nodes: &[u32]) -> bool {
        self.pages.keys().eq(nodes) && self.touched() >= TOUCHED_PAGES
    }

    /// All pages of its memory.
    pub fn touched(&self) -> u64 {
        self.pages.values().sum()
    }

    /// A variable that it was given.
    pub fn variable(&self, name: &str) -> &str {
        self.environment.get(name).unwrap_or_else(|| panic!("{name} is not set: {self:?}"))
    }
}

/// The end of every command line: the workload.
pub fn workload() -> String {
    format!("touch-memory {TOUCHED_MIB}")
}

/// Launches the workload with these options.
pub fn launch(options: &str) -> Landing {
    landing(&format!("numa-run {options} -- {}", workload()))
}

/// Runs a command that ends in the workload.
pub fn landing(command: &str) -> Landing {
    let output = run(command);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{command}: {}\n{said}", output.status);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (policy, pages) = mapping(answer["numa_maps"].as_str().unwrap());
    Landing {
        cpus: answer["cpus"].as_str().unwrap().parse().unwrap(),
        environment: serde_json::from_value(answer["environment"].clone()).unwrap(),
        policy,
        pages,
        said,
    }
}

/// Policy and pages by node of a line like `7f00 prefer (many):1,3 anon=8193 dirty=8193 N1=8193 kernelpagesize_kB=4`.
fn mapping(line: &str) -> (String, BTreeMap<u32, u64>) {
    assert!(line.contains(" anon=") && !line.contains(" file="), "no anonymous mapping: {line}");
    let words = || line.split(' ').skip(1);
    let policy: Vec<&str> = words().take_while(|word| !word.contains('=')).collect();
    let on_node = |word: &str| {
        let (id, count) = word.strip_prefix('N')?.split_once('=')?;
        Some((id.parse().ok()?, count.parse().ok()?))
    };
    (policy.join(" "), words().filter_map(on_node).collect())
}

/// What the launcher says where it refuses: status 125, and the workload has not run.
pub fn refused(options: &str) -> String {
    refusal(&format!("numa-run {options} -- {}", workload()))
}

/// The same for a command that has a launch in it.
pub fn refusal(command: &str) -> String {
    let output = run(command);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{command}\n{said}");
    assert!(output.stdout.is_empty(), "{command}: the workload ran");
    said
}

/// Runs a command, its words apart by single spaces.
pub fn run(command: &str) -> Output {
    let mut words = command.split(' ');
    let mut process = Command::new(words.next().unwrap());
    process.args(words).output().unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// What a command prints.
pub fn printed(command: &str) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The machine as the launcher sees it.
pub fn topo(options: &str) -> serde_json::Value {
    serde_json::from_str(&printed(format!("numa-run topo --json {options}").trim_end())).unwrap()
}

/// The nodes of a kernel list such as `has_cpu`.
pub fn listed(list: &str) -> Vec<u32> {
    read(&format!("/sys/devices/system/node/{list}")).parse::<CpuSet>().unwrap().iter().collect()
}
