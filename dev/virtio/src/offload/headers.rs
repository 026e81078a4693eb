//! Finding the headers of a frame that is to be cut, and adjusting them for each segment.

use super::checksum::Sum;
use super::{Gso, NetHeader, OffloadError};

const ETHERTYPE: usize = 12;
const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
const PROTO_TCP: u8 = 6;
const PROTO_UDP: u8 = 17;
const IPV4_MIN: usize = 20;
const IPV6_FIXED: usize = 40;
/// Extension headers that are passed over. RFC 8200, "Extension Header Order", lists no more that an uncut packet has in front of TCP or UDP.
const IPV6_EXTENSIONS: usize = 4;
const IPV6_HOP_BY_HOP: u8 = 0;
const IPV6_ROUTING: u8 = 43;
const IPV6_DESTINATION: u8 = 60;
const TCP_MIN: usize = 20;
const UDP: usize = 8;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Where the headers of a frame are. Invariant: `network + minimum <= transport < payload <= frame length`. They were read from the
/// frame: a sender cannot pass payload off as headers, which each segment would repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    network: usize,
    transport: usize,
    /// First byte after all headers.
    pub payload: usize,
    is_ipv6: bool,
    is_tcp: bool,
}

/// One segment's place in the large frame.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// 0 for the first.
    pub number: u16,
    /// Its payload's offset in the large payload.
    pub offset: u32,
    /// Whether it is the last.
    pub is_last: bool,
}

impl Headers {
    /// Finds the headers of `frame`, which must be what `header` says.
    pub fn find(header: &NetHeader, frame: &[u8]) -> Result<Self, OffloadError> {
        let transport = usize::from(header.checksum.ok_or(OffloadError::WrongProtocol)?.start);
        let (network, is_ipv6) = network_layer(frame)?;
        let (protocol, found) = if is_ipv6 { ipv6_transport(frame, network)? } else { ipv4_transport(frame, network)? };
        let (is_tcp, family_fits) = match header.gso {
            Gso::TcpV4 => (true, !is_ipv6),
            Gso::TcpV6 => (true, is_ipv6),
            Gso::Udp => (false, true),
            Gso::None => return Err(OffloadError::WrongProtocol),
        };
        let expected = if is_tcp { PROTO_TCP } else { PROTO_UDP };
        // What the sender says must be what the frame says.
        if transport != found || protocol != expected || !family_fits {
            return Err(OffloadError::WrongProtocol);
        }
        let len = if is_tcp { usize::from(byte(frame, transport + 12)? >> 4) * 4 } else { UDP };
        let payload = transport + len;
        if is_tcp && len < TCP_MIN {
            return Err(OffloadError::WrongProtocol);
        }
        if payload > frame.len() {
            return Err(OffloadError::Truncated);
        }
        Ok(Self { network, transport, payload, is_ipv6, is_tcp })
    }

    /// Makes `packet`, which has the large frame's headers and this segment's payload, a frame of its own.
    pub fn adjust(&self, packet: &mut [u8], segment: Segment) -> Result<(), OffloadError> {
        self.adjust_network(packet, segment.number)?;
        if self.is_tcp {
            self.adjust_tcp(packet, segment)?;
        } else {
            let len = u16::try_from(packet.len() - self.transport).map_err(|_| OffloadError::TooLarge)?;
            put(packet, self.transport + 4, &len.to_be_bytes())?;
        }
        let at = self.transport + if self.is_tcp { 16 } else { 6 };
        put(packet, at, &[0, 0])?;
        let sum = self.pseudo_header(packet)?.add_bytes(packet.get(self.transport..).ok_or(OffloadError::Truncated)?);
        put(packet, at, &sum.finish())
    }

    fn adjust_network(&self, packet: &mut [u8], number: u16) -> Result<(), OffloadError> {
        if self.is_ipv6 {
            let len = packet.len() - self.network - IPV6_FIXED;
            let len = u16::try_from(len).map_err(|_| OffloadError::TooLarge)?;
            return put(packet, self.network + 4, &len.to_be_bytes());
        }
        let len = u16::try_from(packet.len() - self.network).map_err(|_| OffloadError::TooLarge)?;
        put(packet, self.network + 2, &len.to_be_bytes())?;
        let id = be16(packet, self.network + 4)?.wrapping_add(number);
        put(packet, self.network + 4, &id.to_be_bytes())?;
        put(packet, self.network + 10, &[0, 0])?;
        let header = packet.get(self.network..self.transport).ok_or(OffloadError::Truncated)?;
        put(packet, self.network + 10, &Sum::default().add_bytes(header).finish())
    }

