//! The targets.

mod bundle;
mod cells;
mod clients;
mod crash_log;
mod devices;
mod dsm;
mod frames;
mod instructions;
mod machine_file;
mod machine_tree;
mod nbd;
mod offload;
mod partitions;
mod platform;
mod programs;
mod queue;
mod sbi;
mod volumes;

pub use bundle::bundle;
pub use cells::cells;
pub use clients::clients;
pub use crash_log::crash_log;
pub use devices::{balloon, block, console, entropy, net};
pub use dsm::dsm;
pub use frames::frames;
pub use instructions::instructions;
pub use machine_file::machine_file;
pub use machine_tree::machine_tree;
pub use nbd::nbd;
pub use offload::offload;
pub use partitions::partitions;
pub use platform::platform;
pub use programs::programs;
pub use sbi::sbi;
pub use volumes::volumes;
