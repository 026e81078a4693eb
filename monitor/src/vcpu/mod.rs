//! A virtual processor: its registers, its turn on a hart, and what it may ask of the monitor.
//!
//! A [`Vcpu`] is owned by one hart at a time and moves between harts by message; nobody else touches it. What others
//! need is in its [`VcpuShared`].

mod counters;
mod events;
pub mod exit;
mod fast;
mod features;
pub mod file;
mod guest_loads;
mod interrupts;
mod looks;
mod registers;
mod sbi;
mod signs;
mod sleep;
mod turn;
mod units;
mod waiting;

use crate::{
    hart::{Hart, HartTools},
    machine::{Capabilities, node_box::NodeBox},
    vm::{
        Vm,
        memory::file_gfn,
        shared::{OWNERS_PAGES, SharedVcpu, add, request},
    },
};
use ::vcpu::{
    hsm::{Change, HartState},
    sbi::Entry,
    sse::LocalEvents,
};
use addr::{GuestPhysAddr, VcpuIndex};
use alloc::sync::Arc;
use control::{ExitCause, ExitRecord, StopReason};
use core::fmt;
pub use exit::Next;
use features::Environment;
use platform::Pmu;
use rv::{
    csr, fence,
    fields::{hgei, hstatus, interrupt},
    world::{GuestContext, VsState},
};
use rv_pte::Hgatp;
use sched::Entity;
use tlb::{Fence, TlbContext, TlbGeneration};
pub use units::Units;
pub use waiting::Until;

/// What `ls` shows of a VM's memory counts a vCPU by this.
const _: () = assert!(NodeBox::<Vcpu>::PAGES == OWNERS_PAGES);

/// Where a vCPU stands with its hart's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// In the run queue.
    Runnable,
    /// Waits for an interrupt.
    Blocked,
    /// Suspended by HSM or SUSP: waits for an interrupt that it has enabled.
    Suspended,
    /// Stopped by HSM (or not started yet).
    Stopped,
    /// Its VM is paused or stopping.
    Parked,
    /// Waits for other harts ([`Until`]).
    Held,
    /// Waits until no vCPU stores into its interrupt file any more; then it goes from this hart.
    Leaving,
}

/// A vCPU.
#[repr(C)]
pub struct Vcpu {
    /// Registers that the world switch moves. First, because the short exit gets only this.
    pub context: GuestContext,
    /// VS-level CSRs while not loaded.
    pub vs: VsState,
    /// FP and vector registers.
    pub units: Units,
    /// Performance counters.
    pub pmu: Pmu,
    /// Index in its VM.
    pub index: VcpuIndex,
    /// Scheduler state.
    pub run_state: RunState,
    /// While it leaves its hart: how it goes on afterwards.
    pub state_before: RunState,
    /// Deadline of the guest's timer while blocked.
    pub wake_at: u64,
    /// Where the guest wants its steal time.
    pub steal_record: Option<GuestPhysAddr>,
    /// It has taken memory that was zeroed ahead, which is not made up for yet.
    owes_rest: bool,
    /// Nobody else wants to run on its hart in this turn.
    is_alone: bool,
    /// What others see.
    pub shared: SharedVcpu,
    /// Its VM.
    pub vm: Arc<Vm>,
    tlb: TlbContext,
    root: u64,
    /// Guest interrupt file of the owning hart, 0 for none.
    file: u8,
    /// When it last became runnable.
    runnable_since: u64,
    /// Whether its exits are kept in its trace.
    is_traced: bool,
    waiting: waiting::Waiting,
    /// Where it goes on after its suspension; `None`: behind the call.
    resume: Option<Entry>,
    /// Supervisor software events.
    events: LocalEvents,
    /// Firmware features.
    environment: Environment,
    /// Whether it has counters or features that take more at a switch than what all vCPUs have.
    has_extras: bool,
    /// When it leaves its hart: the generation since which its interrupt file is in no table.
    file_gone: TlbGeneration,
    /// Whether it woke up since its last turn.
    woke_up: bool,
    /// Ticks between two turns that are no wait.
    least_steal: u64,
    /// When its next sign is worth noting (`signs.rs`).
    next_sign: u64,
    /// Consecutive access faults injected at one program counter.
    fault_streak: (u64, u32),
}

