//! The options that a launch and a plan share.

use super::devices::DeviceArgs;
use crate::hint::policy::Policy;
use crate::request::{
    Cgroup, CpuChoice, CpuRequest, CpuSpec, FunctionName, HugepageRequest, Isolated, MemPolicy, Members, MemoryRequest,
    Merge, NodeSpec, Request, Scope, Size,
};
use crate::resource::cpu::{CpuOptions, SmtMode};
use crate::topology::MemoryKind;
use crate::topology::TopologySource;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use std::path::PathBuf;

/// What is asked for.
#[derive(Debug, Args)]
pub struct RequestArgs {
    /// CPUs for the command alone
    #[arg(long, value_name = "N", help_heading = "What", hide_env = true, env = "NUMA_RUN_CPUS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// Exactly these CPUs
    #[arg(long, value_name = "LIST", help_heading = "What", hide_env = true, env = "NUMA_RUN_CPU_LIST")]
    pub cpu_list: Option<CpuSpec>,
    /// CPUs of these nodes only; without --cpus, all of them
    #[arg(long, value_name = "NODES", help_heading = "What", hide_env = true, env = "NUMA_RUN_CPU_NODES")]
    pub cpu_nodes: Option<NodeSpec>,
    /// A place on the CPUs that nobody has for himself, for control threads
    #[arg(
        long,
        value_name = "N",
        help_heading = "What",
        hide_env = true,
        env = "NUMA_RUN_SHARED_CPUS",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub shared_cpus: u32,
    /// Memory, accounted and bound to its nodes
    #[arg(long, value_name = "SIZE", help_heading = "What", hide_env = true, env = "NUMA_RUN_MEMORY")]
    pub memory: Option<Size>,
    /// Memory of these nodes only
    #[arg(long, value_name = "NODES", help_heading = "What", hide_env = true, env = "NUMA_RUN_MEM_NODES")]
    pub mem_nodes: Option<NodeSpec>,
    /// Memory of this kind only
    #[arg(long, value_name = "KIND", help_heading = "What", hide_env = true, env = "NUMA_RUN_MEM_KIND", value_enum)]
    pub mem_kind: Option<MemoryKind>,
    /// Hugepages of one size, as an amount (2M=1G) or a number of pages (2M=x512); repeatable
    #[arg(long, value_name = "SIZE=AMOUNT", help_heading = "What", hide_env = true, env = "NUMA_RUN_HUGEPAGES")]
    #[arg(value_delimiter = ',')]
    pub hugepages: Vec<HugepageRequest>,
    /// Devices.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// All of this for each of N members, such as MPI ranks
    #[arg(long, value_name = "N", help_heading = "What", hide_env = true, env = "NUMA_RUN_MEMBERS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub members: Option<u32>,

