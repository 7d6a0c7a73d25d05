//! Questions of test vectors, one JSON line each, answered by the same pure
//! code that a launch uses.

pub mod cpus;
