//! Kinds of resources, one file each: how much a set of nodes holds, and how
//! to take some.

pub mod cpu;
