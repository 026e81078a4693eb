//! virtio-console with several ports: a console, and named byte streams such as the guest agent's.
//!
//! Nothing is buffered here. Output that the host cannot take stays in the guest's ring until
//! [`crate::VirtioMmio::kick`] of [`output_queue`]; input that the guest has no buffer for stays with the caller, and
//! [`ConsoleBackend::input_ready`] says when to try again. Control messages that wait for a buffer are a set of flags
//! per port. So nothing that a guest does can make this device grow.
//!
//! A driver without `MULTIPORT` sees port 0 only, always open.
//!
//! Not offered: the console's size (`F_SIZE`, `RESIZE`): with several ports Linux reads it only from a message whose
//! field order it has differently from the specification.

mod control;
mod metrics;
mod port;
mod spec;
#[cfg(test)]
mod tests;

pub use metrics::ConsoleMetrics;
pub use port::PortConfig;

use alloc::boxed::Box;
use device::{Env, GuestFault};

use self::port::Port;
use crate::error::{DeviceError, ProtocolError};
use crate::model::{Budget, Io, VirtioModel, read_config};
use crate::queue::Chain;
use crate::spec::DeviceId;
use crate::transport::VirtioMmio;

const CONTROL_INPUT: u16 = 2;
const CONTROL_OUTPUT: u16 = 3;
const QUEUE_SIZE: u16 = 128;
/// Ports whose queues fit the transport's 64.
const MAX_PORTS: usize = 31;
/// Bytes handed to the host at a time.
const STEP: usize = 512;
/// Bytes of a port that a call moves: some hundred microseconds where memory is slow.
const BUDGET_BYTES: u64 = 2 << 10;
const BUDGET: Budget = Budget::new(32, BUDGET_BYTES);

/// The queue by which `port` receives from the host.
#[must_use]
pub const fn input_queue(port: u32) -> u16 {
    if port == 0 { 0 } else { port.saturating_mul(2).saturating_add(2) as u16 }
}

/// The queue by which `port` sends to the host.
#[must_use]
pub const fn output_queue(port: u32) -> u16 {
    input_queue(port) | 1
}

/// The port whose queue `index` is; not for the control queues. 0 and 1 are port 0's, 4 and 5 port 1's, and so on.
const fn port_of(index: u16) -> u32 {
    if index < CONTROL_INPUT { 0 } else { index as u32 / 2 - 1 }
}

/// The host's ends of the ports. Called with the device's lock held; must not call back into the device.
pub trait ConsoleBackend: Send {
    /// The guest sends `data`. Returns how many bytes are taken; the rest comes again after a `kick` of
    /// [`output_queue`].
    fn output(&mut self, port: u32, data: &[u8]) -> usize;

    /// The guest has buffers for a port whose input was refused.
    fn input_ready(&mut self, _port: u32) {}

    /// Something in the guest has opened or closed the port.
    fn port_opened(&mut self, _port: u32, _is_open: bool) {}
}

/// The console device model.
pub struct Console<B> {
    backend: B,
    ports: Box<[Port]>,
    is_multiport: bool,
    chain: Chain,
    metrics: ConsoleMetrics,
}

impl<B: ConsoleBackend> Console<B> {
    /// A console with these ports, numbered from 0; those beyond the 31st are left out. Port 0 should be a console,
    /// as drivers without `MULTIPORT` use it as one.
    #[must_use]
    pub fn new(backend: B, ports: &[PortConfig<'_>]) -> Self {
        let ports = ports.iter().take(MAX_PORTS).map(Port::new).collect();
        Self { backend, ports, is_multiport: false, chain: Chain::new(), metrics: ConsoleMetrics::default() }
    }

    /// The host's ends.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// The host's ends.
    pub const fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// What the device has done.
    #[must_use]
    pub const fn metrics(&self) -> &ConsoleMetrics {
        &self.metrics
    }

    /// Whether something in the guest listens on `port`; `false` if there is no such port.
    #[must_use]
    pub fn is_guest_open(&self, port: u32) -> bool {
        self.ports.get(port as usize).is_some_and(|port| port.is_guest_open)
    }

    fn set_guest_open(&mut self, id: u32, is_open: bool) {
        let Some(port) = self.ports.get_mut(id as usize) else { return };
        if port.is_guest_open == is_open {
            return;
        }
        port.is_guest_open = is_open;
        let wants_input = is_open && core::mem::take(&mut port.wants_input);
        self.backend.port_opened(id, is_open);
        if wants_input {
            self.backend.input_ready(id);
        }
    }

    /// Hands the guest's output on until the host takes no more.
    fn output_all(&mut self, id: u32, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        let index = output_queue(id);
        let (Some(port), Some(queue)) = (self.ports.get_mut(id as usize), io.queue(index)) else { return Ok(()) };
        let mut budget = BUDGET;
        loop {
            let checkpoint = queue.checkpoint();
            if !queue.next_or_arm(memory, &mut self.chain)? {
                return Ok(());
            }
            self.chain.skip_readable(port.output_taken);
            let mut step = [0; STEP];
            while self.chain.readable_len() != 0 {
                if !port.is_host_open {
                    self.metrics.bytes_discarded += u64::from(self.chain.readable_len());
                    break;
                }
                let count = self.chain.read_some(memory, &mut step)?;
                let taken = self.backend.output(id, step.get(..count).unwrap_or(&[])).min(count);
                port.output_taken += taken as u32;
                self.metrics.bytes_out += taken as u64;
                if taken < count {
                    queue.rewind(checkpoint);
                    return Ok(());
                }
                // One chain may hold far more than a call may move.
                if budget.spend(count as u64) && self.chain.readable_len() != 0 {
                    queue.rewind(checkpoint);
                    io.defer(index);
                    return Ok(());
                }
            }
            port.output_taken = 0;
            queue.push(memory, self.chain.head(), 0)?;
            if budget.charge(&self.chain, 1) {
                io.defer(index);
                return Ok(());
            }
        }
    }

    /// Puts `data` into the guest's buffers of a port and says how much found room.
    fn input_some(&mut self, id: u32, data: &[u8], io: &mut Io<'_>) -> Result<usize, DeviceError> {
        let memory = io.memory();
        let (Some(port), Some(queue)) = (self.ports.get_mut(id as usize), io.queue(input_queue(id))) else {
            return Ok(0);
        };
        let mut done = 0;
        while port.is_guest_open && done < data.len() {
            if !queue.next_or_arm(memory, &mut self.chain)? {
                break;
            }
            if self.chain.writable_len() == 0 {
                return Err(ProtocolError::NoRoomForAnswer.into());
            }
            done += self.chain.write_some(memory, data.get(done..).unwrap_or(&[]))?;
            queue.push(memory, self.chain.head(), self.chain.written())?;
        }
        self.metrics.bytes_in += done as u64;
        Ok(done)
    }
}

impl<B: ConsoleBackend> VirtioModel for Console<B> {
    fn name(&self) -> &'static str {
        "virtio-console"
    }

