//! "Network Device" (5.1).

pub const F_CSUM: u64 = 1 << 0;
pub const F_GUEST_CSUM: u64 = 1 << 1;
pub const F_MTU: u64 = 1 << 3;
pub const F_MAC: u64 = 1 << 5;
pub const F_GUEST_TSO4: u64 = 1 << 7;
pub const F_GUEST_TSO6: u64 = 1 << 8;
pub const F_HOST_TSO4: u64 = 1 << 11;
pub const F_HOST_TSO6: u64 = 1 << 12;
pub const F_MRG_RXBUF: u64 = 1 << 15;
pub const F_STATUS: u64 = 1 << 16;
pub const F_CTRL_VQ: u64 = 1 << 17;
pub const F_CTRL_RX: u64 = 1 << 18;
pub const F_GUEST_USO4: u64 = 1 << 54;
pub const F_GUEST_USO6: u64 = 1 << 55;
pub const F_HOST_USO: u64 = 1 << 56;

pub const S_LINK_UP: u16 = 1;

/// Offset of `num_buffers` in the header.
pub const NUM_BUFFERS: u32 = 10;

pub const CTRL_RX: u8 = 0;
/// Highest `CTRL_RX` command without `CTRL_RX_EXTRA`: promiscuous (0) and all-multicast (1).
pub const CTRL_RX_ALLMULTI: u8 = 1;
pub const CTRL_MAC: u8 = 1;
pub const CTRL_MAC_TABLE_SET: u8 = 0;
pub const CTRL_OK: u8 = 0;
pub const CTRL_ERR: u8 = 1;

pub const CFG_MAC: usize = 0;
pub const CFG_STATUS: usize = 6;
pub const CFG_MAX_PAIRS: usize = 8;
pub const CFG_MTU: usize = 10;
pub const CFG_BYTES: usize = 12;