    /// Who is admitted: none, best-effort, restricted or single-numa-node
    #[arg(long, help_heading = "Where", hide_env = true, env = "NUMA_RUN_POLICY", default_value_t)]
    pub policy: Policy,
    /// What the policy is for where there are members [default: member]
    #[arg(long, help_heading = "Where", hide_env = true, env = "NUMA_RUN_SCOPE", value_enum)]
    pub scope: Option<Scope>,
    /// How the resources' answers become one
    #[arg(long, help_heading = "Where", hide_env = true, env = "NUMA_RUN_MERGE", value_enum, default_value_t)]
    pub merge: Merge,
    /// Of equally many nodes, those that are closer together
    #[arg(long, help_heading = "Where", hide_env = true, env = "NUMA_RUN_PREFER_CLOSEST", value_parser = yes())]
    pub prefer_closest: bool,
    /// CPUs, memory and hugepages in equal parts from each node, where more than one is needed
    #[arg(long, help_heading = "Where", hide_env = true, env = "NUMA_RUN_DISTRIBUTE", value_parser = yes())]
    pub distribute: bool,
    /// Refuse on machines with more nodes
    #[arg(long, value_name = "N", help_heading = "Where", hide_env = true, env = "NUMA_RUN_MAX_NUMA_NODES")]
    pub max_numa_nodes: Option<usize>,
    /// The node of a device whose firmware does not say, by address or interface: 3b:00.0=1, ens1f0=1
    #[arg(
        long,
        value_name = "PCI=NODE",
        help_heading = "Where",
        hide_env = true,
        env = "NUMA_RUN_DEVICE_NODE",
        value_delimiter = ','
    )]
    #[arg(value_parser = device_node)]
    pub device_node: Vec<(FunctionName, u32)>,

    /// Let virtual functions be made where there are none: as many as the configuration says, else all that there can be
    #[arg(long, help_heading = "How", hide_env = true, env = "NUMA_RUN_CREATE_VFS", value_parser = yes())]
    pub create_vfs: bool,
    /// Bind the devices of this class to vfio-pci, for programs with a driver of their own (VFs: always)
    #[arg(long, value_name = "CLASS", help_heading = "What", hide_env = true, env = "NUMA_RUN_VFIO")]
    #[arg(value_delimiter = ',')]
    pub vfio: Vec<String>,
    /// How CPUs are picked: full-cores, spread-nodes, spread-cores, align-socket, prefer-l3, strict-reservation
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "How",
        hide_env = true,
        env = "NUMA_RUN_CPU_OPTION",
        value_delimiter = ','
    )]
    pub cpu_option: Vec<String>,
    /// What becomes of a core's other threads
    #[arg(
        long,
        value_name = "MODE",
        help_heading = "How",
        hide_env = true,
        env = "NUMA_RUN_SMT",
        value_enum,
        default_value_t
    )]
    pub smt: SmtMode,
    /// CPUs of this kind only, on machines that have several
    #[arg(long, value_name = "KIND", help_heading = "How", hide_env = true, env = "NUMA_RUN_CPU_KIND")]
    pub cpu_kind: Option<String>,
    /// Isolated CPUs (isolcpus, nohz_full); for root on a host that has some: only, else never
    #[arg(long, help_heading = "How", hide_env = true, env = "NUMA_RUN_ISOLATED", value_enum)]
    pub isolated: Option<Isolated>,
    /// CPUs to pick from, in place of the inherited affinity
    #[arg(long, value_name = "LIST", help_heading = "How", hide_env = true, env = "NUMA_RUN_POOL")]
    pub pool: Option<CpuSpec>,
    /// How pages are spread; bind with --memory, else preferred-many
    #[arg(long, value_name = "MODE", help_heading = "How", hide_env = true, env = "NUMA_RUN_MEMPOLICY", value_enum)]
    pub mempolicy: Option<MemPolicy>,
    /// A cgroup for the command, which the kernel keeps on its CPUs and nodes
    #[arg(
        long,
        value_name = "MODE",
        help_heading = "How",
        hide_env = true,
        env = "NUMA_RUN_CGROUP",
        value_enum,
        default_value_t
    )]
    pub cgroup: CgroupMode,
    /// Refuse where no cgroup can be had
    #[arg(long, help_heading = "How", hide_env = true, env = "NUMA_RUN_REQUIRE_CGROUP", value_parser = yes())]
    pub require_cgroup: bool,
}

/// Whether there is to be a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CgroupMode {
    /// Where one can be had, else a line says why not
    #[default]
    Auto,
    /// No cgroup
    Never,
}

/// Where facts come from.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Another machine: an hwloc XML file, synthetic:SPEC or root:DIR
    #[arg(long, value_name = "SOURCE", help_heading = "Facts", hide_env = true, env = "NUMA_RUN_TOPOLOGY")]
    #[arg(value_parser = OsStringValueParser::new().try_map(TopologySource::try_from))]
    pub topology: Option<TopologySource>,
    /// Facts taken for granted: what is held or offline, devices, pages
    #[arg(long, value_name = "FILE", help_heading = "Facts", hide_env = true, env = "NUMA_RUN_ASSUME")]
    pub assume: Option<PathBuf>,
    /// Configuration [default: /etc/numa-run/config.toml if it exists]
    #[arg(long, value_name = "FILE", help_heading = "Facts", hide_env = true, env = "NUMA_RUN_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where numa-run keeps its own files [default: /run/numa-run, or the user's own]
    #[arg(long, value_name = "DIR", help_heading = "Facts", hide_env = true, env = "NUMA_RUN_RUN_DIR")]
    pub run_dir: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long, short, help_heading = "See", hide_env = true, env = "NUMA_RUN_QUIET", value_parser = yes())]
    pub quiet: bool,
    /// Say what is done; twice: more
    #[arg(long, short, help_heading = "See", action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Options that contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Contradiction(pub String);

