//! virtio-balloon: how an unmodified guest says that a page is free.
//!
//! *Free page reporting* is the main way: Linux reports free blocks of 2 or 4 MiB by itself, and
//! [`BalloonBackend::release`] takes them back before the guest may use them again. *Inflating* is the classic way: the
//! host sets a target, the driver gives pages, and gets them back by deflating, or when it runs out of memory
//! (`DEFLATE_ON_OOM`).
//!
//! # Poison
//! A released page reads as zero when the guest touches it again. A guest that poisons or initialises its free pages
//! relies on their content: with `PAGE_POISON` negotiated a reported page may only change to `poison_val`
//! ("Free Page Reporting", 5.5.6.7). So reports are acknowledged and not acted upon while `poison_val` is not zero.
//! Inflated pages have no such claim.
//!
//! # Queue numbers
//! The specification numbers the reporting queue 4; Linux (and QEMU, which taught it so) numbers the queues that exist.
//! As neither statistics nor hinting is offered here, every queue from 2 on can only be the reporting queue.
//!
//! # Budget
//! A call releases some hundred pages or blocks at most, in a few releases. A report or a list of pages that asks for more stays in the device,
//! and later calls go on with it.
//!
//! Refused: page numbers outside RAM are counted and ignored, those beyond the bound per chain are ignored. What the host cannot take back
//! at the moment is acknowledged without releasing, which is always allowed.

mod inflation;
mod metrics;
mod spec;
#[cfg(test)]
mod tests;

use inflation::Inflation;
pub use metrics::BalloonMetrics;

use alloc::boxed::Box;

use addr::{BASE_PAGE, GuestPhysAddr};
use device::Env;

use crate::error::DeviceError;
use crate::model::{Budget, Io, VirtioModel, read_config};
use crate::queue::{Chain, GuestSegment};
use crate::spec::DeviceId;
use crate::transport::VirtioMmio;

const INFLATE_QUEUE: u16 = 0;
const DEFLATE_QUEUE: u16 = 1;
const QUEUES: u16 = 5;
const QUEUE_SIZE: u16 = 128;

/// Work per call: chains, and pages and blocks looked at. Others wait for the device meanwhile. It is 2 MiB where each page is looked at,
/// and half of what Linux reports at a time (32 blocks) where each block is.
const BUDGET: Budget = Budget::new(16, 512);
/// What each release costs of the budget besides its pages: locks, which other vCPUs want, too, and a shootdown. So a call has 17 of
/// them at most, some tens of microseconds each.
const RELEASE_COST: u64 = 30;

/// Who takes free pages back.
pub trait BalloonBackend: Send {
    /// `[start, start + len)` holds nothing that the guest needs. Page-aligned, not empty, wholly guest RAM. When this
    /// returns the guest may touch it again and must find zeroes or the old content, in each page one or the other.
    /// Bounded work: it may deal with the first part only.
    fn release(&mut self, start: GuestPhysAddr, len: u64) -> Release;
}

/// What a [`BalloonBackend::release`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Bytes from the start on that are dealt with, whole pages; 0 if none can be taken back now.
    pub bytes: u64,
    /// Pages and blocks of pages that were looked at for it.
    pub pages: u64,
}

/// The balloon device model.
pub struct Balloon<B> {
    backend: B,
    /// Pages that the host wants in the balloon.
    target_pages: u32,
    /// Pages that the driver says are in it.
    actual_pages: u32,
    poison: u32,
    features: u64,
    /// A chain of pages that the guest takes back.
    chain: Chain,
    inflation: Box<Inflation>,
    report: Report,
    metrics: BalloonMetrics,
}

/// A chain of reported blocks, and how far it has been dealt with.
struct Report {
    chain: Chain,
    /// The queue that it is from, while it is not done.
    queue: Option<u16>,
    /// The segment that is next, and bytes of its whole pages that are done.
    segment: usize,
    done: u64,
}

