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
    was_full: bool,
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

    /// Takes up to `max` bytes; and says whether the guest was told to wait.
    #[must_use]
    pub fn take(&self, port: u32, max: usize) -> (Vec<u8>, bool) {
        let Some(buffer) = self.buffers.get(port as usize) else { return (Vec::new(), false) };
        let mut buffer = buffer.lock();
        let len = buffer.bytes.len().min(max);
        let bytes = buffer.bytes.drain(..len).collect();
        (bytes, core::mem::take(&mut buffer.was_full))
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
        buffer.was_full |= taken < data.len();
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
