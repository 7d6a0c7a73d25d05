//! Reading everything that a plan depends on.

use crate::assume::{Assume, Holdings};
use crate::cli::SourceArgs;
use crate::config::{self, Config, VendorDevice};
use crate::host;
use crate::lease::belief::{self, Moment};
use crate::lease::{self, Ledger, LedgerError};
use crate::plan::{Facts, Surroundings};
use crate::request::{Cgroup, Request};
use crate::resource::pci::{self, creation};
use crate::resource::prefer::Answers;
use crate::topology::cgroup::Cgroups;
use crate::topology::probe::Probe;
use crate::topology::snapshot::{self, Fingerprint};
use crate::topology::usage::InUse;
use crate::topology::{Bdf, Machine, NodeMask, PciFunction, TopologySource, caller, probe, sysfs, usage};
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Everything that a plan depends on, read.
#[derive(Debug, Default)]
pub struct Observed {
    /// The machine.
    pub machine: Machine,
    /// The configuration.
    pub config: Config,
    /// What is taken for granted.
    pub assume: Assume,
    /// What other launches hold.
    pub holdings: Holdings,
    /// What this process inherited.
    pub surroundings: Surroundings,
    /// The part of a lease that this process is to have, as one of its ranks.
    pub part: Option<Holdings>,
    /// What plugins have answered.
    pub answers: Answers,
}

impl Observed {
    /// As the planner takes it.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            machine: &self.machine,
            config: &self.config,
            assume: &self.assume,
            holdings: &self.holdings,
            surroundings: &self.surroundings,
            answers: &self.answers,
        }
    }
}

/// Reads the facts for a request, of this host unless another machine is named.
///
/// # Errors
/// A file that cannot be used, or no machine to be read.
pub fn observe(request: &Request, source: &SourceArgs) -> anyhow::Result<Observed> {
    let mut config = Config::load(source.config.as_deref())?;
    known_classes(&config)?;
    config.vfio = request.vfio.clone();
    let unknown = config.vfio.iter().find(|name| pci::class::Class::named(name, &config).is_none());
    if let Some(name) = unknown {
        let known = pci::class::names(&config).join(", ");
        anyhow::bail!("--vfio {name}: there is no such class (there are {known}, pci)");
    }
    let assume: Assume = source.assume.as_deref().map(config::read).transpose()?.unwrap_or_default();
    known_assumptions(&assume, &config)?;
    let mut machine = machine(source)?;
    if let Some(reason) = &machine.unprobed {
        tracing::debug!("{reason}");
    }
    if source.topology.is_none() {
        refresh(request, &mut machine);
    }
    let uses = match &source.topology {
        None | Some(TopologySource::Live) => uses(request, &mut machine, &config, Path::new("/")),
        Some(TopologySource::Root(root)) => uses(request, &mut machine, &config, root),
        Some(TopologySource::Xml(_) | TopologySource::Synthetic(_)) => Uses::default(),
    };
    let machine = assume.on(machine);
    let mut surroundings = match &source.topology {
        None => surroundings(request, &machine, &config)?,
        Some(_) => Surroundings { affinity: assume.allowed.clone(), ..Surroundings::default() },
    };
    uses.into(&mut surroundings);
    Ok(Observed { holdings: assume.holdings(), machine, config, assume, surroundings, ..Observed::default() })
}

impl Observed {
    /// Reads again what may have moved while the ledger's lock was waited for.
    pub fn look_again(&mut self, request: &Request) {
        refresh(request, &mut self.machine);
        uses(request, &mut self.machine, &self.config, Path::new("/")).into(&mut self.surroundings);
        self.look_at_groups(request);
    }

    /// Reads which cgroups this process is in, if it is to get one. What launches
    /// have left that are no more is to be put right before.
    pub fn look_at_groups(&mut self, request: &Request) {
        let wanted = request.cgroup != Cgroup::Never && request.holds();
        self.surroundings.cgroups = wanted.then(|| Cgroups::read(Path::new("/"), &delegated));
    }
}

