//! The gateway of a subnet: what goes to and comes from the machine's network interface.
//!
//! The interface does no offloads, so large segments are cut and checksums completed here. Driven by the control hart.

use super::network::Network;
use crate::machine::devices::Nic;
use alloc::{vec, vec::Vec};
use machine_io::{IoError, MAX_FRAME_BYTES};
use spin::Mutex;
use subnet::{Frame, MAX_FRAME, PortId};
use virtio::{net::NetHeader, offload::make_plain};

/// Frames each way in one step.
const BATCH: usize = 16;

/// The gateway.
pub struct Gateway {
    port: PortId,
    state: Mutex<State>,
}

struct State {
    /// A frame from the interface.
    received: Vec<u8>,
    /// A frame from the subnet, and one segment of it.
    work: Vec<u8>,
    plain: PlainFrames,
    is_broken: bool,
}

/// The plain frames made of one that have not been sent yet.
#[derive(Default)]
struct PlainFrames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    sent: usize,
}

impl PlainFrames {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn front(&self) -> Option<&[u8]> {
        let end = *self.ends.get(self.sent)?;
        let start = self.sent.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start..end)
    }

    fn pop(&mut self) {
        self.sent += 1;
        if self.sent >= self.ends.len() {
            self.bytes.clear();
            self.ends.clear();
            self.sent = 0;
        }
    }
}

impl Gateway {
    /// On this port of its subnet.
    #[must_use]
    pub fn new(port: PortId) -> Self {
        let state = State {
            received: vec![0; MAX_FRAME_BYTES],
            work: vec![0; 2 * MAX_FRAME],
            plain: PlainFrames::default(),
            is_broken: false,
        };
        Self { port, state: Mutex::new(state) }
    }

    /// One bounded step both ways. `true` while there is more to do at once.
    pub fn step(&self, network: &Network, nic: &Mutex<Nic>) -> bool {
        let mut state = self.state.lock();
        let mut nic = nic.lock();
        if state.is_broken {
            // Nobody is there; what comes is dropped, as without a cable.
            return (0..BATCH).all(|_| network.take(self.port).is_some());
        }
        let outcome = self.receive(&mut state, network, &mut nic);
        let outcome = outcome.and_then(|is_busy| Ok(is_busy | self.transmit(&mut state, network, &mut nic)?));
        outcome.unwrap_or_else(|why| {
            log::error!("network interface: {why}, not used any more");
            state.is_broken = true;
            true
        })
    }

    fn receive(&self, state: &mut State, network: &Network, nic: &mut Nic) -> Result<bool, IoError> {
        for _ in 0..BATCH {
            let Some(len) = nic.receive(&mut state.received)? else { return Ok(false) };
            // A frame that finds no memory is lost, as on a wire, and so is one of which nothing came.
            if let Some(bytes) = state.received.get(..len).filter(|bytes| !bytes.is_empty())
                && let Ok(mut frame) = network.frame(len)
            {
                frame.bytes_mut().copy_from_slice(bytes);
                network.send(self.port, NetHeader::default(), frame);
            }
        }
        Ok(true)
    }

    fn transmit(&self, state: &mut State, network: &Network, nic: &mut Nic) -> Result<bool, IoError> {
        for _ in 0..BATCH {
            while let Some(plain) = state.plain.front() {
                match nic.send(plain) {
                    // Frames beyond the interface's MTU cannot leave.
                    Ok(()) | Err(IoError::FrameTooLong { .. }) => state.plain.pop(),
                    // It interrupts when there is room.
                    Err(IoError::QueueFull) => return Ok(false),
                    Err(why) => return Err(why),
                }
            }
            let Some(frame) = network.take(self.port) else { return Ok(false) };
            state.cut(&frame);
        }
        Ok(true)
    }
}

impl State {
    /// Does what the sender has left undone. A frame that is not what its header says is dropped.
    fn cut(&mut self, frame: &Frame<NetHeader>) {
        let (copy, segment) = self.work.split_at_mut(MAX_FRAME);
        if let Some(copy) = copy.get_mut(..frame.bytes().len()) {
            copy.copy_from_slice(frame.bytes());
            let plain = &mut self.plain;
            // What was made before an error is fine.
            let _ = make_plain(frame.header(), copy, segment, &mut |bytes| plain.push(bytes));
        }
    }
}
