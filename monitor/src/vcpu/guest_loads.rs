//! The monitor's own loads through a guest's translations, by guest virtual address.
//!
//! They go through the hart's TLB like the guest's own. After an exit the hart has left the VM, so a page that the TLB still knows may
//! be another VM's by now. So the hart enters the VM for each load, with the fence that an entry takes, and leaves it afterwards.
//!
//! `./x check` refuses such loads elsewhere.

use super::Vcpu;
use crate::hart::{Hart, HartTools};
use rv::{cause, csr, guarded};

/// Halfwords of code that are looked at: loops that wait are short.
const CODE_AROUND: usize = 24;

/// What came of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// There is a word.
    Loaded,
    /// The tables, the guest's or the monitor's, do not allow it.
    Unmapped,
    /// They do, but the machine does not answer.
    Refused,
}

impl Vcpu {
    /// The instruction at the guest's `pc`. `None` if its page is not mapped any more.
    ///
    /// Only a load that fails changes `stval`, `htval` and `htinst`.
    #[cold]
    #[inline(never)]
    pub(super) fn fetch_instruction(&mut self, hart: &Hart, tools: &mut HartTools) -> Option<u32> {
        let pc = self.context.pc;
        self.inside(hart, tools, || {
            let low = guarded::fetch_guest_u16(pc)?;
            let high = if low & 3 == 3 { guarded::fetch_guest_u16(pc.wrapping_add(2))? } else { 0 };
            Some(u32::from(low) | u32::from(high) << 16)
        })
    }

    /// The code around the guest's `pc`: half of it before. Zeroes stand for what is not mapped.
    ///
    /// A load that fails changes `stval`, `htval` and `htinst`.
    #[cold]
    #[inline(never)]
    pub(super) fn code_around(&mut self, hart: &Hart, tools: &mut HartTools) -> [u16; CODE_AROUND] {
        let first = self.context.pc.wrapping_sub(CODE_AROUND as u64);
        self.inside(hart, tools, || {
            core::array::from_fn(|at| guarded::fetch_guest_u16(first.wrapping_add(2 * at as u64)).unwrap_or(0))
        })
    }

    /// Loads the aligned word around `gva`, with the guest's rights.
    #[cold]
    #[inline(never)]
    pub(super) fn try_load(&mut self, hart: &Hart, tools: &mut HartTools, gva: u64) -> Tried {
        let is_loaded = self.inside(hart, tools, || guarded::load_guest_u32(gva).is_some());
        match csr::scause::read() {
            _ if is_loaded => Tried::Loaded,
            cause::LOAD_ACCESS_FAULT => Tried::Refused,
            _ => Tried::Unmapped,
        }
    }

    /// Loads two words of 8 bytes, with the guest's rights. `None` if one of them is not mapped.
    #[cold]
    pub(super) fn load_pair(&mut self, hart: &Hart, tools: &mut HartTools, gvas: [u64; 2]) -> Option<[u64; 2]> {
        let [first, second] = gvas;
        self.inside(hart, tools, || Some([guarded::load_guest_u64(first)?, guarded::load_guest_u64(second)?]))
    }

    fn inside<T>(&mut self, hart: &Hart, tools: &mut HartTools, load: impl FnOnce() -> T) -> T {
        self.begin_inside(hart, tools);
        let loaded = load();
        self.end_inside(hart);
        loaded
    }
}