/// The ledger that launches of this user go by.
pub fn ledger(run_dir: Option<&Path>) -> Ledger {
    Ledger::find(run_dir, &own_run_dir())
}

/// What the leases hold, for who only looks: nothing of it on another machine.
///
/// # Errors
/// The ledger is there and cannot be read.
pub fn held(source: &SourceArgs, machine: &Machine) -> Result<Holdings, LedgerError> {
    if source.topology.is_some() {
        return Ok(Holdings::default());
    }
    let entries = ledger(source.run_dir.as_deref()).entries()?;
    let moment = Moment::read(Path::new("/"));
    let held = entries.iter().filter(|entry| moment.counts(entry)).filter_map(|entry| entry.lease.as_ref().ok());
    Ok(lease::holdings(held.filter(|lease| belief::is_possible(lease, machine))))
}

/// The machine that is named, else this one.
///
/// # Errors
/// It cannot be read.
pub fn machine(source: &SourceArgs) -> anyhow::Result<Machine> {
    match &source.topology {
        Some(other) => Ok(probe::machine(other)?),
        None => this_machine(source.run_dir.as_deref()),
    }
}

/// This host: from the snapshot if it is still true, else read anew.
fn this_machine(run_dir: Option<&Path>) -> anyhow::Result<Machine> {
    let own = run_dir.map_or_else(own_run_dir, Path::to_owned);
    let folders = match run_dir {
        Some(_) => vec![own.clone()],
        None => vec![PathBuf::from(RUN_DIR), own.clone()],
    };
    let probe = Probe::find();
    let program = probe.as_ref().map(Probe::program);
    for folder in &folders {
        match snapshot::load(folder, Path::new("/"), program) {
            Ok(machine) => return Ok(machine),
            Err(discard) => tracing::debug!("snapshot in {}: {discard}", folder.display()),
        }
    }
    let fingerprint = Fingerprint::read(Path::new("/")).with_probe(program);
    let machine = probe::read(probe.as_ref(), &TopologySource::Live)?;
    if let Err(error) = host::snapshot::store(&own, &machine, fingerprint) {
        tracing::debug!("no snapshot in {}: {error}", own.display());
    }
    Ok(machine)
}

/// What moves while the snapshot stays is read again where it matters.
fn refresh(request: &Request, machine: &mut Machine) {
    let root = Path::new("/");
    if request.memory.is_some() {
        sysfs::refresh_memory(machine, root);
    }
    if request.memory.is_some() || !request.hugepages.is_empty() {
        sysfs::refresh_pages(machine, root);
    }
    // Whether the console is a GPU depends on whether its driver has come up.
    machine
        .pci
        .iter_mut()
        .filter(|function| function.boot_vga)
        .for_each(|function| sysfs::refresh_function(function, root));
}

/// Where numa-run keeps its files on a host.
pub const RUN_DIR: &str = "/run/numa-run";

