//! Prints the machine that libhwloc and sysfs describe.

fn main() {}
