//! A guest for tests: memory, environment and a split-ring driver.
//!
//! Nothing here is clever, so that a test that fails points at the device. [`Driver`] is a correct driver; hostile
//! tests write its rings directly through [`TestMemory`].

mod driver;
mod memory;

pub use driver::{Buffer, Driver, Used};
pub use memory::TestMemory;

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use device::{Env, GuestMemory, IrqLine};

/// First byte of the test guest's RAM.
pub const RAM_BASE: u64 = 0x8000_0000;

/// An [`Env`] that records interrupts.
pub struct TestEnv {
    /// The guest's memory.
    pub memory: TestMemory,
    /// Edges sent.
    pub pulses: Cell<u64>,
    /// Changes of level-triggered lines, in order.
    pub levels: RefCell<Vec<(IrqLine, bool)>>,
    /// The clock; set it as the test likes.
    pub ticks: Cell<u64>,
}

impl TestEnv {
    /// A guest with `ram_bytes` of RAM at [`RAM_BASE`].
    #[must_use]
    pub fn new(ram_bytes: usize) -> Self {
        Self {
            memory: TestMemory::new(RAM_BASE, ram_bytes),
            pulses: Cell::new(0),
            levels: RefCell::new(Vec::new()),
            ticks: Cell::new(0),
        }
    }

    /// Edges sent since the last call.
    pub fn take_pulses(&self) -> u64 {
        self.pulses.take()
    }
}

impl Env for TestEnv {
    fn memory(&self) -> &dyn GuestMemory {
        &self.memory
    }

    fn set_irq(&self, line: IrqLine, asserted: bool) {
        self.levels.borrow_mut().push((line, asserted));
    }

    fn pulse_irq(&self, _line: IrqLine) {
        self.pulses.set(self.pulses.get() + 1);
    }

    fn now_ticks(&self) -> u64 {
        self.ticks.get()
    }
}
