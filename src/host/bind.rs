//! A function at another driver, and back.
//!
//! `driver_override` says which driver may have it, so that none else takes it
//! between two steps. It is given back as it was, set or not.

use super::StepError;
use super::undo::Outcome;
use crate::fault;
use crate::step::device::FUNCTIONS;
use crate::step::{Bind, Rebind, Undo};
use crate::topology::Bdf;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a driver may take to have its device, and a device to have its files.
const WITHIN: Duration = Duration::from_secs(5);
const PROBE: &str = "/sys/bus/pci/drivers_probe";
/// The driver that hands a device out to a program.
pub const VFIO: &str = "vfio-pci";

/// A function as the kernel shows it.
struct Function {
    device: Bdf,
    folder: PathBuf,
}

impl Function {
    fn of(device: Bdf) -> Function {
        Function { device, folder: Path::new(FUNCTIONS).join(device.to_string()) }
    }

    fn text(&self, name: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.folder.join(name));
        text.map(|text| text.trim().to_owned()).map_err(|error| named(error, &self.folder.join(name)))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        put(&self.folder.join(name), text)
    }

    fn link(&self, name: &str) -> Option<String> {
        let target = fs::read_link(self.folder.join(name)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    fn driver(&self) -> Option<String> {
        self.link("driver")
    }

    /// Empty where no driver is chosen, which the kernel shows as `(null)`.
    fn chosen(&self) -> io::Result<String> {
        Ok(self.text("driver_override")?.replace("(null)", ""))
    }

    fn choose(&self, driver: &str) -> io::Result<()> {
        self.write("driver_override", driver)?;
        let kept = self.chosen()?;
        match kept == driver {
            true => Ok(()),
            false => Err(io::Error::other(format!("driver_override keeps `{kept}` where `{driver}` was written"))),
        }
    }

    /// `vendor:device`; none for what is gone.
    fn kind(&self) -> Option<String> {
        let number = |name| self.text(name).ok().map(|text| text.trim_start_matches("0x").to_owned());
        Some(format!("{}:{}", number("vendor")?, number("device")?))
    }

    fn unbind(&self) -> io::Result<()> {
        match self.write("driver/unbind", &self.device.to_string()) {
            Err(_) if self.driver().is_none() => Ok(()),
            other => other,
        }
    }

    /// Has the chosen driver take it. One that is just letting go of something
    /// is busy for a moment.
    fn taken_by(&self, driver: &str) -> io::Result<()> {
        let (end, mut pause) = (Instant::now() + WITHIN, Duration::from_millis(5));
        loop {
            let probed = put(Path::new(PROBE), &self.device.to_string());
            if self.driver().as_deref() == Some(driver) {
                return Ok(());
            }
            if Instant::now() + pause >= end {
                let reason = match (self.driver(), probed) {
                    (Some(other), _) => format!("{other} has {}", self.device),
                    (None, Err(error)) => return Err(error),
                    (None, Ok(())) => format!("{driver} did not take {} within {} s", self.device, WITHIN.as_secs()),
                };
                return Err(io::Error::other(reason));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }
}

fn named(error: io::Error, file: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

/// The kernel takes a value in one write; an empty one takes a line.
fn put(file: &Path, text: &str) -> io::Result<()> {
    let written =
        OpenOptions::new().write(true).open(file).and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
    written.map_err(|error| named(error, file))
}

fn call(bind: &Bind) -> String {
    format!("bind {} to {}", bind.device, bind.driver)
}

/// Drivers under which a member of a group keeps no other one from being
/// opened: those that the kernel marks `driver_managed_dma`.
fn lets_others(driver: &str) -> bool {
    ["pcieport", "pci-stub"].contains(&driver) || driver.ends_with(VFIO)
}

/// The members of a function's IOMMU group that keep programs from opening it,
/// as `0000:84:02.0 (e1000)`, and the group. `taken` are given to [`VFIO`] with it.
pub fn kept_by(functions: &Path, device: Bdf, taken: &BTreeSet<Bdf>) -> Option<(String, Vec<String>)> {
    let of = |device: &Bdf| Function { device: *device, folder: functions.join(device.to_string()) };
    let function = of(&device);
    let group = function.link("iommu_group")?;
    let members = fs::read_dir(function.folder.join("iommu_group/devices")).ok()?.flatten();
    let members: BTreeSet<Bdf> = members.filter_map(|member| member.file_name().to_str()?.parse().ok()).collect();
    let others = members.difference(taken).filter(|member| **member != device);
    let used =
        others.filter_map(|other| Some(format!("{other} ({})", of(other).driver().filter(|it| !lets_others(it))?)));
    let used: Vec<String> = used.collect();
    (!used.is_empty()).then_some((group, used))
}

/// What gives the function back; none where the driver has it already.
///
/// # Errors
/// It cannot be bound, and nothing has been touched.
pub fn undo_of(bind: &Bind) -> Result<Option<Undo>, StepError> {
    let function = Function::of(bind.device);
    let refused = |source| StepError::Refused { call: call(bind), source };
    let Some(kind) = function.kind() else {
        return Err(refused(io::Error::other(format!("{} is gone", bind.device))));
    };
    let driver = function.driver();
    if driver.as_deref() == Some(&bind.driver) {
        return Ok(None);
    }
    if !Path::new("/sys/bus/pci/drivers").join(&bind.driver).exists() {
        let reason = format!("there is no driver {0}: modprobe {0}", bind.driver);
        return Err(refused(io::Error::other(reason)));
    }
    if bind.driver == VFIO && function.link("iommu_group").is_none() {
        let reason = "it has no IOMMU group: boot with intel_iommu=on or amd_iommu=on";
        return Err(refused(io::Error::other(reason)));
    }
    let chosen = function.chosen().map_err(refused)?;
    Ok(Some(Undo::Rebind(Rebind { device: bind.device, kind, ours: bind.driver.clone(), driver, chosen })))
}

/// Gives the function to the driver, and waits until programs can open it.
///
/// # Errors
/// The driver does not have it.
pub fn bind(bind: &Bind) -> Result<(), StepError> {
    let function = Function::of(bind.device);
    given(&function, &bind.driver).map_err(|source| StepError::Refused { call: call(bind), source })
}

fn given(function: &Function, driver: &str) -> io::Result<()> {
    function.choose(driver)?;
    fault::point("bind.chosen");
    if function.driver().is_some() {
        function.unbind()?;
        fault::point("bind.unbound");
    }
    function.taken_by(driver)?;
    fault::point("bind.taken");
    if driver == VFIO { appears(function) } else { Ok(()) }
}

/// The file of its group comes a moment after the driver.
fn appears(function: &Function) -> io::Result<()> {
    let end = Instant::now() + WITHIN;
    let file = group_file(function.device).ok_or_else(|| io::Error::other("it has no IOMMU group any more"))?;
    while !fs::metadata(&file).is_ok_and(|about| about.file_type().is_char_device()) {
        if Instant::now() >= end {
            let reason = format!("{} did not appear within {} s", file.display(), WITHIN.as_secs());
            return Err(io::Error::other(reason));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The file by which a program opens a function at vfio-pci.
pub fn group_file(device: Bdf) -> Option<PathBuf> {
    Some(Path::new("/dev/vfio").join(Function::of(device).link("iommu_group")?))
}

/// The driver that has a function now.
pub fn driver(device: Bdf) -> Option<String> {
    Function::of(device).driver()
}

/// Gives a function back that is still as we left it.
///
/// # Errors
/// Its driver does not take it, or the kernel refused.
pub fn rebind(undo: &Rebind) -> io::Result<Outcome> {
    let function = Function::of(undo.device);
    // Where it is gone, or another one came to its place, there is nothing to give back.
    if function.kind().as_ref() != Some(&undo.kind) {
        return Ok(Outcome::Done);
    }
    let (chosen, driver) = (function.chosen()?, function.driver());
    if chosen == undo.chosen && driver == undo.driver {
        return Ok(Outcome::Done);
    }
    if let Some(found) = elses(undo, &chosen, driver.as_deref()) {
        return Ok(Outcome::NotOurs(found));
    }
    let given = given_back(&function, undo, driver.as_deref());
    // Also where the driver is not there any more, nobody else's choice stays behind.
    function.choose(&undo.chosen)?;
    fault::point("rebind.chosen");
    given.map(|()| Outcome::Done)
}

/// What somebody else has made of it since.
fn elses(undo: &Rebind, chosen: &str, driver: Option<&str>) -> Option<String> {
    let before = undo.driver.as_deref();
    let ours = [undo.ours.as_str(), undo.chosen.as_str(), before.unwrap_or_default()];
    let driver_is_ours = driver.is_none() || driver == Some(&undo.ours) || driver == before;
    match (ours.contains(&chosen), driver_is_ours) {
        (true, true) => None,
        (false, _) => Some(format!("driver_override {chosen}")),
        (true, false) => Some(format!("driver {}", driver.unwrap_or_default())),
    }
}

fn given_back(function: &Function, undo: &Rebind, driver: Option<&str>) -> io::Result<()> {
    if driver == undo.driver.as_deref() {
        return Ok(());
    }
    if driver.is_some() {
        function.unbind()?;
        fault::point("rebind.unbound");
    }
    let Some(before) = &undo.driver else { return Ok(()) };
    // Chosen by name, it gets a virtual function even where those are given to no driver by themselves.
    function.choose(before)?;
    fault::point("rebind.named");
    function.taken_by(before)?;
    fault::point("rebind.taken");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_has_made_of_a_function_is_told_from_every_state_of_ours() {
        let rebind = |driver: Option<&str>, chosen: &str| Rebind {
            device: "0000:21:10.0".parse().unwrap(),
            kind: "8086:10ca".into(),
            ours: VFIO.into(),
            driver: driver.map(str::to_owned),
            chosen: chosen.into(),
        };
        let states =
            [(VFIO, Some("igbvf")), (VFIO, None), (VFIO, Some(VFIO)), ("igbvf", None), ("", Some(VFIO)), ("", None)];
        for (chosen, driver) in states {
            assert_eq!(elses(&rebind(Some("igbvf"), ""), chosen, driver), None, "{chosen} {driver:?}");
        }
        let undo = rebind(None, "uio");
        assert_eq!(elses(&undo, "uio", None), None);
        assert_eq!(elses(&undo, "other", None).as_deref(), Some("driver_override other"));
        assert_eq!(elses(&undo, VFIO, Some("igbvf")).as_deref(), Some("driver igbvf"));
    }

    #[test]
    fn a_group_is_kept_by_the_drivers_of_its_other_members_and_not_by_those_of_bridges() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let functions = root.path().join("devices");
        let members = root.path().join("iommu_groups/27/devices");
        fs::create_dir_all(&members).unwrap();
        let drivers = [
            ("0000:40:00.0", "pcieport"),
            ("0000:44:00.0", "i40e"),
            ("0000:44:00.1", "vfio-pci"),
            ("0000:44:00.2", ""),
            ("0000:44:00.3", "i40e"),
            ("0000:83:00.0", "shpchp"),
        ];
        for (bdf, driver) in drivers {
            let folder = functions.join(bdf);
            fs::create_dir_all(&folder).unwrap();
            symlink("../../iommu_groups/27", folder.join("iommu_group")).unwrap();
            fs::write(members.join(bdf), "").unwrap();
            if !driver.is_empty() {
                symlink(format!("../../drivers/{driver}"), folder.join("driver")).unwrap();
            }
        }
        let kept = |taken: &[&str]| {
            let taken = taken.iter().map(|bdf| bdf.parse().unwrap()).collect();
            kept_by(&functions, "0000:44:00.3".parse().unwrap(), &taken)
        };
        let both = vec!["0000:44:00.0 (i40e)".to_owned(), "0000:83:00.0 (shpchp)".to_owned()];
        assert_eq!(kept(&[]), Some(("27".to_owned(), both)));
        assert_eq!(kept(&["0000:44:00.0"]), Some(("27".to_owned(), vec!["0000:83:00.0 (shpchp)".to_owned()])));
        fs::remove_file(functions.join("0000:83:00.0/driver")).unwrap();
        assert_eq!(kept(&["0000:44:00.0"]), None);
    }
}
