//! Lazy switching of floating-point and vector state.
//!
//! A vCPU starts its turn with both units off (unless its registers are still in this hart). Its first use traps
//! as an illegal instruction; the state is loaded then. Only what the guest dirtied is saved at the end of the
//! turn, so the copy in memory is always current and the vCPU can move to another hart freely.

use crate::machine::VectorLength;
use alloc::{boxed::Box, vec};
use rv::{fields::sstatus, fp};

const DIRTY_FS: u64 = sstatus::FS;
const DIRTY_VS: u64 = sstatus::VS;

/// The register files of one vCPU.
#[derive(Debug, Default)]
pub struct Units {
    fp: fp::FpState,
    vector: Option<Box<[u64]>>,
}

impl Units {
    /// After reset.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The floating-point registers of a vCPU that is not loaded.
    pub const fn fp(&self) -> &fp::FpState {
        &self.fp
    }

    /// Others, as bits, and `fcsr`.
    pub const fn set_fp(&mut self, f: [u64; 32], fcsr: u64) {
        self.fp = fp::FpState::from_bits(f, fcsr);
    }

    /// Handles an illegal-instruction trap: loads the next unit that is off and says that the instruction shall be
    /// tried again, or `false` when both are on and the instruction is the guest's own mistake.
    ///
    /// The trap does not tell which unit was missed, so FP comes first; a vector instruction traps once more.
    pub fn load_missing(&mut self, status: &mut u64, vector: VectorLength) -> bool {
        if *status & sstatus::FS == 0 {
            self.fp.restore();
            *status |= sstatus::FS_CLEAN;
            return true;
        }
        if *status & sstatus::VS == 0 && vector.0 != 0 {
            // Bounded: the hart's vector registers.
            let words = self.vector.get_or_insert_with(|| vec![0; fp::vector_words(vector.0)].into_boxed_slice());
            fp::restore_vector(words, vector.0);
            *status |= sstatus::VS_CLEAN;
            return true;
        }
        false
    }

    /// Saves what is dirty and marks it clean in `status`.
    #[inline]
    pub fn save_dirty(&mut self, status: &mut u64, vector: VectorLength) {
        if *status & sstatus::FS == DIRTY_FS {
            self.fp.save();
            *status = *status & !sstatus::FS | sstatus::FS_CLEAN;
        }
        if *status & sstatus::VS == DIRTY_VS
            && let Some(words) = self.vector.as_mut()
        {
            fp::save_vector(words, vector.0);
            *status = *status & !sstatus::VS | sstatus::VS_CLEAN;
        }
    }
}

/// `status` with both units off.
#[must_use]
pub const fn units_off(status: u64) -> u64 {
    status & !(sstatus::FS | sstatus::VS)
}
