//! What only a machine with several NUMA nodes, an IOMMU and SR-IOV can show. These run inside the guest, as root;
//! `tests/vm/tests.list` says which machine and which way to boot each one wants.

mod machine;
mod sys;
