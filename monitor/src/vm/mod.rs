//! A virtual machine while it runs.
//!
//! A [`Vm`] is one life of a VM: from its start until its last vCPU and page are gone. What survives a restart (name,
//! description, console scroll-back, why it stopped) is in the registry.

pub mod console;
pub mod debug;
pub mod file;
pub mod memory;
pub mod platform;
pub mod shared;
pub mod together;
pub mod topology;

use crate::{
    hart,
    io::DeviceOwner,
    machine::relief::{self, Locked, Relief},
};
use ::vcpu::sse::{Event, EventId};
use addr::{Gfn, GuestPhysAddr, Mfn, NodeId, VcpuIndex, VmId};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use console::Console;
use control::{EventKind, OnCrash, StopReason, VmMemory, VmSpec};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use debug::Debug;
use device::GuestMemory;
use handoff::{Debt, Waiters};
use memory::GuestRam;
use platform::{Platform, Slot};
use shared::{SharedVcpu, request};
use spin::Mutex;
use tlb::ShootdownTracker;
use together::Together;
use virtio::block::BlockTag;

/// What a running VM is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Running = 0,
    Paused = 1,
    Ending = 2,
}

/// Why a VM ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It stays off.
    Stop(StopReason),
    /// It starts again.
    Reset,
}

/// One life of a virtual machine.
pub struct Vm {
    /// Its identity.
    pub id: VmId,
    spec: Arc<VmSpec>,
    ram: GuestRam,
    platform: Platform,
    vcpus: Box<[SharedVcpu]>,
    /// vCPUs that some hart still owns.
    owned_vcpus: AtomicU32,
    phase: AtomicU8,
    ending: Mutex<Option<Ending>>,
    console: Arc<Mutex<Console>>,
    has_imsic: bool,
    /// The event of SSE that its vCPUs share. Boxed: what each exit reads lies close together.
    global_event: Box<Mutex<Event>>,
    /// When one of its vCPUs went to another node last.
    node_change_at: AtomicU64,
    /// vCPUs that wait for harts inside the VM, by bit: who has been called away from it tells them.
    waiting: Waiters,
    /// What it owes for what harts did for it outside the turns of its vCPUs.
    debt: Debt,
    /// Whether disks have requests of which the guest is to hear later.
    has_late_requests: AtomicBool,
    /// The node that has most of its memory, plus one; 0 if none has.
    home: AtomicU8,
    together: Together,
    debug: Debug,
}

/// What a VM is made of.
pub struct Parts {
    /// Its identity.
    pub id: VmId,
    /// Its description.
    pub spec: Arc<VmSpec>,
    /// Its memory.
    pub ram: GuestRam,
    /// Its devices.
    pub platform: Platform,
    /// Its vCPUs.
    pub vcpus: Box<[SharedVcpu]>,
    /// Its console.
    pub console: Arc<Mutex<Console>>,
    /// Whether vCPUs have interrupt files (AIA), not a PLIC.
    pub has_imsic: bool,
}

