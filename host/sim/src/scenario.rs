//! The standard questions to a scheduler.

use addr::CpuIndex;

use crate::TICKS_PER_MS;
use crate::machine::{Machine, Program};
use crate::report::Report;

/// Harts of a node in every scenario.
pub const HARTS_PER_NODE: usize = 8;
/// The usual weight.
const WEIGHT: u32 = 100;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Three computing vCPUs for each hart, in VMs of four.
    Threefold,
    /// Three computing vCPUs for two harts, in VMs of four: they cannot be divided evenly.
    ThreeOnTwo,
    /// One computing vCPU more than there are harts.
    OneMore,
    /// Everything starts on the harts of node 0.
    Crowded,
    /// For each hart a computing vCPU and one that runs for 1 ms out of 10.
    Interactive,
    /// VMs of weights 50, 100 and 200, one computing vCPU of each for each hart.
    Weighted,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Threefold, Self::ThreeOnTwo, Self::OneMore, Self::Crowded, Self::Interactive, Self::Weighted];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threefold => "threefold",
            Self::ThreeOnTwo => "three-on-two",
            Self::OneMore => "one-more",
            Self::Crowded => "crowded",
            Self::Interactive => "interactive",
            Self::Weighted => "weighted",
        }
    }

    /// A machine of `harts` harts, rounded up to whole nodes, with the scenario's VMs.
    #[must_use]
    pub fn build(self, harts: usize) -> Machine {
        let nodes = harts.div_ceil(HARTS_PER_NODE).clamp(1, 255);
        let harts = nodes * HARTS_PER_NODE;
        let mut machine = Machine::new(nodes as u8, HARTS_PER_NODE as u16);
        let compute = [Program::Compute; 4];
        match self {
            Self::Threefold => (0..harts * 3 / 4).for_each(|_| machine.start_vm(WEIGHT, &compute)),
            Self::ThreeOnTwo => (0..harts * 3 / 2 / 4).for_each(|_| machine.start_vm(WEIGHT, &compute)),
            Self::OneMore => (0..=harts).for_each(|_| machine.start_vm(WEIGHT, &compute[..1])),
            Self::Crowded => {
                let place = |vcpu: usize| CpuIndex((vcpu % HARTS_PER_NODE) as u16);
                (0..harts).for_each(|vcpu| machine.start_vm_on(WEIGHT, &compute[..1], &[place(vcpu)]));
            }
            Self::Interactive => {
                let periodic = Program::Periodic { run_ticks: TICKS_PER_MS, sleep_ticks: 9 * TICKS_PER_MS };
                (0..harts).for_each(|_| machine.start_vm(WEIGHT, &compute[..1]));
                (0..harts).for_each(|_| machine.start_vm(WEIGHT, &[periodic]));
            }
            Self::Weighted => {
                for weight in [50, 100, 200] {
                    (0..harts).for_each(|_| machine.start_vm(weight, &compute[..1]));
                }
            }
        }
        machine
    }

    /// Answers the question on `harts` harts: a second to settle, then `ms` milliseconds that count.
    #[must_use]
    pub fn measure(self, harts: usize, ms: u64) -> Report {
        let mut machine = self.build(harts);
        machine.run(1_000);
        machine.reset_counters();
        machine.run(ms);
        machine.report()
    }
}
