//! One VM and its lives.

use crate::{
    hart::{self, PreemptionPoint},
    io::at_cost_of,
    machine::{self, capabilities, memory, relief},
    services::{
        build::{self, Loading, Step},
        mail::{self, Message},
        merging,
    },
    vm::{Ending, Vm, console::Console, platform::Traffic, shared::SharedVcpu},
};
use addr::{CpuIndex, VmId};
use alloc::{sync::Arc, vec::Vec};
use control::{ControlError, EventKind, Setting, StopReason, VmSpec, VmState};
use frames::{VmCensus, VmPages};
use rv::csr;
use spin::Mutex;

/// Resets within [`RESET_WINDOW_S`] seconds after which a VM is taken to be in a reset loop.
const RESET_LIMIT: u32 = 10;
const RESET_WINDOW_S: u64 = 60;

/// Blocks of memory, and users of shared pages, that one step of the leak check looks at.
const CENSUS_STEP: u64 = 512;

/// Steps of loading between two looks at everything else the control hart has to do.
const LOADED_AT_ONCE: u32 = 16;

/// A VM as its owner knows it.
#[derive(Debug)]
pub struct Record {
    /// Its identity.
    pub id: VmId,
    /// Its description.
    pub spec: Arc<VmSpec>,
    /// What it is doing.
    pub state: VmState,
    /// Why it stopped last.
    pub reason: Option<StopReason>,
    /// Its present life. Its vCPUs may have no harts yet: see [`Record::launched`].
    pub life: Option<Arc<Vm>>,
    /// What its present life boots from, on the way into its memory.
    loading: Option<Loading>,
    /// The search for pages that its life has left behind, while that goes on.
    census: Option<VmCensus>,
    /// Counters and traces of its present life or, when it has stopped, of its last.
    pub vcpus: Vec<SharedVcpu>,
    /// The totals of its last life; the present one tells its own.
    last: Totals,
    /// Its console, across lives.
    pub console: Arc<Mutex<Console>>,
    /// When its present life began to end, if it does.
    stopping_since: u64,
    /// When the present life began; when its vCPUs got their harts, if they have them.
    started_at: u64,
    /// Resets since the last start from outside.
    pub resets: u32,
    recent_resets: u32,
    window_start: u64,
    harts: Vec<CpuIndex>,
}

/// What went through the devices of a VM in one life.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Disks and network.
    pub traffic: Traffic,
    /// Pages that the guest gave back.
    pub pages_returned: u64,
    /// Pages that its disks' reads mapped into it, and pages that became its own again by a write.
    pub pages_shared: (u64, u64),
    /// Pages merged with equal ones of other VMs, and pages of zeroes that went back.
    pub pages_merged: (u64, u64),
    /// What placement did.
    pub placement: control::PlacementStats,
}

impl Totals {
    fn of(vm: &Vm) -> Self {
        let memory = vm.memory();
        Self {
            traffic: vm.platform().traffic(),
            pages_returned: memory.pages_returned(),
            pages_shared: memory.pages_shared(),
            pages_merged: memory.pages_merged(),
            placement: memory.pages_placed(),
        }
    }
}

impl Record {
    /// One that has not been started.
    pub(super) fn new(id: VmId, spec: VmSpec) -> Self {
        let console = Console::new(crate::machine::options().console_kib as usize * 1024);
        Self {
            id,
            spec: Arc::new(spec),
            state: VmState::Stopped,
            reason: None,
            life: None,
            loading: None,
            census: None,
            vcpus: Vec::new(),
            last: Totals::default(),
            console: Arc::new(Mutex::new(console)),
            stopping_since: 0,
            started_at: 0,
            resets: 0,
            recent_resets: 0,
            window_start: 0,
            harts: Vec::new(),
        }
    }