/// Root's run directory is the host's; others have one of their own.
fn own_run_dir() -> PathBuf {
    let user = nix::unistd::geteuid();
    if user.is_root() {
        return RUN_DIR.into();
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    // Where a session is started without the variable, or with another user's, it is the same ledger.
    let runtime = named.into_iter().chain([format!("/run/user/{user}").into()]);
    let is_his = |folder: &PathBuf| std::fs::metadata(folder).is_ok_and(|about| about.uid() == user.as_raw());
    let folder = runtime.into_iter().find(is_his).map(|folder| folder.join("numa-run"));
    folder.unwrap_or_else(|| format!("/tmp/numa-run-{user}").into())
}

/// A class of the configuration that holds nothing is a mistake, and so is one
/// that could be taken for another resource.
fn known_classes(config: &Config) -> anyhow::Result<()> {
    for (name, class) in &config.class {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let odd = name.is_empty() || !name.chars().all(plain) || ["cpu", "memory", "pci"].contains(&name.as_str());
        anyhow::ensure!(
            !odd,
            "the configuration names class `{name}`: write letters, digits, - and _ (not cpu, memory, pci)"
        );
        let bare = class.devices.is_empty() && class.like.is_empty();
        anyhow::ensure!(
            !bare || pci::class::is_built_in(name),
            "the configuration names class `{name}`, which holds nothing: give it match = [{{ ... }}] or devices = [...]"
        );
    }
    if let Some(VendorDevice { vendor, device }) = config.claimed_twice() {
        anyhow::bail!("the configuration puts {vendor:04x}:{device:04x} into two classes: a device is in one");
    }
    Ok(())
}

fn known_assumptions(assume: &Assume, config: &Config) -> anyhow::Result<()> {
    let known = pci::class::names(config);
    let mut named = BTreeSet::new();
    if let Some(twice) = assume.device.iter().find(|device| !named.insert(device.pci)) {
        anyhow::bail!("the device {} is assumed twice", twice.pci);
    }
    match assume.device.iter().find(|device| !known.contains(&device.class.as_str())) {
        None => Ok(()),
        Some(device) => anyhow::bail!(
            "an assumed device is of class `{}`: there is no such class (there are {})",
            device.class,
            known.join(", ")
        ),
    }
}

/// What the host does with devices, and why they cannot be had or make nothing.
#[derive(Debug, Default)]
struct Uses {
    in_use: InUse,
    no_vfs: InUse,
}

impl Uses {
    fn into(self, surroundings: &mut Surroundings) {
        surroundings.in_use = self.in_use;
        surroundings.no_vfs = self.no_vfs;
    }
}

/// What the host does with the devices that the request may get, and with those that may make some for it.
fn uses(request: &Request, machine: &mut Machine, config: &Config, root: &Path) -> Uses {
    if request.devices.is_empty() {
        return Uses::default();
    }
    let concerned = pci::concerned(request, config, machine);
    let makers = creation::makers(request, config, machine);
    let moved = machine.pci.iter_mut().filter(|function| {
        let known = |bdf: &Bdf| concerned.contains(bdf) || makers.contains(bdf);
        known(&function.bdf) || function.physical_function.as_ref().is_some_and(known)
    });
    moved.for_each(|function| sysfs::refresh_function(function, root));
    let live = root == Path::new("/");
    let addressed = if live { usage::addressed() } else { BTreeSet::new() };
    let these = |wanted: &BTreeSet<Bdf>| -> Vec<&PciFunction> {
        machine.pci.iter().filter(|function| wanted.contains(&function.bdf)).collect()
    };
    Uses {
        in_use: usage::read(root, machine, &these(&concerned), &addressed),
        no_vfs: usage::barred(root, machine, &these(&makers), &addressed),
    }
}

fn surroundings(request: &Request, machine: &Machine, config: &Config) -> anyhow::Result<Surroundings> {
    // The kernel keeps the affinity inside the cpuset, so that the cpuset is
    // read only where something else than the affinity is the pool.
    let other_pool = request.pool.is_some() || config.pool.is_some() || machine.cpus.iter().any(|cpu| cpu.isolated);
    Ok(Surroundings {
        cgroup_cpus: if other_pool { caller::cpuset(Path::new("/"))? } else { None },
        affinity: Some(host::syscall::affinity().context("sched_getaffinity")?),
        memory_nodes: memory_nodes(machine),
        root: nix::unistd::geteuid().is_root(),
        in_use: BTreeMap::new(),
        inside: None,
        no_vfs: BTreeMap::new(),
        cgroups: None,
    })
}

/// How systemd marks what it leaves to a unit's processes; before version 251 for root's eyes only.
fn delegated(unit: &Path) -> bool {
    let marked = |name| host::syscall::attribute(unit, name).is_some_and(|value| value == b"1");
    marked(c"user.delegate") || marked(c"trusted.delegate")
}

/// None where the call is forbidden: then nothing is known to be out of bounds.
fn memory_nodes(machine: &Machine) -> Option<NodeMask> {
    let allowed = host::syscall::memory_nodes_allowed().ok()?;
    (!machine.node_ids().is_subset(&allowed)).then(|| allowed.and(&machine.node_ids()))
}
