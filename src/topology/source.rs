//! Where a description of a machine comes from.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

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

/// A word that names no source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("name an hwloc XML file, synthetic:SPEC or root:DIR")]
pub struct NoSource;

impl TryFrom<OsString> for TopologySource {
    type Error = NoSource;

    /// Reads `FILE`, `synthetic:SPEC` or `root:DIR`; names of files are bytes.
    fn try_from(word: OsString) -> Result<Self, NoSource> {
        let bytes = word.as_bytes();
        let source = match (bytes.strip_prefix(b"synthetic:"), bytes.strip_prefix(b"root:")) {
            (Some(spec), _) => TopologySource::Synthetic(String::from_utf8(spec.to_vec()).map_err(|_| NoSource)?),
            (_, Some(dir)) => TopologySource::Root(OsStr::from_bytes(dir).into()),
            _ => TopologySource::Xml(word.clone().into()),
        };
        match &source {
            TopologySource::Xml(path) | TopologySource::Root(path) if path.as_os_str().is_empty() => Err(NoSource),
            _ => Ok(source),
        }
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