    fn adjust_tcp(&self, packet: &mut [u8], segment: Segment) -> Result<(), OffloadError> {
        let at = self.transport + 4;
        let raw = packet.get(at..at + 4).and_then(|raw| raw.try_into().ok()).ok_or(OffloadError::Truncated)?;
        let sequence = u32::from_be_bytes(raw).wrapping_add(segment.offset);
        put(packet, at, &sequence.to_be_bytes())?;
        let mut flags = byte(packet, self.transport + 13)?;
        if !segment.is_last {
            flags &= !(TCP_FIN | TCP_PSH);
        }
        if segment.number != 0 {
            flags &= !TCP_CWR;
        }
        put(packet, self.transport + 13, &[flags])
    }

    /// The sum of the pseudo header: addresses, protocol, transport length.
    fn pseudo_header(&self, packet: &[u8]) -> Result<Sum, OffloadError> {
        let addresses =
            if self.is_ipv6 { self.network + 8..self.network + 40 } else { self.network + 12..self.network + 20 };
        let addresses = packet.get(addresses).ok_or(OffloadError::Truncated)?;
        let protocol = if self.is_tcp { PROTO_TCP } else { PROTO_UDP };
        let len = u16::try_from(packet.len() - self.transport).map_err(|_| OffloadError::TooLarge)?;
        Ok(Sum::default().add_bytes(addresses).add_u16(u16::from(protocol)).add_u16(len))
    }
}

/// Offset of the network header, and whether it is IPv6. Passes up to two VLAN tags.
fn network_layer(frame: &[u8]) -> Result<(usize, bool), OffloadError> {
    let mut at = ETHERTYPE;
    for _ in 0..3 {
        match be16(frame, at)? {
            TYPE_IPV4 => return Ok((at + ETHERNET - ETHERTYPE, false)),
            TYPE_IPV6 => return Ok((at + ETHERNET - ETHERTYPE, true)),
            TYPE_VLAN | TYPE_SERVICE_VLAN => at += VLAN_TAG,
            _ => break,
        }
    }
    Err(OffloadError::WrongProtocol)
}

/// The protocol that an IPv4 packet carries, and where its header begins.
fn ipv4_transport(frame: &[u8], network: usize) -> Result<(u8, usize), OffloadError> {
    let len = usize::from(byte(frame, network)? & 0xf) * 4;
    if len < IPV4_MIN {
        return Err(OffloadError::WrongProtocol);
    }
    Ok((byte(frame, network + 9)?, network + len))
}

/// The same of an IPv6 packet, behind its extension headers.
fn ipv6_transport(frame: &[u8], network: usize) -> Result<(u8, usize), OffloadError> {
    let (mut next, mut at) = (byte(frame, network + 6)?, network + IPV6_FIXED);
    for _ in 0..IPV6_EXTENSIONS {
        if !matches!(next, IPV6_HOP_BY_HOP | IPV6_ROUTING | IPV6_DESTINATION) {
            break;
        }
        (next, at) = (byte(frame, at)?, at + 8 + usize::from(byte(frame, at + 1)?) * 8);
    }
    Ok((next, at))
}

fn byte(data: &[u8], at: usize) -> Result<u8, OffloadError> {
    data.get(at).copied().ok_or(OffloadError::Truncated)
}

fn be16(data: &[u8], at: usize) -> Result<u16, OffloadError> {
    Ok(u16::from_be_bytes([byte(data, at)?, byte(data, at + 1)?]))
}

fn put(data: &mut [u8], at: usize, bytes: &[u8]) -> Result<(), OffloadError> {
    data.get_mut(at..at + bytes.len()).ok_or(OffloadError::Truncated)?.copy_from_slice(bytes);
    Ok(())
}
