//! The words of the NBD protocol (github.com/NetworkBlockDevice/nbd, doc/proto.md), as far as they are used: fixed
//! newstyle negotiation, simple replies. All numbers are big-endian.

use disk_model::SECTOR_BYTES;

/// Largest request: what the protocol says a client may expect.
pub const MAX_REQUEST: u32 = 32 << 20;

pub const NBD_MAGIC: [u8; 8] = *b"NBDMAGIC";
pub const OPTION_MAGIC: [u8; 8] = *b"IHAVEOPT";
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const REPLY_MAGIC: u32 = 0x6744_6698;

/// Handshake: fixed newstyle, and no padding after the export's description.
pub const SERVER_FLAGS: u16 = 1 | 2;

pub const OPTION_EXPORT_NAME: u32 = 1;
pub const OPTION_ABORT: u32 = 2;
pub const OPTION_INFO: u32 = 6;
pub const OPTION_GO: u32 = 7;

pub const REPLY_ACK: u32 = 1;
pub const REPLY_INFO: u32 = 3;
pub const REPLY_UNSUPPORTED: u32 = 1 << 31 | 1;
pub const REPLY_INVALID: u32 = 1 << 31 | 3;

pub const INFO_EXPORT: u16 = 0;
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Bytes of a request before its data.
pub const REQUEST_BYTES: usize = 28;

/// Errors of a request, by their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WireError {
    None = 0,
    /// Writing to a read-only disk.
    NotPermitted = 1,
    /// The file failed.
    Io = 5,
    /// The request makes no sense.
    Invalid = 22,
    /// The host's disk is full.
    NoSpace = 28,
}

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Data comes with the answer.
    Read,
    /// Data comes with the request.
    Write,
    /// What was written becomes durable.
    Flush,
    /// The client goes.
    Disconnect,
    /// One that the server did not offer.
    Other,
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What is asked.
    pub command: Command,
    /// Names the request in its answer.
    pub cookie: u64,
    /// First byte of the disk.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

impl Head {
    /// Reads a head; `None` if it is none: the stream is out of step then, and there is no way back.
    #[must_use]
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let (magic, rest) = take::<4>(bytes)?;
        let (_flags, rest) = take::<2>(rest)?;
        let (command, rest) = take::<2>(rest)?;
        let (cookie, rest) = take::<8>(rest)?;
        let (offset, rest) = take::<8>(rest)?;
        let (length, _) = take::<4>(rest)?;
        let command = match u16::from_be_bytes(command) {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            _ => Command::Other,
        };
        let head = Self {
            command,
            cookie: u64::from_be_bytes(cookie),
            offset: u64::from_be_bytes(offset),
            bytes: u32::from_be_bytes(length),
        };
        (u32::from_be_bytes(magic) == REQUEST_MAGIC).then_some(head)
    }

    /// Bytes of data that follow the head.
    #[must_use]
    pub const fn payload(&self) -> u32 {
        if matches!(self.command, Command::Write) { self.bytes } else { 0 }
    }

    /// First sector and number of sectors; `None` if it is not made of whole sectors of the disk.
    #[must_use]
    pub fn sectors(&self, capacity: u64) -> Option<(u64, u64)> {
        let bytes = u64::from(self.bytes);
        let is_whole = self.offset.is_multiple_of(SECTOR_BYTES) && bytes.is_multiple_of(SECTOR_BYTES) && bytes > 0;
        let (sector, sectors) = (self.offset / SECTOR_BYTES, bytes / SECTOR_BYTES);
        (is_whole && self.bytes <= MAX_REQUEST && sector.checked_add(sectors)? <= capacity).then_some((sector, sectors))
    }
}

/// A reply without data.
pub fn reply(cookie: u64, error: WireError) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    bytes.extend(REPLY_MAGIC.to_be_bytes());
    bytes.extend((error as u32).to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes
}

/// What the transmission phase offers: flushes, and nothing else beyond reading and writing.
pub const fn export_flags(is_read_only: bool) -> u16 {
    1 | 4 | if is_read_only { 2 } else { 0 }
}

/// The first bytes, and the rest.
pub fn take<const BYTES: usize>(bytes: &[u8]) -> Option<([u8; BYTES], &[u8])> {
    bytes.split_first_chunk().map(|(first, rest)| (*first, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(command: u16, offset: u64, bytes: u32) -> Option<Head> {
        let mut wire = Vec::from(REQUEST_MAGIC.to_be_bytes());
        wire.extend([0, 0]);
        wire.extend(command.to_be_bytes());
        wire.extend(7_u64.to_be_bytes());
        wire.extend(offset.to_be_bytes());
        wire.extend(bytes.to_be_bytes());
        Head::decode(wire.as_slice().try_into().expect("28 bytes"))
    }

    #[test]
    fn heads_are_read() {
        let write = head(1, 512, 1024).expect("it is one");
        assert_eq!((write.command, write.cookie, write.payload()), (Command::Write, 7, 1024));
        assert_eq!((write.sectors(3), write.sectors(2)), (Some((1, 2)), None));
        let read = head(0, 0, 512).expect("it is one");
        assert_eq!((read.payload(), read.sectors(1)), (0, Some((0, 1))));
        assert_eq!(head(9, 0, 0).map(|head| head.command), Some(Command::Other));
        assert_eq!(Head::decode(&[0; REQUEST_BYTES]), None);
    }

    #[test]
    fn only_whole_sectors_of_the_disk() {
        for (offset, bytes) in [(1, 512), (0, 1), (0, 0), (0, MAX_REQUEST + 512)] {
            assert_eq!(head(0, offset, bytes).and_then(|head| head.sectors(u64::MAX)), None, "{offset} {bytes}");
        }
    }
}
