//! An entropy device: random bytes, once.

use virtio_drivers::transport::{DeviceType, Transport};

use crate::{
    Found,
    device::Device,
    dma::DmaArea,
    error::IoError,
    platform::Platform,
    ring::{Alert, Piece, Ring},
};

const QUEUE: u16 = 0;
/// Bytes asked for.
const BYTES: usize = 64;

/// Asks an entropy device for 64 bytes and lets go of it: it is reset, whatever comes of it. Gives the bytes and how
/// many of them the device has written. Waits while `is_patient` says so.
///
/// # Errors
/// The device is of another kind, does not answer in time, or breaks the rules of its queue.
pub fn read_entropy<P: Platform, T: Transport>(
    found: Found<T>,
    mut is_patient: impl FnMut() -> bool,
) -> Result<([u8; BYTES], usize), IoError> {
    if found.kind() != Some(DeviceType::EntropySource) {
        return Err(IoError::WrongKind);
    }
    let (transport, ..) = found.into_parts();
    let mut device = Device::begin(transport, 0)?;
    let mut queue: Ring<P> = device.queue(QUEUE)?;
    device.go();
    let area = DmaArea::<P>::new(BYTES)?;
    queue.add([Piece { address: area.address(0), bytes: BYTES as u32, is_written: true }].into_iter(), 0)?;
    device.notify(&mut queue);
    loop {
        if let Some(used) = queue.pop(Alert::No).map_err(IoError::DeviceFailed)? {
            let mut bytes = [0; BYTES];
            area.read_bytes(0, &mut bytes);
            return Ok((bytes, (used.written as usize).min(BYTES)));
        }
        if !is_patient() {
            return Err(IoError::Timeout);
        }
    }
}
