use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A TCP or UDP frame over IPv4 or IPv6 with the pseudo header's sum in its checksum field, as a driver sends it.
fn frame(is_ipv6: bool, is_tcp: bool, vlan: bool, payload: &[u8]) -> (NetHeader, Vec<u8>) {
    let mut raw = std::vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if vlan {
        raw.extend([0x81, 0, 0, 7]);
    }
    raw.extend(if is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
    let transport_len = if is_tcp { 24 } else { 8 } + payload.len();
    let protocol = if is_tcp { 6 } else { 17 };
    let addresses = if is_ipv6 {
        raw.extend([0x60, 0, 0, 0]);
        raw.extend((transport_len as u16).to_be_bytes());
        raw.extend([protocol, 64]);
        (1..=32).collect::<Vec<u8>>()
    } else {
        raw.extend([0x45, 0]);
        raw.extend(((20 + transport_len) as u16).to_be_bytes());
        raw.extend([0xff, 0xff, 0x40, 0, 64, protocol, 0, 0]);
        std::vec![10, 0, 0, 1, 10, 0, 0, 2]
    };
    raw.extend(&addresses);
    let start = raw.len();
    raw.extend([0x12, 0x34, 0x00, 0x50]);
    if is_tcp {
        raw.extend([0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9, 0x60, 0x80 | 0x10 | 0x08 | 0x01, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0]);
    } else {
        raw.extend((transport_len as u16).to_be_bytes());
        raw.extend([0, 0]);
    }
    let offset: u16 = if is_tcp { 16 } else { 6 };
    let pseudo =
        Sum::default().add_bytes(&addresses).add_u16(u16::from(protocol)).add_u16(transport_len as u16).finish();
    let at = start + usize::from(offset);
    raw[at] = !pseudo[0];
    raw[at + 1] = !pseudo[1];
    raw.extend(payload);
    let gso = match (is_tcp, is_ipv6) {
        (true, false) => Gso::TcpV4,
        (true, true) => Gso::TcpV6,
        (false, _) => Gso::Udp,
    };
    let checksum = Some(PartialChecksum { start: start as u16, offset });
    (NetHeader { checksum, gso, gso_size: 1000, hdr_len: (start + 24) as u16 }, raw)
}

/// Makes all plain frames of one; returns how many.
fn make_plain(
    header: &NetHeader,
    frame: &mut [u8],
    scratch: &mut [u8],
    emit: &mut dyn FnMut(&[u8]),
) -> Result<u32, OffloadError> {
    let mut frames = PlainFrames::of(header, frame)?;
    let mut count = 0;
    while let Some(plain) = frames.current(frame, scratch)? {
        emit(plain);
        frames.advance(frame);
        count += 1;
    }
    Ok(count)
}

/// An independent, slow checksum over big-endian words: 0xffff for a correct packet.
fn verify(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn transport_is_valid(packet: &[u8], is_ipv6: bool, is_tcp: bool, network: usize) -> bool {
    let (addresses, transport) =
        if is_ipv6 { (network + 8..network + 40, network + 40) } else { (network + 12..network + 20, network + 20) };
    let len = ((packet.len() - transport) as u32).to_be_bytes();
    let protocol = [0, if is_tcp { 6 } else { 17 }];
    verify(&[&packet[addresses], &len, &protocol, &packet[transport..]]) == 0xffff
}

#[test]
fn a_partial_checksum_is_completed() {
    for (is_ipv6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut header, mut raw) = frame(is_ipv6, is_tcp, false, b"odd payload");
        header.gso = Gso::None;
        let mut emitted = Vec::new();
        make_plain(&header, &mut raw, &mut [], &mut |packet| emitted.push(packet.to_vec())).unwrap();
        assert_eq!(emitted.len(), 1);
        assert!(transport_is_valid(&emitted[0], is_ipv6, is_tcp, 14));
    }
}

#[test]
fn a_large_segment_becomes_valid_frames_that_carry_the_same_bytes() {
    let payload: Vec<u8> = (0..3210_u32).map(|n| (n * 7) as u8).collect();
    for vlan in [false, true] {
        for (is_ipv6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let (header, mut raw) = frame(is_ipv6, is_tcp, vlan, &payload);
            let network = if vlan { 18 } else { 14 };
            let head = raw.len() - payload.len();
            let mut emitted = Vec::new();
            let count =
                make_plain(&header, &mut raw, &mut [0; 1200], &mut |packet| emitted.push(packet.to_vec())).unwrap();
            assert_eq!((count, emitted.len()), (4, 4));
            let carried: Vec<u8> = emitted.iter().flat_map(|packet| packet[head..].to_vec()).collect();
            assert_eq!(carried, payload);
            for (number, packet) in emitted.iter().enumerate() {
                assert!(transport_is_valid(packet, is_ipv6, is_tcp, network), "segment {number}");
                if !is_ipv6 {
                    assert_eq!(verify(&[&packet[network..network + 20]]), 0xffff);
                    let id = u16::from_be_bytes([packet[network + 4], packet[network + 5]]);
                    assert_eq!(id, 0xffff_u16.wrapping_add(number as u16));
                    let len = u16::from_be_bytes([packet[network + 2], packet[network + 3]]);
                    assert_eq!(usize::from(len), packet.len() - network);
                }
                if is_tcp {
                    let tcp = head - 24;
                    let sequence = u32::from_be_bytes(packet[tcp + 4..tcp + 8].try_into().unwrap());
                    assert_eq!(sequence, 0xffff_fff0_u32.wrapping_add(1000 * number as u32));
                    let flags = packet[tcp + 13];
                    assert_eq!(flags & 0x80 != 0, number == 0, "CWR on the first only");
                    assert_eq!(flags & 0x09, if number == 3 { 0x09 } else { 0 }, "FIN and PSH on the last only");
                }
            }
        }
    }
}

#[test]
fn frames_that_are_not_what_the_header_says_are_refused() {
    let (header, raw) = frame(false, true, false, &[0; 2000]);
    let refusal = |header: &NetHeader, raw: &[u8]| {
        make_plain(header, &mut raw.to_vec(), &mut [0; 1200], &mut |_| {}).unwrap_err()
    };
    assert_eq!(refusal(&NetHeader { gso: Gso::TcpV6, ..header }, &raw), OffloadError::WrongProtocol);
    assert_eq!(refusal(&NetHeader { checksum: None, ..header }, &raw), OffloadError::WrongProtocol);
    assert_eq!(refusal(&header, &raw[..50]), OffloadError::Truncated);
    assert_eq!(refusal(&header, &raw[..10]), OffloadError::Truncated);
    assert_eq!(refusal(&NetHeader { gso_size: 1500, ..header }, &raw), OffloadError::TooLarge);
    let mut arp = raw.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(refusal(&header, &arp), OffloadError::WrongProtocol);
    let mut short = raw;
    short[34 + 12] = 0x40;
    assert_eq!(refusal(&header, &short), OffloadError::WrongProtocol);
}

#[test]
fn headers_survive_the_round_trip_and_nonsense_is_refused() {
    let (header, raw) = frame(true, true, false, &[0; 2000]);
    assert_eq!(NetHeader::decode(&header.encode(), raw.len() as u32), Ok(header));
    assert_eq!(NetHeader::decode(&[0; 12], 60), Ok(NetHeader::default()));
    let with = |at: usize, value: u8| {
        let mut bytes = header.encode();
        bytes[at] = value;
        NetHeader::decode(&bytes, raw.len() as u32).unwrap_err()
    };
    assert_eq!(with(1, 3), HeaderError::UnknownGso(3));
    assert_eq!(with(0, 0), HeaderError::GsoWithoutChecksum);
    assert_eq!(with(7, 0xff), HeaderError::ChecksumOutside);
    let zero_size = NetHeader { gso_size: 0, ..header };
    assert_eq!(NetHeader::decode(&zero_size.encode(), 2000), Err(HeaderError::SegmentTooSmall(0)));
}

/// What comes out of a frame, over what went in.
const MOST_TIMES: usize = MOST_HEADERS + 1;

/// An IPv6 frame with extension headers of this kind and these lengths in front of TCP.
fn frame_with_extensions(kind: u8, lengths: &[u8], payload: &[u8]) -> (NetHeader, Vec<u8>) {
    let (mut header, mut raw) = frame(true, true, false, payload);
    let mut extensions = Vec::new();
    for (position, length) in lengths.iter().enumerate() {
        let next = if position + 1 == lengths.len() { PROTO_TCP } else { kind };
        extensions.extend([next, *length]);
        extensions.resize(extensions.len() + 6 + 8 * usize::from(*length), 0);
    }
    raw[20] = kind;
    raw.splice(54..54, extensions.iter().copied());
    let partial = header.checksum.as_mut().unwrap();
    partial.start += extensions.len() as u16;
    (header, raw)
}

const PROTO_TCP: u8 = 6;

#[test]
fn headers_are_read_and_not_believed() {
    let (header, mut raw) = frame_with_extensions(60, &[0, 1], &[7; 3000]);
    assert_eq!(make_plain(&header, &mut raw, &mut [0; 1200], &mut |_| {}), Ok(3));
    // Half of the frame said to be headers that each of a thousand segments repeats.
    let (header, mut raw) = frame(true, true, false, &[0x50; 60_000]);
    let header = NetHeader { checksum: Some(PartialChecksum { start: 32_000, offset: 16 }), gso_size: 32, ..header };
    let mut bytes = 0;
    let made = make_plain(&header, &mut raw, &mut std::vec![0; 65_536], &mut |packet| bytes += packet.len());
    assert_eq!((made, bytes), (Err(OffloadError::WrongProtocol), 0));
    // The same by headers that are there.
    let (header, mut raw) = frame_with_extensions(60, &[255, 255, 255, 255], &[7; 30_000]);
    let header = NetHeader { gso_size: 32, ..header };
    let made = make_plain(&header, &mut raw, &mut std::vec![0; 65_536], &mut |packet| bytes += packet.len());
    assert_eq!((made, bytes), (Err(OffloadError::MostlyHeaders), 0));
    // A fragment, and more headers than a packet has.
    for (kind, lengths) in [(44, &[0][..]), (60, &[0; 5])] {
        let (header, mut raw) = frame_with_extensions(kind, lengths, &[7; 3000]);
        let made = make_plain(&header, &mut raw, &mut [0; 1200], &mut |_| {});
        assert_eq!(made, Err(OffloadError::WrongProtocol));
    }
    let (header, mut raw) = frame(false, true, false, &[7; 3000]);
    raw[23] = 17;
    assert_eq!(make_plain(&header, &mut raw, &mut [0; 1200], &mut |_| {}), Err(OffloadError::WrongProtocol));
}

#[test]
fn who_has_no_room_goes_on_later() {
    let (header, mut raw) = frame(false, true, false, &[7; 3000]);
    let mut frames = PlainFrames::of(&header, &mut raw).unwrap();
    let mut scratch = [0; 1200];
    let first = frames.current(&raw, &mut scratch).unwrap().unwrap().to_vec();
    assert_eq!(frames.current(&raw, &mut scratch), Ok(Some(&first[..])), "the same until it is taken");
    frames.advance(&raw);
    assert_ne!(frames.current(&raw, &mut scratch), Ok(Some(&first[..])));
    frames.advance(&raw);
    assert!(frames.current(&raw, &mut scratch).unwrap().is_some());
    frames.advance(&raw);
    assert_eq!(frames.current(&raw, &mut scratch), Ok(None));
}

proptest! {
    #[test]
    fn arbitrary_frames_never_panic(
        raw in proptest::collection::vec(any::<u8>(), 0..300),
        header in any::<[u8; 12]>(),
        looks_real in any::<bool>(),
        gso in 0_u8..6,
    ) {
        let mut raw = raw;
        let mut header = header;
        header[1] = gso;
        if looks_real && raw.len() > 60 {
            raw[12..15].copy_from_slice(if gso == 4 { &[0x86, 0xdd, 0x60] } else { &[8, 0, 0x45] });
            header[0] |= 1;
            header[6..8].copy_from_slice(&(if gso == 4 { 54_u16 } else { 34 }).to_le_bytes());
            header[8..10].copy_from_slice(&[16, 0]);
        }
        if let Ok(header) = NetHeader::decode(&header, raw.len() as u32) {
            let mut bytes = 0;
            let len = raw.len();
            let _ = make_plain(&header, &mut raw, &mut [0; 512], &mut |packet| bytes += packet.len());
            prop_assert!(bytes <= MOST_TIMES * len, "{bytes} bytes out of {len}");
        }
    }

    #[test]
    fn sums_agree_with_the_slow_one(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let fast = Sum::default().add_bytes(&data).finish();
        let slow = !verify(&[&data]);
        prop_assert_eq!(u16::from_be_bytes(fast), if slow == 0 { 0xffff } else { slow });
    }
}
