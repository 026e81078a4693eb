//! "Console Device" (5.3).

pub const F_MULTIPORT: u64 = 1 << 1;
pub const F_EMERG_WRITE: u64 = 1 << 2;

pub const CFG_MAX_PORTS: usize = 4;
pub const CFG_EMERG_WRITE: u64 = 8;
pub const CFG_BYTES: usize = 12;

/// Bytes of a control message without its text.
pub const CONTROL_BYTES: usize = 8;

pub const DEVICE_READY: u16 = 0;
pub const PORT_ADD: u16 = 1;
pub const PORT_READY: u16 = 3;
pub const CONSOLE_PORT: u16 = 4;
pub const PORT_OPEN: u16 = 6;
pub const PORT_NAME: u16 = 7;
