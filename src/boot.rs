//! `numa-run up`: what the configuration wants to be there from the boot on. Doing it again changes nothing.

use crate::cli::{UpArgs, UpWhat};
use crate::config::{Boot, Config};
use crate::host::audit::TARGET;
use crate::host::{pages, sriov};
use crate::report;
use anyhow::{Context, bail};
use std::path::Path;

/// Makes hugepages or virtual functions as the configuration has them.
///
/// # Errors
/// Something is not there, or not all of it; the rest is.
pub fn up(arguments: &UpArgs) -> anyhow::Result<u8> {
    let boot = Config::load(arguments.config.as_deref())?.boot;
    let root = Path::new("/");
    let failed = match arguments.what {
        UpWhat::Hugepages => hugepages(root, &boot),
        UpWhat::Vfs => vfs(root, &boot),
    };
    for error in failed.iter().skip(1) {
        report::say(format!("numa-run: {error:#}\n"));
    }
    failed.into_iter().next().map_or(Ok(0), Err)
}

fn hugepages(root: &Path, boot: &Boot) -> Vec<anyhow::Error> {
    let wanted =
        boot.hugepages.iter().flat_map(|(size, nodes)| nodes.iter().map(move |(&node, &count)| (size, node, count)));
    let raise = |(size, node, wanted): (&crate::request::PageSize, u32, u64)| -> anyhow::Result<()> {
        let file = pages::file(root, node, size.kib());
        let before = pages::count(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let found = pages::raise(root, node, size.kib(), wanted)
            .with_context(|| format!("write {wanted} to {}", file.display()))?;
        if found != before {
            tracing::info!(target: TARGET, file = %file.display(), old = before, new = found, "hugepages of the boot");
        }
        if found < wanted {
            bail!("node {node} has {found} of {wanted} pages of {size}: there is no more memory in one piece");
        }
        Ok(())
    };
    wanted.filter_map(|wanted| raise(wanted).err()).collect()
}

fn vfs(root: &Path, boot: &Boot) -> Vec<anyhow::Error> {
    let make = |(&port, &count)| {
        tracing::info!(target: TARGET, file = %format!("{port}/sriov_numvfs"), new = count, "functions of the boot");
        sriov::make(root, port, count).err().map(anyhow::Error::from)
    };
    boot.vfs.iter().filter_map(make).collect()
}
