//! The VMs of this machine, running or not, and their lives: created, started, ended, started again, destroyed.
//!
//! Served by the control hart in steps; other harts only ask ([`Vm::request_stop`] and friends). One lock; it is
//! never held while waiting for another hart.

mod record;

pub use record::{Record, Totals};

use super::{balance, build, cells, promises};
use crate::{hart::PreemptionPoint, machine::cell};
use addr::{VcpuIndex, VmId};
use alloc::vec::Vec;
use control::{ControlError, EventKind, ExitRecord, Name, StopReason, VmSpec, VmState};
use core::ops::RangeInclusive;
use spin::{Mutex, MutexGuard};

/// All VMs.
#[derive(Debug, Default)]
pub struct Registry {
    records: Vec<Record>,
    next_id: u16,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { records: Vec::new(), next_id: 1 });

/// The registry, locked.
pub fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock()
}

/// The registry, if nobody else is at it.
pub fn try_lock() -> Option<MutexGuard<'static, Registry>> {
    REGISTRY.try_lock()
}

impl Registry {
    /// All VMs by age.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    /// The VM called `name`.
    ///
    /// # Errors
    /// [`ControlError::UnknownVm`].
    pub fn find(&mut self, name: &Name) -> Result<&mut Record, ControlError> {
        let found = self.records.iter_mut().find(|record| record.spec.name == *name);
        found.ok_or_else(|| ControlError::UnknownVm { name: name.clone() })
    }

    /// Shows the latest exits of a vCPU, up to `most`, the oldest first; none if it is not there. Takes no memory.
    pub fn show_exits(&self, vm: VmId, vcpu: VcpuIndex, most: u64, each: impl FnMut(ExitRecord)) {
        let record = self.records.iter().find(|record| record.id == vm);
        if let Some(vcpu) = record.and_then(|record| record.vcpus.get(usize::from(vcpu.0))) {
            vcpu.trace.latest(most, each);
        }
    }

    /// Adds a stopped VM.
    ///
    /// # Errors
    /// A wrong description, a name in use, or what the description names does not exist.
    pub fn create(&mut self, spec: VmSpec) -> Result<VmId, ControlError> {
        spec.validate()?;
        if self.records.len() >= control::MAX_VMS {
            let value = self.records.len() as u64 + 1;
            return Err(ControlError::TooLarge { what: "number of VMs".into(), value, max: control::MAX_VMS as u64 });
        }
        if self.records.iter().any(|record| record.spec.name == spec.name) {
            return Err(ControlError::VmExists { name: spec.name });
        }
        if usize::from(spec.cell) != cell::index() {
            let what = "a VM of another cell: it has to be in the machine file".into();
            return Err(ControlError::Unsupported { what });
        }
        spec.validate_devices(cells::leader().index() as u8)?;
        build::check(&spec)?;
        promises::check(self, &spec)?;
        let id = self.take_id();
        let kind = EventKind::VmCreated { vcpus: spec.vcpus, memory_mib: spec.memory_mib };
        self.records.push(Record::new(id, spec));
        crate::trace::record(Some(id), kind);
        Ok(id)
    }

    /// Starts a stopped VM. It is loaded in later steps: [`Record::start_outcome`] says what came of it.
    ///
    /// # Errors
    /// It is not stopped, or the machine lacks what it needs.
    pub fn start(&mut self, name: &Name) -> Result<(), ControlError> {
        let record = self.find(name)?;
        record.need(VmState::Stopped)?;
        record.resets = 0;
        let (id, spec) = (record.id, record.spec.clone());
        promises::admit(self, &spec)?;
        let harts = balance::place(self, &spec);
        self.find_id(id).map_or(Ok(()), |record| record.begin_life(&harts))
    }

    /// An identity that no VM has; those of VMs long gone come again after all others.
    fn take_id(&mut self) -> VmId {
        let own = identities();
        // Ends within as many rounds as there are VMs, which are fewer than identities.
        loop {
            let id = VmId(self.next_id.max(*own.start()));
            self.next_id = if id.0 >= *own.end() { *own.start() } else { id.0 + 1 };
            if self.records.iter().all(|record| record.id != id) {
                return id;
            }
        }
    }

    fn find_id(&mut self, id: VmId) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.id == id)
    }

    /// Removes a stopped VM.
    ///
    /// # Errors
    /// It is unknown or not stopped.
    pub fn destroy(&mut self, name: &Name) -> Result<(), ControlError> {
        let record = self.find(name)?;
        record.need(VmState::Stopped)?;
        let id = record.id;
        self.records.retain(|record| record.id != id);
        crate::trace::record(Some(id), EventKind::VmDestroyed);
        Ok(())
    }

    /// One bounded step of work: VMs that begin are loaded and launched; those that end lose their vCPUs, then their memory,
    /// then stop or start again. `true` while there is more to do at once.
    pub fn step(&mut self, point: &mut PreemptionPoint<'_>) -> bool {
        let mut is_busy = false;
        for record in &mut self.records {
            if record.step() {
                is_busy = true;
                point.pause();
            }
        }
        // One VM is loaded at a time: the step would be as long as there are VMs else.
        is_busy | self.records.iter_mut().find_map(|record| record.load(point)).is_some()
    }

    /// Ends every VM: the machine shuts down.
    pub fn stop_all(&self) {
        for life in self.records.iter().filter_map(|record| record.life.as_ref()) {
            life.request_stop(StopReason::MachineShutdown);
        }
    }

    /// Whether every VM is stopped.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.records.iter().all(|record| record.state == VmState::Stopped)
    }
}

/// The identities of this cell's VMs: no other cell gives them to its own.
fn identities() -> RangeInclusive<u16> {
    if cell::is_alone() {
        return 1..=u16::MAX - 1;
    }
    let (cell, each) = (cell::index() as u16, u16::MAX / control::MAX_CELLS as u16);
    cell * each + 1..=(cell + 1) * each
}