    /// What went through its devices, in its present life or its last.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.life.as_ref().map_or(self.last, |life| Totals::of(life))
    }

    /// Its present life, if its vCPUs have harts.
    #[must_use]
    pub fn launched(&self) -> Option<&Arc<Vm>> {
        self.life.as_ref().filter(|_| self.loading.is_none())
    }

    /// Its present life, if its vCPUs have no harts yet.
    #[must_use]
    pub fn newcomer(&self) -> Option<&Arc<Vm>> {
        self.life.as_ref().filter(|_| self.loading.is_some())
    }

    /// For how long it has been running.
    #[must_use]
    pub fn uptime(&self, now: u64) -> u64 {
        let is_up = self.state != VmState::Stopped && self.loading.is_none();
        if is_up { now.saturating_sub(self.started_at) } else { 0 }
    }

    /// What came of the latest start; `None` while that is not certain.
    #[must_use]
    pub fn start_outcome(&self) -> Option<Result<(), ControlError>> {
        match (self.state, &self.reason) {
            _ if self.loading.is_some() => None,
            (VmState::Running | VmState::Paused, _) => Some(Ok(())),
            // Whoever hears that it failed can start it again.
            (VmState::Stopping, _) => None,
            (VmState::Stopped, Some(StopReason::OutOfMemory { needed })) => {
                Some(Err(ControlError::OutOfMemory { needed: *needed, free: 0 }))
            }
            (VmState::Stopped, _) => Some(self.need(VmState::Running)),
        }
    }

    /// Refuses a request for a VM that is not in the state that it needs.
    ///
    /// # Errors
    /// [`ControlError::BadState`].
    pub fn need(&self, wanted: VmState) -> Result<(), ControlError> {
        if self.state == wanted {
            return Ok(());
        }
        Err(ControlError::BadState { vm: self.spec.name.clone(), state: self.state, wanted })
    }

    /// Whether whoever waits for `state` need not wait any longer. A paused VM has reached it when no vCPU runs; a VM
    /// that is not to be paused any more counts as there.
    #[must_use]
    pub fn has_reached(&self, state: VmState) -> bool {
        let is_still = || self.life.as_ref().is_none_or(|life| life.is_still());
        match state {
            // Whoever waits for a pause must not wait for ever when the VM ends instead.
            VmState::Paused => self.state != VmState::Paused || is_still(),
            _ => self.state == state,
        }
    }

    /// Stops its vCPUs where they are.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&mut self) -> Result<(), ControlError> {
        self.need(VmState::Running)?;
        if self.life.as_ref().is_some_and(|life| life.set_paused(true)) {
            self.state = VmState::Paused;
            crate::trace::record(Some(self.id), EventKind::VmPaused);
        }
        Ok(())
    }

    /// A breakpoint may have paused it.
    pub fn note_pause(&mut self) {
        if self.state == VmState::Running && self.life.as_ref().is_some_and(|life| life.is_paused()) {
            self.state = VmState::Paused;
            crate::trace::record(Some(self.id), EventKind::VmPaused);
        }
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It is not paused.
    pub fn resume(&mut self) -> Result<(), ControlError> {
        self.need(VmState::Paused)?;
        if self.life.as_ref().is_some_and(|life| life.set_paused(false)) {
            self.state = VmState::Running;
            crate::trace::record(Some(self.id), EventKind::VmResumed);
        }
        Ok(())
    }

    /// Changes it, at once and for its later lives.
    ///
    /// # Errors
    /// Its description would be wrong.
    pub fn set(&mut self, settings: &[Setting]) -> Result<(), ControlError> {
        self.spec = Arc::new(self.spec.with_settings(settings)?);
        let second = machine::second(csr::time::read());
        for setting in settings {
            if let Some(life) = &self.life {
                life.together().set(*setting, second);
            }
            crate::trace::record(Some(self.id), EventKind::VmSet { setting: *setting });
        }
        hart::all().iter().for_each(|hart| mail::send(hart, Message::Weigh(self.id)));
        Ok(())
    }

    /// Takes its power. It does not begin again, even if it is on the way to.
    ///
    /// # Errors
    /// It neither runs nor is paused, and is not to begin again.
    pub fn kill(&mut self) -> Result<(), ControlError> {
        let is_to_begin = |vm: &&Arc<Vm>| vm.ending().is_some_and(|ending| vm.begins_again(&ending));
        let dying = self.life.as_ref().filter(is_to_begin);
        let vm = if let Some(vm) = dying { vm } else { self.need_alive()? };
        vm.request_stop(StopReason::Killed);
        Ok(())
    }

    /// Resets it.
    ///
    /// # Errors
    /// It neither runs nor is paused.
    pub fn reset(&mut self) -> Result<(), ControlError> {
        self.need_alive()?.request_reset();
        Ok(())
    }

    /// Its life, if it runs or is paused.
    ///
    /// # Errors
    /// [`ControlError::BadState`].
    pub fn need_alive(&self) -> Result<&Arc<Vm>, ControlError> {
        if self.state != VmState::Paused {
            self.need(VmState::Running)?;
        }
        let bad = || ControlError::BadState { vm: self.spec.name.clone(), state: self.state, wanted: VmState::Running };
        self.life.as_ref().ok_or_else(bad)
    }

    pub(super) fn begin_life(&mut self, harts: &[CpuIndex]) -> Result<(), ControlError> {
        let (vm, loading) = build::build(self.id, self.spec.clone(), self.console.clone(), harts)?;
        self.started_at = csr::time::read();
        // From here on it can be paused, reset and stopped as if it ran: none of it needs vCPUs on harts.
        self.state = VmState::Running;
        self.reason = None;
        // Bounded: MAX_VCPUS.
        self.harts = harts.to_vec();
        // Bounded: MAX_VCPUS.
        self.vcpus = vm.vcpus().to_vec();
        self.life = Some(vm);
        self.loading = Some(loading);
        Ok(())
    }

    /// Some steps for a VM that is loaded; `None` if it is not. It goes on while the VM is paused.
    pub(super) fn load(&mut self, point: &mut PreemptionPoint<'_>) -> Option<()> {
        let vm = self.newcomer()?.clone();
        let loading = self.loading.as_mut()?;
        let step = at_cost_of(Some(&*vm), || {
            let mut step = loading.step(&vm);
            for _ in 1..LOADED_AT_ONCE {
                if !matches!(step, Step::More) || !point.may_go_on() {
                    break;
                }
                step = loading.step(&vm);
            }
            step
        });
        match step {
            Step::More => {}
            Step::Loaded => self.launch(&vm),
            Step::NoPage => relief::tell_short(self.id),
            Step::NoMemory { needed } => {
                log::error!("VM {}: no memory for what it boots from", self.spec.name);
                vm.request_stop(StopReason::OutOfMemory { needed });
            }
        }
        Some(())
    }

    fn launch(&mut self, vm: &Arc<Vm>) {
        self.loading = None;
        self.started_at = csr::time::read();
        crate::trace::record(Some(self.id), EventKind::VmStarted);
        if self.spec.sharing {
            merging::began(vm, build::image(&self.spec));
        }
        build::launch(vm, &self.harts);
    }

    /// Whether its end does not come: a hart that has one of its vCPUs does not give it back, and may be dead.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        /// More than a living hart needs for it.
        const PATIENCE_S: u64 = 1;
        let patience = PATIENCE_S * capabilities().timebase_hz;
        let is_late = || csr::time::read().wrapping_sub(self.stopping_since) > patience;
        let is_owned = || self.life.as_ref().is_some_and(|life| life.has_owned_vcpus());
        self.state == VmState::Stopping && is_owned() && is_late()
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(vm) = self.life.clone() else { return false };
        let Some(ending) = vm.ending() else { return false };
        if self.state != VmState::Stopping {
            self.state = VmState::Stopping;
            self.stopping_since = csr::time::read();
            // Neither merging nor harts know of one that was not launched.
            if self.loading.take().is_none() {
                merging::ended(self.id);
                hart::all().iter().for_each(|hart| mail::send(hart, Message::Release(self.id)));
            }
        }
        if vm.has_owned_vcpus() {
            return false;
        }
        if self.census.is_none() {
            // vCPUs of others go on with requests of disks in common.
            crate::io::disks::let_go();
            vm.platform().settle();
            if vm.memory().tear_down_step() {
                return true;
            }
        }
        let census = self.census.get_or_insert_with(|| VmCensus::new(self.id));
        if census.step(memory::frames(), &memory::DirectMemory, CENSUS_STEP) {
            return true;
        }
        let lost = *census.found();
        self.census = None;
        vm.platform().disconnect();
        self.last = Totals::of(&vm);
        self.life = None;
        self.state = VmState::Stopped;
        // The old life lets go of its disks before the next one asks for them.
        drop(vm);
        self.finish(ending, lost);
        // Somebody may wait for its end, or it begins again.
        true
    }

    fn finish(&mut self, ending: Ending, lost: VmPages) {
        if !lost.is_empty() {
            let pages = lost.private + lost.replicas + lost.shared + lost.monitor + lost.dying;
            log::error!("VM {} lost {pages} pages: {lost:?}", self.spec.name);
            crate::trace::record(Some(self.id), EventKind::PagesLost { pages });
        }
        let reason = match ending {
            Ending::Stop(reason) if reason.is_crash() && self.spec.on_crash == control::OnCrash::Reset => {
                log::warn!("VM {}: {reason}; it boots again", self.spec.name);
                self.begin_again()
            }
            Ending::Stop(reason) => Some(reason),
            Ending::Reset => self.begin_again(),
        };
        if let Some(reason) = reason {
            crate::trace::record(Some(self.id), EventKind::VmStopped { reason: reason.clone() });
            self.reason = Some(reason);
        }
    }

    /// Begins another life; or why there is none.
    fn begin_again(&mut self) -> Option<StopReason> {
        // It keeps its harts: its caches and pages are there.
        let harts = core::mem::take(&mut self.harts);
        if let Some(reason) = self.note_reset() {
            return Some(reason);
        }
        crate::trace::record(Some(self.id), EventKind::VmReset);
        let why = self.begin_life(&harts).err()?;
        log::warn!("VM {} does not start again: {why}", self.spec.name);
        Some(StopReason::OutOfMemory { needed: u64::from(self.spec.memory_mib) << 20 })
    }

    /// Counts a reset; a reason to stop when there were too many in a short time.
    fn note_reset(&mut self) -> Option<StopReason> {
        let now = csr::time::read();
        let window = RESET_WINDOW_S * crate::machine::capabilities().timebase_hz;
        if now.wrapping_sub(self.window_start) > window {
            self.window_start = now;
            self.recent_resets = 0;
        }
        self.resets += 1;
        self.recent_resets += 1;
        (self.recent_resets > RESET_LIMIT).then_some(StopReason::ResetLoop { resets: self.recent_resets })
    }
}
