//! Shootdown generations of one VM.

use alloc::boxed::Box;

use addr::CpuIndex;

use crate::CpuSet;
use crate::sync::{AtomicU64, Ordering, fence};

/// How often translations of a VM have been removed or weakened. Starts at 1; 0 means "before anything".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TlbGeneration(u64);

impl TlbGeneration {
    /// Before the first generation of any VM: whoever has seen only this must fence.
    pub const NONE: Self = Self(0);

    /// The number, for traces.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Translations were removed or weakened at this generation. What they led to may be reused only once
/// [`ShootdownTracker::is_complete`].
#[must_use = "what the removed translations led to may not be reused before this is complete"]
#[derive(Debug, PartialEq, Eq)]
pub struct ShootdownToken {
    generation: TlbGeneration,
}

impl ShootdownToken {
    /// The generation that every hart inside the VM has to pass.
    #[must_use]
    pub const fn generation(&self) -> TlbGeneration {
        self.generation
    }
}

/// A hart's relation to one VM: `generation << 1 | is_inside`. On a cache line of its own, because that hart writes
/// it at every entry and exit.
#[repr(align(64))]
struct HartSlot(AtomicU64);

const INSIDE: u64 = 1;

/// Who may still use stale translations of one VM. Shared by all harts.
///
/// The protocol is Dekker's: an entering hart says "I am inside", then reads the generation; a shooter raises the
/// generation, then reads who is inside. With a full fence between the two steps on both sides, at least one sees
/// the other. So either the entering hart fences by itself, or the shooter knows that it has to interrupt it.
///
/// *Inside* covers guest execution and every HLV/HSV of the monitor through the VM's tables. A hart that only
/// handles an exit is not inside, so a shooter never waits for a hart that waits for a lock the shooter holds.
pub struct ShootdownTracker {
    current: AtomicU64,
    harts: Box<[HartSlot]>,
}

impl ShootdownTracker {
    /// A tracker for a machine of `harts` harts (at most [`CpuSet::CAPACITY`]; more are not tracked, and
    /// [`ShootdownTracker::enter`] refuses them).
    #[must_use]
    pub fn new(harts: usize) -> Self {
        let slots = (0..harts.min(CpuSet::CAPACITY)).map(|_| HartSlot(AtomicU64::new(0)));
        Self { current: AtomicU64::new(1), harts: slots.collect() }
    }

    /// The calling hart `cpu` is about to use the VM's translations. Returns the generation that its TLB has to have
    /// passed: unless the caller knows that it has (see [`crate::TlbContext`]), it fences before the first use.
    ///
    /// # Panics
    /// If `cpu` is not a hart of this machine: a bug of the monitor, and going on would break isolation.
    #[inline]
    pub fn enter(&self, cpu: CpuIndex) -> TlbGeneration {
        let slot = &self.harts[cpu.index()].0;
        // Only this hart writes its slot, so what it reads back is its own. Stored with no generation: until the
        // caller has fenced, a shooter must count this hart as behind.
        slot.store(INSIDE, Ordering::Relaxed);
        // Pairs with the fence in `retire`: the store above and the load below are not reordered.
        fence(Ordering::SeqCst);
        // Acquire pairs with the AcqRel increment in `retire`: the changed leaves are visible to this hart before it
        // fences its TLB, so that the fence covers them.
        TlbGeneration(self.current.load(Ordering::Acquire))
    }

    /// `cpu`, which has entered, is now sure (by fencing, or because it had fenced before) to hold nothing older than
    /// `generation`.
    #[inline]
    pub fn passed(&self, cpu: CpuIndex, generation: TlbGeneration) {
        // Release pairs with the Acquire load in `has_passed`: the TLB fence comes first. (A TLB fence is no memory
        // access; the caller's fence instruction is a compiler barrier and is executed in program order.)
        self.harts[cpu.index()].0.store(generation.0 << 1 | INSIDE, Ordering::Release);
    }

    /// `cpu` no longer uses the VM's translations.
    #[inline]
    pub fn leave(&self, cpu: CpuIndex) {
        // Release pairs with the Acquire load in `has_passed`: every access that the guest made through a stale
        // translation happens before the frame's reuse.
        self.harts[cpu.index()].0.store(0, Ordering::Release);
    }

    /// Starts a new generation. Call it after the leaves were removed or weakened in *all* tables of the VM.
    pub fn retire(&self) -> ShootdownToken {
        // AcqRel: the leaf stores come before it (pairs with the Acquire load in `enter`).
        let before = self.current.fetch_add(1, Ordering::AcqRel);
        // Pairs with the fence in `enter`: whoever enters from now on sees the new generation, and whoever does not
        // is seen as inside by `has_passed`.
        fence(Ordering::SeqCst);
        ShootdownToken { generation: TlbGeneration(before + 1) }
    }

    /// The harts that are inside the VM and behind `token` right now: these need an interrupt that makes them leave.
    /// All others fence by themselves when they next enter.
    #[must_use]
    pub fn targets(&self, token: &ShootdownToken) -> CpuSet {
        self.behind(token.generation)
    }

    /// The same for a generation that was noted earlier.
    #[must_use]
    pub fn behind(&self, generation: TlbGeneration) -> CpuSet {
        let behind = |cpu: &u16| !self.has_passed(usize::from(*cpu), generation);
        (0..self.harts.len() as u16).filter(behind).fold(CpuSet::EMPTY, |set, cpu| set.with(CpuIndex(cpu)))
    }

    /// Whether no hart can use a translation from before `token` any more. Once true it stays true.
    #[must_use]
    pub fn is_complete(&self, token: &ShootdownToken) -> bool {
        (0..self.harts.len()).all(|cpu| self.has_passed(cpu, token.generation))
    }

    /// The same for a generation that was noted earlier. A hart that is entering counts as behind until it has fenced, so
    /// an answer of `false` may have been `true` before.
    #[must_use]
    pub fn all_passed(&self, generation: TlbGeneration) -> bool {
        (0..self.harts.len()).all(|cpu| self.has_passed(cpu, generation))
    }

    /// The newest generation.
    #[must_use]
    pub fn current(&self) -> TlbGeneration {
        TlbGeneration(self.current.load(Ordering::Relaxed))
    }

    /// The harts inside the VM at this moment.
    #[must_use]
    pub fn inside(&self) -> CpuSet {
        let is_inside = |cpu: &u16| self.harts[usize::from(*cpu)].0.load(Ordering::Relaxed) & INSIDE != 0;
        (0..self.harts.len() as u16).filter(is_inside).fold(CpuSet::EMPTY, |set, cpu| set.with(CpuIndex(cpu)))
    }

    fn has_passed(&self, cpu: usize, generation: TlbGeneration) -> bool {
        // Acquire pairs with the Release stores in `passed` and `leave`.
        let slot = self.harts[cpu].0.load(Ordering::Acquire);
        slot & INSIDE == 0 || slot >> 1 >= generation.0
    }
}
