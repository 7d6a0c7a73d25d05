//! The launcher that is shipped links nothing at run time: it is in the path
//! of every restart, and libhwloc must not be able to take it down.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use libtest_mimic::{Arguments, Trial};
use std::path::Path;

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;

/// What a 64-bit little-endian ELF file asks of whoever loads it.
#[derive(Debug, PartialEq, Eq)]
struct Linkage {
    /// It wants a dynamic loader.
    interpreter: bool,
    /// How many shared libraries it wants.
    libraries: usize,
}

impl Linkage {
    fn of(path: &Path) -> Self {
        let elf = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(&elf[..6], b"\x7fELF\x02\x01", "{} is no 64-bit little-endian ELF file", path.display());
        let headers = number(&elf, 0x20, 8);
        let (size, count) = (number(&elf, 0x36, 2), number(&elf, 0x38, 2));
        let mut linkage = Self { interpreter: false, libraries: 0 };
        for header in (0..count).map(|index| headers + index * size) {
            match number(&elf, header, 4) as u32 {
                PT_INTERP => linkage.interpreter = true,
                // A static program that can be loaded anywhere has this table too: only its entries tell.
                PT_DYNAMIC => {
                    linkage.libraries += needed(&elf, number(&elf, header + 8, 8), number(&elf, header + 32, 8))
                }
                _ => {}
            }
        }
        linkage
    }
}

fn needed(elf: &[u8], offset: usize, length: usize) -> usize {
    elf[offset..offset + length].chunks_exact(16).filter(|entry| number(entry, 0, 8) as u64 == DT_NEEDED).count()
}

fn number(bytes: &[u8], offset: usize, width: usize) -> usize {
    bytes[offset..offset + width].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

fn the_shipped_launcher_is_static() {
    let path = std::env::var_os("NUMA_RUN_STATIC").expect("NUMA_RUN_STATIC names the launcher to look at");
    assert_eq!(Linkage::of(Path::new(&path)), Linkage { interpreter: false, libraries: 0 });
}

fn a_dynamic_program_is_told_from_a_static_one() {
    // This test links the C library, as every program of this target does.
    let linkage = Linkage::of(&std::env::current_exe().expect("/proc is mounted where tests run"));
    assert!(linkage.interpreter, "{linkage:?}");
    assert!(linkage.libraries > 0, "{linkage:?}");
}

/// `./x test` names the launcher that it has built; elsewhere the test of it is left out by name.
fn main() {
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let shipped = trial("the_shipped_launcher_is_static", the_shipped_launcher_is_static);
    let unnamed = std::env::var_os("NUMA_RUN_STATIC").is_none();
    let tests = vec![
        shipped.with_ignored_flag(unnamed),
        trial("a_dynamic_program_is_told_from_a_static_one", a_dynamic_program_is_told_from_a_static_one),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}
