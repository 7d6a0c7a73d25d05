//! What is asked for: one launch as data, parsed once at the edge.

pub mod device;
pub mod function;
pub mod members;

pub use device::{DeviceError, DeviceRequest, Settable, VfSettings};
pub use function::FunctionName;
pub use members::{Members, Scope};

use crate::hint::policy::Policy;
use crate::resource::cpu::{CpuOptions, SmtMode};
use crate::topology::MemoryKind;
use crate::topology::mask::{IdSet, ListError};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Everything that a launch asks for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// CPUs, if any are asked for.
    pub cpus: Option<CpuRequest>,
    /// Places in the shared pool, for control threads; 0 for none.
    pub shared_cpus: u32,
    /// Memory, if an amount or nodes are asked for.
    pub memory: Option<MemoryRequest>,
    /// Hugepages, at most one line for each size.
    pub hugepages: Vec<HugepageRequest>,
    /// How pages are spread; none: `bind` where memory is asked for, else `preferred-many`.
    pub mempolicy: Option<MemPolicy>,
    /// Devices, in the order of the classes; each one has a label of its own.
    pub devices: Vec<DeviceRequest>,
    /// True where virtual functions may be made for them.
    pub create_vfs: bool,
    /// Classes whose devices are bound to vfio-pci, besides those that always are.
    pub vfio: BTreeSet<String>,
    /// Members that each get all of it; none: it is for the command as a whole.
    pub members: Option<Members>,
    /// Who is admitted.
    pub policy: Policy,
    /// How hints are merged.
    pub merge: Merge,
    /// Between masks of equal width: the closer one first.
    pub prefer_closest: bool,
    /// CPUs, memory and pages come evenly from all nodes of the span.
    pub distribute: bool,
    /// Refuses machines with more candidate nodes than this.
    pub max_numa_nodes: Option<usize>,
    /// Replaces the inherited affinity as the pool.
    pub pool: Option<ListSpec<crate::topology::mask::Cpus>>,
    /// Whether isolated CPUs are used; none: `only` for root where there are some, else `never`.
    pub isolated: Option<Isolated>,
    /// Nodes that the user states for devices whose firmware does not say.
    pub device_nodes: Vec<(FunctionName, u32)>,
    /// Whether the kernel is to keep the workload in a cgroup.
    pub cgroup: Cgroup,
}

/// Whether a launch gets a cgroup of its own, besides affinity and memory policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cgroup {
    /// Where it can be had.
    #[default]
    Auto,
    /// No.
    Never,
    /// Yes, or the launch is refused.
    Required,
}

impl Request {
    /// True when something is asked for that other launches must keep off.
    pub fn holds(&self) -> bool {
        let memory = self.memory.as_ref().is_some_and(|memory| memory.mib.is_some());
        self.cpus.is_some() || self.shared_cpus > 0 || memory || !self.hugepages.is_empty() || !self.devices.is_empty()
    }
}

/// CPUs asked for.
#[derive(Clone, Debug)]
pub struct CpuRequest {
    /// Which ones.
    pub choice: CpuChoice,
    /// How they are picked within a node.
    pub options: CpuOptions,
    /// What becomes of the siblings.
    pub smt: SmtMode,
    /// Kind on a hybrid machine, such as `P`.
    pub kind: Option<String>,
}

/// A count, or the very CPUs.
#[derive(Clone, Debug)]
pub enum CpuChoice {
    /// So many, wherever the merge puts them; limited to nodes if some are named.
    Count(u32, Option<NodeSpec>),
    /// All allowed CPUs of these nodes.
    Nodes(NodeSpec),
    /// Exactly these.
    List(CpuSpec),
}

/// Memory asked for.
#[derive(Clone, Debug, Default)]
pub struct MemoryRequest {
    /// MiB, accounted and bound; none: only the nodes are given.
    pub mib: Option<u64>,
    /// The only nodes that may serve it.
    pub nodes: Option<NodeSpec>,
    /// The kind of memory; none: that of the nodes with CPUs.
    pub kind: Option<MemoryKind>,
}

/// Hugepages of one size asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugepageRequest {
    /// Size of a page.
    pub size: PageSize,
    /// How many.
    pub amount: PageAmount,
}

/// How many hugepages: an amount of memory, rounded up to pages, or a number of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAmount {
    /// `1G`.
    Memory(Size),
    /// `x512`.
    Pages(u64),
}

impl HugepageRequest {
    /// Pages wanted.
    pub fn pages(&self) -> u64 {
        match self.amount {
            PageAmount::Memory(size) => size.0.div_ceil(self.size.kib() << 10),
            PageAmount::Pages(pages) => pages,
        }
    }

    /// True when the amount is no whole number of pages.
    pub fn rounded(&self) -> bool {
        matches!(self.amount, PageAmount::Memory(size) if size.0 % (self.size.kib() << 10) != 0)
    }
}

impl FromStr for HugepageRequest {
    type Err = SizeError;

