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
//! Refused: page numbers outside RAM are counted and ignored, those beyond the bound per chain are ignored. Reports beyond the bound per call are acknowledged without
//! releasing, which is always allowed.

mod metrics;
mod spec;
#[cfg(test)]
mod tests;

pub use metrics::BalloonMetrics;

use addr::{BASE_PAGE, GuestPhysAddr};
use device::{Env, GuestMemory};

use crate::error::{DeviceError, RingError};
use crate::model::{Budget, Io, VirtioModel, read_config};
use crate::queue::{Chain, GuestSegment};
use crate::spec::DeviceId;
use crate::transport::VirtioMmio;

const INFLATE_QUEUE: u16 = 0;
const DEFLATE_QUEUE: u16 = 1;
const QUEUES: u16 = 5;
const QUEUE_SIZE: u16 = 128;

/// Work per call: chains, and bytes released.
const BUDGET: Budget = Budget::new(16, 1 << 27);
/// Most page numbers read from one chain; what follows them is acknowledged and stays the guest's. Linux sends 256 at a time, but a
/// chain may name 4 GiB of them.
const MAX_NUMBERS: usize = 256;
/// What a page number costs of the budget: the pages of a full chain may lie apart, and each is released alone then.
const NUMBER_COST: u64 = (1 << 27) / MAX_NUMBERS as u64;
/// Most bytes released for one reported chain. Linux reports at most 32 blocks of 4 MiB.
const MAX_REPORT: u64 = 1 << 30;

/// Who takes free pages back.
pub trait BalloonBackend: Send {
    /// `[start, start + len)` holds nothing that the guest needs. Page-aligned, not empty, wholly guest RAM. When this
    /// returns the guest may touch it again and must find zeroes or the old content, in each page one or the other.
    fn release(&mut self, start: GuestPhysAddr, len: u64);
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
    chain: Chain,
    metrics: BalloonMetrics,
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

    /// Releases the pages whose numbers are in `self.chain`; returns what that costs of the budget.
    fn inflate(&mut self, memory: &dyn GuestMemory) -> Result<u64, RingError> {
        let (mut total, mut cost) = (0, 0);
        let mut run = Run::default();
        let mut raw = [0; 64 * spec::PFN_BYTES];
        for _ in 0..MAX_NUMBERS / 64 {
            let count = self.chain.read_some(memory, &mut raw)?;
            let (numbers, _) = raw.get(..count).unwrap_or(&[]).as_chunks::<{ spec::PFN_BYTES }>();
            cost += numbers.len() as u64 * NUMBER_COST;
            for number in numbers {
                let start = u64::from(u32::from_le_bytes(*number)) << spec::PFN_SHIFT;
                if !memory.contains(GuestPhysAddr::new(start), BASE_PAGE) {
                    self.metrics.pages_refused += 1;
                } else if let Some(finished) = run.extend(start) {
                    total += self.release(finished.start, finished.len);
                }
            }
            if count < raw.len() {
                break;
            }
        }
        total += self.release(run.start, run.len);
        self.metrics.bytes_inflated += total;
        Ok(cost)
    }

    /// Releases the blocks in `self.chain`; returns the bytes.
    fn report(&mut self) -> u64 {
        self.metrics.reports += 1;
        if self.is_poisoned() {
            return 0;
        }
        let mut total = 0;
        for index in 0..self.chain.writable().len() {
            let Some(&segment) = self.chain.writable().get(index) else { break };
            let (start, len) = whole_pages(segment);
            if total + len <= MAX_REPORT {
                total += self.release(start, len);
            }
        }
        self.metrics.bytes_reported += total;
        total
    }

    fn release(&mut self, start: u64, len: u64) -> u64 {
        if len != 0 {
            self.backend.release(GuestPhysAddr::new(start), len);
        }
        len
    }
}

/// The whole pages inside a segment: start and length, which may be 0.
fn whole_pages(segment: GuestSegment) -> (u64, u64) {
    let end = segment.addr.raw().saturating_add(u64::from(segment.len)) & !(BASE_PAGE - 1);
    let start = segment.addr.raw().checked_next_multiple_of(BASE_PAGE).unwrap_or(end);
    (start, end.saturating_sub(start))
}

/// Neighbouring pages, collected so that they are released at once.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u64,
    len: u64,
}

impl Run {
    /// Adds the page at `page`, below or above; when it does not touch the run it starts a new one and the old one is
    /// returned. Linux fills its list in either direction.
    fn extend(&mut self, page: u64) -> Option<Self> {
        if self.len != 0 && page == self.start.wrapping_add(self.len) {
            self.len += BASE_PAGE;
            return None;
        }
        if self.len != 0 && page.wrapping_add(BASE_PAGE) == self.start {
            self.start = page;
            self.len += BASE_PAGE;
            return None;
        }
        let old = core::mem::replace(self, Self { start: page, len: BASE_PAGE });
        (old.len != 0).then_some(old)
    }
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
        let memory = io.memory();
        let can_report = self.features & spec::F_REPORTING != 0;
        let Some(queue) = io.queue(index) else { return Ok(()) };
        let mut budget = BUDGET;
        while queue.next_or_arm(memory, &mut self.chain)? {
            let bytes = match index {
                INFLATE_QUEUE => self.inflate(memory)?,
                // Deflated pages come back when they are touched.
                DEFLATE_QUEUE => 0,
                _ if can_report => self.report(),
                _ => 0,
            };
            queue.push(memory, self.chain.head(), 0)?;
            if budget.charge(bytes) {
                io.defer(index);
                break;
            }
        }
        Ok(())
    }

    fn reset(&mut self) {
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
