//! The beginning of a connection: the client finds out what is exported.

use std::io::{self, Read, Write};

use disk_model::SECTOR_BYTES;

use crate::image::Image;
use crate::protocol::{
    INFO_BLOCK_SIZE, INFO_EXPORT, MAX_REQUEST, NBD_MAGIC, OPTION_ABORT, OPTION_EXPORT_NAME, OPTION_GO, OPTION_INFO,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, REPLY_ACK, REPLY_INFO, REPLY_INVALID, REPLY_UNSUPPORTED, SERVER_FLAGS,
    export_flags, take,
};

/// Longest option that is read: names are at most 4,096 bytes.
const MAX_OPTION: u32 = 8192;
/// Most options of a handshake.
const MAX_OPTIONS: usize = 32;

/// Negotiates until the client wants to begin. Any name means the one export.
///
/// # Errors
/// The client goes, or breaks the protocol.
pub fn negotiate(stream: &mut (impl Read + Write), image: &Image) -> io::Result<()> {
    let mut greeting = Vec::from(NBD_MAGIC);
    greeting.extend(OPTION_MAGIC);
    greeting.extend(SERVER_FLAGS.to_be_bytes());
    stream.write_all(&greeting)?;
    let flags = u32::from_be_bytes(read(stream)?);
    if flags & !u32::from(SERVER_FLAGS) != 0 || flags & 1 == 0 {
        return Err(broken("the client does not speak the fixed newstyle handshake"));
    }
    let pads = flags & 2 == 0;
    for _ in 0..MAX_OPTIONS {
        if read::<8>(stream)? != OPTION_MAGIC {
            return Err(broken("an option does not begin as one"));
        }
        let option = u32::from_be_bytes(read(stream)?);
        let length = u32::from_be_bytes(read(stream)?);
        if length > MAX_OPTION {
            return Err(broken("an option is too long"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        if answer(stream, image, option, &data, pads)? {
            return Ok(());
        }
    }
    Err(broken("the client does not come to an end with its options"))
}

/// Answers an option; true when transmission begins.
fn answer(stream: &mut impl Write, image: &Image, option: u32, data: &[u8], pads: bool) -> io::Result<bool> {
    match option {
        OPTION_EXPORT_NAME => {
            let mut bytes = Vec::from((image.sectors() * SECTOR_BYTES).to_be_bytes());
            bytes.extend(export_flags(image.is_read_only()).to_be_bytes());
            bytes.resize(bytes.len() + if pads { 124 } else { 0 }, 0);
            stream.write_all(&bytes)?;
            Ok(true)
        }
        OPTION_ABORT => {
            option_reply(stream, option, REPLY_ACK, &[])?;
            Err(broken("the client went during the handshake"))
        }
        OPTION_GO | OPTION_INFO if is_info_request(data) => {
            let mut export = Vec::from(INFO_EXPORT.to_be_bytes());
            export.extend((image.sectors() * SECTOR_BYTES).to_be_bytes());
            export.extend(export_flags(image.is_read_only()).to_be_bytes());
            option_reply(stream, option, REPLY_INFO, &export)?;
            let mut sizes = Vec::from(INFO_BLOCK_SIZE.to_be_bytes());
            for size in [SECTOR_BYTES as u32, 4096, MAX_REQUEST] {
                sizes.extend(size.to_be_bytes());
            }
            option_reply(stream, option, REPLY_INFO, &sizes)?;
            option_reply(stream, option, REPLY_ACK, &[])?;
            Ok(option == OPTION_GO)
        }
        OPTION_GO | OPTION_INFO => option_reply(stream, option, REPLY_INVALID, &[]).map(|()| false),
        _ => option_reply(stream, option, REPLY_UNSUPPORTED, &[]).map(|()| false),
    }
}

/// A name with its length, and so many numbers of two bytes as their count says.
fn is_info_request(data: &[u8]) -> bool {
    let Some((length, rest)) = take::<4>(data) else { return false };
    let Some(rest) = rest.get(u32::from_be_bytes(length) as usize..) else { return false };
    take::<2>(rest).is_some_and(|(count, wanted)| wanted.len() == usize::from(u16::from_be_bytes(count)) * 2)
}

fn option_reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::from(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

fn read<const BYTES: usize>(stream: &mut impl Read) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
