//! What becomes of the devices of a plan before the workload runs.

use crate::config::{Config, Handling};
use crate::host::bind::{self, VFIO};
use crate::host::nodes;
use crate::plan::Plan;
use crate::resource::pci::class::Class;
use crate::resource::{Device, Grant, Granted};
use crate::step::{Bind, Change, MakeVfs, Open};
use crate::topology::{Bdf, Machine};
use anyhow::{Context, bail};
use nix::unistd::{AccessFlags, Uid};
use std::collections::BTreeMap;
use std::path::Path;

/// Who makes NICs whose kernel driver works beside a program's own (bifurcated):
/// programs open their RDMA device, and they stay where they are.
const MELLANOX: u16 = 0x15b3;

/// A device of the plan.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    device: &'a Device,
    grant: &'a Grant,
    vfio: bool,
}

/// The changes, in their order: virtual functions are made, devices get their
/// driver, and their files become the workload's user's.
pub fn changes(plan: &Plan, config: &Config, user: Option<u32>) -> Vec<Change> {
    let wanted = wanted(plan, config);
    let make = plan.creations.iter().map(|creation| {
        let port = creation.physical_function;
        let of_port = || wanted.iter().filter(move |wanted| wanted.device.made_by == Some(port));
        Change::MakeVfs(MakeVfs {
            port,
            count: creation.virtual_functions.len() as u32,
            drivers: of_port().any(|wanted| !wanted.vfio),
            wanted: of_port().map(|wanted| wanted.device.bdf).collect(),
        })
    });
    let bind = wanted.iter().filter(|wanted| wanted.vfio);
    let bind = bind.map(|wanted| Change::Bind(Bind { device: wanted.device.bdf, driver: VFIO.into() }));
    let open = user
        .into_iter()
        .flat_map(|user| wanted.iter().map(move |wanted| Change::Open(Open { device: wanted.device.bdf, user })));
    make.chain(bind).chain(open).collect()
}

fn wanted<'a>(plan: &'a Plan, config: &Config) -> Vec<Wanted<'a>> {
    let grants = plan.allocations.iter().filter_map(|allocation| match &allocation.granted {
        Granted::Devices(grant) => Some(grant),
        _ => None,
    });
    let of = |grant: &'a Grant| {
        let class = Class::named(&grant.class, config);
        let vfio = class.is_some_and(|class| class.handling() == Handling::Vfio);
        let chosen = config.vfio.contains(&grant.class);
        grant.devices.iter().map(move |device| {
            let stays = device.vendor == MELLANOX && !chosen;
            Wanted { device, grant, vfio: vfio && !stays }
        })
    };
    grants.flat_map(of).collect()
}

/// Whether programs could open each device at [`VFIO`]: a group goes to one program as a whole.
///
/// # Errors
/// Other members of a device's group are at drivers that use them. Nothing has been touched.
pub fn viable(plan: &Plan, config: &Config, functions: &Path) -> anyhow::Result<()> {
    let wanted = wanted(plan, config).into_iter().filter(|wanted| wanted.vfio);
    let wanted: BTreeMap<Bdf, &Grant> = wanted.map(|wanted| (wanted.device.bdf, wanted.grant)).collect();
    let taken = wanted.keys().copied().collect();
    for (device, grant) in wanted {
        let Some((group, others)) = bind::kept_by(functions, device, &taken) else { continue };
        bail!(
            "{} {device} shares IOMMU group {group}, which goes to one program as a whole, with what drivers of the host \
             have: {}. Ask for a device with a group of its own, or, where nothing needs those, take them from their \
             drivers first (driverctl --nosave set-override BDF pci-stub)",
            grant.class,
            others.join(", ")
        );
    }
    Ok(())
}

/// Whether this user can do what the plan needs: only root changes devices.
///
/// # Errors
/// He cannot, and what to do about it.
pub fn able(plan: &Plan, config: &Config, machine: &Machine) -> anyhow::Result<()> {
    let own = Uid::effective();
    if own.is_root() {
        return Ok(());
    }
    if let Some(creation) = plan.creations.first() {
        bail!(
            "only root makes virtual functions, and this is user {own}: start numa-run as root, or have {creation} made"
        );
    }
    for Wanted { device, grant, .. } in wanted(plan, config).into_iter().filter(|wanted| wanted.vfio) {
        let (bdf, class) = (device.bdf, &grant.class);
        let driver = machine.pci(bdf).and_then(|function| function.driver.as_deref());
        if driver != Some(VFIO) {
            let at = driver.map_or("has no driver".to_owned(), |driver| format!("is at driver {driver}"));
            bail!(
                "{class} {bdf} {at}, and only root gives it to {VFIO}: start numa-run as root with --user {own}, or have it \
                 bound (driverctl set-override {bdf} {VFIO})"
            );
        }
        for file in nodes::files(Path::new("/"), bdf) {
            let access = nix::unistd::access(&file, AccessFlags::R_OK | AccessFlags::W_OK);
            access.with_context(|| {
                format!("{class} {bdf}: user {own} may not open {} (root: chown {own} {0})", file.display())
            })?;
        }
    }
    Ok(())
}

/// What is to be said of devices whose driver an administrator has chosen.
pub fn chosen(plan: &Plan, config: &Config) -> Vec<String> {
    let overrides: BTreeMap<Bdf, String> = wanted(plan, config)
        .into_iter()
        .filter(|wanted| wanted.vfio)
        .filter_map(|wanted| Some((wanted.device.bdf, driver_override(wanted.device.bdf)?)))
        .collect();
    let said = overrides.into_iter().filter(|(_, driver)| driver != VFIO);
    said.map(|(bdf, driver)| {
        format!(
            "{bdf} has driver_override {driver} (driverctl): it is at {VFIO} while the command runs, and gets it back"
        )
    })
    .collect()
}

fn driver_override(device: Bdf) -> Option<String> {
    let file = Path::new(crate::step::device::FUNCTIONS).join(device.to_string()).join("driver_override");
    let text = std::fs::read_to_string(file).ok()?.trim().to_owned();
    (!text.is_empty() && text != "(null)").then_some(text)
}
