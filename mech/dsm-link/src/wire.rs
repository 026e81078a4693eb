//! A machine's end of all its connections.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use dsm_wire::{HEADER_BYTES, Header, Kind, MachineId, TAG_BYTES};
use scarce::Grow;

use crate::peer::{Peer, State, Taken};
use crate::seal::Seal;
use crate::{QUEUE, WINDOW};

/// A machine on its wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// This machine.
    pub me: MachineId,
    /// How many there are, up to 64.
    pub machines: u8,
    /// Drawn at random when this machine began; not 0.
    pub life: u64,
    /// Must be the same on all machines: a hash over page size, instruction set and VM.
    pub agreement: u64,
    /// Bytes of a frame's payload, header and tag included.
    pub mtu: usize,
    /// The longest message that a peer may send.
    pub longest: usize,
    /// How long an answer may take before a frame is sent again.
    pub patience: u64,
}

/// A peer has so many messages waiting that no more are taken, or is gone, or there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer takes no more messages")]
pub struct Full;

/// Frames that were not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Not of this protocol, of another version, or for somebody else.
    pub foreign: u64,
    /// Not sealed with the cluster's key.
    pub forged: u64,
    /// For or from another life of a machine.
    pub stale: u64,
    /// From a machine that has another [`Setup::agreement`].
    pub disagreeing: u64,
    /// A packet that has come before.
    pub replayed: u64,
    /// Records that had come with another packet; this is what a lost answer costs.
    pub repeated: u64,
    /// Records further ahead than the window.
    pub beyond: u64,
    /// Records that make no message. Their sender is gone.
    pub broken: u64,
    /// For want of memory.
    pub no_memory: u64,
}

/// All connections of a machine.
#[derive(Clone, Debug)]
pub struct Wire {
    setup: Setup,
    seal: Seal,
    peers: Vec<Peer>,
    arrived: VecDeque<(MachineId, Vec<u8>)>,
    drops: Drops,
    /// Where [`Wire::next_frame`] looks first, so that no peer keeps the others waiting.
    turn: usize,
}

impl Wire {
    /// A machine that has not said anything.
    #[must_use]
    pub fn new(setup: Setup, seal: Seal) -> Self {
        let peers = (0..setup.machines.min(64)).map(|_| Peer::default()).collect();
        Self { setup, seal, peers, arrived: VecDeque::new(), drops: Drops::default(), turn: 0 }
    }

    /// Takes a message for another machine.
    ///
    /// # Errors
    /// [`Full`]; the message is not taken.
    pub fn send(&mut self, to: MachineId, message: Vec<u8>) -> Result<(), Full> {
        let peer = self.peers.get_mut(usize::from(to.0)).ok_or(Full)?;
        if peer.state == State::Gone || peer.cutter.len() >= QUEUE || message.is_empty() {
            return Err(Full);
        }
        peer.cutter.push(message).map_err(|_| Full)
    }

    /// The next message that has come whole.
    pub fn next_message(&mut self) -> Option<(MachineId, Vec<u8>)> {
        self.arrived.pop_front()
    }

    /// What is known of a machine.
    #[must_use]
    pub fn state(&self, of: MachineId) -> State {
        self.peers.get(usize::from(of.0)).map_or(State::Gone, |peer| peer.state)
    }

