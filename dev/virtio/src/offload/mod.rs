//! Doing in software what a sender has left to its network card: checksums and segmentation.
//!
//! Frames cross between guests with their [`NetHeader`], so that a large segment passes whole and no checksum is ever
//! computed. Only where a frame leaves for a receiver that cannot do the work (the machine's NIC, a guest without the
//! feature) does [`make_plain`] do it. Pure functions over byte slices; no allocation.
//!
//! Refused: frames that are not what their header says. They come from a guest, so they are dropped, never trusted.

mod checksum;
mod header;
mod headers;
#[cfg(test)]
mod tests;

pub use checksum::{Sum, complete_checksum};
pub use header::{Gso, HeaderError, NET_HEADER_BYTES, NetHeader, PartialChecksum};

use self::headers::{Headers, Segment};

/// Why a frame cannot be made plain. It is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadError {
    /// The frame ends before its headers do.
    Truncated,
    /// The frame is not of the protocol that its header names.
    WrongProtocol,
    /// A segment does not fit the scratch space or a length field.
    TooLarge,
}

/// Carries out what `header` asks for and gives each resulting plain frame to `emit`, in order.
///
/// `frame` may be changed; `scratch` is used only for segmentation and must hold one segment with its headers.
/// Returns the number of frames.
///
/// # Errors
/// [`OffloadError`]; segments emitted before it are fine.
pub fn make_plain(
    header: &NetHeader,
    frame: &mut [u8],
    scratch: &mut [u8],
    emit: &mut dyn FnMut(&[u8]),
) -> Result<u32, OffloadError> {
    if header.gso != Gso::None {
        return segment(header, frame, scratch, emit);
    }
    if let Some(partial) = header.checksum {
        complete_checksum(frame, partial)?;
    }
    emit(frame);
    Ok(1)
}

/// Cuts a large TCP segment or a train of UDP datagrams into frames of `header.gso_size` payload bytes.
///
/// # Errors
/// As for [`make_plain`].
pub fn segment(
    header: &NetHeader,
    frame: &[u8],
    scratch: &mut [u8],
    emit: &mut dyn FnMut(&[u8]),
) -> Result<u32, OffloadError> {
    let headers = Headers::find(header, frame)?;
    let (head, payload) = frame.split_at_checked(headers.payload).ok_or(OffloadError::Truncated)?;
    let size = usize::from(header.gso_size.max(1));
    let mut offset = 0;
    let mut number = 0_u16;
    // A frame without payload is one segment too.
    loop {
        let part = payload.get(offset..payload.len().min(offset + size)).ok_or(OffloadError::Truncated)?;
        let packet = scratch.get_mut(..head.len() + part.len()).ok_or(OffloadError::TooLarge)?;
        let (to_head, to_part) = packet.split_at_mut(head.len());
        to_head.copy_from_slice(head);
        to_part.copy_from_slice(part);
        let place_offset = u32::try_from(offset).map_err(|_| OffloadError::TooLarge)?;
        offset += part.len();
        let is_last = offset >= payload.len();
        headers.adjust(packet, Segment { number, offset: place_offset, is_last })?;
        emit(packet);
        number = number.wrapping_add(1);
        if is_last {
            return Ok(u32::from(number));
        }
    }
}
