//! A driver for virtio-mmio devices: just enough to drive one queue, correctly or not.

use crate::{cpu, probes::wait_for};

/// Device id of the network interface.
pub const NET: u64 = 1;
/// Device id of the block device.
pub const BLOCK: u64 = 2;
/// Device id of the console.
pub const CONSOLE: u64 = 3;
/// Device id of the entropy device.
pub const ENTROPY: u64 = 4;
/// Device id of the balloon.
pub const BALLOON: u64 = 5;

/// Indirect descriptors.
pub const INDIRECT: u64 = 1 << 28;
const VERSION_1: u64 = 1 << 32;
const MAGIC: u64 = 0x7472_6976;
/// First slot and distance of slots on QEMU's `virt` machine.
pub const SLOTS: u64 = 0x1000_1000;
const SLOT_BYTES: u64 = 0x1000;

/// Registers (virtio 1.2, "MMIO Device Register Layout").
pub mod register {
    pub const MAGIC: u64 = 0x00;
    pub const VERSION: u64 = 0x04;
    pub const DEVICE_ID: u64 = 0x08;
    pub const DEVICE_FEATURES: u64 = 0x10;
    pub const DEVICE_FEATURES_SEL: u64 = 0x14;
    pub const DRIVER_FEATURES: u64 = 0x20;
    pub const DRIVER_FEATURES_SEL: u64 = 0x24;
    pub const QUEUE_SEL: u64 = 0x30;
    pub const QUEUE_NUM_MAX: u64 = 0x34;
    pub const QUEUE_NUM: u64 = 0x38;
    pub const QUEUE_READY: u64 = 0x44;
    pub const QUEUE_NOTIFY: u64 = 0x50;
    pub const INTERRUPT_STATUS: u64 = 0x60;
    pub const STATUS: u64 = 0x70;
    pub const QUEUE_DESC: u64 = 0x80;
    pub const QUEUE_DRIVER: u64 = 0x90;
    pub const QUEUE_DEVICE: u64 = 0xa0;
}

const ACKNOWLEDGE_AND_DRIVER: u64 = 1 | 2;
const FEATURES_OK: u64 = 8;
const DRIVER_OK: u64 = 4;

/// A device in one of the slots.
#[derive(Clone, Copy)]
pub struct Device {
    base: u64,
}

impl Device {
    /// The first device with this id.
    pub fn find(id: u64) -> Option<Self> {
        Self::all().find(|device| device.read(register::DEVICE_ID) == id)
    }

    /// The device whose registers begin here.
    pub const fn at(base: u64) -> Self {
        Self { base }
    }

    /// Every slot with a transport in it.
    pub fn all() -> impl Iterator<Item = Self> {
        let slots = (0..8).map(|slot| Self { base: SLOTS + slot * SLOT_BYTES });
        slots.filter(|device| device.read(register::MAGIC) == MAGIC)
    }

    /// A register.
    pub fn read(self, register: u64) -> u64 {
        cpu::load32(self.base + register)
    }

    /// Writes a register.
    pub fn write(self, register: u64, value: u64) {
        cpu::store32(self.base + register, value);
    }

    /// The address of a register.
    pub const fn address(self, register: u64) -> u64 {
        self.base + register
    }

    /// Back to the beginning.
    pub fn reset(self) {
        self.write(register::STATUS, 0);
    }

    /// Resets the device and accepts those of its features that are `wanted`; `None` if it refuses that.
    pub fn negotiate(self, wanted: u64) -> Option<u64> {
        self.reset();
        self.write(register::STATUS, ACKNOWLEDGE_AND_DRIVER);
        let mut offered = 0;
        for half in 0..2 {
            self.write(register::DEVICE_FEATURES_SEL, half);
            offered |= self.read(register::DEVICE_FEATURES) << (32 * half);
        }
        let accepted = offered & (wanted | VERSION_1);
        for half in 0..2 {
            self.write(register::DRIVER_FEATURES_SEL, half);
            self.write(register::DRIVER_FEATURES, accepted >> (32 * half) & 0xffff_ffff);
        }
        self.write(register::STATUS, ACKNOWLEDGE_AND_DRIVER | FEATURES_OK);
        (self.read(register::STATUS) & FEATURES_OK != 0).then_some(accepted)
    }

