//! What is done to the host. The only room that changes the machine.

pub mod snapshot;
