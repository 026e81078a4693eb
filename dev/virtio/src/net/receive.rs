//! Giving a frame to the guest.

use alloc::vec::Vec;
use device::{Env, GuestFault, GuestMemory};
use scarce::Grow;

use super::{MAX_FRAME, MIN_FRAME, Net, NetBackend, RECEIVE_QUEUE, spec};
use crate::error::{DeviceError, RingError};
use crate::model::{Budget, Io};
use crate::offload::{Gso, NET_HEADER_BYTES, NetHeader, PlainFrames};
use crate::queue::{Checkpoint, Queue};
use crate::transport::VirtioMmio;

/// What became of a frame for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The guest has it.
    Delivered,
    /// It is begun, and the budget is spent: the guest may have some parts of it. The same frame is to be given again for the rest.
    Partly,
    /// The guest has no buffers now; [`NetBackend::receive_ready`] tells when to try again.
    Full,
    /// It cannot be delivered: no driver, link down, no buffer large enough, or nonsense.
    Dropped,
}

impl<B: NetBackend> VirtioMmio<Net<B>> {
    /// Gives one frame to the guest. For several at a time [`VirtioMmio::with_model`] with [`Net::deliver`] saves
    /// index updates and interrupts, and bounds what a call does.
    ///
    /// # Errors
    /// [`GuestFault`] for a malformed ring.
    pub fn receive(&mut self, header: &NetHeader, frame: &[u8], env: &dyn Env) -> Result<Received, GuestFault> {
        let received = self.with_model(env, |net, io| net.deliver(header, frame, io, &mut Budget::unlimited()))?;
        Ok(received.unwrap_or(Received::Dropped))
    }

    /// Sets the link state and tells the driver.
    pub fn set_link(&mut self, is_up: bool, env: &dyn Env) {
        if self.model().is_link_up() != is_up {
            self.update_config(env, |net| net.is_link_up = is_up);
        }
    }
}

impl<B: NetBackend> Net<B> {
    /// Gives one frame to the guest: as it is if the guest can take it so, else as plain frames. The budget is charged with buffers that
    /// were looked at, and may be overdrawn by one plain frame.
    ///
    /// # Errors
    /// [`DeviceError::Ring`] for a malformed ring.
    pub fn deliver(
        &mut self,
        header: &NetHeader,
        frame: &[u8],
        io: &mut Io<'_>,
        budget: &mut Budget,
    ) -> Result<Received, DeviceError> {
        let memory = io.memory();
        let features = self.features;
        let size_fits = (MIN_FRAME as usize..=MAX_FRAME as usize).contains(&frame.len());
        let received = match io.queue(RECEIVE_QUEUE) {
            Some(queue) if size_fits && self.is_link_up => {
                if can_take(header, features) {
                    self.place(header, frame, (queue, memory), budget)?
                } else {
                    self.place_plain(header, frame, (queue, memory), budget)?
                }
            }
            _ => Received::Dropped,
        };
        match received {
            Received::Delivered | Received::Partly => {}
            Received::Full => {
                self.is_starved = true;
                self.metrics.receive_full += 1;
            }
            Received::Dropped => self.metrics.receive_dropped += 1,
        }
        Ok(received)
    }

    /// The frame of which the guest has some parts is given up: another one comes next.
    pub fn forget_begun(&mut self) {
        self.begun = None;
    }

    /// Does the work that this guest's driver cannot do. When the guest runs out of buffers between two segments the
    /// rest is lost, as on a wire. So is a frame that finds no memory to be cut in.
    fn place_plain(
        &mut self,
        header: &NetHeader,
        frame: &[u8],
        guest: (&mut Queue, &dyn GuestMemory),
        budget: &mut Budget,
    ) -> Result<Received, RingError> {
        let mut buffer = core::mem::take(&mut self.scratch);
        if buffer.is_empty() && buffer.grow_exact(SCRATCH_BYTES).is_ok() {
            buffer.resize(SCRATCH_BYTES, 0);
        }
        let placed = match buffer.split_at_mut_checked(MAX_FRAME as usize) {
            Some((copy, segment)) => self.place_parts(header, frame, (copy, segment), guest, budget),
            None => Ok(Received::Dropped),
        };
        self.scratch = buffer;
        placed
    }

    /// What became of the first part. A frame that is not what its header says is dropped from there on.
    fn place_parts(
        &mut self,
        header: &NetHeader,
        frame: &[u8],
        (copy, segment): (&mut [u8], &mut [u8]),
        (queue, memory): (&mut Queue, &dyn GuestMemory),
        budget: &mut Budget,
    ) -> Result<Received, RingError> {
        let Some(copy) = copy.get_mut(..frame.len()) else { return Ok(Received::Dropped) };
        let begun = self.begun.take().filter(|begun| begun.len == frame.len());
        // Once the guest has some, what becomes of the rest makes no difference.
        let mut first = begun.as_ref().filter(|begun| begun.is_placed).map(|_| Received::Delivered);
        let mut parts = match begun {
            Some(begun) => begun.parts,
            None => {
                copy.copy_from_slice(frame);
                let is_spent = budget.spend(frame.len() as u64 / COPIED_FOR_ONE);
                let Ok(parts) = PlainFrames::of(header, copy) else { return Ok(Received::Dropped) };
                if is_spent {
                    self.begun = Some(Begun { parts, len: frame.len(), is_placed: false });
                    return Ok(Received::Partly);
                }
                parts
            }
        };
        loop {
            let part = match parts.current(copy, segment) {
                Ok(Some(part)) => part,
                Ok(None) => {
                    self.metrics.software_offloads += 1;
                    break;
                }
                Err(_) => break,
            };
            let placed = self.place(&NetHeader::default(), part, (queue, memory), budget)?;
            first = first.or(Some(placed));
            if placed != Received::Delivered {
                break;
            }
            parts.advance(copy);
            if budget.is_spent() {
                self.begun = Some(Begun { parts, len: frame.len(), is_placed: true });
                return Ok(Received::Partly);
            }
        }
        Ok(first.unwrap_or(Received::Dropped))
    }

