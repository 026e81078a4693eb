//! An environment for unit tests: a clock to set, a record of interrupt lines, no memory.

extern crate std;

use addr::{GuestPhysAddr, MachineAddr};
use core::cell::{Cell, RefCell};
use device::{Env, GuestMemory, IrqLine, MemoryFault, Width};
use proptest::prelude::*;
use std::vec::Vec;

/// Every width.
pub(crate) const WIDTHS: [Width; 4] = [Width::Byte, Width::Half, Width::Word, Width::Double];

/// Records every change of an interrupt line.
#[derive(Default)]
pub(crate) struct TestEnv {
    pub(crate) now: Cell<u64>,
    pub(crate) lines: RefCell<Vec<(IrqLine, bool)>>,
}

impl TestEnv {
    /// The level that `line` was last driven to.
    pub(crate) fn level(&self, line: IrqLine) -> bool {
        self.lines.borrow().iter().rev().find(|(l, _)| *l == line).is_some_and(|(_, level)| *level)
    }

    /// Changes since the last call.
    pub(crate) fn take_changes(&self) -> Vec<bool> {
        self.lines.borrow_mut().drain(..).map(|(_, level)| level).collect()
    }
}

impl Env for TestEnv {
    fn memory(&self) -> &dyn GuestMemory {
        &NoMemory
    }

    fn set_irq(&self, line: IrqLine, asserted: bool) {
        self.lines.borrow_mut().push((line, asserted));
    }

    fn pulse_irq(&self, line: IrqLine) {
        self.set_irq(line, true);
        self.set_irq(line, false);
    }

    fn now_ticks(&self) -> u64 {
        self.now.get()
    }
}

struct NoMemory;

impl GuestMemory for NoMemory {
    fn read(&self, addr: GuestPhysAddr, _: &mut [u8]) -> Result<(), MemoryFault> {
        Err(MemoryFault { addr })
    }

    fn write(&self, addr: GuestPhysAddr, _: &[u8]) -> Result<(), MemoryFault> {
        Err(MemoryFault { addr })
    }

    fn copy_from_machine(&self, addr: GuestPhysAddr, _: MachineAddr, _: u64) -> Result<(), MemoryFault> {
        Err(MemoryFault { addr })
    }

    fn copy_to_machine(&self, _: MachineAddr, addr: GuestPhysAddr, _: u64) -> Result<(), MemoryFault> {
        Err(MemoryFault { addr })
    }

    fn contains(&self, _: GuestPhysAddr, _: u64) -> bool {
        false
    }

    fn fence(&self) {}
}

/// One register access: write or read, offset, width, value.
pub(crate) type Access = (bool, u64, Width, u64);

/// Random accesses, most of them inside `size`, with values that hit small numbers and extremes often.
pub(crate) fn accesses(size: u64) -> impl Strategy<Value = Vec<Access>> {
    let offset = prop_oneof![8 => (0..size / 4).prop_map(|n| n * 4), 2 => 0..size, 1 => any::<u64>()];
    let value = prop_oneof![4 => 0_u64..128, 2 => any::<u32>().prop_map(u64::from), 1 => any::<u64>()];
    prop::collection::vec((any::<bool>(), offset, prop::sample::select(&WIDTHS[..]), value), 0..200)
}
