//! The units of systemd: a program under its template, the timer, and what is made at the boot.

use crate::sys::{Changed, IGB, attribute, functions, read};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const UNITS: [(&str, &str); 6] = [
    ("numa-run.slice", include_str!("../../../systemd/numa-run.slice")),
    ("numa-run@.service", include_str!("../../../systemd/numa-run@.service")),
    ("numa-run-gc.service", include_str!("../../../systemd/numa-run-gc.service")),
    ("numa-run-gc.timer", include_str!("../../../systemd/numa-run-gc.timer")),
    ("numa-run-hugepages.service", include_str!("../../../systemd/numa-run-hugepages.service")),
    ("numa-run-vfs.service", include_str!("../../../systemd/numa-run-vfs.service")),
];

fn run(line: &str) -> Output {
    Command::new("sh").args(["-c", line]).output().unwrap()
}

/// What a command printed; it must have gone well.
fn fine(line: &str) -> String {
    let output = run(line);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{line}: {}: {} {}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Puts the units and the program where a package would.
fn install() {
    if !Path::new("/usr/bin/numa-run").exists() {
        fine("cp \"$(command -v numa-run)\" /usr/bin/numa-run");
    }
    for (name, text) in UNITS {
        fs::write(Path::new("/etc/systemd/system").join(name), text).unwrap();
    }
    fs::write("/etc/tmpfiles.d/numa-run.conf", include_str!("../../../systemd/numa-run.tmpfiles.conf")).unwrap();
    fine("systemd-tmpfiles --create /etc/tmpfiles.d/numa-run.conf && systemctl daemon-reload");
}

/// A service of the template, stopped and forgotten at the end.
struct Service(String);

impl Service {
    fn start(name: &str, settings: &str, drop_in: &str) -> Service {
        install();
        fs::create_dir_all("/etc/numa-run").unwrap();
        fs::write(format!("/etc/numa-run/{name}.conf"), settings).unwrap();
        let unit = format!("numa-run@{name}.service");
        if !drop_in.is_empty() {
            fs::create_dir_all(format!("/run/systemd/system/{unit}.d")).unwrap();
            fs::write(format!("/run/systemd/system/{unit}.d/test.conf"), drop_in).unwrap();
            fine("systemctl daemon-reload");
        }
        let service = Service(unit);
        fine(&format!("systemctl start {} || {{ journalctl -u {} --no-pager >&2; exit 1; }}", service.0, service.0));
        service
    }

    fn show(&self, property: &str) -> String {
        fine(&format!("systemctl show --property={property} --value {}", self.0))
    }

    fn pid(&self) -> u32 {
        self.show("MainPID").parse().unwrap()
    }

    /// Those of the program, once numa-run has become it.
    fn cpus(&self) -> String {
        self.comes_back_after(0);
        let status = read(&format!("/proc/{}/status", self.pid()));
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    /// Until it runs under another process than this one.
    fn comes_back_after(&self, pid: u32) {
        wait_until(&format!("{} runs again", self.0), || {
            self.show("ActiveState") == "active"
                && ![0, pid].contains(&self.pid())
                && read(&format!("/proc/{}/comm", self.pid())) == "sleep"
        });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        run(&format!(
            "systemctl stop {0}; systemctl reset-failed {0}; rm -rf /run/systemd/system/{0}.d; systemctl daemon-reload",
            self.0
        ));
    }
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Leases by name, with their CPUs.
fn leases() -> Vec<(String, String)> {
    let status: serde_json::Value = serde_json::from_str(&fine("numa-run status --json")).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let leases = status["leases"].as_array().unwrap().iter();
    leases.map(|lease| (text(&lease["name"]), text(&lease["held"]["cpus"]))).collect()
}

const TWO_CPUS: &str = "NUMA_RUN_CPUS=2\nCOMMAND=/bin/sleep 1000\n";

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    install();
    let names: Vec<String> =
        UNITS.iter().map(|(name, _)| format!("/etc/systemd/system/{}", name.replace("@.", "@fw1."))).collect();
    fine("cp '/etc/systemd/system/numa-run@.service' /etc/systemd/system/numa-run@fw1.service");
    let output = run(&format!("systemd-analyze verify {}", names.join(" ")));
    fs::remove_file("/etc/systemd/system/numa-run@fw1.service").unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn a_service_gets_the_same_again_when_it_is_restarted_or_killed_and_gives_it_back_when_it_is_stopped() {
    // So that the lowest CPUs are not what the second start would get by itself.
    let first = Service::start("other", TWO_CPUS, "");
    let service = Service::start("fw1", TWO_CPUS, "");
    let (cpus, pid) = (service.cpus(), service.pid());
    assert_ne!(cpus, first.cpus());
    drop(first);
    fine(&format!("systemctl restart {}", service.0));
    service.comes_back_after(pid);
    assert_eq!(service.cpus(), cpus);
    let pid = service.pid();
    fine(&format!("kill -9 {pid}"));
    service.comes_back_after(pid);
    assert_eq!(service.cpus(), cpus);
    assert_eq!(leases(), [(service.0.clone(), cpus)]);
    fine(&format!("systemctl stop {}", service.0));
    assert_eq!(leases(), []);
}

#[test]
fn a_service_that_says_when_it_is_ready_and_one_that_is_reloaded_are_the_units_main_process() {
    let notify = "[Service]\nType=notify\nNotifyAccess=all\nWatchdogSec=600\n";
    let settings = "NUMA_RUN_CPUS=1\nCOMMAND=/bin/sh /run/notify.sh\n";
    let script = "trap 'echo reloaded > /run/notify.told' HUP\nsystemd-notify --ready\nwhile :; do sleep 0.1; done\n";
    fs::write("/run/notify.sh", script).unwrap();
    let service = Service::start("notify", settings, notify);
    assert_eq!(service.show("SubState"), "running");
    assert_eq!(read(&format!("/proc/{}/comm", service.pid())), "sh");
    fine(&format!("systemctl reload {}", service.0));
    wait_until("the program was told to reload", || Path::new("/run/notify.told").exists());
}

#[test]
fn the_timers_service_ends_the_lease_of_a_launch_that_is_no_more() {
    install();
    let mut launch = Command::new("numa-run").args(["--cpus", "1", "--quiet", "sleep", "1000"]).spawn().unwrap();
    wait_until("it has a lease", || leases().len() == 1);
    launch.kill().unwrap();
    launch.wait().unwrap();
    fine("systemctl start numa-run-gc.service");
    assert_eq!(leases(), []);
    fine("systemctl start numa-run-gc.timer");
    assert!(fine("systemctl list-timers --no-legend numa-run-gc.timer").contains("numa-run-gc.service"));
    fine("systemctl stop numa-run-gc.timer");
}

#[test]
fn at_the_boot_hugepages_and_virtual_functions_are_made_and_a_second_time_nothing_is() {
    install();
    let file = "/sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages";
    let _pages = Changed::to(file, "0");
    let port = functions(IGB)[0].clone();
    fs::create_dir_all("/etc/numa-run").unwrap();
    let config = format!("[boot.hugepages.2M]\n2 = 4\n[boot.vfs]\n\"{port}\" = 2\n");
    fs::write("/etc/numa-run/config.toml", config).unwrap();
    for _ in 0..2 {
        fine("systemctl restart numa-run-hugepages.service numa-run-vfs.service");
        assert_eq!(read(file), "4");
        assert_eq!(attribute(&port, "sriov_numvfs"), "2");
    }
    // More than the node has memory for is said, with the number that there is.
    fs::write("/etc/numa-run/config.toml", "[boot.hugepages.2M]\n2 = 99999\n").unwrap();
    let output = run("numa-run up hugepages");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(125) && said.contains(" of 99999 pages of 2M"), "{said}");
    fs::write(format!("/sys/bus/pci/devices/{port}/sriov_numvfs"), "0").unwrap();
    fs::remove_file("/etc/numa-run/config.toml").unwrap();
}
