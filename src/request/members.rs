//! Equal members of a launch: the processes that its command starts, or ranks.

use super::{CpuChoice, PageAmount, Request};
use crate::resource::pci::class::FUNCTION;

/// Members, each with the resources that the request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members {
    /// How many.
    pub count: u32,
    /// What is placed by itself.
    pub scope: Scope,
}

/// What a placement is for where a launch has several members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// Each member by itself, one after the other, as the kubelet does in its scope `container`.
    #[default]
    Member,
    /// All members' resources together, as in the kubelet's scope `pod`; then each gets its part.
    Group,
}

impl Scope {
    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Member => "member",
            Scope::Group => "group",
        }
    }
}

impl Request {
    /// The request of so many together. Sums beyond what can be counted are as impossible as the largest that can.
    pub fn times(&self, count: u32) -> Request {
        let mut sum = self.clone();
        if let Some(CpuChoice::Count(cpus, _)) = sum.cpus.as_mut().map(|cpus| &mut cpus.choice) {
            *cpus = cpus.saturating_mul(count);
        }
        if let Some(mib) = sum.memory.as_mut().and_then(|memory| memory.mib.as_mut()) {
            *mib = mib.saturating_mul(count.into());
        }
        for pages in &mut sum.hugepages {
            pages.amount = PageAmount::Pages(pages.pages().saturating_mul(count.into()));
        }
        for devices in &mut sum.devices {
            devices.count = devices.count.saturating_mul(count);
        }
        sum
    }

    /// What the request names that only one member can have; none where each can have as much.
    pub fn indivisible(&self) -> Option<&'static str> {
        let cpus = self.cpus.as_ref().and_then(|cpus| match cpus.choice {
            CpuChoice::Count(..) => None,
            CpuChoice::Nodes(_) => Some("--cpu-nodes without --cpus takes all CPUs of the nodes"),
            CpuChoice::List(_) => Some("--cpu-list names the very CPUs"),
        });
        let function = || {
            let named = self.devices.iter().any(|devices| devices.class == FUNCTION.name);
            named.then_some("--pci names the very function")
        };
        let address = || {
            let named = self.devices.iter().any(|devices| devices.settings.mac.is_some());
            named.then_some("mac= is the address of one function")
        };
        cpus.or_else(function).or_else(address)
    }

    /// True where nothing is asked for that a member could have a part of.
    pub fn is_bare(&self) -> bool {
        let memory = self.memory.as_ref().is_some_and(|memory| memory.mib.is_some());
        self.cpus.is_none() && !memory && self.hugepages.is_empty() && self.devices.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{DeviceRequest, HugepageRequest, MemoryRequest};

    #[test]
    fn several_together_want_so_many_times_as_much() {
        let pages: HugepageRequest = "2M=3M".parse().unwrap();
        let request = Request {
            memory: Some(MemoryRequest { mib: Some(100), ..MemoryRequest::default() }),
            hugepages: vec![pages],
            devices: vec![DeviceRequest::of("gpu", 2)],
            ..Request::default()
        };
        let sum = request.times(3);
        assert_eq!(sum.memory.and_then(|memory| memory.mib), Some(300));
        assert_eq!(sum.hugepages[0].pages(), 6, "each member's amount is rounded up to pages");
        assert_eq!(sum.devices[0].count, 6);
        assert_eq!(request.times(u32::MAX).devices[0].count, u32::MAX);
    }
}
