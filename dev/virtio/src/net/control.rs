//! The control queue.

use device::GuestMemory;

use super::spec;
use crate::error::{DeviceError, ProtocolError, RingError};
use crate::queue::Chain;

/// Answers the command in `chain` with one byte.
pub fn answer(chain: &mut Chain, memory: &dyn GuestMemory) -> Result<(), DeviceError> {
    let mut command = [0; 2];
    chain.read_exact(memory, &mut command)?;
    if chain.writable_len() == 0 {
        return Err(ProtocolError::NoRoomForAnswer.into());
    }
    let is_accepted = match command {
        [spec::CTRL_RX, 0..=spec::CTRL_RX_ALLMULTI] => chain.readable_len() == 1,
        [spec::CTRL_MAC, spec::CTRL_MAC_TABLE_SET] => is_mac_table(chain, memory)?,
        _ => false,
    };
    let answer = if is_accepted { spec::CTRL_OK } else { spec::CTRL_ERR };
    chain.write_some(memory, &[answer])?;
    Ok(())
}

/// Whether the rest of the chain is two tables, each a count and that many addresses. Reads all of them.
fn is_mac_table(chain: &mut Chain, memory: &dyn GuestMemory) -> Result<bool, RingError> {
    for _ in 0..2 {
        let mut count = [0; 4];
        if chain.read_some(memory, &mut count)? != count.len() {
            return Ok(false);
        }
        let Some(bytes) = u32::from_le_bytes(count).checked_mul(6).filter(|&bytes| bytes <= chain.readable_len())
        else {
            return Ok(false);
        };
        chain.skip_readable(bytes);
    }
    Ok(chain.readable_len() == 0)
}
