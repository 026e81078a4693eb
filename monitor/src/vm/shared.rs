//! What others may see and ask of a vCPU that belongs to some hart.
//!
//! Everything here is atomic or behind a short lock. Who wants something of a vCPU leaves a request bit and kicks
//! the hart that owns it; the owner acts on the bits before the vCPU's next instruction.

use ::vcpu::{
    hsm::{Change, HartState},
    sbi::Entry,
};
use addr::{CpuIndex, NodeId, VcpuIndex, VmId};
use control::{ExitCause, ExitCounts, LATENCY_CLASSES, Latencies, VcpuState, VcpuStats, VmState};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use handoff::{Life, Requests};
use rv::csr;
use sched::{
    Entity,
    balance::{Caution, LastMove, MoveHistory, Reason, ServiceHistory},
};
use spin::Mutex;

use super::{
    debug::Looks,
    file::{self, InterruptFile},
};
use crate::{hart, trace::ExitRing};
use alloc::sync::Arc;

/// A vCPU as the rest of the monitor holds it.
pub type SharedVcpu = Arc<VcpuShared>;

/// Machine pages of a vCPU's other half, the owner's, in the memory of the owner's node.
pub const OWNERS_PAGES: u64 = 1;

/// Makes the owner of `vcpu` look at its requests.
pub fn kick(vcpu: &SharedVcpu) {
    if let Some(hart) = hart::all().get(vcpu.cpu().index()) {
        hart.kick();
    }
}

/// Requests to a vCPU, as bits.
pub mod request {
    /// Raise the guest's supervisor software interrupt (SBI IPI).
    pub const SOFTWARE_INTERRUPT: u32 = 1 << 0;
    /// `fence.i` before the next instruction.
    pub const FENCE_I: u32 = 1 << 1;
    /// Forget VS-stage translations before the next instruction.
    pub const FENCE_VVMA: u32 = 1 << 2;
    /// Look at the external interrupt level or the software interrupt file.
    pub const EXTERNAL: u32 = 1 << 3;
    /// The VM changes state: go back to the run queue and look.
    pub const VM_STATE: u32 = 1 << 4;
    /// HSM start: take the entry point and become runnable.
    pub const START: u32 = 1 << 5;
    /// Say where the guest's page tables are ([`VcpuShared::root`](super::VcpuShared::root)).
    pub const TELL_ROOT: u32 = 1 << 6;
    /// Devices have more to do of what this vCPU asked them for.
    pub const BACKLOG: u32 = 1 << 7;
    /// An event of the guest may be due (SSE).
    pub const EVENTS: u32 = 1 << 8;
    /// Another vCPU has injected this one's software event (SSE).
    pub const INJECTED: u32 = 1 << 9;
    /// A debugger has come to the VM or has left it.
    pub const DEBUG: u32 = 1 << 10;
    /// Say where it is, for a profile.
    pub const SAMPLE: u32 = 1 << 11;
    /// The fences that a remote vCPU waits for.
    pub const FENCES: u32 = FENCE_I | FENCE_VVMA;
}

/// Counters of one vCPU: written by its owner only, read by anyone.
#[derive(Debug, Default)]
pub struct VcpuCounters {
    /// Ticks in guest mode, without the present stretch.
    pub run_ticks: AtomicU64,
    /// Ticks runnable but not running: what the guest sees as steal time.
    pub wait_ticks: AtomicU64,
    /// Guest-page faults that populated memory.
    pub faults: AtomicU64,
    /// Moves between harts.
    pub migrations: AtomicU64,
    exits: [AtomicU64; ExitCause::COUNT],
    wakes: [AtomicU64; LATENCY_CLASSES],
    steals: [AtomicU64; LATENCY_CLASSES],
}

impl VcpuCounters {
    /// Counts one exit. Owner only: a plain add, no read-modify-write on the bus.
    #[inline]
    pub fn count_exit(&self, cause: ExitCause) {
        add(&self.exits[cause.index()], 1);
    }

    /// Adds SBI calls that the short path finished. Owner only.
    pub fn add_sbi_calls(&self, count: u64) {
        add(&self.exits[ExitCause::SbiCall.index()], count);
    }

    /// Counts a wait for a hart, of so many microseconds: after it woke up, or after it lost the hart. Owner only.
    pub fn count_wait(&self, us: u64, woke_up: bool) {
        let classes = if woke_up { &self.wakes } else { &self.steals };
        classes.get(Latencies::class_of(us)).into_iter().for_each(|count| add(count, 1));
    }

    /// Waits after wake-ups, and others.
    #[must_use]
    pub fn waits(&self) -> (Latencies, Latencies) {
        let read = |classes: &[AtomicU64; LATENCY_CLASSES]| Latencies {
            counts: core::array::from_fn(|class| classes[class].load(Ordering::Relaxed)),
        };
        (read(&self.wakes), read(&self.steals))
    }

