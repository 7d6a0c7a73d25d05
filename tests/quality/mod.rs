//! How well launches are placed, by either merge: machines, streams of
//! launches and ends, and what comes of them. `cargo bench --bench placement`
//! prints it in full, `placement_quality` is a test of a little of it.

pub mod compare;
pub mod machines;
pub mod play;
pub mod stock;
pub mod stream;
pub mod yardstick;
