//! What calls carry: pieces of a pipe, reads of the machine's disks, frames of subnets.
//!
//! Word 1 says which of them it is ([`Kind`]). Addresses are of memory of the cell that asks. Who is asked reads there through
//! guarded loads, or lets a device write there; it stores nothing itself.

use crate::board::{PAYLOAD_WORDS, Payload};

/// Most pages of one read of a disk.
pub const READ_PAGES: usize = 2 * (PAYLOAD_WORDS - READ_HEADER_WORDS);
/// Most frames of one call.
pub const FRAMES: usize = (PAYLOAD_WORDS - FRAMES_HEADER_WORDS) / FRAME_WORDS;
/// Bytes that go with a frame, which this crate does not interpret.
pub const FRAME_NOTE_BYTES: usize = 12;

const KIND_SHIFT: u32 = 32;
const READ_HEADER_WORDS: usize = 4;
const FRAMES_HEADER_WORDS: usize = 2;
/// A frame's address; its length beside the first four bytes of its note; the rest of the note.
const FRAME_WORDS: usize = 3;
const SECTORS_PER_PAGE: u32 = 8;

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A [`crate::Pipe`]'s piece.
    Piece,
    /// A [`DiskRead`].
    DiskRead,
    /// [`Frames`].
    Frames,
}

impl Kind {
    const READ: u64 = 1;
    const FRAMES: u64 = 2;

    /// What this payload is; `None` if this image knows no such kind.
    #[must_use]
    pub const fn of(payload: &Payload) -> Option<Self> {
        match payload[1] >> KIND_SHIFT {
            0 => Some(Self::Piece),
            Self::READ => Some(Self::DiskRead),
            Self::FRAMES => Some(Self::Frames),
            _ => None,
        }
    }
}

/// A read of a disk of the machine into pages of the cell that asks. The sectors fill the pages in their order, each from its
/// beginning, and all but the last one whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRead {
    /// Which disk, by its number among the machine's.
    pub disk: u16,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// How many of them.
    pub sectors: u32,
    pages: [u32; READ_PAGES],
    count: usize,
}

impl DiskRead {
    /// A read into the machine pages with these numbers. `None` if they are too many, or not as many as the sectors fill, or lie beyond
    /// 16 TiB.
    #[must_use]
    pub fn new(disk: u16, sector: u64, sectors: u32, pages: impl Iterator<Item = u64>) -> Option<Self> {
        let mut read = Self { disk, sector, sectors, pages: [0; READ_PAGES], count: 0 };
        for page in pages {
            *read.pages.get_mut(read.count)? = page.try_into().ok()?;
            read.count += 1;
        }
        read.is_whole().then_some(read)
    }

    /// The numbers of the pages, each with the sectors that go there.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u32)> {
        let pages = self.pages.iter().take(self.count);
        pages.zip(0..).map(|(page, at)| {
            let left = self.sectors.saturating_sub(at * SECTORS_PER_PAGE);
            (u64::from(*page), left.min(SECTORS_PER_PAGE))
        })
    }

    /// As a request.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let mut words = [0; PAYLOAD_WORDS];
        words[0] = self.sector;
        words[1] = Kind::READ << KIND_SHIFT | u64::from(self.disk) << 16 | self.count as u64;
        words[2] = self.sectors.into();
        for (word, pair) in words[READ_HEADER_WORDS..].iter_mut().zip(self.pages.as_chunks::<2>().0) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        words
    }

    /// A request read back; `None` if it is none.
    #[must_use]
    pub fn from_payload(payload: &Payload) -> Option<Self> {
        if Kind::of(payload) != Some(Kind::DiskRead) {
            return None;
        }
        let pages = payload[READ_HEADER_WORDS..].iter().flat_map(|word| [*word & u64::from(u32::MAX), *word >> 32]);
        let count = (payload[1] & 0xffff) as usize;
        if count > READ_PAGES {
            return None;
        }
        let disk = (payload[1] >> 16 & 0xffff) as u16;
        Self::new(disk, payload[0], payload[2].try_into().ok()?, pages.take(count))
    }

    fn is_whole(&self) -> bool {
        self.sectors > 0 && self.sectors.div_ceil(SECTORS_PER_PAGE) as usize == self.count
    }

    /// The answer to a read that went well, or did not.
    #[must_use]
    pub fn answer(is_ok: bool) -> Payload {
        let mut words = [0; PAYLOAD_WORDS];
        words[0] = is_ok.into();
        words
    }

    /// Whether this answer says that the pages have been read.
    #[must_use]
    pub const fn was_ok(answer: &Payload) -> bool {
        answer[0] == 1
    }
}

/// A frame in the memory of the cell that sends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramePlace {
    /// The machine address of its first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: u32,
    /// What goes with it.
    pub note: [u8; FRAME_NOTE_BYTES],
}

/// Frames for another cell's part of a subnet. They stay where they are until the call has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Which subnet, by its number in the machine's configuration.
    pub subnet: u16,
    places: [FramePlace; FRAMES],
    count: usize,
}

