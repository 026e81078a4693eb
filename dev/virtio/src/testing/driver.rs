//! A small, correct split-ring driver.

use addr::GuestPhysAddr;
use alloc::vec::Vec;

use device::{Device, GuestFault, GuestMemory, Width};

use super::{RAM_BASE, TestEnv};

const QUEUE_STRIDE: u64 = 0x4000;
/// Ring areas come first, then the bump allocator.
const ARENA: u64 = RAM_BASE + 0x4_0000;

/// One buffer of a request.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Where it is.
    pub addr: GuestPhysAddr,
    /// Its length.
    pub len: u32,
    /// Whether the device writes it.
    pub is_writable: bool,
}

/// One entry of the used ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Head of the chain.
    pub head: u16,
    /// Bytes that the device claims to have written.
    pub len: u32,
}

#[derive(Debug)]
struct DriverQueue {
    size: u16,
    free: Vec<u16>,
    chains: Vec<(u16, Vec<u16>)>,
    avail_idx: u16,
    used_seen: u16,
}

/// A correct driver for any device in this crate.
pub struct Driver<'a> {
    /// The guest it runs in.
    pub env: &'a TestEnv,
    queues: Vec<DriverQueue>,
    arena: u64,
}

impl<'a> Driver<'a> {
    /// A driver in the guest of `env`.
    #[must_use]
    pub fn new(env: &'a TestEnv) -> Self {
        Self { env, queues: Vec::new(), arena: ARENA }
    }

    /// Resets the device, accepts `wanted & offered | VERSION_1`, sets up every queue and goes live.
    ///
    /// # Panics
    /// When the device does not do what it must.
    pub fn start(&mut self, device: &mut dyn Device, wanted: u64) -> u64 {
        let features = self.negotiate(device, wanted);
        self.queues.clear();
        for index in 0.. {
            self.put(device, 0x30, index);
            let size = self.get(device, 0x34) as u16;
            if size == 0 {
                break;
            }
            self.set_up_queue(device, index as u16, size);
        }
        self.put(device, 0x70, 15);
        assert_eq!(self.get(device, 0x70), 15, "the device is live");
        features
    }

