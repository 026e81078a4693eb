//! What is shown: the monitor's replies turned into names, bytes, seconds and rates.
//!
//! These types are the JSON that commands print (documented in `docs/cli.md`), the rows of tables, and what the live
//! view draws. Fields may be added; none is renamed or removed.

mod event;
mod exits;
mod hart;
mod machine;
mod sample;
mod share;
mod trace;
mod vm;

#[cfg(test)]
pub mod fixture;

pub use event::{EventView, Names, loss_label};
pub use exits::ExitsView;
pub use hart::{HartView, Load};
pub use machine::{InfoView, MachineView, NodeView};
pub use sample::Sample;
pub use share::LatencyView;
pub use trace::{VcpuTraceView, cause_label};
pub use vm::{MemoryView, PlacementView, VcpuRates, VcpuView, VmView};

/// Bytes of a page, as the protocol counts pages.
pub const PAGE: u64 = addr::BASE_PAGE;
/// Bytes of a large page.
pub const LARGE_PAGE: u64 = addr::LARGE_PAGE;

/// Ticks in seconds.
pub fn seconds(ticks: u64, timebase_hz: u64) -> f64 {
    if timebase_hz == 0 { 0.0 } else { ticks as f64 / timebase_hz as f64 }
}

/// Growth of a counter as a share of `over` (each as [`grown`] says); 0 if no time has passed.
pub fn share(now: u64, before: u64, over: u64) -> f64 {
    if over == 0 { 0.0 } else { grown(now, before) as f64 / over as f64 }
}

/// What a counter has counted since an earlier look.
pub fn grown(now: u64, before: u64) -> u64 {
    control::counted(now, before)
}
