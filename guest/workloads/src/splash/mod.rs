//! Parallel programs of the kind of SPLASH-2, for threads that share memory. They are written for this project; what they have of
//! those is the problem, and how its data lies and moves. Each thread makes the data that it works on, so that it is touched first
//! where it is used.
//!
//! Each checks its own result by what must hold of it, and gives a digest that is the same for any number of threads and any
//! system: sums of floating-point numbers are taken in a fixed order. A result of 0 says that the check failed.

mod barnes;
mod fft;
mod lu;
mod memory;
mod ocean;
mod radix;
mod water;

use crate::{Crew, Size, raytrace};

/// A program.
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Runs it; its digest.
    pub run: fn(&dyn Crew, Size) -> u64,
    /// The digest that it must give.
    pub expected: fn(Size) -> u64,
}

/// All of them.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "radix",
        run: radix::run,
        expected: |size| size.pick(0xa349_07f7_7641_cddd, 0x82db_d6ad_b661_24f5),
    },
    Program { name: "fft", run: fft::run, expected: |size| size.pick(0x0630_6a69_f286_0977, 0x3371_62e1_803a_fa37) },
    Program { name: "lu", run: lu::run, expected: |size| size.pick(0x2857_1e9a_a169_615c, 0x022e_3180_948a_e44f) },
    Program {
        name: "ocean",
        run: ocean::run,
        expected: |size| size.pick(0xf83d_5771_f64c_0200, 0x7ddd_95f3_79be_f591),
    },
    Program {
        name: "barnes",
        run: barnes::run,
        expected: |size| size.pick(0xe584_b8ba_27a2_b733, 0x1c43_59cc_4399_da8f),
    },
    Program {
        name: "water",
        run: water::run,
        expected: |size| size.pick(0x5b74_51b4_ecb6_4147, 0x94db_d298_d7f1_685b),
    },
    Program { name: "raytrace", run: raytrace::run, expected: raytrace::expected },
];

/// The program of this name.
pub fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::tests::HostCrew;

    #[test]
    fn results_are_the_known_ones_for_any_number_of_threads() {
        for program in PROGRAMS {
            for threads in [1, 3, 8] {
                let result = (program.run)(&HostCrew(threads), Size::Small);
                assert_eq!(result, (program.expected)(Size::Small), "{} {threads} {result:#018x}", program.name);
            }
        }
    }

    #[test]
    fn large_results_are_the_known_ones() {
        for program in PROGRAMS {
            let result = (program.run)(&HostCrew(4), Size::Full);
            assert_eq!(result, (program.expected)(Size::Full), "{} {result:#018x}", program.name);
        }
    }
}