impl Frames {
    /// No frames yet.
    #[must_use]
    pub fn new(subnet: u16) -> Self {
        Self { subnet, places: [FramePlace::default(); FRAMES], count: 0 }
    }

    /// Adds one, if there is room.
    pub fn push(&mut self, place: FramePlace) -> bool {
        let room = self.places.get_mut(self.count);
        let has_room = room.is_some();
        if let Some(room) = room {
            *room = place;
            self.count += 1;
        }
        has_room
    }

    /// Where they are, in order.
    #[must_use]
    pub fn places(&self) -> &[FramePlace] {
        &self.places[..self.count]
    }

    /// As a request.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let mut words = [0; PAYLOAD_WORDS];
        words[1] = Kind::FRAMES << KIND_SHIFT | u64::from(self.subnet) << 16 | self.count as u64;
        let rooms = words[FRAMES_HEADER_WORDS..].as_chunks_mut::<FRAME_WORDS>().0;
        for (room, place) in rooms.iter_mut().zip(self.places()) {
            let [n0, n1, n2, n3, rest @ ..] = place.note;
            let first = u32::from_le_bytes([n0, n1, n2, n3]);
            *room = [place.address, u64::from(place.bytes) | u64::from(first) << 32, u64::from_le_bytes(rest)];
        }
        words
    }

    /// A request read back; `None` if it is none.
    #[must_use]
    pub fn from_payload(payload: &Payload) -> Option<Self> {
        let count = (payload[1] & 0xffff) as usize;
        if Kind::of(payload) != Some(Kind::Frames) || count > FRAMES {
            return None;
        }
        let mut frames = Self::new((payload[1] >> 16 & 0xffff) as u16);
        for [address, mixed, rest] in payload[FRAMES_HEADER_WORDS..].as_chunks::<FRAME_WORDS>().0.iter().take(count) {
            let mut note = [0; FRAME_NOTE_BYTES];
            note[..4].copy_from_slice(&((*mixed >> 32) as u32).to_le_bytes());
            note[4..].copy_from_slice(&rest.to_le_bytes());
            frames.push(FramePlace { address: *address, bytes: *mixed as u32, note });
        }
        Some(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PIECE_BYTES;

    #[test]
    fn reads_come_back_as_they_were_sent() {
        for sectors in [1, 7, 8, 9, 8 * READ_PAGES as u32 - 1, 8 * READ_PAGES as u32] {
            let pages = (0..).map(|at| 0x8_0000 + 3 * at).take(sectors.div_ceil(8) as usize);
            let read = DiskRead::new(5, 1 << 33, sectors, pages).expect("a read");
            assert_eq!(DiskRead::from_payload(&read.payload()), Some(read.clone()));
            assert_eq!(read.pages().map(|(_, sectors)| sectors).sum::<u32>(), sectors);
            assert!(read.pages().all(|(_, sectors)| sectors > 0));
        }
    }

    #[test]
    fn reads_that_are_none_are_refused() {
        let pages = |count| (0..).take(count);
        assert_eq!(DiskRead::new(0, 0, 0, pages(0)), None, "no sectors");
        assert_eq!(DiskRead::new(0, 0, 8, pages(2)), None, "more pages than sectors fill");
        assert_eq!(DiskRead::new(0, 0, 17, pages(2)), None, "fewer");
        assert_eq!(DiskRead::new(0, 0, 8 * 33, pages(33)), None, "too many");
        assert_eq!(DiskRead::new(0, 0, 8, [1 << 32].into_iter()), None, "beyond what a word holds");
        let mut words = DiskRead::new(0, 0, 8, pages(1)).expect("a read").payload();
        assert_eq!(DiskRead::from_payload(&[0; PAYLOAD_WORDS]), None, "a piece");
        words[1] |= 0xffff;
        assert_eq!(DiskRead::from_payload(&words), None, "a count that is too large");
    }

    #[test]
    fn a_read_has_room_for_the_largest_operation_of_a_disk() {
        assert_eq!(READ_PAGES, 32);
    }

    #[test]
    fn frames_come_back_as_they_were_sent() {
        let mut frames = Frames::new(2);
        for at in 0..FRAMES {
            let note = core::array::from_fn(|byte| (at * 16 + byte) as u8);
            assert!(frames.push(FramePlace { address: u64::MAX - at as u64, bytes: 65_550 + at as u32, note }));
            assert_eq!(Frames::from_payload(&frames.payload()), Some(frames.clone()));
        }
        assert!(!frames.push(FramePlace::default()), "it is full");
    }

    #[test]
    fn kinds_are_told_apart() {
        let mut piece = [u64::MAX; PAYLOAD_WORDS];
        piece[1] = PIECE_BYTES as u64;
        assert_eq!(Kind::of(&piece), Some(Kind::Piece));
        piece[1] = 77 << KIND_SHIFT;
        assert_eq!(Kind::of(&piece), None);
        assert_eq!(Frames::from_payload(&piece), None);
    }
}