    /// Whether messages pile up for somebody who is here: then who makes them should make fewer.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.peers.iter().any(|peer| peer.cutter.len() > WINDOW * 4)
    }

    /// What was not taken.
    #[must_use]
    pub const fn drops(&self) -> &Drops {
        &self.drops
    }

    /// When [`Wire::next_frame`] has something again, if nothing comes before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let of_peer = |(number, peer): (usize, &Peer)| match peer.state {
            _ if number == usize::from(self.setup.me.0) => None,
            State::Gone => None,
            State::Unknown => Some(peer.hello_due),
            State::Here => peer.sent.iter().map(|sent| sent.due).min(),
        };
        self.peers.iter().enumerate().filter_map(of_peer).min()
    }

    /// Writes the next frame that should go out into `frame`, and says to whom. Ask until there is none.
    pub fn next_frame(&mut self, now: u64, frame: &mut Vec<u8>) -> Option<MachineId> {
        let count = self.peers.len();
        let first = self.turn;
        for at in (0..count).map(|step| (first + step) % count) {
            if at != usize::from(self.setup.me.0) && self.frame_for(at, now, frame).is_some() {
                self.turn = at + 1;
                return Some(MachineId(at as u8));
            }
        }
        None
    }

    fn frame_for(&mut self, to: usize, now: u64, frame: &mut Vec<u8>) -> Option<()> {
        let setup = self.setup;
        let peer = &mut self.peers[to];
        let is_due = peer.state == State::Unknown && peer.hello_due <= now;
        if let Some(life) = peer.greets.take().or(is_due.then_some(peer.life)) {
            peer.hello_due = now.saturating_add(setup.patience);
            return self.seal_frame(to, Kind::Hello, life, 0, &[], frame);
        }
        if peer.state != State::Here {
            return None;
        }
        let room = setup.mtu.saturating_sub(HEADER_BYTES + TAG_BYTES);
        let life = peer.life;
        let mut records = Vec::new();
        let owes_answer = peer.owes_answer;
        let sequence = match peer.next(now, setup.patience, room) {
            Some((sequence, bytes)) => {
                records.grow(bytes.len()).ok()?;
                records.extend_from_slice(bytes);
                sequence
            }
            None if owes_answer => 0,
            None => return None,
        };
        peer.owes_answer = false;
        self.seal_frame(to, Kind::Data, life, sequence, &records, frame)
    }

    fn seal_frame(
        &mut self,
        to: usize,
        kind: Kind,
        receiver_life: u64,
        sequence: u64,
        records: &[u8],
        frame: &mut Vec<u8>,
    ) -> Option<()> {
        let peer = &mut self.peers[to];
        peer.packet += 1;
        let header = Header {
            kind,
            from: self.setup.me.0,
            to: to as u8,
            sender_life: self.setup.life,
            receiver_life,
            packet: peer.packet,
            sequence,
            received: peer.received,
            agreement: self.setup.agreement,
        };
        let head = header.to_bytes();
        frame.clear();
        frame.grow(HEADER_BYTES + records.len() + TAG_BYTES).ok()?;
        frame.extend_from_slice(&head);
        frame.extend_from_slice(records);
        let tag = self.seal.close(&header, &head, &mut frame[HEADER_BYTES..])?;
        frame.extend_from_slice(&tag);
        Some(())
    }

    /// Takes a frame from the wire, whoever sent it. It is opened in place.
    pub fn receive(&mut self, frame: &mut [u8]) {
        let Some((header, _)) = Header::parse(frame) else { return self.drops.foreign += 1 };
        let (me, from) = (self.setup.me.0, usize::from(header.from));
        if header.to != me || header.from == me || from >= self.peers.len() {
            return self.drops.foreign += 1;
        }
        let (head, sealed) = frame.split_at_mut(HEADER_BYTES);
        let Some((records, tag)) = sealed.split_last_chunk_mut::<TAG_BYTES>() else {
            return self.drops.foreign += 1;
        };
        if !self.seal.open(&header, head, records, tag) {
            return self.drops.forged += 1;
        }
        if header.agreement != self.setup.agreement {
            return self.drops.disagreeing += 1;
        }
        self.take(from, &header, records);
    }

    /// Takes an authentic frame.
    fn take(&mut self, from: usize, header: &Header, records: &[u8]) {
        let peer = &mut self.peers[from];
        if header.receiver_life == 0 && header.kind == Kind::Hello {
            // It may be an old one again. So it is answered, and believed only if its sender knows this life.
            peer.greets = Some(header.sender_life);
            return;
        }
        if header.receiver_life != self.setup.life || peer.state == State::Gone {
            return self.drops.stale += 1;
        }
        match peer.life {
            0 => {
                peer.life = header.sender_life;
                peer.state = State::Here;
                // It knows this machine; it may not know that it is known.
                peer.owes_answer = true;
            }
            life if life == header.sender_life => {}
            _ => {
                peer.state = State::Gone;
                return self.drops.stale += 1;
            }
        }
        if !peer.seen.take(header.packet) {
            return self.drops.replayed += 1;
        }
        if header.kind == Kind::Hello {
            return;
        }
        peer.confirm(header.received);
        if header.sequence > 0 {
            self.take_records(from, header.sequence, records);
        }
    }

    fn take_records(&mut self, from: usize, sequence: u64, records: &[u8]) {
        let peer = &mut self.peers[from];
        let mut messages = VecDeque::new();
        match peer.take(sequence, records, self.setup.longest, &mut messages) {
            Ok(Taken::Fine) => {}
            Ok(Taken::Again) => self.drops.repeated += 1,
            Ok(Taken::Beyond) => self.drops.beyond += 1,
            Err(_) => {
                peer.state = State::Gone;
                self.drops.broken += 1;
            }
        }
        if self.arrived.grow(messages.len()).is_err() {
            // What was confirmed cannot be lost: the connection ends.
            self.peers[from].state = State::Gone;
            return self.drops.no_memory += 1;
        }
        self.arrived.extend(messages.into_iter().map(|message| (MachineId(from as u8), message)));
    }
}
