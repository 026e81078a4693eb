//! Setting up the machine and each hart, as OpenSBI does.

use containment::{Hardware, fix_up};

use super::csr::{
    self, MCOUNTEREN, MCOUNTINHIBIT, MEDELEG, MENVCFG, MIDELEG, MISA, MSECCFG, MSTATEEN0, MSTATUS, SCOUNTEREN, STIMECMP,
};
use super::harts::{hardware, publish};
use super::{aplic, console, doorbell, entry, injection, memory, protection, sbi};

/// Exceptions that go to the supervisor: all but calls to the firmware (9) and its own (11).
const DELEGATED: u64 = 0x00ff_f5ff;
/// Supervisor software, timer and external interrupts, and counter overflows.
const DELEGATED_INTERRUPTS: u64 = 1 << 1 | 1 << 5 | 1 << 9 | 1 << 13;

/// `menvcfg`: `stimecmp`; page-based memory types; hardware updates of A and D.
const TIMER_COMPARE: u64 = 1 << 63;
const MEMORY_TYPES: u64 = 1 << 62;
const UPDATES: u64 = 1 << 61;
/// `menvcfg`: cache-block zeroing, flushing and invalidating.
const CACHE_BLOCKS: u64 = 1 << 7 | 1 << 6 | 3 << 4;
/// `mstateen0`: itself, `senvcfg`, indirect registers, AIA, interrupt files, context.
const STATE: u64 = 1 << 63 | 1 << 62 | 1 << 60 | 1 << 59 | 1 << 58 | 1 << 57;

/// `mseccfg`: the supervisor may read `seed` (Zkr).
const SEED: u64 = 1 << 9;

/// The first Rust code of the boot hart.
pub fn boot(hart: usize, tree: u64, next: u64) -> ! {
    let room = memory::tree_room(tree);
    let machine = match Hardware::read(room) {
        Ok(machine) => machine,
        Err(why) => {
            // Nothing is known yet, but where this firmware runs at all, the UART is here.
            console::init(0x1000_0000);
            panic!("the device tree is of no use: {why:?}");
        }
    };
    console::init(machine.uart.unwrap_or(0));
    if let Err(why) = fix_up(room) {
        panic!("the device tree cannot be completed: {why:?}");
    }
    publish(machine);
    aplic::delegate(hardware());
    sbi::pmu::init(room);
    protection::init();
    injection::init(hart);
    let (harts, nodes) = (hardware().harts().count(), hardware().nodes);
    console::print_line(format_args!("{harts} harts, {nodes} nodes, next program at {next:#x}"));
    entry::open_gate();
    init_hart(hart);
    sbi::hsm::boot(hart, next, tree)
}

/// The first Rust code of the other harts.
pub extern "C" fn secondary(hart: usize) -> ! {
    // A hart that the tree does not describe is none.
    if hardware().harts.get(hart).is_none_or(Option::is_none) {
        loop {
            csr::wait_for_interrupt();
        }
    }
    init_hart(hart);
    sbi::hsm::wait_for_start(hart)
}

fn init_hart(hart: usize) {
    csr::write::<MEDELEG>(DELEGATED);
    csr::write::<MIDELEG>(DELEGATED_INTERRUPTS);
    csr::write::<MCOUNTEREN>(u64::MAX);
    csr::write::<SCOUNTEREN>(7);
    csr::try_write::<MCOUNTINHIBIT>(!7);
    init_environment(hart);
    init_units();
    doorbell::open(hart);
    injection::adopt(hart);
}

fn init_environment(hart: usize) {
    let updates = hardware().harts[hart].is_some_and(|place| place.updates_page_tables);
    let updates = if updates { UPDATES } else { 0 };
    // Fields that the hart lacks stay 0.
    if csr::try_write::<MENVCFG>(TIMER_COMPARE | MEMORY_TYPES | CACHE_BLOCKS | updates) && has_sstc() {
        csr::write::<STIMECMP>(u64::MAX);
    }
    csr::try_write::<MSTATEEN0>(STATE);
    csr::try_write::<MSECCFG>(SEED);
    csr::try_write::<0x30d>(1 << 63);
    csr::try_write::<0x30e>(1 << 63);
    csr::try_write::<0x30f>(1 << 63);
}

/// Whether this hart has `stimecmp`: without it, the bit that enables it stays 0.
pub fn has_sstc() -> bool {
    csr::read::<MENVCFG>() & TIMER_COMPARE != 0
}

/// Floating point and vectors, where there are, are on in their initial state.
fn init_units() {
    let has = |letter: u8| csr::read::<MISA>() >> (letter - b'a') & 1 != 0;
    let float = if has(b'f') { 1 << 13 } else { 0 };
    let vector = if has(b'v') { 1 << 9 } else { 0 };
    csr::set::<MSTATUS>(float | vector);
}