impl RequestArgs {
    /// The request that these flags make.
    ///
    /// # Errors
    /// Options that contradict each other, or that have nothing to work on.
    pub fn request(&self) -> Result<Request, Contradiction> {
        if self.distribute && !self.divisible() {
            let message = "--distribute splits CPUs, memory and hugepages, but none are asked for: add --cpus N";
            return Err(Contradiction(message.into()));
        }
        let request = Request {
            cpus: self.cpu_request()?,
            shared_cpus: self.shared_cpus,
            memory: self.memory_request()?,
            hugepages: self.hugepage_requests()?,
            mempolicy: self.mempolicy,
            devices: self.devices.0.clone(),
            create_vfs: self.create_vfs,
            vfio: self.vfio.iter().cloned().collect(),
            members: self.members.map(|count| Members { count, scope: self.scope.unwrap_or_default() }),
            policy: self.policy,
            merge: self.merge,
            prefer_closest: self.prefer_closest,
            distribute: self.distribute,
            max_numa_nodes: self.max_numa_nodes,
            pool: self.pool.clone(),
            isolated: self.isolated,
            device_nodes: self.device_node.clone(),
            cgroup: self.cgroup()?,
        };
        if request.cgroup == Cgroup::Required && !request.holds() {
            let message = "--require-cgroup: nothing is asked for that a cgroup could hold: add --cpus N";
            return Err(Contradiction(message.into()));
        }
        self.divided(&request).map(|()| request)
    }

    /// Members that each can have as much.
    fn divided(&self, request: &Request) -> Result<(), Contradiction> {
        let problem = match (self.members, self.scope) {
            (None, None) => return Ok(()),
            (None, Some(_)) => "--scope says how members are placed, but there are none: add --members N".to_owned(),
            (Some(_), _) if request.is_bare() => {
                "--members says how many get as much, but nothing is asked for: add --cpus N".to_owned()
            }
            (Some(count), _) => match request.indivisible() {
                Some(single) => format!("--members {count} asks for equal members, and {single}"),
                None => return Ok(()),
            },
        };
        Err(Contradiction(problem))
    }

    /// Variables are defaults: one that contradicts a flag, or that says how
    /// something is picked which nobody asks for, counts as not set.
    pub(super) fn flags_win(&mut self, matches: &ArgMatches) {
        let preset = |option: &str| matches.value_source(option) == Some(ValueSource::EnvVariable);
        let typed = |option: &str| matches.value_source(option) == Some(ValueSource::CommandLine);
        if typed("cpu_list") {
            self.cpus = self.cpus.filter(|_| !preset("cpus"));
            self.cpu_nodes = self.cpu_nodes.take().filter(|_| !preset("cpu_nodes"));
        } else if typed("cpus") || typed("cpu_nodes") {
            self.cpu_list = self.cpu_list.take().filter(|_| !preset("cpu_list"));
        }
        let no_cpus = self.cpus.is_none() && self.cpu_nodes.is_none() && self.cpu_list.is_none();
        if preset("smt") && (no_cpus || self.cpu_list.is_some() && self.smt == SmtMode::OnePerCore) {
            self.smt = SmtMode::default();
        }
        if no_cpus {
            self.cpu_option.retain(|_| !preset("cpu_option"));
            self.cpu_kind = self.cpu_kind.take().filter(|_| !preset("cpu_kind"));
        }
        if preset("members") && !self.divides() {
            self.members = None;
        }
        self.scope = self.scope.filter(|_| self.members.is_some() || !preset("scope"));
        self.distribute = self.distribute && (self.divisible() || !preset("distribute"));
        if self.memory.is_none() && self.hugepages.is_empty() {
            self.mem_kind = self.mem_kind.filter(|_| !preset("mem_kind"));
        }
        if typed("require_cgroup") && preset("cgroup") {
            self.cgroup = CgroupMode::Auto;
        }
        if self.cgroup == CgroupMode::Never && preset("require_cgroup") {
            self.require_cgroup = false;
        }
        if typed("mempolicy") && self.mempolicy.is_some_and(|mode| !mode.takes_nodes()) {
            self.mem_nodes = self.mem_nodes.take().filter(|_| !preset("mem_nodes"));
        }
        if typed("mem_nodes") {
            self.mempolicy = self.mempolicy.filter(|mode| mode.takes_nodes() || !preset("mempolicy"));
        }
    }

    fn cgroup(&self) -> Result<Cgroup, Contradiction> {
        match (self.cgroup, self.require_cgroup) {
            (CgroupMode::Never, true) => {
                Err(Contradiction("--cgroup never and --require-cgroup contradict each other: choose one".into()))
            }
            (CgroupMode::Never, false) => Ok(Cgroup::Never),
            (CgroupMode::Auto, true) => Ok(Cgroup::Required),
            (CgroupMode::Auto, false) => Ok(Cgroup::Auto),
        }
    }

    /// True when members could each have what is asked for.
    fn divides(&mut self) -> bool {
        let (members, scope) = (self.members.take(), self.scope.take());
        let request = self.request();
        (self.members, self.scope) = (members, scope);
        request.is_ok_and(|request| !request.is_bare() && request.indivisible().is_none())
    }

