//! Where a subnet goes on in another cell: a port for each cell, whose frames the cells hand each other (`services/cells`).
//!
//! The leader's part of a subnet is joined with each other cell's, and no others with each other: so there are no circles.

use super::{End, Inner, Network, all};
use crate::machine::{cell::Facts, direct, memory};
use addr::MachineAddr;
use arrayvec::ArrayVec;
use cell::{
    CellId,
    board::CELLS,
    message::{FRAME_NOTE_BYTES, FRAMES, FramePlace, Frames},
};
use core::sync::atomic::{AtomicBool, Ordering};
use machine_tree::AddressRange;
use subnet::{Frame, PortId, PortKind};
use virtio::net::{NET_HEADER_BYTES, NetHeader};

const _: () = assert!(NET_HEADER_BYTES == FRAME_NOTE_BYTES, "a frame's note is its virtio header");

/// Bytes of the frames of one call: the other cell's control hart copies them in one stretch.
const BYTES: usize = subnet::MAX_FRAME;

/// Whether frames wait for other cells: a hint for who looks.
static IS_LEAVING: AtomicBool = AtomicBool::new(false);

/// The ports to other cells' parts of a subnet.
#[derive(Debug)]
pub(super) struct Trunks([Option<PortId>; CELLS]);

impl Trunks {
    /// To all cells but this one; they are not joined yet.
    pub(super) fn new(inner: &mut Inner, others: impl Iterator<Item = CellId>) -> Self {
        let mut trunks = Self([None; CELLS]);
        for other in others {
            let port = inner.attach(PortKind::Uplink, End::Cell).map(|(port, _)| port).ok();
            port.into_iter().for_each(|port| inner.switch.set_link(port, false));
            trunks.0[other.index()] = port;
        }
        trunks
    }

    fn to(&self, cell: CellId) -> Option<PortId> {
        self.0[cell.index()]
    }
}

/// Frames on their way to another cell. They stay where they are as long as this is kept.
#[derive(Debug)]
pub struct Departure {
    request: Frames,
    _frames: ArrayVec<Frame<NetHeader>, FRAMES>,
}

impl Departure {
    /// What the other cell is told.
    #[must_use]
    pub fn request(&self) -> &Frames {
        &self.request
    }
}

/// Whether frames may wait for other cells.
#[must_use]
pub fn is_leaving() -> bool {
    IS_LEAVING.load(Ordering::SeqCst)
}

/// Notes that frames wait for another cell.
pub(super) fn note_leaving() {
    IS_LEAVING.store(true, Ordering::SeqCst);
}

/// Who hands frames to other cells is about to look at all of them.
pub fn begin_look() {
    IS_LEAVING.store(false, Ordering::SeqCst);
}

/// Whether this cell's parts of the subnets are joined with those of `cell`. What waits for one that is not is lost.
pub fn set_joined(cell: CellId, is_joined: bool) {
    for network in all() {
        if let Some(port) = network.trunks.to(cell) {
            network.inner.lock().switch.set_link(port, is_joined);
        }
    }
}

/// Takes frames of one subnet that wait for `cell`: of the first that has any, from subnet `turn` on.
#[must_use]
pub fn depart(cell: CellId, turn: usize) -> Option<Departure> {
    let networks = all();
    let found = (0..networks.len()).find_map(|step| {
        let number = (turn + step) % networks.len();
        networks[number].depart(number, cell)
    })?;
    // There may be more.
    note_leaving();
    Some(found)
}

/// Takes frames in that another cell has sent, as far as there is memory for them. Whether any has come.
pub fn arrive(from: CellId, facts: &Facts, frames: &Frames) -> bool {
    let Some(network) = all().get(usize::from(frames.subnet)) else { return false };
    let Some(port) = network.trunks.to(from) else { return false };
    let mut has_come = false;
    for place in frames.places() {
        // What finds no memory is lost, as on a wire, and so is what cannot be read.
        has_come |= network.fetch(port, place, facts).is_some();
    }
    network.deliver();
    has_come
}

impl Network {
    fn depart(&self, number: usize, cell: CellId) -> Option<Departure> {
        let port = self.trunks.to(cell)?;
        let mut request = Frames::new(u16::try_from(number).ok()?);
        let mut frames = ArrayVec::new();
        let mut room = BYTES;
        while !frames.is_full()
            && let Some(frame) = self.take_within(port, room)
        {
            let bytes = frame.bytes();
            room -= bytes.len();
            let address = memory::machine_address_of(bytes.as_ptr() as u64).raw();
            let note = frame.header().encode();
            request.push(FramePlace { address, bytes: bytes.len() as u32, note });
            frames.push(frame);
        }
        (!frames.is_empty()).then_some(Departure { request, _frames: frames })
    }

    /// The next frame for a port, if it has no more bytes than this.
    fn take_within(&self, port: PortId, bytes: usize) -> Option<Frame<NetHeader>> {
        let mut inner = self.inner.lock();
        let is_small = inner.switch.peek(port).is_some_and(|frame| frame.bytes().len() <= bytes);
        if is_small { inner.switch.take(port) } else { None }
    }

    fn fetch(&self, port: PortId, place: &FramePlace, facts: &Facts) -> Option<()> {
        let range = AddressRange::new(MachineAddr::new(place.address), place.bytes.into())?;
        let header = NetHeader::decode(&place.note, place.bytes).ok()?;
        if !facts.has(range) {
            return None;
        }
        let mut frame = self.frame(place.bytes as usize).ok()?;
        direct::try_read_bytes(range.start(), frame.bytes_mut())?;
        self.send(port, header, frame);
        Some(())
    }
}
