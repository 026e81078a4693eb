//! What the switch reads of a frame: its two addresses.

use control::MacAddress;

/// Shortest frame: the Ethernet header.
pub const MIN_FRAME: usize = 14;
/// Longest frame: the largest IP packet, Ethernet header and a VLAN tag.
pub const MAX_FRAME: usize = 65_535 + 14 + 4;

/// Destination and source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub destination: MacAddress,
    pub source: MacAddress,
}

impl Addresses {
    /// `None` for a frame that is too short.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let header = frame.get(..MIN_FRAME)?;
        let (destination, rest) = header.split_first_chunk::<6>()?;
        let source = rest.first_chunk::<6>()?;
        Some(Self { destination: MacAddress(*destination), source: MacAddress(*source) })
    }
}

/// Whether an interface can have this address: it is neither a group's nor zero.
pub(crate) fn is_station(mac: MacAddress) -> bool {
    !mac.is_multicast() && mac.0 != [0; 6]
}

/// Whether this is one of the group addresses that end at a bridge (spanning tree, pause, link discovery ...).
pub(crate) const fn is_link_local(mac: MacAddress) -> bool {
    matches!(mac.0, [0x01, 0x80, 0xc2, 0x00, 0x00, last] if last <= 0x0f)
}