    /// Exits by cause.
    #[must_use]
    pub fn exits(&self) -> ExitCounts {
        let mut counts = ExitCounts::new();
        for (slot, counter) in counts.0.iter_mut().zip(&self.exits) {
            *slot = counter.load(Ordering::Relaxed);
        }
        counts
    }
}

/// Adds to a counter that only the caller writes.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// The shared half of a vCPU.
#[derive(Debug)]
pub struct VcpuShared {
    /// Its index in the VM, the hart id that the guest sees.
    pub index: VcpuIndex,
    life: Life,
    requests: Requests,
    cpu: AtomicU16,
    /// The node that it belongs to, plus one; 0 if none.
    home: AtomicU8,
    /// Set by the owner while the vCPU waits for an event off the hart. This and the flags below order nothing.
    blocked: AtomicBool,
    /// Level of the external interrupt where a PLIC drives it.
    external_level: AtomicBool,
    in_turn: AtomicBool,
    runnable_since: AtomicU64,
    /// The guest's `satp` when it was asked for; 0 if not told yet.
    root: AtomicU64,
    service: Mutex<ServiceHistory>,
    moves: Mutex<MoveHistory>,
    /// The vCPU's interrupt file (AIA).
    pub file: Mutex<InterruptFile>,
    /// What others want to see of its inside.
    pub looks: Mutex<Looks>,
    /// Counters.
    pub counters: VcpuCounters,
    /// The latest exits.
    pub trace: ExitRing,
}

impl VcpuShared {
    /// A stopped vCPU.
    #[must_use]
    pub fn new(index: VcpuIndex) -> Self {
        Self {
            index,
            life: Life::new(),
            requests: Requests::new(),
            cpu: AtomicU16::new(0),
            home: AtomicU8::new(0),
            blocked: AtomicBool::new(false),
            external_level: AtomicBool::new(false),
            in_turn: AtomicBool::new(false),
            runnable_since: AtomicU64::new(0),
            root: AtomicU64::new(0),
            service: Mutex::new(ServiceHistory::default()),
            moves: Mutex::new(MoveHistory::default()),
            file: Mutex::new(file::new()),
            looks: Mutex::new(Looks::default()),
            counters: VcpuCounters::default(),
            trace: ExitRing::new(),
        }
    }

    /// The node of the machine that it belongs to, where its guest sees nodes.
    #[must_use]
    pub fn home(&self) -> Option<NodeId> {
        self.home.load(Ordering::Relaxed).checked_sub(1).map(NodeId)
    }

    /// Makes it belong to this node.
    pub fn set_home(&self, node: NodeId) {
        self.home.store(node.0.saturating_add(1), Ordering::Relaxed);
    }

    /// The hart that owns the vCPU now. May be out of date when read by another hart: the old owner forwards.
    #[must_use]
    pub fn cpu(&self) -> CpuIndex {
        CpuIndex(self.cpu.load(Ordering::SeqCst))
    }

    /// The owner is changing to `cpu`.
    pub fn set_cpu(&self, cpu: CpuIndex) {
        self.cpu.store(cpu.0, Ordering::SeqCst);
    }

    /// Its HSM state.
    #[must_use]
    pub fn hsm(&self) -> HartState {
        self.life.state()
    }

    /// Owner: changes the HSM state, if this can happen in the present one. Others change only the state of a stopped vCPU.
    pub fn change_hsm(&self, change: Change) {
        self.life.change(change);
    }

    /// Claims the right to start a stopped vCPU at `entry`.
    ///
    /// # Errors
    /// The vCPU's state when that is not `Stopped`.
    pub fn claim_start(&self, entry: Entry) -> Result<(), HartState> {
        self.life.claim_start(entry)
    }

    /// The entry that [`VcpuShared::claim_start`] left.
    #[must_use]
    pub fn start_entry(&self) -> Entry {
        self.life.entry()
    }

    /// Adds requests. The caller kicks the owner's hart afterwards.
    pub fn request(&self, bits: u32) {
        self.requests.add(bits);
    }

