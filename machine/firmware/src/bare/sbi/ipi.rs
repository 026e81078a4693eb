//! IPI: supervisor software interrupts.

use core::sync::atomic::Ordering;

use rustsbi::{HartMask, SbiRet};

use super::pmu::{self, event};
use crate::bare::csr::{self, MIP};
use crate::bare::harts::{hardware, hart};
use crate::bare::{doorbell, injection};

const SUPERVISOR_SOFTWARE: u64 = 1 << 1;

/// The extension.
pub struct Interrupts;

impl rustsbi::Ipi for Interrupts {
    fn send_ipi(&self, mask: HartMask) -> SbiRet {
        if !names_harts(mask) {
            return SbiRet::invalid_param();
        }
        let own = csr::this_hart();
        pmu::count(event::IPI_SENT);
        for (id, _) in hardware().harts().filter(|(id, _)| mask.has_bit(*id) && injection::reaches(own, *id)) {
            hart(id).software.store(true, Ordering::Release);
            if id == own { serve(own) } else { doorbell::ring(id) }
        }
        SbiRet::success(0)
    }
}

/// Whether a mask names only harts that the machine has. The mask of all harts does.
pub fn names_harts(mask: HartMask) -> bool {
    let (bits, base) = mask.into_inner();
    let exists = |id: usize| hardware().harts.get(id).is_some_and(Option::is_some);
    base == usize::MAX
        || (0..64).filter(|bit| bits >> bit & 1 != 0).all(|bit| base.checked_add(bit).is_some_and(exists))
}

/// Hands on what others have sent to the executing hart.
pub fn serve(id: usize) {
    if hart(id).software.swap(false, Ordering::AcqRel) {
        pmu::count(event::IPI_RECEIVED);
        csr::set::<MIP>(SUPERVISOR_SOFTWARE);
    }
}