    /// Everything up to `FEATURES_OK`.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn negotiate(&mut self, device: &mut dyn Device, wanted: u64) -> u64 {
        self.put(device, 0x70, 0);
        assert_eq!(self.get(device, 0x00), 0x7472_6976);
        assert_eq!(self.get(device, 0x04), 2);
        self.put(device, 0x70, 3);
        self.put(device, 0x14, 0);
        let low = u64::from(self.get(device, 0x10));
        self.put(device, 0x14, 1);
        let offered = u64::from(self.get(device, 0x10)) << 32 | low;
        let features = offered & wanted | 1 << 32;
        self.put(device, 0x24, 0);
        self.put(device, 0x20, features as u32);
        self.put(device, 0x24, 1);
        self.put(device, 0x20, (features >> 32) as u32);
        self.put(device, 0x70, 11);
        assert_eq!(self.get(device, 0x70), 11, "the device accepts the features");
        features
    }

    fn set_up_queue(&mut self, device: &mut dyn Device, index: u16, size: u16) {
        let base = RAM_BASE + QUEUE_STRIDE * u64::from(index);
        self.env.memory.write(GuestPhysAddr::new(base), &[0; QUEUE_STRIDE as usize]).expect("rings lie in RAM");
        self.put(device, 0x30, u32::from(index));
        self.put(device, 0x38, u32::from(size));
        for (low, addr) in [(0x80, self.desc(index)), (0x90, self.avail(index)), (0xa0, self.used_ring(index))] {
            self.put(device, low, addr.raw() as u32);
            self.put(device, low + 4, (addr.raw() >> 32) as u32);
        }
        self.put(device, 0x44, 1);
        assert_eq!(self.get(device, 0x44), 1, "queue {index} is ready");
        self.queues.push(DriverQueue {
            size,
            free: (0..size).rev().collect(),
            chains: Vec::new(),
            avail_idx: 0,
            used_seen: 0,
        });
    }

    /// Number of queues set up.
    #[must_use]
    pub fn queue_count(&self) -> u16 {
        self.queues.len() as u16
    }

    /// Size of queue `index`.
    #[must_use]
    pub fn queue_size(&self, index: u16) -> u16 {
        self.queues[usize::from(index)].size
    }

    /// The descriptor table of queue `index`.
    #[must_use]
    pub const fn desc(&self, index: u16) -> GuestPhysAddr {
        GuestPhysAddr::new(RAM_BASE + QUEUE_STRIDE * index as u64)
    }

    /// The available ring of queue `index`.
    #[must_use]
    pub const fn avail(&self, index: u16) -> GuestPhysAddr {
        GuestPhysAddr::new(RAM_BASE + QUEUE_STRIDE * index as u64 + 0x1000)
    }

    /// The used ring of queue `index`.
    #[must_use]
    pub const fn used_ring(&self, index: u16) -> GuestPhysAddr {
        GuestPhysAddr::new(RAM_BASE + QUEUE_STRIDE * index as u64 + 0x2000)
    }

    /// Fresh memory.
    pub fn alloc(&mut self, len: u32) -> GuestPhysAddr {
        let addr = GuestPhysAddr::new(self.arena);
        self.arena += u64::from(len).next_multiple_of(16);
        addr
    }

    /// A device-readable buffer that holds `data`.
    ///
    /// # Panics
    /// When the test's RAM is used up.
    pub fn readable(&mut self, data: &[u8]) -> Buffer {
        let addr = self.alloc(data.len() as u32);
        self.env.memory.write(addr, data).expect("the arena lies in RAM");
        Buffer { addr, len: data.len() as u32, is_writable: false }
    }

    /// A device-writable buffer.
    pub fn writable(&mut self, len: u32) -> Buffer {
        Buffer { addr: self.alloc(len), len, is_writable: true }
    }

    /// What a buffer holds.
    #[must_use]
    pub fn bytes(&self, buffer: &Buffer) -> Vec<u8> {
        self.env.memory.bytes(buffer.addr, buffer.len as usize)
    }

    /// Makes a chain available (the device is not notified) and returns its head.
    ///
    /// # Panics
    /// When no descriptor is free.
    pub fn add(&mut self, queue: u16, buffers: &[Buffer], is_indirect: bool) -> u16 {
        let count = if is_indirect { 1 } else { buffers.len() };
        let free = &mut self.queues[usize::from(queue)].free;
        let taken: Vec<u16> = (0..count).map(|_| free.pop().expect("a free descriptor")).collect();
        if is_indirect {
            let table = self.alloc(buffers.len() as u32 * 16);
            let next: Vec<u16> = (0..buffers.len() as u16).collect();
            self.write_chain(table, &next, buffers);
            self.write_desc(self.desc(queue), taken[0], table.raw(), buffers.len() as u32 * 16, 4, 0);
        } else {
            self.write_chain(self.desc(queue), &taken, buffers);
        }
        let head = taken[0];
        self.queues[usize::from(queue)].chains.push((head, taken));
        self.offer(queue, head);
        head
    }

    fn write_chain(&self, table: GuestPhysAddr, indices: &[u16], buffers: &[Buffer]) {
        for (position, (&index, buffer)) in indices.iter().zip(buffers).enumerate() {
            let next = indices.get(position + 1);
            let flags = u16::from(next.is_some()) | u16::from(buffer.is_writable) << 1;
            self.write_desc(table, index, buffer.addr.raw(), buffer.len, flags, next.copied().unwrap_or(0));
        }
    }

    /// Writes one descriptor of a table, whatever is in it.
    ///
    /// # Panics
    /// When the table does not lie in RAM.
    pub fn write_desc(&self, table: GuestPhysAddr, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&addr.to_le_bytes());
        raw[8..12].copy_from_slice(&len.to_le_bytes());
        raw[12..14].copy_from_slice(&flags.to_le_bytes());
        raw[14..].copy_from_slice(&next.to_le_bytes());
        let at = GuestPhysAddr::new(table.raw() + 16 * u64::from(index));
        self.env.memory.write(at, &raw).expect("the table lies in RAM");
    }

    /// Puts `head` into the available ring, whatever it is.
    ///
    /// # Panics
    /// Never: the rings lie in RAM.
    pub fn offer(&mut self, queue: u16, head: u16) {
        let avail = self.avail(queue).raw();
        let state = &mut self.queues[usize::from(queue)];
        let slot = u64::from(state.avail_idx % state.size);
        state.avail_idx = state.avail_idx.wrapping_add(1);
        let idx = state.avail_idx;
        self.env.memory.write_u16(GuestPhysAddr::new(avail + 4 + 2 * slot), head).expect("ring");
        self.env.memory.write_u16(GuestPhysAddr::new(avail + 2), idx).expect("ring");
    }

    /// Writes `QueueNotify`.
    ///
    /// # Errors
    /// What the device says.
    pub fn notify(&self, device: &mut dyn Device, queue: u16) -> Result<(), GuestFault> {
        device.write(0x50, Width::Word, u64::from(queue), self.env)
    }

    /// Whether a driver with `EVENT_IDX` would notify for its last addition of `added` chains.
    ///
    /// # Panics
    /// Never: the rings lie in RAM.
    #[must_use]
    pub fn must_notify(&self, queue: u16, added: u16) -> bool {
        let state = &self.queues[usize::from(queue)];
        let at = self.used_ring(queue).raw() + 4 + 8 * u64::from(state.size);
        let event = self.env.memory.read_u16(GuestPhysAddr::new(at)).expect("ring");
        state.avail_idx.wrapping_sub(event).wrapping_sub(1) < added
    }

    /// `used_event`: asks for an interrupt once the device's used index passes `index`.
    ///
    /// # Panics
    /// Never: the rings lie in RAM.
    pub fn set_used_event(&self, queue: u16, index: u16) {
        let at = self.avail(queue).raw() + 4 + 2 * u64::from(self.queue_size(queue));
        self.env.memory.write_u16(GuestPhysAddr::new(at), index).expect("ring");
    }

    /// Takes what is new in the used ring, frees its descriptors and asks for an interrupt at the next one.
    ///
    /// # Panics
    /// When the device names a chain that it does not have.
    pub fn used(&mut self, queue: u16) -> Vec<Used> {
        let ring = self.used_ring(queue).raw();
        let idx = self.env.memory.read_u16(GuestPhysAddr::new(ring + 2)).expect("ring");
        let state = &mut self.queues[usize::from(queue)];
        let mut out = Vec::new();
        while state.used_seen != idx {
            let slot = u64::from(state.used_seen % state.size);
            let raw = self.env.memory.read_u64(GuestPhysAddr::new(ring + 4 + 8 * slot)).expect("ring");
            let entry = Used { head: raw as u16, len: (raw >> 32) as u32 };
            let at = state.chains.iter().position(|(head, _)| *head == entry.head);
            let (_, taken) = state.chains.swap_remove(at.expect("the device gives back a chain it has"));
            state.free.extend(taken);
            state.used_seen = state.used_seen.wrapping_add(1);
            out.push(entry);
        }
        let seen = state.used_seen;
        self.set_used_event(queue, seen);
        out
    }

    /// Reads a register.
    ///
    /// # Panics
    /// When the device faults.
    pub fn get(&self, device: &mut dyn Device, offset: u64) -> u32 {
        device.read(offset, Width::Word, self.env).expect("register reads do not fault") as u32
    }

    /// Writes a register.
    ///
    /// # Panics
    /// When the device faults.
    pub fn put(&self, device: &mut dyn Device, offset: u64, value: u32) {
        device.write(offset, Width::Word, u64::from(value), self.env).expect("a correct driver causes no fault");
    }
}
