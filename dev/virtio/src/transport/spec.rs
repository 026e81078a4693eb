//! Register offsets, "MMIO Device Register Layout" (4.2.2).

/// "virt".
pub const MAGIC: u32 = 0x7472_6976;
/// Register layout version 2, the non-legacy one.
pub const VERSION: u32 = 2;
/// "MIRB".
pub const VENDOR: u32 = 0x4252_494d;

pub const MAGIC_VALUE: u64 = 0x000;
pub const VERSION_REG: u64 = 0x004;
pub const DEVICE_ID: u64 = 0x008;
pub const VENDOR_ID: u64 = 0x00c;
pub const DEVICE_FEATURES: u64 = 0x010;
pub const DEVICE_FEATURES_SEL: u64 = 0x014;
pub const DRIVER_FEATURES: u64 = 0x020;
pub const DRIVER_FEATURES_SEL: u64 = 0x024;
pub const QUEUE_SEL: u64 = 0x030;
pub const QUEUE_NUM_MAX: u64 = 0x034;
pub const QUEUE_NUM: u64 = 0x038;
pub const QUEUE_READY: u64 = 0x044;
pub const QUEUE_NOTIFY: u64 = 0x050;
pub const INTERRUPT_STATUS: u64 = 0x060;
pub const INTERRUPT_ACK: u64 = 0x064;
pub const STATUS: u64 = 0x070;
pub const QUEUE_DESC_LOW: u64 = 0x080;
pub const QUEUE_DESC_HIGH: u64 = 0x084;
pub const QUEUE_DRIVER_LOW: u64 = 0x090;
pub const QUEUE_DRIVER_HIGH: u64 = 0x094;
pub const QUEUE_DEVICE_LOW: u64 = 0x0a0;
pub const QUEUE_DEVICE_HIGH: u64 = 0x0a4;
pub const SHM_LEN_LOW: u64 = 0x0b0;
pub const SHM_LEN_HIGH: u64 = 0x0b4;
pub const SHM_BASE_LOW: u64 = 0x0b8;
pub const SHM_BASE_HIGH: u64 = 0x0bc;
pub const CONFIG_GENERATION: u64 = 0x0fc;
/// First byte of the device-specific configuration space.
pub const CONFIG: u64 = 0x100;

/// `InterruptStatus`: the device has used a buffer.
pub const ISR_USED_BUFFER: u32 = 1;
/// `InterruptStatus`: the configuration has changed.
pub const ISR_CONFIG: u32 = 2;

/// Queues that fit the backlog mask.
pub const MAX_QUEUES: u16 = 64;
