//! "Traditional Memory Balloon Device" (5.5).

pub const F_DEFLATE_ON_OOM: u64 = 1 << 2;
pub const F_PAGE_POISON: u64 = 1 << 4;
pub const F_REPORTING: u64 = 1 << 5;

/// Page frame numbers in the inflate and deflate queues are of 4 KiB, whatever the guest's page size.
pub const PFN_SHIFT: u32 = 12;
pub const PFN_BYTES: usize = 4;

pub const CFG_NUM_PAGES: usize = 0;
pub const CFG_ACTUAL: usize = 4;
pub const CFG_POISON_VAL: usize = 12;
pub const CFG_BYTES: usize = 16;
