//! Single accesses that may fail, in HS-mode and in a guest, and what the hart says of them.
//
// UNSAFETY: accesses to addresses that may be gone, CSRs, and the guest's entry.
#![expect(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::entry::{print_at, this_hart};
use super::machine::{self, MAX_HARTS};

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Load,
    Store,
    Execute,
}

impl Access {
    pub const ALL: [Self; 3] = [Self::Load, Self::Store, Self::Execute];

    /// The cause of its access fault.
    pub const fn fault(self) -> u64 {
        match self {
            Self::Load => 5,
            Self::Store => 7,
            Self::Execute => 1,
        }
    }
}

/// Who accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The monitor's mode.
    Hs,
    /// A guest, behind both stages of translation.
    Guest,
}

/// What the hart said of a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    pub cause: u64,
    pub stval: u64,
    pub htval: u64,
    /// `hstatus.gva`: `stval` is a guest's virtual address.
    pub is_guest_address: bool,
}

unsafe extern "C" {
    fn access_load(address: u64, value: u64) -> u64;
    fn access_store(address: u64, value: u64);
    fn access_execute(address: u64);
    fn guest_load();
    fn guest_store();
    fn guest_execute();
    fn guest_sweep();
    fn run_guest(pc: u64, a0: u64, a1: u64);
}

/// What the trap handler of HS-mode leaves.
struct Seen {
    expects: AtomicBool,
    trapped: AtomicBool,
    words: [AtomicU64; 4],
}

static SEEN: [Seen; MAX_HARTS] = [const {
    Seen { expects: AtomicBool::new(false), trapped: AtomicBool::new(false), words: [const { AtomicU64::new(0) }; 4] }
}; MAX_HARTS];

const INTERRUPT: u64 = 1 << 63;
const GUEST_ENDED: u64 = 10;

macro_rules! csr {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading this register changes nothing.
        unsafe { asm!(concat!("csrr {0}, ", $name), out(reg) value, options(nostack)) };
        value
    }};
}

/// The machine's time.
pub fn time() -> u64 {
    csr!("time")
}

fn current() -> Trap {
    let is_guest_address = csr!("0x600") >> 6 & 1 != 0;
    Trap { cause: csr!("scause"), stval: csr!("stval"), htval: csr!("0x643"), is_guest_address }
}

/// Opens this hart for the recovery interrupt, and for guests.
pub fn open(vsatp: u64, hgatp: u64) {
    // SAFETY: supervisor software interrupts go to `probe_trap`; guests see the tables that this program uses itself.
    unsafe {
        asm!("csrw 0x280, {0}", "csrw 0x680, {1}", ".insn r 0x73, 0, 0x31, x0, x0, x0", in(reg) vsatp, in(reg) hgatp);
        asm!("csrw 0x602, zero", "csrw 0x603, zero", "csrw sie, {0}", "csrsi sstatus, 2", in(reg) 2);
    }
}

/// Takes supervisor software interrupts, or not; as it was before.
fn interrupts(on: bool) {
    // SAFETY: only whether interrupts are taken.
    unsafe { if on { asm!("csrsi sstatus, 2") } else { asm!("csrci sstatus, 2") } }
}

fn take_interrupt() {
    // SAFETY: takes the pending software interrupt back.
    unsafe { asm!("csrci sip, 2") };
}

/// Traps of HS-mode: where to go on. An execution that failed goes on at its caller, `ra`.
pub extern "C" fn trap(pc: u64, ra: u64) -> u64 {
    let own = this_hart();
    let trap = current();
    if trap.cause & INTERRUPT != 0 {
        take_interrupt();
        return pc;
    }
    let seen = &SEEN[own];
    if !seen.expects.load(Ordering::Relaxed) {
        print_at(own, machine::get().home(own), format_args!("PROBE FAILED: hart {own} traps at {pc:#x}: {trap:x?}"));
        loop {
            core::hint::spin_loop();
        }
    }
    for (word, value) in seen.words.iter().zip([trap.cause, trap.stval, trap.htval, u64::from(trap.is_guest_address)]) {
        word.store(value, Ordering::Relaxed);
    }
    seen.trapped.store(true, Ordering::Relaxed);
    // The accesses are leaf functions: the rest of them is their return.
    ra
}

/// One access; the value of a load, or the trap.
pub fn try_access(mode: Mode, access: Access, address: u64, value: u64) -> Result<u64, Trap> {
    match mode {
        Mode::Hs => in_hs(access, address, value),
        Mode::Guest => in_guest(access, address, value),
    }
}

fn in_hs(access: Access, address: u64, value: u64) -> Result<u64, Trap> {
    let seen = &SEEN[this_hart()];
    seen.trapped.store(false, Ordering::Relaxed);
    seen.expects.store(true, Ordering::Relaxed);
    // SAFETY: the address is of a page that only probes use; a trap goes on behind the access.
    let loaded = unsafe {
        match access {
            Access::Load => access_load(address, 0),
            Access::Store => {
                access_store(address, value);
                value
            }
            Access::Execute => {
                access_execute(address);
                0
            }
        }
    };
    seen.expects.store(false, Ordering::Relaxed);
    if !seen.trapped.load(Ordering::Relaxed) {
        return Ok(loaded);
    }
    let [cause, stval, htval, gva] = [0, 1, 2, 3].map(|word| seen.words[word].load(Ordering::Relaxed));
    Err(Trap { cause, stval, htval, is_guest_address: gva != 0 })
}

fn in_guest(access: Access, address: u64, value: u64) -> Result<u64, Trap> {
    let code = match access {
        Access::Load => guest_load as *const () as u64,
        Access::Store => guest_store as *const () as u64,
        Access::Execute => guest_execute as *const () as u64,
    };
    loop {
        match guest(code, address, value) {
            // An interrupt came first: again.
            None => {}
            Some(Trap { cause: GUEST_ENDED, .. }) => return Ok(value),
            Some(trap) => return Err(trap),
        }
    }
}

/// Runs a guest that reads and writes all of these addresses (the last is 0) until a trap; `None` if that was an interrupt,
/// or the end of its rounds.
pub fn sweep(addresses: &[u64], rounds: u64) -> Option<Trap> {
    let trap = guest(guest_sweep as *const () as u64, addresses.as_ptr() as u64, rounds);
    trap.filter(|trap| trap.cause != GUEST_ENDED)
}

/// `hstatus.spv` and `spvp`; `sstatus.spp` and `spie`.
const VIRTUAL: u64 = 1 << 7 | 1 << 8;
const SUPERVISOR: u64 = 1 << 8;
const INTERRUPTS_BEFORE: u64 = 1 << 5;

fn guest(code: u64, a0: u64, a1: u64) -> Option<Trap> {
    interrupts(false);
    // SAFETY: (1) the guest's code is in this program and ends with a trap; (2) `run_guest` saves and restores what Rust
    // needs; (3) interrupts stay off until what the trap left has been read.
    let trap = unsafe {
        asm!("csrs 0x600, {0}", "csrs sstatus, {1}", "csrc sstatus, {2}", in(reg) VIRTUAL, in(reg) SUPERVISOR,
            in(reg) INTERRUPTS_BEFORE);
        run_guest(code, a0, a1);
        current()
    };
    let is_interrupt = trap.cause & INTERRUPT != 0;
    if is_interrupt {
        take_interrupt();
    }
    interrupts(true);
    (!is_interrupt).then_some(trap)
}
