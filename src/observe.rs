//! Reading everything that a plan depends on.

use crate::assume::{Assume, Holdings};
use crate::cli::SourceArgs;
use crate::config::{self, Config, VendorDevice};
use crate::host;
use crate::plan::{Facts, Surroundings};
use crate::request::Request;
use crate::topology::TopologySource;
use crate::topology::snapshot::{self, Fingerprint};
use crate::topology::{Machine, NodeMask, caller, probe, sysfs};
use anyhow::Context;
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
        }
    }
}

/// Reads the facts for a request, of this host unless another machine is named.
///
/// # Errors
/// A file that cannot be used, or no machine to be read.
pub fn observe(request: &Request, source: &SourceArgs) -> anyhow::Result<Observed> {
    let config = Config::load(source.config.as_deref())?;
    known_classes(&config)?;
    let assume: Assume = source.assume.as_deref().map(config::read).transpose()?.unwrap_or_default();
    known_assumptions(&assume)?;
    let mut machine = machine(source)?;
    if source.topology.is_none() {
        refresh(request, &mut machine);
    }
    let machine = assume.on(machine).context("the assumed pages")?;
    let surroundings = match &source.topology {
        None => surroundings(request, &machine, &config)?,
        Some(_) => Surroundings { affinity: assume.allowed.clone(), ..Surroundings::default() },
    };
    Ok(Observed { holdings: assume.holdings(), machine, config, assume, surroundings })
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
    for folder in &folders {
        match snapshot::load(folder, Path::new("/")) {
            Ok(machine) => return Ok(machine),
            Err(discard) => tracing::debug!("snapshot in {}: {discard}", folder.display()),
        }
    }
    let fingerprint = Fingerprint::read(Path::new("/"));
    let machine = probe::machine(&TopologySource::Live)?;
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
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    runtime.map_or_else(|| format!("/tmp/numa-run-{user}").into(), |folder| folder.join("numa-run"))
}

fn known_classes(config: &Config) -> anyhow::Result<()> {
    let unknown = config.class.keys().find(|name| crate::resource::pci::class(name).is_none());
    anyhow::ensure!(
        unknown.is_none(),
        "the configuration names class `{}`: {}",
        unknown.map_or("", |name| name),
        classes()
    );
    if let Some(VendorDevice { vendor, device }) = config.claimed_twice() {
        anyhow::bail!("the configuration puts {vendor:04x}:{device:04x} into two classes: a device is in one");
    }
    Ok(())
}

fn known_assumptions(assume: &Assume) -> anyhow::Result<()> {
    let unknown = assume.device.iter().find(|device| crate::resource::pci::class(&device.class).is_none());
    anyhow::ensure!(
        unknown.is_none(),
        "an assumed device is of class `{}`: {}",
        unknown.map_or("", |device| &device.class),
        classes()
    );
    let mut named = std::collections::BTreeSet::new();
    match assume.device.iter().find(|device| !named.insert(device.pci)) {
        Some(twice) => Err(anyhow::anyhow!("the device {} is assumed twice", twice.pci)),
        None => Ok(()),
    }
}

fn classes() -> String {
    let names: Vec<&str> = crate::resource::pci::CLASSES.iter().map(|class| class.name).collect();
    format!("there is no such class (there are {})", names.join(", "))
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
    })
}

/// None where the call is forbidden: then nothing is known to be out of bounds.
fn memory_nodes(machine: &Machine) -> Option<NodeMask> {
    let allowed = host::syscall::memory_nodes_allowed().ok()?;
    (!machine.node_ids().is_subset(&allowed)).then(|| allowed.and(&machine.node_ids()))
}