    /// Whether there are requests.
    #[inline]
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.requests.are_there()
    }

    /// Takes all requests (owner only).
    #[inline]
    pub fn take_requests(&self) -> u32 {
        self.requests.take()
    }

    /// Owner: these requests are not to be done any more.
    pub fn withdraw(&self, bits: u32) {
        self.requests.withdraw(bits);
    }

    /// Those of `bits` that are still to be done.
    #[must_use]
    pub fn outstanding(&self, bits: u32) -> u32 {
        self.requests.outstanding(bits)
    }

    /// Whether who has asked for fences `bits` has to wait for them.
    #[must_use]
    pub fn owes(&self, bits: u32) -> bool {
        self.requests.owes(bits)
    }

    /// Owner: the vCPU's state is (not) in the hart's registers.
    #[inline]
    pub fn set_loaded(&self, loaded: bool) {
        self.requests.set_loaded(loaded);
    }

    /// Whether the vCPU's state is in its hart's registers.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.requests.is_loaded()
    }

    /// Owner: the vCPU waits (not) for an event.
    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// Whether the vCPU waits for an event.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// The guest's `satp`, once the owner has told it after [`request::TELL_ROOT`]. It may be another one by now.
    #[must_use]
    pub fn root(&self) -> Option<u64> {
        Some(self.root.load(Ordering::Relaxed)).filter(|root| *root != 0)
    }

    /// Owner: the guest's `satp` is `root`.
    pub fn tell_root(&self, root: u64) {
        self.root.store(root, Ordering::Relaxed);
    }

    /// What was told before is not of interest.
    pub fn forget_root(&self) {
        self.tell_root(0);
    }

    /// Owner: since when the vCPU could run but does not.
    pub fn set_runnable_since(&self, ticks: u64) {
        self.runnable_since.store(ticks, Ordering::Relaxed);
    }

    /// Since when the vCPU could run but does not.
    #[must_use]
    pub fn runnable_since(&self) -> u64 {
        self.runnable_since.load(Ordering::Relaxed)
    }

    /// Takes the counters into the history of how well it was served.
    pub fn observe_service(&self, entity: Entity, history_ticks: u64, now: u64) {
        let ran = self.run_ticks(entity, now);
        let waited = self.counters.wait_ticks.load(Ordering::Relaxed);
        self.service.lock().observe(ran, waited, history_ticks);
    }

    /// Owner: it leaves hart `left` because of `reason`.
    pub fn note_move(&self, left: CpuIndex, reason: Reason, caution: &Caution, now: u64) {
        self.moves.lock().note(left, reason, caution, now);
    }

    /// Its last move, if it has moved since its VM started.
    #[must_use]
    pub fn last_move(&self, now: u64) -> Option<LastMove> {
        self.moves.lock().last(now)
    }

    /// Ticks in guest mode until `now`; `entity` is this vCPU.
    #[must_use]
    pub fn run_ticks(&self, entity: Entity, now: u64) -> u64 {
        let ended = self.counters.run_ticks.load(Ordering::Relaxed);
        let hart = hart::all().get(self.cpu().index()).filter(|hart| hart.runs(entity));
        ended + hart.map_or(0, |hart| hart.counters.guest.running_ticks(now))
    }

    /// Of the time that it wanted to run lately, how much it did, in thousandths.
    #[must_use]
    pub fn served_permille(&self) -> u16 {
        self.service.lock().served_permille()
    }

    /// Whether a hart runs it at this moment.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.is_loaded() && !self.is_blocked() && self.in_turn.load(Ordering::Relaxed)
    }

    /// Whether it could run and does not: its hart runs somebody else.
    #[must_use]
    pub fn waits_for_hart(&self) -> bool {
        !self.in_turn.load(Ordering::Relaxed) && !self.is_blocked() && self.hsm() != HartState::Stopped
    }

    /// Owner: its turn begins or ends.
    pub fn set_in_turn(&self, in_turn: bool) {
        self.in_turn.store(in_turn, Ordering::Relaxed);
    }

    /// For clients. `id` is its VM, in the state `vm`.
    #[must_use]
    pub fn stats(&self, id: VmId, vm: VmState) -> VcpuStats {
        let state = if self.hsm() == HartState::Stopped || vm == VmState::Stopped {
            VcpuState::Stopped
        } else if vm == VmState::Paused {
            VcpuState::Paused
        } else if self.is_running() {
            VcpuState::Running
        } else if self.is_blocked() {
            VcpuState::Waiting
        } else {
            VcpuState::Ready
        };
        VcpuStats {
            index: self.index,
            state,
            hart: self.cpu(),
            run_ticks: self.run_ticks(Entity { vm: id, vcpu: self.index }, csr::time::read()),
            wait_ticks: self.counters.wait_ticks.load(Ordering::Relaxed),
            faults: self.counters.faults.load(Ordering::Relaxed),
            migrations: self.counters.migrations.load(Ordering::Relaxed),
            exits: self.counters.exits(),
        }
    }

    /// A PLIC's output for this vCPU changed.
    pub fn set_external_level(&self, asserted: bool) {
        self.external_level.store(asserted, Ordering::SeqCst);
    }

    /// The external interrupt level: the PLIC's output, or a software interrupt file with something to deliver.
    #[must_use]
    pub fn external_level(&self) -> bool {
        self.external_level.load(Ordering::SeqCst)
    }
}