    /// Reads `2M=1G` and `2M=x512`.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let syntax = || SizeError::Hugepages(text.to_owned());
        let (size, amount) = text.split_once('=').ok_or_else(syntax)?;
        let amount = match amount.strip_prefix('x') {
            Some(pages) => PageAmount::Pages(pages.parse().map_err(|_| syntax())?),
            None => PageAmount::Memory(amount.parse()?),
        };
        let request = HugepageRequest { size: size.parse()?, amount };
        if request.pages() == 0 { Err(syntax()) } else { Ok(request) }
    }
}

/// The size of a hugepage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageSize(u64);

impl PageSize {
    /// In KiB.
    pub fn kib(self) -> u64 {
        self.0
    }

    /// Of so many KiB.
    pub fn from_kib(kib: u64) -> PageSize {
        PageSize(kib)
    }
}

impl FromStr for PageSize {
    type Err = SizeError;

    /// Reads `2M`, `2048kB`, `2Mi`, and the kubelet's `hugepages-2Mi`.
    fn from_str(text: &str) -> Result<PageSize, SizeError> {
        let size: Size = text.strip_prefix("hugepages-").unwrap_or(text).parse()?;
        match size.0 >> 10 {
            0 => Err(SizeError::Syntax(text.to_owned())),
            kib => Ok(PageSize(kib)),
        }
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            kib if kib % (1 << 20) == 0 => write!(out, "{}G", kib >> 20),
            kib if kib % (1 << 10) == 0 => write!(out, "{}M", kib >> 10),
            kib => write!(out, "{kib}K"),
        }
    }
}

/// The merger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Merge {
    /// All resources are placed together, each in proportion to the others.
    #[default]
    Relative,
    /// As the kubelet's Topology Manager merges hints.
    Kubelet,
}

/// Whether isolated CPUs (isolcpus, nohz_full) are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Isolated {
    /// Only isolated CPUs.
    Only,
    /// Isolated CPUs as well as the pool's.
    Also,
    /// No isolated CPU.
    Never,
}

/// How the kernel spreads the workload's pages (set_mempolicy(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MemPolicy {
    /// Only from the nodes.
    Bind,
    /// From the first node, else from anywhere.
    Preferred,
    /// From the nodes, else from anywhere (Linux 5.15).
    PreferredMany,
    /// Page by page over the nodes.
    Interleave,
    /// By the kernel's weights over the nodes (Linux 6.9).
    WeightedInterleave,
    /// From the node of the CPU that touches the page.
    Local,
    /// The system's default policy.
    Default,
}

impl MemPolicy {
    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            MemPolicy::Bind => "bind",
            MemPolicy::Preferred => "preferred",
            MemPolicy::PreferredMany => "preferred-many",
            MemPolicy::Interleave => "interleave",
            MemPolicy::WeightedInterleave => "weighted-interleave",
            MemPolicy::Local => "local",
            MemPolicy::Default => "default",
        }
    }

    /// True when it is a policy over a set of nodes.
    pub fn takes_nodes(self) -> bool {
        !matches!(self, MemPolicy::Local | MemPolicy::Default)
    }
}

impl Merge {
    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Merge::Relative => "relative",
            Merge::Kubelet => "kubelet",
        }
    }
}

/// CPUs as a person writes them.
pub type CpuSpec = ListSpec<crate::topology::mask::Cpus>;
/// Nodes as a person writes them.
pub type NodeSpec = ListSpec<crate::topology::mask::Nodes>;

/// A list of ids as a person writes it; what `all` and `!` mean depends on the machine.
#[derive(Debug)]
pub enum ListSpec<K> {
    /// Exactly these: `0-3,8`, `0-30:2`, `0xff`.
    Ids(IdSet<K>),
    /// Whatever there is: `all`.
    All,
    /// Whatever there is but these: `!0-1`.
    Not(IdSet<K>),
}

impl<K> ListSpec<K> {
    /// The ids meant where `universe` is what there is. Ids that were written
    /// out are not cut to it: they are checked one by one and named.
    pub fn resolve(&self, universe: &IdSet<K>) -> IdSet<K> {
        match self {
            ListSpec::Ids(ids) => ids.clone(),
            ListSpec::All => universe.clone(),
            ListSpec::Not(ids) => universe.minus(ids),
        }
    }
}

impl<K> Clone for ListSpec<K> {
    fn clone(&self) -> Self {
        match self {
            ListSpec::Ids(ids) => ListSpec::Ids(ids.clone()),
            ListSpec::All => ListSpec::All,
            ListSpec::Not(ids) => ListSpec::Not(ids.clone()),
        }
    }
}

impl<K> FromStr for ListSpec<K> {
    type Err = ListError;

    fn from_str(text: &str) -> Result<Self, ListError> {
        let text = text.trim();
        match text.strip_prefix('!') {
            Some(rest) => Ok(ListSpec::Not(ids(rest)?)),
            None if text == "all" => Ok(ListSpec::All),
            None => Ok(ListSpec::Ids(ids(text)?)),
        }
    }
}

fn ids<K>(text: &str) -> Result<IdSet<K>, ListError> {
    if text.is_empty() {
        return Err(ListError::Part(String::new()));
    }
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => mask(digits).ok_or_else(|| ListError::Part(text.to_owned())),
        None => text.parse(),
    }
}