/// Access faults in a row at one place after which a guest is taken for dead: its trap handler does not run.
const FAULT_LOOP: u32 = 1_000;

/// A vCPU that is back in guest mode within this part of a second has not lost its hart to anybody.
const LEAST_STEAL_HZ: u64 = 100_000;

impl fmt::Debug for Vcpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vcpu").field("vm", &self.vm.id).field("index", &self.index).finish_non_exhaustive()
    }
}

impl Vcpu {
    /// A stopped vCPU of `vm`.
    #[must_use]
    pub fn new(vm: Arc<Vm>, shared: SharedVcpu) -> Self {
        let index = shared.index;
        Self {
            context: GuestContext::new(0, u64::from(index.0), 0, fast::fast_exit),
            vs: VsState::new(),
            units: Units::new(),
            pmu: Pmu::new(),
            index,
            run_state: RunState::Stopped,
            state_before: RunState::Stopped,
            wake_at: u64::MAX,
            steal_record: None,
            owes_rest: false,
            is_alone: false,
            shared,
            vm,
            tlb: TlbContext::new(),
            root: 0,
            file: 0,
            runnable_since: 0,
            is_traced: crate::machine::options().trace,
            waiting: waiting::Waiting::default(),
            resume: None,
            events: LocalEvents::new(index),
            environment: Environment::new(),
            has_extras: false,
            file_gone: TlbGeneration::NONE,
            woke_up: false,
            least_steal: crate::machine::capabilities().timebase_hz / LEAST_STEAL_HZ,
            next_sign: 0,
            fault_streak: (0, 0),
        }
    }

    /// Its name in the run queue.
    #[must_use]
    pub fn entity(&self) -> Entity {
        Entity { vm: self.vm.id, vcpu: self.index }
    }