    fn device_id(&self) -> DeviceId {
        DeviceId::Console
    }

    fn features(&self) -> u64 {
        spec::F_MULTIPORT | spec::F_EMERG_WRITE
    }

    fn queue_count(&self) -> u16 {
        // Two for each port and two for control.
        2 + 2 * self.ports.len().max(1) as u16
    }

    fn queue_max_size(&self, _index: u16) -> u16 {
        QUEUE_SIZE
    }

    fn config_read(&self, offset: u64, buf: &mut [u8]) {
        let mut config = [0; spec::CFG_BYTES];
        if let Some(field) = config.get_mut(spec::CFG_MAX_PORTS..spec::CFG_MAX_PORTS + 4) {
            field.copy_from_slice(&(self.ports.len() as u32).to_le_bytes());
        }
        read_config(&config, offset, buf);
    }

    fn config_write(&mut self, offset: u64, data: &[u8]) {
        // Emergency write: one character for a guest that cannot set up its queues. Lost if the host has no room.
        if offset == spec::CFG_EMERG_WRITE
            && let Some(&character) = data.first()
        {
            self.metrics.bytes_out += self.backend.output(0, &[character]) as u64;
        }
    }

    fn activate(&mut self, features: u64) {
        self.is_multiport = features & spec::F_MULTIPORT != 0;
        if !self.is_multiport {
            self.set_guest_open(0, true);
        }
    }

    fn notify(&mut self, index: u16, io: &mut Io<'_>) -> Result<(), DeviceError> {
        match index {
            CONTROL_INPUT => return self.send_control(io),
            CONTROL_OUTPUT => return self.control_all(io),
            _ => {}
        }
        let id = port_of(index);
        if index % 2 == 1 {
            return self.output_all(id, io);
        }
        if let Some(port) = self.ports.get_mut(id as usize)
            && port.is_guest_open
            && core::mem::take(&mut port.wants_input)
        {
            self.backend.input_ready(id);
        }
        Ok(())
    }

    fn queue_stopped(&mut self, index: u16) {
        if index != CONTROL_OUTPUT
            && index % 2 == 1
            && let Some(port) = self.ports.get_mut(port_of(index) as usize)
        {
            port.output_taken = 0;
        }
    }

    fn reset(&mut self) {
        for id in 0..self.ports.len() as u32 {
            self.set_guest_open(id, false);
        }
        self.ports.iter_mut().for_each(Port::reset);
        self.is_multiport = false;
    }
}

impl<B: ConsoleBackend> VirtioMmio<Console<B>> {
    /// Gives `data` to the guest's `port` and says how many bytes it took. When it takes fewer,
    /// [`ConsoleBackend::input_ready`] says when to try again with the rest.
    ///
    /// # Errors
    /// [`GuestFault`] for a malformed ring.
    pub fn input(&mut self, port: u32, data: &[u8], env: &dyn Env) -> Result<usize, GuestFault> {
        let taken = self.with_model(env, |console, io| console.input_some(port, data, io))?.unwrap_or(0);
        if let Some(port) = self.model_mut().ports.get_mut(port as usize) {
            port.wants_input |= taken < data.len();
        }
        Ok(taken)
    }

    /// The host opens or closes its end of `port`. Output to a closed end is discarded.
    ///
    /// # Errors
    /// [`GuestFault`] for a malformed ring.
    pub fn set_host_open(&mut self, port: u32, is_open: bool, env: &dyn Env) -> Result<(), GuestFault> {
        if let Some(port) = self.model_mut().ports.get_mut(port as usize) {
            port.set_host_open(is_open);
        }
        self.with_model(env, Console::send_control)?;
        Ok(())
    }
}
