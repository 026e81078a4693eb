//! The other side of a virtqueue: a device in ordinary memory, as honest or broken as a test wants it.
//
// UNSAFETY: a device names memory by machine address; here that is a pointer to memory the test allocated.
#![expect(unsafe_code)]

use std::{
    alloc::{Layout, alloc_zeroed},
    cell::RefCell,
    collections::VecDeque,
    ptr::{NonNull, with_exposed_provenance, with_exposed_provenance_mut},
    rc::Rc,
};

use addr::MachineAddr;
use machine_io::Platform;
use machine_tree::AddressRange;
use virtio_drivers::{
    Error, PhysAddr,
    transport::{DeviceStatus, DeviceType, InterruptStatus, Transport},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Memory of the test process; machine addresses are pointers.
pub struct Process;

// SAFETY: 1. fresh zeroed pages that are leaked, so nobody else ever uses them. 2. there are no device registers.
// 3. the "device" is the same thread.
unsafe impl Platform for Process {
    fn allocate(pages: usize) -> Option<(MachineAddr, NonNull<u8>)> {
        let layout = Layout::from_size_align(pages * 4096, 4096).ok()?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some((MachineAddr::new(memory.as_ptr().expose_provenance() as u64), memory))
    }

    fn map_device(_range: AddressRange) -> Option<NonNull<u8>> {
        None
    }
}

/// Memory at a machine address, as the device reads it.
pub fn peek(address: u64, bytes: u32) -> Vec<u8> {
    let at = |offset| with_exposed_provenance::<u8>(address as usize + offset);
    // SAFETY: tests only name memory from `Process::allocate`, which is never freed.
    (0..bytes as usize).map(|offset| unsafe { at(offset).read_volatile() }).collect()
}

/// Memory at a machine address, as the device writes it.
pub fn poke(address: u64, bytes: &[u8]) {
    for (offset, byte) in bytes.iter().enumerate() {
        // SAFETY: as in `peek`.
        unsafe { with_exposed_provenance_mut::<u8>(address as usize + offset).write_volatile(*byte) }
    }
}

fn peek_u16(address: u64) -> u16 {
    u16::from_le_bytes(peek(address, 2).try_into().expect("two bytes"))
}

/// A request as the device sees it.
#[derive(Clone, Debug)]
pub struct Chain {
    pub queue: u16,
    pub head: u16,
    /// Address, length.
    pub readable: Vec<(u64, u32)>,
    pub writable: Vec<(u64, u32)>,
}

impl Chain {
    /// Everything the driver gave the device to read.
    pub fn input(&self) -> Vec<u8> {
        self.readable.iter().flat_map(|&(address, bytes)| peek(address, bytes)).collect()
    }

    /// Fills the writable pieces from the front.
    pub fn output(&self, mut data: &[u8]) {
        for &(address, bytes) in &self.writable {
            let (now, later) = data.split_at(data.len().min(bytes as usize));
            poke(address, now);
            data = later;
        }
    }

    /// Room in the writable pieces.
    pub fn room(&self) -> u32 {
        self.writable.iter().map(|piece| piece.1).sum()
    }
}

/// What a device does with a request.
pub enum Reply {
    /// Hand it back, having written so many bytes.
    Used(u32),
    /// Hand back this descriptor instead.
    Lie(u32),
    /// Move the used index this far without handing anything back.
    Jump(u16),
    /// Keep it; see [`Model::held`].
    Hold,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    size: u16,
    descriptors: u64,
    driver: u64,
    device: u64,
    seen: u16,
    used: u16,
}

/// A device.
pub struct Model {
    pub kind: DeviceType,
    pub features: u64,
    pub config: Vec<u8>,
    pub queue_size: u32,
    /// Requests that were kept.
    pub held: VecDeque<Chain>,
    /// Features that the driver took.
    pub accepted: u64,
    pub refuses_features: bool,
    pub status: DeviceStatus,
    handler: Option<Handler>,
    queues: [Queue; 2],
}

type Handler = Box<dyn FnMut(&Chain) -> Reply>;

impl Model {
    pub fn new(kind: DeviceType, features: u64, config: &[u8], handler: impl FnMut(&Chain) -> Reply + 'static) -> Self {
        Self {
            kind,
            features: features | 1 << 32,
            config: config.to_vec(),
            queue_size: 256,
            held: VecDeque::new(),
            accepted: 0,
            refuses_features: false,
            status: DeviceStatus::empty(),
            handler: Some(Box::new(handler)),
            queues: [Queue::default(); 2],
        }
    }

    /// Looks at what is new in a queue.
    pub fn serve(&mut self, queue: u16) {
        while self.queues[usize::from(queue)].seen != self.driver_index(queue) {
            let chain = self.take(queue);
            let mut handler = self.handler.take().expect("not nested");
            match handler(&chain) {
                Reply::Used(written) => self.give_back(chain.queue, u32::from(chain.head), written),
                Reply::Lie(id) => self.give_back(chain.queue, id, 0),
                Reply::Jump(by) => self.publish(queue, self.queues[usize::from(queue)].used.wrapping_add(by)),
                Reply::Hold => self.held.push_back(chain),
            }
            self.handler = Some(handler);
        }
    }

    /// Hands back a request that was kept.
    pub fn release(&mut self, chain: &Chain, written: u32) {
        self.give_back(chain.queue, u32::from(chain.head), written);
    }

    fn driver_index(&self, queue: u16) -> u16 {
        peek_u16(self.queues[usize::from(queue)].driver + 2)
    }

    fn take(&mut self, queue: u16) -> Chain {
        let state = &mut self.queues[usize::from(queue)];
        let head = peek_u16(state.driver + 4 + 2 * u64::from(state.seen % state.size));
        state.seen = state.seen.wrapping_add(1);
        // With event indices the driver is asked to tell of the very next request.
        poke(state.device + 4 + 8 * u64::from(state.size), &state.seen.to_le_bytes());
        let mut chain = Chain { queue, head, readable: Vec::new(), writable: Vec::new() };
        let mut next = Some(head);
        while let Some(index) = next {
            let raw = peek(state.descriptors + 16 * u64::from(index), 16);
            let address = u64::from_le_bytes(raw[..8].try_into().expect("eight"));
            let bytes = u32::from_le_bytes(raw[8..12].try_into().expect("four"));
            let (flags, follow) = (raw[12], u16::from_le_bytes([raw[14], raw[15]]));
            if flags & 2 != 0 { &mut chain.writable } else { &mut chain.readable }.push((address, bytes));
            assert!(flags & 2 != 0 || chain.writable.is_empty(), "readable pieces come first");
            next = (flags & 1 != 0).then_some(follow);
        }
        chain
    }

    fn give_back(&mut self, queue: u16, id: u32, written: u32) {
        let state = self.queues[usize::from(queue)];
        let slot = state.device + 4 + 8 * u64::from(state.used % state.size);
        poke(slot, &id.to_le_bytes());
        poke(slot + 4, &written.to_le_bytes());
        self.publish(queue, state.used.wrapping_add(1));
    }

    fn publish(&mut self, queue: u16, used: u16) {
        let state = &mut self.queues[usize::from(queue)];
        state.used = used;
        poke(state.device + 2, &used.to_le_bytes());
    }
}

/// The wire to a [`Model`].
#[derive(Clone)]
pub struct Wire(pub Rc<RefCell<Model>>);

impl Wire {
    pub fn new(model: Model) -> Self {
        Self(Rc::new(RefCell::new(model)))
    }
}

impl Transport for Wire {
    fn device_type(&self) -> DeviceType {
        self.0.borrow().kind
    }

    fn read_device_features(&mut self) -> u64 {
        self.0.borrow().features
    }

    fn write_driver_features(&mut self, features: u64) {
        self.0.borrow_mut().accepted = features;
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        if queue < 2 { self.0.borrow().queue_size } else { 0 }
    }

    fn notify(&mut self, queue: u16) {
        self.0.borrow_mut().serve(queue);
    }

    fn get_status(&self) -> DeviceStatus {
        self.0.borrow().status
    }

    fn set_status(&mut self, status: DeviceStatus) {
        let model = &mut *self.0.borrow_mut();
        model.status = status;
        if model.refuses_features {
            model.status.remove(DeviceStatus::FEATURES_OK);
        }
    }

    fn set_guest_page_size(&mut self, _bytes: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        false
    }

    fn queue_set(&mut self, queue: u16, size: u32, descriptors: PhysAddr, driver: PhysAddr, device: PhysAddr) {
        let size = u16::try_from(size).expect("sizes are small");
        self.0.borrow_mut().queues[usize::from(queue)] =
            Queue { size, descriptors, driver, device, ..Queue::default() };
    }

    fn queue_unset(&mut self, _queue: u16) {}

    fn queue_used(&mut self, queue: u16) -> bool {
        self.0.borrow().queues[usize::from(queue)].size != 0
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::QUEUE_INTERRUPT
    }

    fn read_config_generation(&self) -> u32 {
        0
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, Error> {
        let model = self.0.borrow();
        let bytes = model.config.get(offset..offset + size_of::<T>()).ok_or(Error::ConfigSpaceTooSmall)?;
        T::read_from_bytes(bytes).map_err(|_| Error::ConfigSpaceTooSmall)
    }

    fn write_config_space<T: IntoBytes + Immutable>(&mut self, _offset: usize, _value: T) -> Result<(), Error> {
        Err(Error::Unsupported)
    }
}
