//! HSM: starting, stopping and suspending harts.

use core::sync::atomic::Ordering;

use rustsbi::SbiRet;

use crate::bare::csr::{self, MIE, MIP, SIE};
use crate::bare::harts::{Hart, hardware, hart};
use crate::bare::{doorbell, entry, injection, trap};

pub const STARTED: u64 = 0;
pub const STOPPED: u64 = 1;
pub const START_PENDING: u64 = 2;
pub const SUSPENDED: u64 = 4;

const RETENTIVE: u32 = 0;
const NON_RETENTIVE: u32 = 0x8000_0000;
/// Bits of `sie` that are not the supervisor's own are hypervisor's, which count as well.
const HYPERVISOR_INTERRUPTS: u64 = 1 << 2 | 1 << 6 | 1 << 10 | 1 << 12;

/// The extension.
pub struct Harts;

fn existing(id: usize) -> Option<&'static Hart> {
    hardware().harts.get(id)?.as_ref()?;
    Some(hart(id))
}

impl rustsbi::Hsm for Harts {
    fn hart_start(&self, id: usize, address: usize, opaque: usize) -> SbiRet {
        let Some(target) = existing(id).filter(|_| injection::reaches(csr::this_hart(), id)) else {
            return SbiRet::invalid_param();
        };
        if !hardware().is_open_memory(address as u64, 2) || !address.is_multiple_of(2) {
            return SbiRet::invalid_address();
        }
        // Nobody else writes the two words between the exchange and the state's release.
        let exchange = target.state.compare_exchange(STOPPED, BEING_STARTED, Ordering::AcqRel, Ordering::Acquire);
        match exchange {
            Ok(_) => {}
            Err(START_PENDING | BEING_STARTED) => return SbiRet::already_started(),
            Err(_) => return SbiRet::already_available(),
        }
        target.start[0].store(address as u64, Ordering::Relaxed);
        target.start[1].store(opaque as u64, Ordering::Relaxed);
        target.state.store(START_PENDING, Ordering::Release);
        doorbell::ring(id);
        SbiRet::success(0)
    }

    fn hart_stop(&self) -> SbiRet {
        let id = csr::this_hart();
        hart(id).state.store(STOPPED, Ordering::Release);
        wait_for_start(id)
    }

    fn hart_get_status(&self, id: usize) -> SbiRet {
        let state = existing(id).map(|hart| hart.state.load(Ordering::Acquire));
        let shown = |state| if state == BEING_STARTED { START_PENDING } else { state };
        state.map_or(SbiRet::invalid_param(), |state| SbiRet::success(shown(state) as usize))
    }

    fn hart_suspend(&self, kind: u32, resume: usize, opaque: usize) -> SbiRet {
        let is_retentive = match kind {
            RETENTIVE => true,
            NON_RETENTIVE => false,
            0x1000_0000..=0x7fff_ffff | 0x9000_0000.. => return SbiRet::not_supported(),
            _ => return SbiRet::invalid_param(),
        };
        if !is_retentive && !hardware().is_open_memory(resume as u64, 2) {
            return SbiRet::invalid_address();
        }
        let id = csr::this_hart();
        hart(id).state.store(SUSPENDED, Ordering::Release);
        // The supervisor's interrupts end the wait; they must be enabled in `mie` to be seen, and are, as `sie` is a view.
        while csr::read::<MIP>() & (csr::read::<SIE>() | csr::read::<MIE>() & HYPERVISOR_INTERRUPTS) == 0 {
            csr::wait_for_interrupt();
            trap::attend(id);
        }
        hart(id).state.store(STARTED, Ordering::Release);
        if is_retentive { SbiRet::success(0) } else { entry::enter_supervisor(id, resume as u64, opaque as u64) }
    }
}

/// The start block is being written.
const BEING_STARTED: u64 = 99;

/// The boot hart goes straight to the next program.
pub fn boot(id: usize, address: u64, tree: u64) -> ! {
    hart(id).state.store(STARTED, Ordering::Release);
    entry::enter_supervisor(id, address, tree)
}

/// Waits, stopped, until another hart starts this one. At reset that may have happened already, so the state is not touched.
pub fn wait_for_start(id: usize) -> ! {
    let own = hart(id);
    loop {
        trap::attend(id);
        if own.state.load(Ordering::Acquire) == START_PENDING {
            let [address, opaque] = [0, 1].map(|word| own.start[word].load(Ordering::Relaxed));
            // What was sent to the program that ran here before does not concern the next one.
            own.software.store(false, Ordering::Release);
            csr::clear::<MIP>(1 << 1);
            own.state.store(STARTED, Ordering::Release);
            entry::enter_supervisor(id, address, opaque)
        }
        csr::wait_for_interrupt();
    }
}