    /// Writes header and frame into as many receive buffers as they need, or into none.
    fn place(
        &mut self,
        header: &NetHeader,
        frame: &[u8],
        (queue, memory): (&mut Queue, &dyn GuestMemory),
        budget: &mut Budget,
    ) -> Result<Received, RingError> {
        let start = queue.checkpoint();
        if !queue.next_or_arm(memory, &mut self.chain)? {
            return Ok(Received::Full);
        }
        let count_addrs =
            [self.chain.writable_addr(spec::NUM_BUFFERS), self.chain.writable_addr(spec::NUM_BUFFERS + 1)];
        let can_merge = self.features & spec::F_MRG_RXBUF != 0;
        let mut left = frame;
        // A first buffer smaller than the header is no buffer: the specification asks for more.
        let mut fits = self.chain.write_some(memory, &header.encode())? == NET_HEADER_BYTES;
        let mut buffers = 1_u16;
        loop {
            let done = self.chain.write_some(memory, left)?;
            budget.charge(&self.chain, done as u64);
            left = left.get(done..).unwrap_or(&[]);
            fits &= can_merge || left.is_empty();
            if !fits {
                return Ok(give_up(queue, start));
            }
            queue.push(memory, self.chain.head(), self.chain.written())?;
            if left.is_empty() {
                break;
            }
            if !queue.next_or_arm(memory, &mut self.chain)? {
                return Ok(wait_or_give_up(queue, start));
            }
            if self.chain.writable_len() == 0 {
                return Ok(give_up(queue, start));
            }
            buffers = buffers.saturating_add(1);
            if buffers > MOST_BUFFERS {
                return Ok(give_up(queue, start));
            }
        }
        write_count(memory, count_addrs, buffers)?;
        self.metrics.received += 1;
        self.metrics.bytes_received += frame.len() as u64;
        Ok(Received::Delivered)
    }
}

/// Whether a driver with these features takes the frame as it is, without a checksum or in one large piece.
pub(super) const fn can_take(header: &NetHeader, features: u64) -> bool {
    let needed = match header.gso {
        Gso::None if header.checksum.is_none() => 0,
        Gso::None => spec::F_GUEST_CSUM,
        Gso::TcpV4 => spec::F_GUEST_CSUM | spec::F_GUEST_TSO4,
        Gso::TcpV6 => spec::F_GUEST_CSUM | spec::F_GUEST_TSO6,
        // The header does not tell the family, so both must be welcome.
        Gso::Udp => spec::F_GUEST_CSUM | spec::F_GUEST_USO4 | spec::F_GUEST_USO6,
    };
    features & needed == needed
}

/// Fills `num_buffers`, which the driver may have put across two segments.
fn write_count(memory: &dyn GuestMemory, addrs: [Option<addr::GuestPhysAddr>; 2], count: u16) -> Result<(), RingError> {
    for (addr, byte) in addrs.into_iter().zip(count.to_le_bytes()) {
        if let Some(addr) = addr {
            memory.write(addr, &[byte])?;
        }
    }
    Ok(())
}

/// The frame does not fit the guest's buffers and never will.
const fn give_up(queue: &mut Queue, start: Checkpoint) -> Received {
    queue.rewind(start);
    Received::Dropped
}

/// The guest's buffers end before the frame does: wait for more, unless there cannot be more.
fn wait_or_give_up(queue: &mut Queue, start: Checkpoint) -> Received {
    queue.rewind(start);
    if queue.is_all_available() { Received::Dropped } else { Received::Full }
}

/// Buffers that one frame may fill: 64 KiB in buffers of 512 bytes. Each costs some microseconds, in which the hart takes no interrupt.
const MOST_BUFFERS: u16 = 128;

/// Bytes that are copied to be cut for one of the budget: of a frame of 64 KiB nothing else is done in the same call.
const COPIED_FOR_ONE: u64 = 8;

/// One frame and one segment of it.
const SCRATCH_BYTES: usize = 2 * MAX_FRAME as usize;

/// Scratch space for [`Net::place_plain`]: taken only for guests that need it.
pub(super) type Scratch = Vec<u8>;

/// A frame that is being cut.
#[derive(Debug)]
pub(super) struct Begun {
    parts: PlainFrames,
    /// Bytes of the whole frame.
    len: usize,
    /// Whether the guest has a part of it.
    is_placed: bool,
}
