//! virtio-mmio, register layout version 2.

mod registers;
mod spec;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use device::{Env, GuestFault, GuestMemory, IrqLine};

use crate::error::{DeviceError, ProtocolError, RingError};
use crate::model::{Io, VirtioModel};
use crate::queue::Queue;
use crate::spec::Status;

/// How the device's wired interrupt behaves; it must agree with the guest's device tree.
///
/// `Edge` sends one edge for every notification, even while an earlier one is not acknowledged: a driver that has read
/// the interrupt status but not yet looked at its rings finds the new buffer there, one that has looked already gets
/// the new edge. So nothing is lost as long as the controller remembers an edge that arrives while the handler runs.
/// APLIC and IMSIC do. A PLIC gateway need not (it forwards nothing between claim and completion), so use `Level`
/// there: the line follows `InterruptStatus != 0`. A reset of the whole VM ([`device::Device::reset`]) cannot reach the
/// line; the monitor resets the controller with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Rising edge.
    Edge,
    /// Active high level.
    Level,
}

/// A virtio device behind a virtio-mmio register file.
///
/// Invariant: the model serves queues only while the driver is live (`DRIVER_OK`) and no reset is needed.
pub struct VirtioMmio<M> {
    model: M,
    line: IrqLine,
    trigger: Trigger,
    queues: Box<[Queue]>,
    status: Status,
    driver_features: u64,
    /// Features that the model and the queues run with: `driver_features` frozen at `FEATURES_OK`.
    features: u64,
    device_features_sel: u32,
    driver_features_sel: u32,
    queue_sel: u32,
    interrupt_status: u32,
    config_generation: u32,
    /// One bit per queue that a spent budget has left unfinished.
    backlog: u64,
    last_error: Option<ProtocolError>,
}

impl<M: VirtioModel> VirtioMmio<M> {
    /// A device at power-on whose interrupt is `line`.
    #[must_use]
    pub fn new(model: M, line: IrqLine, trigger: Trigger) -> Self {
        let count = model.queue_count().min(spec::MAX_QUEUES);
        let queues = (0..count).map(|index| Queue::new(model.queue_max_size(index))).collect();
        Self {
            model,
            line,
            trigger,
            queues,
            status: Status::empty(),
            driver_features: 0,
            features: 0,
            device_features_sel: 0,
            driver_features_sel: 0,
            queue_sel: 0,
            interrupt_status: 0,
            config_generation: 0,
            backlog: 0,
            last_error: None,
        }
    }

    /// The model, for statistics.
    #[must_use]
    pub const fn model(&self) -> &M {
        &self.model
    }

    /// The model, to change what needs no queue. Use [`VirtioMmio::update_config`] where the driver has to be told.
    pub const fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// The device status as the driver sees it.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Why `DEVICE_NEEDS_RESET` is set, for events.
    #[must_use]
    pub const fn last_error(&self) -> Option<ProtocolError> {
        self.last_error
    }