impl<B: BalloonBackend> Balloon<B> {
    /// An empty balloon.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            target_pages: 0,
            actual_pages: 0,
            poison: 0,
            features: 0,
            chain: Chain::new(),
            inflation: Box::new(Inflation::new()),
            report: Report { chain: Chain::new(), queue: None, segment: 0, done: 0 },
            metrics: BalloonMetrics::default(),
        }
    }

    /// Who takes pages back.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// Who takes pages back.
    pub const fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// What the device has done.
    #[must_use]
    pub const fn metrics(&self) -> &BalloonMetrics {
        &self.metrics
    }

    /// 4 KiB pages that the driver says are in the balloon. An allegation.
    #[must_use]
    pub const fn actual_pages(&self) -> u32 {
        self.actual_pages
    }

    /// Whether a free page must keep its content, as zeroes are not what the guest expects in it.
    const fn is_poisoned(&self) -> bool {
        self.features & spec::F_PAGE_POISON != 0 && self.poison != 0
    }

    /// Serves the queue of pages that the guest gives away.
    fn serve_inflation(&mut self, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        let Some(queue) = io.queue(INFLATE_QUEUE) else { return Ok(()) };
        let Self { inflation, backend, metrics, .. } = self;
        let mut budget = BUDGET;
        while inflation.is_under_way || queue.next_or_arm(memory, &mut inflation.chain)? {
            if !inflation.is_under_way {
                inflation.begin();
            }
            let is_done = inflation.step(memory, backend, metrics, &mut budget)?;
            if is_done {
                queue.push(memory, inflation.chain.head(), 0)?;
            }
            if !is_done || budget.charge(&inflation.chain, 0) {
                io.defer(INFLATE_QUEUE);
                break;
            }
        }
        Ok(())
    }

    /// Serves a queue of reports.
    fn serve_reports(&mut self, index: u16, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        if self.report.queue.is_some_and(|queue| queue != index) {
            // Only a driver with several such queues waits here. It is served first by then.
            io.defer(index);
            return Ok(());
        }
        let Some(queue) = io.queue(index) else { return Ok(()) };
        let mut budget = BUDGET;
        while self.report.queue.is_some() || queue.next_or_arm(memory, &mut self.report.chain)? {
            if self.report.queue.is_none() {
                (self.report.queue, self.report.segment, self.report.done) = (Some(index), 0, 0);
                self.metrics.reports += 1;
            }
            let is_done = self.is_poisoned() || self.release_reported(&mut budget);
            if is_done {
                self.report.queue = None;
                queue.push(memory, self.report.chain.head(), 0)?;
            }
            if !is_done || budget.charge(&self.report.chain, 1) {
                io.defer(index);
                break;
            }
        }
        Ok(())
    }

    /// Releases some of the reported blocks; `true` when none are left of the chain.
    fn release_reported(&mut self, budget: &mut Budget) -> bool {
        while let Some(&segment) = self.report.chain.writable().get(self.report.segment) {
            let (start, len) = whole_pages(segment);
            let rest = len.saturating_sub(self.report.done);
            let mut cost = 1;
            if rest != 0 {
                let released = self.backend.release(GuestPhysAddr::new(start + self.report.done), rest);
                cost = RELEASE_COST + released.pages;
                self.report.done += released.bytes;
                self.metrics.bytes_reported += released.bytes;
                if released.bytes == 0 {
                    // It stays the guest's.
                    self.report.done = len;
                }
            }
            if self.report.done >= len {
                (self.report.segment, self.report.done) = (self.report.segment + 1, 0);
            }
            if budget.spend(cost) {
                return false;
            }
        }
        true
    }
}

/// The whole pages inside a segment: start and length, which may be 0.
fn whole_pages(segment: GuestSegment) -> (u64, u64) {
    let end = segment.addr.raw().saturating_add(u64::from(segment.len)) & !(BASE_PAGE - 1);
    let start = segment.addr.raw().checked_next_multiple_of(BASE_PAGE).unwrap_or(end);
    (start, end.saturating_sub(start))
}

impl<B: BalloonBackend> VirtioModel for Balloon<B> {
    fn name(&self) -> &'static str {
        "virtio-balloon"
    }

    fn device_id(&self) -> DeviceId {
        DeviceId::Balloon
    }

    fn features(&self) -> u64 {
        spec::F_DEFLATE_ON_OOM | spec::F_PAGE_POISON | spec::F_REPORTING
    }

    fn queue_count(&self) -> u16 {
        QUEUES
    }

    fn queue_max_size(&self, _index: u16) -> u16 {
        QUEUE_SIZE
    }

    fn config_read(&self, offset: u64, buf: &mut [u8]) {
        let mut config = [0; spec::CFG_BYTES];
        let fields = [
            (spec::CFG_NUM_PAGES, self.target_pages),
            (spec::CFG_ACTUAL, self.actual_pages),
            (spec::CFG_POISON_VAL, self.poison),
        ];
        for (at, value) in fields {
            if let Some(field) = config.get_mut(at..at + 4) {
                field.copy_from_slice(&value.to_le_bytes());
            }
        }
        read_config(&config, offset, buf);
    }

    fn config_write(&mut self, offset: u64, data: &[u8]) {
        // Both are 32-bit fields that drivers write whole.
        let Ok(value) = <[u8; 4]>::try_from(data).map(u32::from_le_bytes) else { return };
        if offset == spec::CFG_ACTUAL as u64 {
            self.actual_pages = value;
        } else if offset == spec::CFG_POISON_VAL as u64 {
            self.poison = value;
        }
    }

    fn activate(&mut self, features: u64) {
        self.features = features;
    }

    fn notify(&mut self, index: u16, io: &mut Io<'_>) -> Result<(), DeviceError> {
        if index > DEFLATE_QUEUE && self.features & spec::F_REPORTING != 0 {
            return self.serve_reports(index, io);
        }
        if index == INFLATE_QUEUE {
            return self.serve_inflation(io);
        }
        let memory = io.memory();
        let Some(queue) = io.queue(index) else { return Ok(()) };
        let mut budget = BUDGET;
        while queue.next_or_arm(memory, &mut self.chain)? {
            // Deflated pages come back when they are touched.
            queue.push(memory, self.chain.head(), 0)?;
            if budget.charge(&self.chain, 0) {
                io.defer(index);
                break;
            }
        }
        Ok(())
    }

    fn queue_stopped(&mut self, queue: u16) {
        if self.report.queue == Some(queue) {
            self.report.queue = None;
        }
        if queue == INFLATE_QUEUE {
            self.inflation.is_under_way = false;
        }
    }

    fn reset(&mut self) {
        self.report.queue = None;
        self.inflation.is_under_way = false;
        self.actual_pages = 0;
        self.poison = 0;
        self.features = 0;
    }
}

impl<B: BalloonBackend> VirtioMmio<Balloon<B>> {
    /// Asks the driver to have `pages` 4 KiB pages in the balloon.
    pub fn set_target_pages(&mut self, pages: u32, env: &dyn Env) {
        if self.model().target_pages != pages {
            self.update_config(env, |balloon| balloon.target_pages = pages);
        }
    }
}