    /// Its share of contended harts.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.vm.together().weight()
    }

    /// Counts an exit.
    #[inline]
    pub fn count(&self, cause: ExitCause) {
        self.shared.counters.count_exit(cause);
    }

    /// Stops this guest, with a reason; nobody else notices.
    pub fn fail(&self, device: &'static str, reason: &'static str, value: u64) -> Next {
        self.vm.request_stop(StopReason::GuestFault {
            vcpu: Some(self.index),
            device: device.into(),
            reason: reason.into(),
            value,
        });
        Next::VmStateChanged
    }

    /// Counts an access fault; whether the guest is caught in them, more than `FAULT_LOOP` in a row at one place.
    pub fn is_fault_loop(&mut self) -> bool {
        let (pc, count) = self.fault_streak;
        self.fault_streak = if pc == self.context.pc { (pc, count + 1) } else { (self.context.pc, 0) };
        self.fault_streak.1 > FAULT_LOOP
    }

    /// HSM start: fresh state at the entry that the starter left.
    pub fn start(&mut self) {
        let entry = self.shared.start_entry();
        self.shared.change_hsm(Change::Begin);
        // What happened while it was stopped has not happened to this life of it.
        self.shared.withdraw(request::INJECTED);
        self.reset_to(entry);
    }

    /// HSM stop. From now on somebody may start it again.
    #[cold]
    #[inline(never)]
    pub fn stop(&mut self) {
        self.run_state = RunState::Stopped;
        self.abandon_events();
        self.shared.change_hsm(Change::Stop);
    }

    /// Fresh state at `entry`, as after HSM start.
    fn reset_to(&mut self, entry: Entry) {
        self.reset_context(entry);
        let is_loaded = self.shared.is_loaded();
        self.environment.reset(is_loaded);
        self.events = LocalEvents::new(self.index);
        self.vs = VsState::new();
        if is_loaded {
            registers::load_vs(&self.vs, crate::machine::capabilities().features);
            counters::open(false);
        }
        self.units = Units::new();
        self.pmu = Pmu::new();
        // The new life may use that memory for something else.
        self.steal_record = None;
        self.note_extras();
        // A line that is asserted was not asserted to its former life only.
        self.refresh_external();
    }

    /// Counters or features may have changed.
    pub(super) fn note_extras(&mut self) {
        self.has_extras = self.pmu.is_virtual() || self.environment.is_special();
    }

    /// Before the VS-level registers: features decide which fields those have.
    #[cold]
    #[inline(never)]
    fn load_extras(&mut self) {
        self.environment.load();
        if self.pmu.is_virtual() {
            self.load_counters();
        }
    }

    /// After the VS-level registers.
    #[cold]
    #[inline(never)]
    fn unload_extras(&mut self) {
        self.environment.unload();
        if self.pmu.is_virtual() {
            self.unload_counters();
        }
    }

    fn reset_context(&mut self, entry: Entry) {
        let hstatus = self.context.hstatus;
        let fast_exits = self.context.fast_exits;
        self.context = GuestContext::new(entry.pc, u64::from(self.index.0), entry.opaque, fast::fast_exit);
        self.context.hstatus = hstatus;
        self.context.fast_exits = fast_exits;
    }

    /// Settles on hart `hart`: from now on its requests come here.
    pub fn arrive(&mut self, hart: &Hart, tools: &mut HartTools) {
        self.shared.set_cpu(hart.cpu);
        self.root = self.vm.gstage_root(hart.node);
        self.tlb.forget();
        // The guest may have written code while it ran elsewhere.
        fence::fence_i();
        self.file = file::settle(self, hart, tools);
        self.context.hstatus = hstatus::with_file(self.context.hstatus, self.file);
        if self.shared.hsm() == HartState::StartPending {
            self.start();
            self.run_state = RunState::Runnable;
        }
        // Its interrupt file may have been elsewhere.
        self.refresh_external();
        self.runnable_since = csr::time::read();
    }

    /// It is about to leave its hart: its interrupt file goes out of the tables. `true` if some vCPU may store into it still.
    pub fn begin_to_leave(&mut self) -> bool {
        if self.file != 0 && self.file_gone == TlbGeneration::NONE {
            self.file_gone = self.vm.memory().unmap_registers(file_gfn(self.index));
        }
        self.is_file_in_use()
    }

    /// Whether some vCPU may store into the interrupt file that it is about to give back.
    #[must_use]
    pub fn is_file_in_use(&self) -> bool {
        self.file != 0 && !self.vm.tlb().all_passed(self.file_gone)
    }

    /// Gives its interrupt file back, which no vCPU stores into any more; what was in it stays with the vCPU.
    pub fn leave_file(&mut self, tools: &mut HartTools) {
        if self.file != 0 {
            file::evacuate(self, self.file);
            tools.release_file(self.file);
            (self.file, self.file_gone) = (0, TlbGeneration::NONE);
        }
    }

    /// Bit of its guest interrupt file in `hgeip`.
    #[must_use]
    pub fn file_mask(&self) -> u64 {
        hgei::of_file(self.file)
    }

    /// Puts its state into the hart's registers.
    #[inline(always)]
    pub fn load(&mut self, capabilities: &Capabilities) {
        if self.has_extras {
            self.load_extras();
        }
        registers::load_vs(&self.vs, capabilities.features);
        self.context.sstatus = units::units_off(self.context.sstatus);
        self.shared.set_loaded(true);
    }

    /// Takes its state out of the hart's registers.
    #[inline(always)]
    pub fn unload(&mut self, capabilities: &Capabilities) {
        self.units.save_dirty(&mut self.context.sstatus, capabilities.vector);
        self.vs.save(capabilities.features);
        if self.has_extras {
            self.unload_extras();
        }
        self.shared.set_loaded(false);
    }

    /// Runs until something other than a plain exit happens.
    ///
    /// The loop has no bound of its own: it is the guest's time. Each round handles one exit, whose work is bounded, and the timer of
    /// the hart's next turn, like everything that others want of the hart, is an exit that ends it.
    pub fn run(&mut self, hart: &Hart, tools: &mut HartTools) -> Next {
        if self.waiting.is_on()
            && let Some(next) = self.go_on_waiting(hart, tools)
        {
            return next;
        }
        loop {
            if self.shared.has_requests()
                && let Some(next) = self.serve_requests(hart, tools)
            {
                // The loop looks now whether anybody calls, whatever is left to do.
                tools.look(csr::time::read(), &hart.counters.stretches);
                return next;
            }
            let (scause, ticks) = self.enter(hart, tools);
            if self.is_traced {
                let (pc, stval) = (self.context.pc, csr::stval::read());
                self.shared.trace.push(ExitRecord { ticks, scause, pc, stval });
            }
            let next = exit::handle(self, hart, tools, scause);
            if next != Next::Resume {
                return next;
            }
        }
    }

    /// One stretch in guest mode, from entry to full exit; returns `scause` and the time.
    #[inline]
    fn enter(&mut self, hart: &Hart, tools: &mut HartTools) -> (u64, u64) {
        let begin = csr::time::read();
        tools.stretch.end(begin, &hart.counters.stretches);
        hart.counters.guest.start(begin);
        self.begin_inside(hart, tools);
        let scause = registers::run_guest(&mut self.context);
        self.end_inside(hart);
        let now = csr::time::read();
        tools.stretch.begin(now);
        let ran = hart.counters.guest.stop(now);
        add(&self.shared.counters.run_ticks, ran);
        (scause, now)
    }

    /// From now on this hart may use the VM's translations: what they lead to is not reused before [`Self::end_inside`], or before
    /// the hart has passed a later generation.
    #[inline(always)]
    fn begin_inside(&mut self, hart: &Hart, tools: &mut HartTools) {
        let tracker = self.vm.tlb();
        let entry = self.tlb.enter(hart.cpu, &mut tools.vmids, tracker);
        registers::write_hgatp(Hgatp::with_vmid(self.root, entry.vmid));
        match entry.fence {
            Fence::None => {}
            Fence::Vmid(vmid) => fence::hfence_gvma_vmid(vmid.0),
            Fence::Reused(_) => fence::hfence_vvma_all(),
            Fence::All => {
                fence::hfence_gvma_all();
                fence::hfence_vvma_all();
            }
        }
        self.tlb.fenced(hart.cpu, tracker, entry);
    }

    /// This hart uses the VM's translations no longer.
    #[inline(always)]
    fn end_inside(&self, hart: &Hart) {
        self.vm.tlb().leave(hart.cpu);
    }

    /// Does what others asked for. `Some` when the turn has to end.
    #[cold]
    fn serve_requests(&mut self, hart: &Hart, tools: &mut HartTools) -> Option<Next> {
        let requests = self.shared.take_requests();
        self.perform_fences(requests);
        if requests & request::SOFTWARE_INTERRUPT != 0 {
            self.set_hvip(interrupt::VSSI, true);
        }
        if requests & request::EXTERNAL != 0 {
            self.refresh_external();
        }
        if requests & (request::EVENTS | request::INJECTED) != 0 {
            self.look_at_events(requests & request::INJECTED != 0);
        }
        if requests & request::DEBUG != 0 {
            self.set_debugged(self.vm.debug().is_attached());
        }
        if requests & request::SAMPLE != 0 {
            self.take_sample(hart, tools);
        }
        if requests & request::TELL_ROOT != 0 {
            self.shared.tell_root(csr::vsatp::read());
        }
        // While the VM is paused it stays what it is.
        let has_more = requests & request::BACKLOG != 0 && (!self.vm.is_running() || self.vm.serve_backlog());
        if has_more {
            self.shared.request(request::BACKLOG);
        }
        if requests & request::VM_STATE != 0 {
            return Some(Next::VmStateChanged);
        }
        // Others have their turn between two pieces of it.
        has_more.then_some(Next::Reschedule)
    }

    /// Performs remote fences that another vCPU waits for. The vCPU is loaded on the calling hart.
    pub fn serve_fences(&mut self) {
        if self.shared.outstanding(request::FENCES) != 0 {
            let requests = self.shared.take_requests();
            self.perform_fences(requests);
            // The rest is for the next entry.
            self.shared.request(requests & !request::FENCES);
        }
    }

    fn perform_fences(&mut self, requests: u32) {
        if requests & request::FENCE_I != 0 {
            fence::fence_i();
        }
        if requests & request::FENCE_VVMA != 0 {
            // A fresh VMID has no translations to forget, whatever `hgatp` holds at this moment.
            self.tlb.forget();
        }
    }

    /// Becomes runnable.
    pub fn mark_runnable(&mut self, now: u64) {
        self.shared.set_blocked(false);
        self.run_state = RunState::Runnable;
        self.woke_up = true;
        self.runnable_since = now;
        self.shared.set_runnable_since(self.runnable_since);
    }
}