    /// Whether the driver is live: it has set `DRIVER_OK`, and neither side has given the device up since.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.status.contains(Status::DRIVER_OK)
            && !self.status.intersects(Status::DEVICE_NEEDS_RESET.union(Status::FAILED))
    }

    /// Whether a spent budget has left work. Then call [`VirtioMmio::poll`] soon: the driver will not notify again.
    #[must_use]
    pub const fn has_backlog(&self) -> bool {
        self.backlog != 0
    }

    /// Goes on with the work that the last call had to leave.
    ///
    /// # Errors
    /// [`GuestFault`] for a malformed ring.
    pub fn poll(&mut self, env: &dyn Env) -> Result<(), GuestFault> {
        let backlog = core::mem::take(&mut self.backlog);
        if backlog == 0 {
            return Ok(());
        }
        self.serve(backlog, env)
    }

    /// Serves `queue` as if the driver had notified it: for a backend that was busy and has room again. A call moves a bounded piece:
    /// whoever kicks looks whether there [is more](VirtioMmio::has_backlog), and comes again.
    ///
    /// # Errors
    /// [`GuestFault`] for a malformed ring.
    pub fn kick(&mut self, queue: u16, env: &dyn Env) -> Result<(), GuestFault> {
        let queue = 1_u64.checked_shl(u32::from(queue)).unwrap_or(0);
        // What was left of it is a part of this.
        self.backlog &= !queue;
        self.serve(queue, env)
    }

    /// Runs `work` on the model with its queues, then publishes used buffers and interrupts the driver as it wishes.
    /// `None` when no driver is live, or when the model gave up (see [`VirtioMmio::last_error`]).
    ///
    /// # Errors
    /// [`GuestFault`] for a malformed ring.
    pub fn with_model<R>(
        &mut self,
        env: &dyn Env,
        work: impl FnOnce(&mut M, &mut Io<'_>) -> Result<R, DeviceError>,
    ) -> Result<Option<R>, GuestFault> {
        if !self.is_live() {
            return Ok(None);
        }
        let memory = env.memory();
        let mut io = Io {
            env,
            memory,
            queues: &mut self.queues,
            features: self.features,
            backlog: &mut self.backlog,
            config_changed: false,
        };
        let result = work(&mut self.model, &mut io);
        let config_changed = io.config_changed;
        let mut cause = if config_changed { self.bump_config() } else { 0 };
        let wants_interrupt = match self.publish_all(memory) {
            Ok(wants_interrupt) => wants_interrupt,
            Err(error) => return Err(self.fault(error)),
        };
        if wants_interrupt {
            cause |= spec::ISR_USED_BUFFER;
        }
        let answer = match result {
            Ok(answer) => Some(answer),
            Err(DeviceError::Ring(error)) => return Err(self.fault(error)),
            Err(DeviceError::Protocol(error)) => {
                cause |= self.ask_for_reset(error);
                None
            }
        };
        self.interrupt(cause, env);
        Ok(answer)
    }

    /// Changes the model's configuration and tells a live driver.
    pub fn update_config(&mut self, env: &dyn Env, change: impl FnOnce(&mut M)) {
        change(&mut self.model);
        let cause = self.bump_config();
        if self.is_live() {
            self.interrupt(cause, env);
        }
    }

    /// Publishes what this call has used; true when the driver wants an interrupt for any of it.
    fn publish_all(&mut self, memory: &dyn GuestMemory) -> Result<bool, RingError> {
        let mut wants_interrupt = false;
        for queue in &mut self.queues {
            if queue.is_ready() {
                wants_interrupt |= queue.publish(memory)?;
            }
        }
        Ok(wants_interrupt)
    }

    /// Notifies the model of every ready queue in the mask.
    fn serve(&mut self, mask: u64, env: &dyn Env) -> Result<(), GuestFault> {
        self.with_model(env, |model, io| {
            let mut left = mask;
            while left != 0 {
                let index = left.trailing_zeros() as u16;
                left &= left - 1;
                if io.queue(index).is_some() {
                    model.notify(index, io)?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// `QueueNotify`.
    fn notify(&mut self, queue: u64, env: &dyn Env) -> Result<(), GuestFault> {
        let Some(index) = u16::try_from(queue).ok().filter(|&index| usize::from(index) < self.queues.len()) else {
            return Ok(());
        };
        self.with_model(env, |model, io| if io.queue(index).is_some() { model.notify(index, io) } else { Ok(()) })?;
        Ok(())
    }

    /// A malformed ring: nothing more is served, and the monitor stops the guest.
    fn fault(&mut self, error: RingError) -> GuestFault {
        self.status |= Status::DEVICE_NEEDS_RESET;
        self.backlog = 0;
        error.into_fault(self.model.name())
    }

    /// Sets `DEVICE_NEEDS_RESET`; returns the interrupt cause.
    fn ask_for_reset(&mut self, error: ProtocolError) -> u32 {
        self.status |= Status::DEVICE_NEEDS_RESET;
        self.last_error = Some(error);
        self.backlog = 0;
        spec::ISR_CONFIG
    }

    /// Starts a new configuration generation; returns the interrupt cause.
    const fn bump_config(&mut self) -> u32 {
        self.config_generation = self.config_generation.wrapping_add(1);
        spec::ISR_CONFIG
    }

    /// Interrupts the driver for `cause`, if any.
    fn interrupt(&mut self, cause: u32, env: &dyn Env) {
        if cause == 0 {
            return;
        }
        self.interrupt_status |= cause;
        match self.trigger {
            Trigger::Edge => env.pulse_irq(self.line),
            Trigger::Level => env.set_irq(self.line, true),
        }
    }

    /// `InterruptACK`.
    fn acknowledge(&mut self, cause: u32, env: &dyn Env) {
        self.interrupt_status &= !cause;
        self.release_line(env);
    }

    /// Lowers a level-triggered line when nothing is pending.
    fn release_line(&self, env: &dyn Env) {
        if self.trigger == Trigger::Level && self.interrupt_status == 0 {
            env.set_irq(self.line, false);
        }
    }

    /// Back to power-on.
    fn reset_device(&mut self) {
        self.model.reset();
        for queue in &mut self.queues {
            queue.reset();
        }
        self.status = Status::empty();
        self.driver_features = 0;
        self.features = 0;
        self.device_features_sel = 0;
        self.driver_features_sel = 0;
        self.queue_sel = 0;
        self.interrupt_status = 0;
        self.backlog = 0;
        self.last_error = None;
    }
}
