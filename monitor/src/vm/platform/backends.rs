//! The host's ends of the virtio devices.

use crate::vm::Vm;
use addr::GuestPhysAddr;
use alloc::{
    collections::VecDeque,
    sync::{Arc, Weak},
    vec::Vec,
};
use control::Label;
use spin::Mutex;
use virtio::{
    balloon::{BalloonBackend, Release},
    console::ConsoleBackend,
};

/// Bytes of a port that wait for the client at most.
const PORT_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
struct PortBuffer {
    bytes: VecDeque<u8>,
    /// The guest has more to send, which found no room or was more than one call moves.
    has_more: bool,
}

impl PortBuffer {
    fn take(&mut self, max: usize) -> Vec<u8> {
        let len = self.bytes.len().min(max);
        self.bytes.drain(..len).collect()
    }
}

/// The named ports of a VM: what the guest sent and nobody has read yet. Number 0 is the console.
#[derive(Clone, Debug, Default)]
pub struct HostPorts {
    names: Vec<Label>,
    buffers: Arc<[Mutex<PortBuffer>]>,
}

impl HostPorts {
    /// For these named ports.
    #[must_use]
    pub fn new(names: &[Label]) -> Self {
        let buffers = (0..=names.len()).map(|_| Mutex::new(PortBuffer::default())).collect();
        // Bounded: MAX_PORTS.
        Self { names: names.to_vec(), buffers }
    }

    /// The number of a named port.
    #[must_use]
    pub fn number(&self, name: &Label) -> Option<u32> {
        self.names.iter().position(|known| known == name).map(|at| at as u32 + 1)
    }

    /// Takes up to `max` bytes; and says whether the guest has more, for which its device has to be asked.
    #[must_use]
    pub fn take(&self, port: u32, max: usize) -> (Vec<u8>, bool) {
        let Some(buffer) = self.buffers.get(port as usize) else { return (Vec::new(), false) };
        let mut buffer = buffer.lock();
        (buffer.take(max), core::mem::take(&mut buffer.has_more))
    }

    /// Takes up to `max` bytes.
    #[must_use]
    pub fn take_bytes(&self, port: u32, max: usize) -> Vec<u8> {
        self.buffers.get(port as usize).map_or_else(Vec::new, |buffer| buffer.lock().take(max))
    }

    /// The guest has more than its device has moved now: whoever takes next asks again.
    pub fn note_more(&self, port: u32) {
        if let Some(buffer) = self.buffers.get(port as usize) {
            buffer.lock().has_more = true;
        }
    }
}

/// The console device's host side.
pub struct ConsolePort {
    /// Where output goes.
    pub ports: HostPorts,
    /// The VM, for its console.
    pub vm: Weak<Vm>,
}

impl ConsoleBackend for ConsolePort {
    fn output(&mut self, port: u32, data: &[u8]) -> usize {
        if port == 0 {
            if let Some(vm) = self.vm.upgrade() {
                vm.console_output(data);
            }
            return data.len();
        }
        let Some(buffer) = self.ports.buffers.get(port as usize) else { return data.len() };
        let mut buffer = buffer.lock();
        let taken = data.len().min(PORT_BYTES - buffer.bytes.len().min(PORT_BYTES));
        buffer.bytes.extend(&data[..taken]);
        buffer.has_more |= taken < data.len();
        taken
    }
}

/// The balloon's host side: the pages go back to the machine before the guest hears of it.
pub struct BalloonPort {
    /// The VM.
    pub vm: Weak<Vm>,
}

impl BalloonBackend for BalloonPort {
    fn release(&mut self, start: GuestPhysAddr, len: u64) -> Release {
        let Some(vm) = self.vm.upgrade() else { return Release { bytes: len, pages: 0 } };
        let given = vm.memory().give_back(start, len);
        Release { bytes: given.bytes, pages: given.looked_at }
    }
}