    /// Tells the device of a queue. Whether it took it.
    pub fn enable(self, index: u32, queue: &mut Queue) -> bool {
        self.write(register::QUEUE_SEL, u64::from(index));
        let max = self.read(register::QUEUE_NUM_MAX);
        if max == 0 {
            return false;
        }
        queue.size = queue.size.min(max as u16);
        self.place(queue.size.into(), queue.descriptors(), queue.available(), queue.used());
        self.read(register::QUEUE_READY) == 1
    }

    /// Writes size and ring addresses of the selected queue as they are, and makes it ready.
    pub fn place(self, size: u64, descriptors: u64, available: u64, used: u64) {
        self.write(register::QUEUE_NUM, size);
        let rings =
            [(register::QUEUE_DESC, descriptors), (register::QUEUE_DRIVER, available), (register::QUEUE_DEVICE, used)];
        for (register, address) in rings {
            self.write(register, address & 0xffff_ffff);
            self.write(register + 4, address >> 32);
        }
        self.write(register::QUEUE_READY, 1);
    }

    /// The driver is ready.
    pub fn go(self) {
        self.write(register::STATUS, ACKNOWLEDGE_AND_DRIVER | FEATURES_OK | DRIVER_OK);
    }

    /// There is something in the queue.
    pub fn notify(self, queue: u32) {
        self.write(register::QUEUE_NOTIFY, u64::from(queue));
    }
}

/// A descriptor continues in another.
pub const NEXT: u16 = 1;
/// A descriptor is for the device to write.
pub const WRITE: u16 = 2;
/// A descriptor names a table of descriptors.
pub const TABLE: u16 = 4;

/// A part of a request.
#[derive(Clone, Copy)]
pub struct Buffer {
    /// Its address.
    pub address: u64,
    /// Its length.
    pub bytes: u32,
    /// Whether the device writes it.
    pub writable: bool,
}

/// A split virtqueue of at most 16 descriptors in one page triple.
pub struct Queue {
    base: u64,
    /// Descriptors.
    pub size: u16,
    next: u16,
}

impl Queue {
    /// An empty queue with its rings from `base` on.
    pub fn new(base: u64) -> Self {
        for at in (base..base + 0x3000).step_by(8) {
            cpu::store(at, 0);
        }
        Self { base, size: 16, next: 0 }
    }

    /// Address of the descriptor table.
    pub const fn descriptors(&self) -> u64 {
        self.base
    }

    /// Address of the available ring.
    pub const fn available(&self) -> u64 {
        self.base + 0x1000
    }

    /// Address of the used ring.
    pub const fn used(&self) -> u64 {
        self.base + 0x2000
    }

    /// Writes a descriptor into the table at `table`.
    pub fn describe(table: u64, index: u16, address: u64, bytes: u32, flags: u16, next: u16) {
        let at = table + u64::from(index) * 16;
        cpu::store(at, address);
        cpu::store(at + 8, u64::from(bytes) | u64::from(flags) << 32 | u64::from(next) << 48);
    }

    /// Makes the chain that begins at `head` available.
    pub fn offer(&mut self, head: u16) {
        let slot = u64::from(self.next % self.size.max(1));
        cpu::store16(self.available() + 4 + 2 * slot, u64::from(head));
        self.next = self.next.wrapping_add(1);
        cpu::fence();
        self.set_index(self.next);
    }

    /// Writes the available index.
    pub fn set_index(&self, index: u16) {
        cpu::store16(self.available() + 2, u64::from(index));
        cpu::fence();
    }

    /// Describes a request in the descriptors from `first` on, and makes it available.
    pub fn push(&mut self, first: u16, buffers: &[Buffer]) {
        for (place, buffer) in buffers.iter().enumerate() {
            let index = first + place as u16;
            let more = if place + 1 < buffers.len() { NEXT } else { 0 };
            let flags = more | if buffer.writable { WRITE } else { 0 };
            Self::describe(self.base, index, buffer.address, buffer.bytes, flags, index + 1);
        }
        self.offer(first);
    }

    /// The used index.
    pub fn used_index(&self) -> u64 {
        cpu::load16(self.used() + 2)
    }

    /// Waits until the used index is `index`.
    pub fn wait(&self, index: u64) -> bool {
        wait_for(|| self.used_index() == index)
    }
}
