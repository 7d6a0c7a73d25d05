//! `numa-run` starts a program where its CPUs, memory and devices are.
//!
//! A launch is one line: **observe, place, apply, exec**. Everything before
//! *apply* only reads; everything that *apply* does is a list of
//! [`step::Step`]s, plain data, so that a dry run, a test and a rollback all
//! handle the same list.
//!
//! Reading order:
//! - [`topology`]: what the machine is, read once, then immutable.
//! - [`hint`]: which sets of nodes could serve a request, and how the answers
//!   of several resources are merged into one.
//! - [`resource`]: one file per kind of resource.
//! - [`step`]: one change as data.
//!
//! Invariants:
//! - `hint`, `resource` and `plan` do no I/O: the same request, machine and
//!   holdings give the same placement.
//! - Only `host` changes anything outside this process; `clippy.toml` lists
//!   the calls that are refused elsewhere.
//! - `unsafe` is denied but in `host/syscall.rs`.
//! - There are no globals and no cached "this host": the root path is a
//!   parameter.

// Unit tests make folders of their own; the same code is linted without them too.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod hint;
pub mod resource;
pub mod topology;
