//! The machine's network interfaces (virtio-net), without offloads: whole frames, checksummed by their senders.

use machine_tree::InterruptSource;
use virtio_drivers::transport::{DeviceType, SomeTransport, Transport};

use crate::{
    Found, Place,
    device::{Common, Device},
    dma::DmaArea,
    error::{DeviceFault, IoError},
    platform::Platform,
    ring::{Alert, Piece, Ring},
};

/// Longest frame: Ethernet header, one VLAN tag, 1500 bytes.
pub const MAX_FRAME_BYTES: usize = 1518;

const QUEUE_RECEIVE: u16 = 0;
const QUEUE_TRANSMIT: u16 = 1;
const FEATURE_MAC: u64 = 1 << 5;
/// Buffers each way.
const BUFFERS: usize = 64;
/// Bytes of a buffer: header and frame.
const BUFFER_BYTES: usize = 2048;

/// A network interface of the machine.
pub struct MachineNic<P: Platform, T: Transport = SomeTransport<'static>> {
    device: Device<T>,
    receive: Ring<P>,
    transmit: Ring<P>,
    receive_area: DmaArea<P>,
    transmit_area: DmaArea<P>,
    /// Transmit buffers that are not with the device: a stack of their numbers.
    idle: [u16; BUFFERS],
    idle_count: usize,
    /// Bytes in front of every frame.
    header_bytes: usize,
    mac: Option<[u8; 6]>,
    place: Place,
    interrupt: Option<InterruptSource>,
    runts: u64,
    failed: Option<DeviceFault>,
}

impl<P: Platform, T: Transport> MachineNic<P, T> {
    /// Takes an interface into use.
    pub fn new(found: Found<T>) -> Result<Self, IoError> {
        if found.kind() != Some(DeviceType::Network) {
            return Err(IoError::WrongKind);
        }
        let (transport, place, interrupt) = found.into_parts();
        let mut device = Device::begin(transport, FEATURE_MAC)?;
        let (receive, transmit) = (device.queue(QUEUE_RECEIVE)?, device.queue(QUEUE_TRANSMIT)?);
        let mac = match device.has(FEATURE_MAC) {
            true => Some(read_mac(&device)?),
            false => None,
        };
        // Before version 1 the header had no buffer count unless buffers were merged.
        let header_bytes = if device.has(Common::VERSION_1.bits()) { 12 } else { 10 };
        device.go();
        let mut idle = [0; BUFFERS];
        idle.iter_mut().zip(0..).for_each(|(slot, buffer)| *slot = buffer);
        let idle_count = BUFFERS.min(transmit.size());
        let mut nic = Self {
            device,
            receive,
            transmit,
            receive_area: DmaArea::new(BUFFERS * BUFFER_BYTES)?,
            transmit_area: DmaArea::new(BUFFERS * BUFFER_BYTES)?,
            idle,
            idle_count,
            header_bytes,
            mac,
            place,
            interrupt,
            runts: 0,
            failed: None,
        };
        for buffer in 0..BUFFERS.min(nic.receive.size()) {
            nic.offer(buffer as u16)?;
        }
        nic.device.notify(&mut nic.receive);
        Ok(nic)
    }

    /// Its address, if it has one of its own.
    #[must_use]
    pub const fn mac(&self) -> Option<[u8; 6]> {
        self.mac
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

    /// Frames that the device handed over shorter than their header, and that were dropped.
    #[must_use]
    pub const fn runts(&self) -> u64 {
        self.runts
    }

    /// Takes the interrupt back: call when it arrives, before receiving. True if the device
    /// asked for it.
    pub fn acknowledge(&mut self) -> bool {
        self.device.acknowledge()
    }

    /// Sends a frame; it is copied, the caller may reuse its memory. [`IoError::QueueFull`] while the device is busy
    /// with all buffers.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), IoError> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(IoError::FrameTooLong { bytes: frame.len(), limit: MAX_FRAME_BYTES });
        }
        self.reclaim(Alert::No)?;
        if self.idle_count == 0 {
            self.reclaim(Alert::Yes)?;
        }
        let top = self.idle_count.checked_sub(1).ok_or(IoError::QueueFull)?;
        let buffer = self.idle[top];
        let at = usize::from(buffer) * BUFFER_BYTES;
        // A header of zeros: no offload. Earlier frames never touched it.
        self.transmit_area.write_bytes(at + self.header_bytes, frame);
        let bytes = (self.header_bytes + frame.len()) as u32;
        let piece = Piece { address: self.transmit_area.address(at), bytes, is_written: false };
        self.transmit.add([piece].into_iter(), buffer)?;
        self.idle_count = top;
        self.device.notify(&mut self.transmit);
        Ok(())
    }

    /// Copies the next frame into `frame` and returns its length; `None` if there is none: the device will interrupt
    /// for the next one. A frame longer than `frame` is cut; of one that the device handed over without a byte, a runt, nothing is
    /// left: the length is 0, so that a device which hands over nothing else cannot keep the caller.
    pub fn receive(&mut self, frame: &mut [u8]) -> Result<Option<usize>, IoError> {
        self.check()?;
        let popped = self.receive.pop(Alert::Yes);
        let Some(used) = self.keep_faith(popped)? else {
            self.device.notify(&mut self.receive);
            return Ok(None);
        };
        let written = (used.written as usize).min(BUFFER_BYTES);
        let bytes = written.saturating_sub(self.header_bytes).min(frame.len());
        if bytes == 0 {
            self.runts += 1;
        } else {
            let at = usize::from(used.cookie) * BUFFER_BYTES + self.header_bytes;
            self.receive_area.read_bytes(at, &mut frame[..bytes]);
        }
        self.offer(used.cookie)?;
        Ok(Some(bytes))
    }

    /// Gives a receive buffer to the device. It hears of it when it has used up what it has, or the caller has
    /// received all there is.
    fn offer(&mut self, buffer: u16) -> Result<(), IoError> {
        let address = self.receive_area.address(usize::from(buffer) * BUFFER_BYTES);
        self.receive.add([Piece { address, bytes: BUFFER_BYTES as u32, is_written: true }].into_iter(), buffer)
    }

    /// Takes back transmit buffers that the device is done with. Only a sender that found none waits for more, so that
    /// not every frame costs an interrupt.
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

fn read_mac<T: Transport>(device: &Device<T>) -> Result<[u8; 6], IoError> {
    let mut mac = [0; 6];
    for (offset, byte) in mac.iter_mut().enumerate() {
        *byte = device.config_u8(offset)?;
    }
    Ok(mac)
}
