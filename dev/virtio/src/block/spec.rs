//! "Block Device" (5.2).

/// Unit of sectors, whatever the block size.
pub const SECTOR: u64 = 512;
pub const SECTOR_SHIFT: u32 = 9;

pub const F_SEG_MAX: u64 = 1 << 2;
pub const F_RO: u64 = 1 << 5;
pub const F_BLK_SIZE: u64 = 1 << 6;
pub const F_FLUSH: u64 = 1 << 9;
pub const F_TOPOLOGY: u64 = 1 << 10;
pub const F_DISCARD: u64 = 1 << 13;
pub const F_WRITE_ZEROES: u64 = 1 << 14;

pub const T_IN: u32 = 0;
pub const T_OUT: u32 = 1;
pub const T_FLUSH: u32 = 4;
pub const T_GET_ID: u32 = 8;
pub const T_DISCARD: u32 = 11;
pub const T_WRITE_ZEROES: u32 = 13;

pub const ID_BYTES: usize = 20;
/// Bytes of one discard or write-zeroes range.
pub const RANGE_BYTES: usize = 16;
/// Range flag: the device may unmap the zeroed sectors.
pub const RANGE_F_UNMAP: u32 = 1;

/// Offsets in the configuration space.
pub const CFG_CAPACITY: usize = 0;
pub const CFG_SEG_MAX: usize = 12;
pub const CFG_BLK_SIZE: usize = 20;
pub const CFG_PHYSICAL_BLOCK_EXP: usize = 24;
pub const CFG_MIN_IO_SIZE: usize = 26;
pub const CFG_OPT_IO_SIZE: usize = 28;
pub const CFG_WRITEBACK: usize = 32;
pub const CFG_MAX_DISCARD_SECTORS: usize = 36;
pub const CFG_MAX_DISCARD_SEG: usize = 40;
pub const CFG_DISCARD_ALIGNMENT: usize = 44;
pub const CFG_MAX_WRITE_ZEROES_SECTORS: usize = 48;
pub const CFG_MAX_WRITE_ZEROES_SEG: usize = 52;
pub const CFG_WRITE_ZEROES_MAY_UNMAP: usize = 56;
pub const CFG_BYTES: usize = 60;
