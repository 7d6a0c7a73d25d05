//! Answers for test vectors, through the same pure code that a launch uses:
//! one JSON line in, one out.

pub mod cpus;
pub mod merge;
