//! The control port: port 0 of a virtio console, a byte stream to whoever started the machine.
//!
//! Without the multi-port feature a console has just this port, and it is open as soon as the driver is ready. What is
//! written while nobody is connected at the other end is lost; the protocol above begins with a greeting for that.

use machine_tree::InterruptSource;
use virtio_drivers::transport::{DeviceType, SomeTransport, Transport};

use crate::{
    Found, Place,
    device::Device,
    dma::DmaArea,
    error::{DeviceFault, IoError},
    platform::Platform,
    ring::{Alert, Piece, Ring},
};

const QUEUE_RECEIVE: u16 = 0;
const QUEUE_TRANSMIT: u16 = 1;
/// Buffers each way; also the bound on what is under way.
const BUFFERS: usize = 16;
const BUFFER_BYTES: usize = 4096;

/// A byte stream in both directions, each with a bounded buffer. Neither direction ever waits.
pub struct ControlPort<P: Platform, T: Transport = SomeTransport<'static>> {
    device: Device<T>,
    receive: Ring<P>,
    transmit: Ring<P>,
    receive_area: DmaArea<P>,
    transmit_area: DmaArea<P>,
    /// The receive buffer that is being read: number, next byte, end.
    reading: Option<(u16, usize, usize)>,
    /// Transmit buffers that are not with the device: a stack of their numbers.
    idle: [u16; BUFFERS],
    idle_count: usize,
    place: Place,
    interrupt: Option<InterruptSource>,
    failed: Option<DeviceFault>,
}

impl<P: Platform, T: Transport> ControlPort<P, T> {
    /// Takes a console into use.
    pub fn new(found: Found<T>) -> Result<Self, IoError> {
        if found.kind() != Some(DeviceType::Console) {
            return Err(IoError::WrongKind);
        }
        let (transport, place, interrupt) = found.into_parts();
        let mut device = Device::begin(transport, 0)?;
        let (receive, transmit) = (device.queue(QUEUE_RECEIVE)?, device.queue(QUEUE_TRANSMIT)?);
        device.go();
        let mut idle = [0; BUFFERS];
        idle.iter_mut().zip(0..).for_each(|(slot, buffer)| *slot = buffer);
        let idle_count = BUFFERS.min(transmit.size());
        let mut port = Self {
            device,
            receive,
            transmit,
            receive_area: DmaArea::new(BUFFERS * BUFFER_BYTES)?,
            transmit_area: DmaArea::new(BUFFERS * BUFFER_BYTES)?,
            reading: None,
            idle,
            idle_count,
            place,
            interrupt,
            failed: None,
        };
        for buffer in 0..BUFFERS.min(port.receive.size()) {
            port.offer(buffer as u16)?;
        }
        port.device.notify(&mut port.receive);
        Ok(port)
    }

    /// Where it sits.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Its interrupt.
    #[must_use]
    pub const fn interrupt(&self) -> Option<InterruptSource> {
        self.interrupt
    }

    /// Takes the interrupt back: call when it arrives, before reading and writing. True if the device
    /// asked for it.
    pub fn acknowledge(&mut self) -> bool {
        self.device.acknowledge()
    }

    /// Takes what has arrived, as much as fits; 0 if nothing has: the device will interrupt for the next bytes.
    pub fn read(&mut self, target: &mut [u8]) -> Result<usize, IoError> {
        self.check()?;
        let mut done = 0;
        while done < target.len() {
            if self.reading.is_none() {
                let popped = self.receive.pop(Alert::Yes);
                let Some(used) = self.keep_faith(popped)? else { break };
                self.reading = Some((used.cookie, 0, (used.written as usize).min(BUFFER_BYTES)));
            }
            let Some((buffer, next, end)) = self.reading else { break };
            let bytes = (end - next).min(target.len() - done);
            let at = usize::from(buffer) * BUFFER_BYTES + next;
            self.receive_area.read_bytes(at, &mut target[done..done + bytes]);
            done += bytes;
            self.reading = Some((buffer, next + bytes, end));
            if next + bytes == end {
                self.reading = None;
                self.offer(buffer)?;
            }
        }
        self.device.notify(&mut self.receive);
        Ok(done)
    }

    /// Sends from the front of `source` what there is room for, and returns how much; 0 when the other end does not
    /// read: the device will interrupt when there is room again.
    pub fn write(&mut self, source: &[u8]) -> Result<usize, IoError> {
        self.reclaim(Alert::No)?;
        let mut done = 0;
        for chunk in source.chunks(BUFFER_BYTES) {
            if self.idle_count == 0 {
                self.reclaim(Alert::Yes)?;
            }
            let Some(top) = self.idle_count.checked_sub(1) else { break };
            let buffer = self.idle[top];
            let at = usize::from(buffer) * BUFFER_BYTES;
            self.transmit_area.write_bytes(at, chunk);
            let address = self.transmit_area.address(at);
            self.transmit.add([Piece { address, bytes: chunk.len() as u32, is_written: false }].into_iter(), buffer)?;
            self.idle_count = top;
            done += chunk.len();
        }
        self.device.notify(&mut self.transmit);
        Ok(done)
    }

    /// Bytes that [`ControlPort::write`] would take now.
    pub fn room(&mut self) -> Result<usize, IoError> {
        self.reclaim(Alert::No)?;
        Ok(self.idle_count * BUFFER_BYTES)
    }

    fn offer(&mut self, buffer: u16) -> Result<(), IoError> {
        let address = self.receive_area.address(usize::from(buffer) * BUFFER_BYTES);
        self.receive.add([Piece { address, bytes: BUFFER_BYTES as u32, is_written: true }].into_iter(), buffer)
    }

    fn reclaim(&mut self, alert: Alert) -> Result<(), IoError> {
        self.check()?;
        // No more than were sent: the ring refuses an answer to anything else.
        loop {
            let popped = self.transmit.pop(alert);
            let Some(used) = self.keep_faith(popped)? else { return Ok(()) };
            self.idle[self.idle_count] = used.cookie;
            self.idle_count += 1;
        }
    }

    fn check(&self) -> Result<(), IoError> {
        self.failed.map_or(Ok(()), |fault| Err(IoError::DeviceFailed(fault)))
    }

    /// A device that breaks the rules of a queue is reset and not used again.
    fn keep_faith<U>(&mut self, popped: Result<U, DeviceFault>) -> Result<U, IoError> {
        popped.map_err(|fault| {
            self.failed = Some(fault);
            self.device.reset();
            IoError::DeviceFailed(fault)
        })
    }
}
