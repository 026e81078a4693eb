//! The gateway of a subnet: what goes to and comes from the machine's network interface.
//!
//! The interface does no offloads, so large segments are cut and checksums completed here. Driven by the control hart.

use super::network::Network;
use crate::machine::devices::Nic;
use alloc::{vec, vec::Vec};
use machine_io::{IoError, MAX_FRAME_BYTES};
use spin::Mutex;
use subnet::{Frame, MAX_FRAME, PortId};
use virtio::{net::NetHeader, offload::PlainFrames};

/// Frames that come in, in one step.
const BATCH: usize = 16;
/// Frames that are taken, and plain frames that leave, in one step: a large segment of Linux is 45.
const LEAVING: usize = 64;

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
    /// The length of that frame, and what is still to be sent of it.
    leaving: Option<(usize, PlainFrames)>,
    is_broken: bool,
}

impl Gateway {
    /// On this port of its subnet.
    #[must_use]
    pub fn new(port: PortId) -> Self {
        let state =
            State { received: vec![0; MAX_FRAME_BYTES], work: vec![0; 2 * MAX_FRAME], leaving: None, is_broken: false };
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

    /// `true` while there may be more: the subnet tells nobody of frames behind those that were left there.
    fn transmit(&self, state: &mut State, network: &Network, nic: &mut Nic) -> Result<bool, IoError> {
        for _ in 0..LEAVING {
            if state.leaving.is_none() {
                let Some(frame) = network.take(self.port) else { return Ok(false) };
                state.begin(&frame);
                continue;
            }
            match state.send_next(nic) {
                // Frames beyond the interface's MTU cannot leave.
                Ok(()) | Err(IoError::FrameTooLong { .. }) => state.advance(),
                // It interrupts when there is room.
                Err(IoError::QueueFull) => return Ok(false),
                Err(why) => return Err(why),
            }
        }
        Ok(true)
    }
}

impl State {
    /// Takes a frame on its way out, unless it is not what its header says.
    fn begin(&mut self, frame: &Frame<NetHeader>) {
        let len = frame.bytes().len();
        if let Some(copy) = self.work.get_mut(..len) {
            copy.copy_from_slice(frame.bytes());
            self.leaving = PlainFrames::of(frame.header(), copy).ok().map(|parts| (len, parts));
        }
    }

    /// Sends the next part of the frame that leaves. What its sender has left undone is done here.
    fn send_next(&mut self, nic: &mut Nic) -> Result<(), IoError> {
        let Some((len, parts)) = self.leaving else { return Ok(()) };
        let (frame, segment) = self.work.split_at_mut(MAX_FRAME);
        match parts.current(&frame[..len], segment) {
            Ok(Some(part)) => nic.send(part),
            // The parts before an error are fine.
            Ok(None) | Err(_) => {
                self.leaving = None;
                Ok(())
            }
        }
    }

    fn advance(&mut self) {
        if let Some((len, parts)) = &mut self.leaving {
            parts.advance(&self.work[..*len]);
        }
    }
}