    /// True when an amount is asked for of which each node may give its part.
    fn divisible(&self) -> bool {
        self.cpus.is_some() || self.memory.is_some() || !self.hugepages.is_empty()
    }

    fn cpu_request(&self) -> Result<Option<CpuRequest>, Contradiction> {
        for (given, flag) in [(self.cpus.is_some(), "--cpus"), (self.cpu_nodes.is_some(), "--cpu-nodes")] {
            if given && self.cpu_list.is_some() {
                return Err(Contradiction(format!("--cpu-list names the very CPUs and cannot be used with {flag}")));
            }
        }
        let choice = match (&self.cpu_list, self.cpus, &self.cpu_nodes) {
            (Some(list), _, _) => CpuChoice::List(list.clone()),
            (None, Some(count), nodes) => CpuChoice::Count(count, nodes.clone()),
            (None, None, Some(nodes)) => CpuChoice::Nodes(nodes.clone()),
            (None, None, None) => return self.no_cpus(),
        };
        let mut options = CpuOptions::parse(&self.cpu_option).map_err(|error| Contradiction(error.to_string()))?;
        // How many come from each node is settled then, which leaves nothing to spread.
        options.spread_nodes = options.spread_nodes && !self.distribute;
        let clash = |error: crate::resource::cpu::OptionError| Contradiction(error.to_string());
        if self.policy == Policy::SingleNumaNode {
            options.check_single_numa_node().map_err(clash)?;
        }
        if self.smt == SmtMode::OnePerCore && self.cpu_list.is_some() {
            let message = "--smt one-per-core chooses CPUs, --cpu-list names them: choose one";
            return Err(Contradiction(message.into()));
        }
        if self.smt == SmtMode::OnePerCore && options.full_cores {
            let message = "--smt one-per-core leaves the other threads idle, full-cores hands them out: choose one";
            return Err(Contradiction(message.into()));
        }
        Ok(Some(CpuRequest { choice, options, smt: self.smt, kind: self.cpu_kind.clone() }))
    }

    fn no_cpus(&self) -> Result<Option<CpuRequest>, Contradiction> {
        let idle = [
            (!self.cpu_option.is_empty(), "--cpu-option"),
            (self.smt != SmtMode::default(), "--smt"),
            (self.cpu_kind.is_some(), "--cpu-kind"),
        ];
        match idle.iter().find(|(given, _)| *given) {
            Some((_, flag)) => {
                Err(Contradiction(format!("{flag} says how CPUs are picked, but none are asked for: add --cpus N")))
            }
            None => Ok(None),
        }
    }

    fn hugepage_requests(&self) -> Result<Vec<HugepageRequest>, Contradiction> {
        let twice = self
            .hugepages
            .iter()
            .enumerate()
            .find(|(at, pages)| self.hugepages[..*at].iter().any(|other| other.size == pages.size));
        match twice {
            Some((_, pages)) => {
                Err(Contradiction(format!("--hugepages asks for pages of {} twice: add them up", pages.size)))
            }
            None => Ok(self.hugepages.clone()),
        }
    }

    fn memory_request(&self) -> Result<Option<MemoryRequest>, Contradiction> {
        if self.mem_kind.is_some() && self.memory.is_none() {
            return Err(Contradiction("--mem-kind says which memory, but none is asked for: add --memory SIZE".into()));
        }
        let takes_none = self.mempolicy.filter(|mode| !mode.takes_nodes());
        if let (Some(mode), Some(_)) = (takes_none, &self.mem_nodes) {
            return Err(Contradiction(format!("--mempolicy {} takes no nodes: leave --mem-nodes out", mode.name())));
        }
        let mib = self.memory.map(Size::mib);
        if mib == Some(0) {
            return Err(Contradiction("--memory 0 asks for nothing: leave it out".into()));
        }
        let asked = mib.is_some() || self.mem_nodes.is_some();
        Ok(asked.then(|| MemoryRequest { mib, nodes: self.mem_nodes.clone(), kind: self.mem_kind }))
    }
}

fn device_node(text: &str) -> Result<(FunctionName, u32), String> {
    let (function, node) = text.split_once('=').ok_or("write it as 0000:3b:00.0=1 or ens1f0=1")?;
    let function = function.parse::<FunctionName>().map_err(|error| error.to_string())?;
    let node = node.parse::<u32>().map_err(|_| format!("`{node}` is no node"))?;
    Ok((function, node))
}

/// Reads the environment's word for a flag: anything but empty, 0, no, off and false sets it.
pub(super) fn yes() -> clap::builder::FalseyValueParser {
    clap::builder::FalseyValueParser::new()
}
