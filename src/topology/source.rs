//! Where a description of a machine comes from.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What to describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologySource {
    /// This host.
    Live,
    /// An XML export of hwloc 1 or 2.
    Xml(PathBuf),
    /// A synthetic string of hwloc, such as `numa:2 core:4 pu:2`.
    Synthetic(String),
    /// A folder that holds a captured `sys` (and `proc`).
    Root(PathBuf),
}

impl FromStr for TopologySource {
    type Err = Infallible;

    /// Reads `FILE`, `synthetic:SPEC` or `root:DIR`.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once(':') {
            Some(("synthetic", spec)) => TopologySource::Synthetic(spec.to_owned()),
            Some(("root", dir)) => TopologySource::Root(dir.into()),
            _ => TopologySource::Xml(text.into()),
        })
    }
}

impl fmt::Display for TopologySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologySource::Live => out.write_str("this host"),
            TopologySource::Xml(path) | TopologySource::Root(path) => path.display().fmt(out),
            TopologySource::Synthetic(spec) => write!(out, "synthetic:{spec}"),
        }
    }
}