impl Vm {
    /// A VM that runs as soon as its vCPUs have harts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { id, spec, ram, platform, vcpus, console, has_imsic } = parts;
        let together = Together::new(spec.weight, spec.gang);
        Self {
            id,
            spec,
            ram,
            platform,
            vcpus,
            owned_vcpus: AtomicU32::new(0),
            phase: AtomicU8::new(Phase::Running as u8),
            ending: Mutex::new(None),
            console,
            has_imsic,
            global_event: Box::new(Mutex::new(Event::new(EventId::GlobalSoftware, VcpuIndex(0)))),
            node_change_at: AtomicU64::new(0),
            waiting: Waiters::new(),
            debt: Debt::new(),
            has_late_requests: AtomicBool::new(false),
            home: AtomicU8::new(0),
            together,
            debug: Debug::default(),
        }
    }

    /// What it owes, up to `most` ticks: the caller charges a vCPU of it.
    #[inline]
    pub fn take_debt(&self, most: u64) -> u64 {
        self.debt.take(most)
    }

    /// Its description.
    #[must_use]
    pub fn spec(&self) -> &VmSpec {
        &self.spec
    }

    /// Its vCPUs.
    #[must_use]
    pub fn vcpus(&self) -> &[SharedVcpu] {
        &self.vcpus
    }

    /// How it shares harts with others. What its description says of that is how it began.
    #[inline]
    #[must_use]
    pub const fn together(&self) -> &Together {
        &self.together
    }

    /// Its memory.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &GuestRam {
        &self.ram
    }

    /// Its devices.
    #[inline]
    #[must_use]
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Who may hold translations of it.
    #[inline]
    #[must_use]
    pub fn tlb(&self) -> &ShootdownTracker {
        self.ram.tlb()
    }

    /// Whether its vCPUs may run: it is neither paused nor ending.
    #[inline]
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == Phase::Running as u8
    }

    /// Whether this vCPU may run: a debugger may let only one go on.
    #[inline]
    #[must_use]
    pub fn lets_run(&self, vcpu: VcpuIndex) -> bool {
        self.is_running() && !self.debug.holds(vcpu)
    }

    /// Whether its vCPUs stay where they are until it goes on.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == Phase::Paused as u8
    }

    /// What a debugger has to do with it.
    #[must_use]
    pub const fn debug(&self) -> &Debug {
        &self.debug
    }

    /// Output of its console devices.
    pub fn console_output(&self, bytes: &[u8]) {
        self.console.lock().push(bytes);
        crate::vm::console::changed();
    }

    /// Ends this life because of `reason`. The first reason counts, but whoever is killed does not begin again.
    pub fn request_stop(&self, reason: StopReason) {
        self.end(Ending::Stop(reason));
    }

    /// Ends this life to begin another one.
    pub fn request_reset(&self) {
        self.end(Ending::Reset);
    }

    fn end(&self, ending: Ending) {
        let fault = match &ending {
            Ending::Stop(StopReason::GuestFault { device, reason, value, .. }) => {
                Some(EventKind::GuestFault { device: device.clone(), reason: reason.clone(), value: *value })
            }
            _ => None,
        };
        let is_last = matches!(ending, Ending::Stop(StopReason::Killed | StopReason::MachineShutdown));
        let is_first = {
            let mut current = self.ending.lock();
            let is_first = current.is_none();
            if is_first || is_last && current.as_ref().is_some_and(|before| self.begins_again(before)) {
                *current = Some(ending);
            }
            is_first
        };
        // A device of a VM that ends finds no memory any more: that is no fault of the guest's.
        if let Some(fault) = fault.filter(|_| is_first) {
            crate::trace::record(Some(self.id), fault);
        }
        self.phase.store(Phase::Ending as u8, Ordering::SeqCst);
        self.call_vcpus_back();
        crate::machine::agenda::wake_control();
    }

    /// Whether another life comes after such an ending.
    #[must_use]
    pub fn begins_again(&self, ending: &Ending) -> bool {
        match ending {
            Ending::Stop(reason) => reason.is_crash() && self.spec.on_crash == OnCrash::Reset,
            Ending::Reset => true,
        }
    }

    /// Why it ends, if it does.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending.lock().clone()
    }

    /// Stops or continues its vCPUs. `false` when it is ending.
    pub fn set_paused(&self, paused: bool) -> bool {
        let (from, to) = if paused { (Phase::Running, Phase::Paused) } else { (Phase::Paused, Phase::Running) };
        let changed = self.phase.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        self.call_vcpus_back();
        changed
    }

    /// Whether it ends. From then on nothing may begin to use its memory.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == Phase::Ending as u8
    }

    /// Its vCPU `vcpu` waits for other harts: [`Vm::tell_waiting`] wakes it up once. To be said before the vCPU looks for the
    /// last time.
    pub fn note_waiting(&self, vcpu: VcpuIndex) {
        self.waiting.note(vcpu.0);
    }

    /// A disk has requests of which the guest cannot hear yet. No device may be locked.
    pub fn note_late_requests(&self) {
        self.has_late_requests.store(true, Ordering::SeqCst);
        crate::machine::agenda::defer();
        // As in `Waiters::note`.
        fence(Ordering::SeqCst);
        let _ = self.tell_late_requests();
    }

    /// The guest hears of requests that have ended, if all vCPUs see its memory as it is now. No device may be locked. `true` while
    /// there are some of which it cannot hear yet.
    #[inline]
    pub fn tell_late_requests(&self) -> bool {
        self.has_late_requests.load(Ordering::Relaxed) && self.tell_late()
    }

    #[cold]
    fn tell_late(&self) -> bool {
        if self.ram.is_settled() {
            self.has_late_requests.store(false, Ordering::SeqCst);
            if self.platform.slots().filter(|(_, slot)| slot.complete_late(self)).count() > 0 {
                self.has_late_requests.store(true, Ordering::SeqCst);
            }
        }
        self.has_late_requests.load(Ordering::Relaxed)
    }

    /// The calling hart was called away from its guests, and has said so behind a full fence: whoever waits for that looks again.
    #[inline]
    pub fn tell_waiting(&self) {
        self.waiting.take(|number| self.vcpus.get(usize::from(number)).into_iter().for_each(shared::kick));
        let _ = self.tell_late_requests();
    }

    fn call_vcpus_back(&self) {
        for vcpu in &self.vcpus {
            vcpu.request(request::VM_STATE);
            shared::kick(vcpu);
        }
    }

    /// A hart has dropped one of its vCPUs.
    pub fn vcpu_released(&self) {
        if self.owned_vcpus.fetch_sub(1, Ordering::SeqCst) == 1 {
            crate::machine::agenda::wake_control();
        }
    }

    /// A hart is about to do something for it that is no vCPU; [`Vm::vcpu_released`] when it is done. Only by the hart
    /// that lets VMs end, of one that does not.
    pub fn hold(&self) {
        self.owned_vcpus.fetch_add(1, Ordering::SeqCst);
    }

    /// One of its vCPUs goes to another node.
    pub fn note_node_change(&self, now: u64) {
        self.node_change_at.store(now, Ordering::Relaxed);
    }

    /// Finds out which node has most of its memory.
    pub fn update_home(&self) {
        let home = sched::balance::home_of(&self.ram.pages_by_node()).map_or(0, |node| node.0.saturating_add(1));
        self.home.store(home, Ordering::Relaxed);
    }

    /// The node that did when somebody looked last.
    #[must_use]
    pub fn home(&self) -> Option<NodeId> {
        self.home.load(Ordering::Relaxed).checked_sub(1).map(NodeId)
    }

    /// When one did so last; 0: never.
    #[must_use]
    pub fn node_change_at(&self) -> u64 {
        self.node_change_at.load(Ordering::Relaxed)
    }

    /// As many vCPUs are about to be given to harts.
    pub fn set_owned_vcpus(&self, count: u32) {
        self.owned_vcpus.store(count, Ordering::SeqCst);
    }

    /// Its console, shared with later lives.
    #[must_use]
    pub fn console(&self) -> &Mutex<Console> {
        &self.console
    }

    /// Its machine pages by node; modified disk blocks are shown on the first.
    #[must_use]
    pub fn resident(&self) -> Vec<VmMemory> {
        let mut nodes = self.ram.resident();
        if let Some(first) = nodes.first_mut() {
            first.disk_pages = self.platform.disk_pages();
        }
        for vcpu in &self.vcpus {
            let node = hart::all().get(vcpu.cpu().index()).map(|hart| hart.node);
            if let Some(memory) = node.and_then(|node| nodes.get_mut(node.index())) {
                memory.monitor_pages += shared::OWNERS_PAGES;
            }
        }
        nodes
    }

    /// Whether its vCPUs have interrupt files (AIA). Else they have a PLIC.
    #[inline]
    #[must_use]
    pub const fn has_imsic(&self) -> bool {
        self.has_imsic
    }

    /// The event of SSE that its vCPUs share.
    #[must_use]
    pub fn global_event(&self) -> &Mutex<Event> {
        &self.global_event
    }

    /// Whether `addr` is RAM.
    #[inline]
    #[must_use]
    pub const fn is_ram(&self, addr: GuestPhysAddr) -> bool {
        self.ram.is_ram(addr)
    }

    /// A vCPU on `node` touched `addr`, which is RAM: makes sure that there is a leaf.
    #[inline]
    pub fn touch(&self, addr: GuestPhysAddr, access: memory::Access, node: NodeId) -> memory::Touch {
        match self.ram.touch(addr, access, node) {
            memory::Touch::OutOfMemory => self.touch_again(addr, access, node),
            touch => touch,
        }
    }

    /// No page was left: others give some back, or a VM ends for it.
    #[cold]
    fn touch_again(&self, addr: GuestPhysAddr, access: memory::Access, node: NodeId) -> memory::Touch {
        /// Others may take what was given back; then the vCPU comes again, and its hart does something else first.
        const ATTEMPTS: usize = 8;
        for _ in 0..ATTEMPTS {
            let relief = relief::ask(Some(&self.ram), Locked::Nothing);
            let touch = self.ram.touch(addr, access, node);
            match relief {
                _ if touch != memory::Touch::OutOfMemory => return touch,
                Relief::Freed => {}
                Relief::Coming => return memory::Touch::Busy,
                Relief::Nothing => {
                    // Somebody has to end: the control hart says who.
                    relief::tell_short(self.id);
                    return memory::Touch::Busy;
                }
            }
        }
        memory::Touch::Busy
    }

    /// Whether any hart still owns a vCPU of it.
    #[must_use]
    pub fn has_owned_vcpus(&self) -> bool {
        self.owned_vcpus.load(Ordering::SeqCst) != 0
    }

    /// The root of its G-stage table for harts of `node`, with the mode, as in `hgatp`.
    #[must_use]
    pub fn gstage_root(&self, node: NodeId) -> u64 {
        self.ram.root(node)
    }
}

impl DeviceOwner for Vm {
    fn id(&self) -> VmId {
        self.id
    }

    fn is_ending(&self) -> bool {
        Self::is_ending(self)
    }

    fn memory(&self) -> &dyn GuestMemory {
        &self.ram
    }

    fn complete_block(&self, slot: usize, tag: BlockTag, status: storage::Status) {
        if let Some(device) = self.platform.slot(slot) {
            device.complete_block(self, tag, status);
        }
    }

    fn receive(&self, slot: usize) -> Option<bool> {
        match self.platform.slot(slot)? {
            Slot::Net(net) => Some(net.receive_waiting(self)),
            _ => None,
        }
    }

    fn owe(&self, ticks: u64) {
        /// A second's part: more is forgiven. A VM that was loaded at length is to begin nevertheless.
        const MOST: u64 = 10;
        self.debt.add(ticks, crate::machine::capabilities().timebase_hz / MOST);
    }

    fn machine_pages(&self, first: Gfn, pages: u64, each: &mut dyn FnMut(Mfn)) {
        self.ram.machine_pages(first, pages, each);
    }
}

impl core::fmt::Debug for Vm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Vm").field("id", &self.id).field("name", &self.spec.name).finish_non_exhaustive()
    }
}
