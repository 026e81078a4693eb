//! The machine as the monitor knows it: memory, log, interrupt controllers, disks, network, control port.

pub mod heap;
pub mod log;