/// A mask in hexadecimal; commas may separate groups of eight digits, as the kernel writes them.
fn mask<K>(digits: &str) -> Option<IdSet<K>> {
    let mut groups = digits.split(',');
    groups.next().filter(|group| !group.is_empty())?;
    let whole = groups.all(|group| group.len() == 8);
    let digits: String = digits.split(',').collect();
    if !whole || digits.len() as u32 / 4 > crate::topology::mask::MAX_ID || !digits.is_ascii() {
        return None;
    }
    let word = |chunk: &[u8]| u64::from_str_radix(std::str::from_utf8(chunk).ok()?, 16).ok();
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let words = plain.then(|| digits.as_bytes().rchunks(16).map(word).collect::<Option<Vec<_>>>())??;
    Some(IdSet::from_words(words))
}

/// An amount of memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// No number with a unit.
    #[error("`{0}` is no size: write 512M, 8G or 2048K (powers of 1024)")]
    Syntax(String),
    /// A number without a unit.
    #[error("`{0}` has no unit: write {0}M or {0}G")]
    NoUnit(String),
    /// No hugepage size with an amount.
    #[error("`{0}` asks for no hugepages: write SIZE=AMOUNT, 2M=1G, or SIZE=xPAGES, 2M=x512")]
    Hugepages(String),
    /// More than a 64-bit number of bytes.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

impl Size {
    /// In MiB, rounded up.
    pub fn mib(self) -> u64 {
        self.0.div_ceil(1 << 20)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Reads `512M`, `8G`, `8Gi`, `8GiB`, `8GB`, `2048kB`; units are powers of 1024.
    fn from_str(text: &str) -> Result<Size, SizeError> {
        let syntax = || SizeError::Syntax(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(split);
        if digits.is_empty() {
            return Err(syntax());
        }
        let unit = unit.to_ascii_lowercase();
        let power = match unit.as_str() {
            "" => return Err(SizeError::NoUnit(text.to_owned())),
            "b" => 0,
            "k" | "ki" | "kb" | "kib" => 10,
            "m" | "mi" | "mb" | "mib" => 20,
            "g" | "gi" | "gb" | "gib" => 30,
            "t" | "ti" | "tb" | "tib" => 40,
            _ => return Err(syntax()),
        };
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << power));
        number.map(Size).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
    }
}

/// MiB for people: `512M`, `8G`.
pub struct Mib(pub u64);

impl fmt::Display for Mib {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            mib if mib >= 1024 && mib % 1024 == 0 => write!(out, "{}G", mib / 1024),
            mib => write!(out, "{mib}M"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::CpuSet;

    #[test]
    fn lists_may_be_written_as_ranges_strides_masks_all_and_all_but() {
        let resolve = |text: &str| text.parse::<CpuSpec>().unwrap().resolve(&CpuSet::from_bits(0xff)).to_string();
        assert_eq!(resolve("0-30:2"), "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30");
        assert_eq!(resolve("0xf0"), "4-7");
        assert_eq!(resolve("0x1,00000003"), "0-1,32");
        assert_eq!(resolve("0x10000000000000000000000000000001"), "0,124");
        assert_eq!(resolve("all"), "0-7");
        assert_eq!(resolve("!0-1"), "2-7");
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        for text in ["", "!", "0x", "0xg", "0x1,2", "x", "all,1", "!all", "0x,00000001", "0xé"] {
            assert!(text.parse::<CpuSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024_and_need_a_unit() {
        assert_eq!("512M".parse(), Ok(Size(512 << 20)));
        assert_eq!("8GiB".parse(), Ok(Size(8 << 30)));
        assert_eq!("2048kB".parse(), Ok(Size(2 << 20)));
        assert_eq!("512".parse::<Size>(), Err(SizeError::NoUnit("512".into())));
        assert_eq!("99999999999G".parse::<Size>(), Err(SizeError::TooLarge("99999999999G".into())));
        for text in ["", "M", "1.5G", "-1G", "1X", "1 G G"] {
            assert_eq!(text.parse::<Size>(), Err(SizeError::Syntax(text.into())));
        }
        assert_eq!(Size(1).mib(), 1);
    }

    #[test]
    fn hugepages_are_an_amount_rounded_up_or_a_number_of_pages() {
        let request =
            |text: &str| text.parse::<HugepageRequest>().map(|request| (request.size.to_string(), request.pages()));
        for size in ["2M", "2048kB", "2Mi", "hugepages-2Mi"] {
            assert_eq!(request(&format!("{size}=1G")), Ok(("2M".into(), 512)));
        }
        assert_eq!(request("1G=x2"), Ok(("1G".into(), 2)));
        assert_eq!(request("2M=3M"), Ok(("2M".into(), 2)));
        assert!("2M=3M".parse::<HugepageRequest>().unwrap().rounded());
        for text in ["2M", "2M=", "=1G", "2M=x", "2M=x0", "2M=0M", "2M=512", "0M=1G"] {
            assert!(request(text).is_err(), "{text}");
        }
    }
}
