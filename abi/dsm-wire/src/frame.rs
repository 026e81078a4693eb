//! The head of a frame.
//!
//! An Ethernet payload is a [`Header`], then sealed bytes, then their tag. The header is in the clear, and the tag covers it. Sealed are
//! records: two bytes of length with the bits `FIRST` and `LAST`, then so many bytes of an envelope. A short envelope is one record, and
//! many go into a frame; a long one is several records in frames that follow each other.

/// What each frame begins with: `MBDS`.
pub const MAGIC: [u8; 4] = *b"MBDS";
/// The version of this layout and of the messages.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 56;
/// Bytes of the tag behind the sealed bytes.
pub const TAG_BYTES: usize = 16;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The sender has begun, and knows the receiver or not; no records.
    Hello,
    /// Records; none if the frame only tells what has arrived.
    Data,
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// What it is for.
    pub kind: Kind,
    /// Its sender.
    pub from: u8,
    /// Its receiver.
    pub to: u8,
    /// Drawn at random when the sender began.
    pub sender_life: u64,
    /// The receiver's, as the sender knows it; 0: not yet.
    pub receiver_life: u64,
    /// Counts all frames of this sender to this receiver, those sent again as well. Never twice the same in one life.
    pub packet: u64,
    /// The place of this frame's records in the stream to this receiver: 1 for the first; 0: no records.
    pub sequence: u64,
    /// Up to here the sender has received the other stream without a gap.
    pub received: u64,
    /// A mark that must be the same on both sides: page size, instruction set, VM.
    pub agreement: u64,
}

impl Header {
    /// The header as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        let kind = match self.kind {
            Kind::Hello => 0,
            Kind::Data => 1,
        };
        bytes[4..8].copy_from_slice(&[VERSION, kind, self.from, self.to]);
        let words = [self.sender_life, self.receiver_life, self.packet, self.sequence, self.received, self.agreement];
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The header of `frame` and what follows it; nothing if this is none of ours or of another version.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = frame.split_first_chunk::<HEADER_BYTES>()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let kind = match bytes[5] {
            0 => Kind::Hello,
            1 => Kind::Data,
            _ => return None,
        };
        let mut words = [0; 6];
        for (word, place) in words.iter_mut().zip(bytes[8..].chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [sender_life, receiver_life, packet, sequence, received, agreement] = words;
        let (from, to) = (bytes[6], bytes[7]);
        Some((Self { kind, from, to, sender_life, receiver_life, packet, sequence, received, agreement }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_foreign_ones_do_not() {
        let header = Header {
            kind: Kind::Data,
            from: 1,
            to: 2,
            sender_life: 3,
            receiver_life: 4,
            packet: 5,
            sequence: 6,
            received: 7,
            agreement: u64::MAX,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Some((header, &[][..])));
        assert_eq!(Header::parse(&bytes[..HEADER_BYTES - 1]), None);
        for at in 0..6 {
            let mut other = bytes;
            other[at] ^= 0x40;
            assert_eq!(Header::parse(&other), None, "byte {at}");
        }
    }
}
