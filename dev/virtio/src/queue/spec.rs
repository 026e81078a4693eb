//! Split virtqueue layout, "Split Virtqueues" (2.7).

/// Bytes of one descriptor.
pub const DESC_SIZE: u64 = 16;
/// Alignment of the descriptor table.
pub const DESC_ALIGN: u64 = 16;
/// Alignment of the available ring.
pub const AVAIL_ALIGN: u64 = 2;
/// Alignment of the used ring.
pub const USED_ALIGN: u64 = 4;

/// The chain continues at `next`.
pub const DESC_F_NEXT: u16 = 1;
/// The device writes this buffer.
pub const DESC_F_WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub const DESC_F_INDIRECT: u16 = 4;

/// `avail.flags`: the driver wants no interrupt.
pub const AVAIL_F_NO_INTERRUPT: u16 = 1;

/// Offset of `idx` in the available and the used ring.
pub const RING_IDX: u64 = 2;
/// Offset of the first entry in the available and the used ring.
pub const RING_ENTRIES: u64 = 4;
/// Bytes of an available entry.
pub const AVAIL_ENTRY: u64 = 2;
/// Bytes of a used entry.
pub const USED_ENTRY: u64 = 8;

/// Bytes of the available ring of `size` entries, `used_event` included.
pub const fn avail_bytes(size: u16) -> u64 {
    RING_ENTRIES + AVAIL_ENTRY * size as u64 + 2
}

/// Bytes of the used ring of `size` entries, `avail_event` included.
pub const fn used_bytes(size: u16) -> u64 {
    RING_ENTRIES + USED_ENTRY * size as u64 + 2
}

/// One descriptor, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Guest-physical address of the buffer.
    pub addr: u64,
    /// Its length.
    pub len: u32,
    /// `DESC_F_*`.
    pub flags: u16,
    /// The next descriptor, with `DESC_F_NEXT`.
    pub next: u16,
}

impl Descriptor {
    /// Decodes 16 bytes as they lie in guest memory.
    pub const fn decode(raw: &[u8; 16]) -> Self {
        let value = u128::from_le_bytes(*raw);
        Self::from_words([value as u64, (value >> 64) as u64])
    }

    /// Decodes the two words of a descriptor.
    pub const fn from_words([low, high]: [u64; 2]) -> Self {
        Self { addr: low, len: high as u32, flags: (high >> 32) as u16, next: (high >> 48) as u16 }
    }

    /// Whether `flag`, one of `DESC_F_*`, is set.
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
const _: () = {
    assert!(avail_bytes(256) == 6 + 2 * 256, "virtio 1.2, 2.7: available ring is 6 + 2 * queue size bytes");
    assert!(used_bytes(256) == 6 + 8 * 256, "virtio 1.2, 2.7: used ring is 6 + 8 * queue size bytes");
};
