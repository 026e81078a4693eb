//! The control queues: the driver learns of ports, and says what it does with them.

use super::{CONTROL_INPUT, CONTROL_OUTPUT, Console, ConsoleBackend, spec};
use crate::error::{DeviceError, ProtocolError};
use crate::model::{Budget, Io};

const BUDGET: Budget = Budget::new(32, 1 << 16);

impl<B: ConsoleBackend> Console<B> {
    /// Reads what the driver says and answers as far as it has given buffers.
    pub(super) fn control_all(&mut self, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        if !self.is_multiport {
            return Ok(());
        }
        let Some(queue) = io.queue(CONTROL_OUTPUT) else { return Ok(()) };
        let mut budget = BUDGET;
        while queue.next_or_arm(memory, &mut self.chain)? {
            let mut raw = [0; spec::CONTROL_BYTES];
            self.chain.read_exact(memory, &mut raw)?;
            self.obey(raw);
            queue.push(memory, self.chain.head(), 0)?;
            if budget.charge(&self.chain, spec::CONTROL_BYTES as u64) {
                io.defer(CONTROL_OUTPUT);
                break;
            }
        }
        self.send_control(io)
    }

    /// Sends pending messages as far as the driver has given buffers.
    pub(super) fn send_control(&mut self, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        if !self.is_multiport {
            return Ok(());
        }
        let Some(queue) = io.queue(CONTROL_INPUT) else { return Ok(()) };
        for (id, port) in self.ports.iter_mut().enumerate() {
            while let Some((which, event, value, text)) = port.next_message() {
                if !queue.next_or_arm(memory, &mut self.chain)? {
                    return Ok(());
                }
                if (self.chain.writable_len() as usize) < spec::CONTROL_BYTES + text.len() {
                    return Err(ProtocolError::NoRoomForAnswer.into());
                }
                let head = encode(id as u32, event, value);
                self.chain.write_some(memory, &head)?;
                self.chain.write_some(memory, text)?;
                queue.push(memory, self.chain.head(), self.chain.written())?;
                port.mark_sent(which);
            }
        }
        Ok(())
    }

    fn obey(&mut self, raw: [u8; spec::CONTROL_BYTES]) {
        let (id, event, value) = decode(raw);
        if event == spec::DEVICE_READY {
            // A value of 0 says that the driver cannot go on; there is nothing to be done about it.
            if value == 1 {
                self.ports.iter_mut().for_each(super::port::Port::announce);
            }
            return;
        }
        let Some(port) = self.ports.get_mut(id as usize) else {
            self.metrics.control_refused += 1;
            return;
        };
        match event {
            spec::PORT_READY if value == 1 => port.introduce(),
            // The driver could not take the port: it stays unused.
            spec::PORT_READY => {}
            spec::PORT_OPEN => self.set_guest_open(id, value != 0),
            _ => self.metrics.control_refused += 1,
        }
    }
}

/// A control message without its text.
pub(super) fn encode(id: u32, event: u16, value: u16) -> [u8; spec::CONTROL_BYTES] {
    (u64::from(id) | u64::from(event) << 32 | u64::from(value) << 48).to_le_bytes()
}

/// Port, event, value.
pub(super) fn decode(raw: [u8; spec::CONTROL_BYTES]) -> (u32, u16, u16) {
    let value = u64::from_le_bytes(raw);
    (value as u32, (value >> 32) as u16, (value >> 48) as u16)
}
