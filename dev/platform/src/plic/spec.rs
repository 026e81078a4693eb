//! Register layout (RISC-V Platform-Level Interrupt Controller Specification 1.0.0, "Memory Map").

/// Priority of source n at `4 * n`.
pub(super) const PRIORITY: u64 = 0;
/// Pending bits.
pub(super) const PENDING: u64 = 0x1000;
/// Enable bits per context.
pub(super) const ENABLE: u64 = 0x2000;
/// Bytes per context there.
pub(super) const ENABLE_STRIDE: u64 = 0x80;
/// Threshold and claim per context.
pub(super) const CONTEXT: u64 = 0x20_0000;
/// Bytes per context there.
pub(super) const CONTEXT_STRIDE: u64 = 0x1000;
/// Threshold, in a context.
pub(super) const THRESHOLD: u64 = 0;
/// Claim (read) and complete (write), in a context.
pub(super) const CLAIM: u64 = 4;

/// Bits of a priority: as on QEMU `virt`, levels 0..=7.
pub(super) const PRIORITY_MASK: u32 = 7;

/// A register that exists.
pub(super) enum Register {
    /// Priority of a source.
    Priority(u64),
    /// A word of pending bits.
    Pending(u64),
    /// A word of a context's enable bits.
    Enable(u64, u64),
    /// A context's threshold.
    Threshold(u64),
    /// A context's claim and complete.
    Claim(u64),
}

impl Register {
    /// Decodes an offset that is a multiple of 4.
    pub(super) const fn decode(offset: u64) -> Option<Self> {
        if offset < PENDING {
            return Some(Self::Priority((offset - PRIORITY) / 4));
        }
        if offset < ENABLE {
            return Some(Self::Pending((offset - PENDING) / 4));
        }
        if offset < CONTEXT {
            let offset = offset - ENABLE;
            return Some(Self::Enable(offset / ENABLE_STRIDE, offset % ENABLE_STRIDE / 4));
        }
        let offset = offset - CONTEXT;
        let context = offset / CONTEXT_STRIDE;
        match offset % CONTEXT_STRIDE {
            THRESHOLD => Some(Self::Threshold(context)),
            CLAIM => Some(Self::Claim(context)),
            _ => None,
        }
    }
}
