//! The options of CPU picking, under our names and the kubelet's.

use super::CpuLayout;

/// How CPUs are picked. The default packs: as few sockets, nodes and cores as can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Whole cores only (`full-pcpus-only`).
    pub full_cores: bool,
    /// An even share from each node when one node is too small (`distribute-cpus-across-numa`).
    pub spread_nodes: bool,
    /// Single CPUs in ascending order instead of whole cores (`distribute-cpus-across-cores`).
    pub spread_cores: bool,
    /// Whole sockets of the chosen nodes count as near (`align-by-socket`).
    pub align_socket: bool,
    /// CPUs that share an L3 cache first (`prefer-align-cpus-by-uncorecache`).
    pub prefer_l3: bool,
    /// Reserved CPUs are not in the shared pool either (`strict-cpu-reservation`).
    pub strict_reservation: bool,
}

/// Why options cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// A name that is no option.
    #[error("no cpu option `{name}`: there are {}", known())]
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// Two options that contradict each other.
    #[error("cpu options {first} and {second} cannot be used together")]
    Clash {
        /// One option.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// `align-socket` where a placement may not leave one node.
    #[error("cpu option align-socket cannot be used with the policy single-numa-node")]
    SingleNode,
    /// `align-socket` where a node is wider than a socket.
    #[error(
        "cpu option align-socket needs sockets that hold whole nodes: there are {sockets} sockets and {nodes} nodes"
    )]
    MoreSockets {
        /// Sockets of the machine.
        sockets: usize,
        /// Nodes with CPUs.
        nodes: usize,
    },
}

type Field = fn(&mut CpuOptions) -> &mut bool;

/// Our name, the kubelet's name, and the field.
const NAMES: [(&str, &str, Field); 6] = [
    ("full-cores", "full-pcpus-only", |options| &mut options.full_cores),
    ("spread-nodes", "distribute-cpus-across-numa", |options| &mut options.spread_nodes),
    ("spread-cores", "distribute-cpus-across-cores", |options| &mut options.spread_cores),
    ("align-socket", "align-by-socket", |options| &mut options.align_socket),
    ("prefer-l3", "prefer-align-cpus-by-uncorecache", |options| &mut options.prefer_l3),
    ("strict-reservation", "strict-cpu-reservation", |options| &mut options.strict_reservation),
];

fn known() -> String {
    NAMES.map(|(name, ..)| name).join(", ")
}

impl CpuOptions {
    /// The options with these names, ours or the kubelet's; refuses pairs that clash.
    pub fn parse<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, OptionError> {
        let mut options = CpuOptions::default();
        for name in names {
            let name = name.as_ref();
            let row = NAMES.iter().find(|(ours, kubelets, _)| *ours == name || *kubelets == name);
            let (_, _, field) = row.ok_or_else(|| OptionError::Unknown { name: name.to_owned() })?;
            *field(&mut options) = true;
        }
        options.check().map(|()| options)
    }

    /// Our names of the options that are on.
    pub fn names(mut self) -> Vec<&'static str> {
        NAMES.iter().filter(|(.., field)| *field(&mut self)).map(|(name, ..)| *name).collect()
    }

    /// Refuses pairs of options that contradict each other.
    pub fn check(&self) -> Result<(), OptionError> {
        let clashes = [
            (self.full_cores && self.spread_cores, "full-cores", "spread-cores"),
            (self.spread_nodes && self.spread_cores, "spread-nodes", "spread-cores"),
            (self.prefer_l3 && self.spread_cores, "prefer-l3", "spread-cores"),
            (self.prefer_l3 && self.spread_nodes, "prefer-l3", "spread-nodes"),
        ];
        match clashes.into_iter().find(|(clash, ..)| *clash) {
            Some((_, first, second)) => Err(OptionError::Clash { first, second }),
            None => Ok(()),
        }
    }

    /// Refuses what contradicts the policy `single-numa-node`; ask it under that policy only.
    pub fn check_single_numa_node(&self) -> Result<(), OptionError> {
        if self.align_socket { Err(OptionError::SingleNode) } else { Ok(()) }
    }

    /// Refuses what this machine's shape has no meaning for.
    pub fn check_layout(&self, layout: &CpuLayout) -> Result<(), OptionError> {
        let (sockets, nodes) = (layout.socket_count(), layout.node_count());
        if self.align_socket && sockets > nodes { Err(OptionError::MoreSockets { sockets, nodes }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_an_option_mean_the_same() {
        for (ours, kubelets, _) in NAMES {
            let options = CpuOptions::parse([ours]).unwrap();
            assert_eq!(options, CpuOptions::parse([kubelets]).unwrap());
            assert_eq!(options.names(), [ours]);
        }
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_known_ones() {
        let error = CpuOptions::parse(["full-core"]).unwrap_err().to_string();
        assert!(error.starts_with("no cpu option `full-core`: there are full-cores, spread-nodes,"), "{error}");
    }

    #[test]
    fn exactly_the_pairs_that_the_kubelet_refuses_clash() {
        let clashing: Vec<_> = NAMES
            .iter()
            .flat_map(|(first, ..)| NAMES.iter().map(move |(second, ..)| [*first, *second]))
            .filter(|[first, second]| first < second && CpuOptions::parse([first, second]).is_err())
            .collect();
        let expected = [
            ["full-cores", "spread-cores"],
            ["spread-cores", "spread-nodes"],
            ["prefer-l3", "spread-nodes"],
            ["prefer-l3", "spread-cores"],
        ];
        assert_eq!(clashing.len(), expected.len());
        assert!(expected.iter().all(|pair| clashing.contains(pair)), "{clashing:?}");
    }

    #[test]
    fn align_socket_needs_a_policy_and_a_machine_that_it_can_serve() {
        let options = CpuOptions::parse(["align-socket"]).unwrap();
        assert_eq!(options.check_single_numa_node(), Err(OptionError::SingleNode));
        assert_eq!(CpuOptions::default().check_single_numa_node(), Ok(()));
        let wide_node = CpuLayout::new(&crate::resource::cpu::layout::grid(2, 1, 4, 1), 0);
        assert_eq!(options.check_layout(&wide_node), Err(OptionError::MoreSockets { sockets: 2, nodes: 1 }));
        assert_eq!(CpuOptions::default().check_layout(&wide_node), Ok(()));
    }
}
