//! A page-table entry, as far as the walker must understand it.

/// What a valid entry says.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Address of the next table, or of the page.
    pub addr: u64,
    pub is_leaf: bool,
    pub is_global: bool,
    /// Svnapot: one of sixteen pages side by side that share their entry.
    is_napot: bool,
}

impl Entry {
    /// `None` for an entry that is not valid. Permissions are the hart's business: it has made the access.
    pub fn decode(raw: u64) -> Option<Self> {
        let (is_valid, is_reserved) = (raw & 1 != 0, raw & 0b110 == 0b100);
        (is_valid && !is_reserved).then_some(Self {
            addr: (raw >> 10 & ((1 << 44) - 1)) << 12,
            is_leaf: raw & 0b1110 != 0,
            is_global: raw & (1 << 5) != 0,
            is_napot: raw >> 63 != 0,
        })
    }

    /// Where a leaf of `level` (1 = of the last tables) takes `addr`.
    pub fn target(&self, addr: u64, level: u32) -> u64 {
        let offset = if self.is_napot { 0xffff } else { (1 << (12 + 9 * (level - 1))) - 1 };
        self.addr & !offset | addr & offset
    }
}

/// The number of the entry for `addr` in a table of `level`.
pub fn index(addr: u64, level: u32, last: u64) -> u64 {
    addr >> (12 + 9 * (level - 1)) & last
}
