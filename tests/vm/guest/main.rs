//! What only a machine with several NUMA nodes, an IOMMU and SR-IOV can show. These run inside the guest, as root;
//! `tests/vm/tests.list` says which machine and which way to boot each one wants.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // The guest is thrown away.

mod landing;
mod sys;
mod vfio;

mod cgroups;
mod cpus;
mod crash;
mod devices;
mod handed;
mod launch;
mod machine;
mod nodes;
mod races;
mod topo;
mod units;
mod users;
