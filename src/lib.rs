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
//! - [`request`], [`config`], [`assume`]: what is asked for, what the host's
//!   owner has laid down, what is taken for granted.
//! - [`resource`]: kinds of resources, one file or folder each.
//! - [`plan`]: request and machine in, placement out.
//! - [`rights`]: who the workload is and what it may do.
//! - [`step`], [`environment`]: what a placement does to the process.
//! - [`fault`]: where tests end a program between two effects; nothing in what is shipped.
//! - [`host`]: the only room that changes the machine.
//! - [`lease`]: who holds what, and how it comes back.
//! - [`cli`], [`report`]: what people type and see.
//! - [`observe`], [`consult`]: reading facts, and planning with the advice of
//!   the plugins that device classes may have.
//! - [`launch`], [`inspect`], [`ledger`], [`boot`]: the line itself, looking only,
//!   what is done about leases by hand, and at the boot.
//! - [`debug`]: test vectors in, answers out.
//!
//! Invariants:
//! - `hint`, `resource` and `plan` do no I/O: the same request, machine and
//!   holdings give the same placement. A plugin is a question in the plan;
//!   [`consult`] asks, and the plan is made again with the answer.
//! - Only `host` and `lease` change anything outside this process;
//!   `clippy.toml` lists the calls that are refused elsewhere.
//! - `unsafe` is denied but in `host/syscall.rs`.
//! - There are no globals and no cached "this host": the root path is a
//!   parameter.

// Unit tests make temporary folders and run shells.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod topology;

pub mod hint;

pub mod request;

pub mod config;

pub mod assume;

pub mod resource;

pub mod plan;

pub mod rights;

pub mod step;

pub mod environment;

pub mod fault;

pub mod host;

pub mod lease;

pub mod cli;

pub mod report;

pub mod observe;

pub mod consult;

pub mod launch;

pub mod debug;

pub mod inspect;

pub mod ledger;

pub mod boot;
