//! `struct virtio_net_hdr`: what is still to be done to a frame.

/// Bytes of the header as it lies in front of every frame (with `num_buffers`, as `VIRTIO_F_VERSION_1` wants it).
pub const NET_HEADER_BYTES: usize = 12;

/// Smallest segment payload. Linux never goes below 48 for TCP; this bounds the frames made of one.
const MIN_GSO_SIZE: u16 = 32;

const FLAG_NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

/// How a large frame is to be cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// It is an ordinary frame.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP, one datagram per segment.
    Udp,
}

/// A checksum to be completed: the field holds the pseudo header's sum so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// First byte that the sum covers.
    pub start: u16,
    /// Where the 16-bit field is, from `start`.
    pub offset: u16,
}

/// The work that a sender has left to whoever is able to do it. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// The transport checksum.
    pub checksum: Option<PartialChecksum>,
    /// Segmentation.
    pub gso: Gso,
    /// Payload bytes per segment, with `gso`.
    pub gso_size: u16,
    /// Length of all headers as the sender sees it: a hint.
    pub hdr_len: u16,
}

/// A header that means nothing. The frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Unknown segmentation type.
    UnknownGso(u8),
    /// Segmentation without a checksum to complete.
    GsoWithoutChecksum,
    /// Segments so small that cutting the frame would cost far more than sending it.
    SegmentTooSmall(u16),
    /// The checksum field does not lie in the frame.
    ChecksumOutside,
}

impl NetHeader {
    /// Decodes a header in front of a frame of `frame_len` bytes.
    ///
    /// # Errors
    /// [`HeaderError`]; what passes can be carried out, or handed on to another guest, without harm.
    pub fn decode(raw: &[u8; NET_HEADER_BYTES], frame_len: u32) -> Result<Self, HeaderError> {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1, ..] = *raw;
        let gso = match gso_type {
            GSO_NONE => Gso::None,
            GSO_TCPV4 => Gso::TcpV4,
            GSO_TCPV6 => Gso::TcpV6,
            GSO_UDP_L4 => Gso::Udp,
            unknown => return Err(HeaderError::UnknownGso(unknown)),
        };
        let checksum = (flags & FLAG_NEEDS_CSUM != 0)
            .then(|| PartialChecksum { start: u16::from_le_bytes([s0, s1]), offset: u16::from_le_bytes([o0, o1]) });
        if let Some(PartialChecksum { start, offset }) = checksum
            && u32::from(start) + u32::from(offset) + 2 > frame_len
        {
            return Err(HeaderError::ChecksumOutside);
        }
        let (hdr_len, gso_size) = (u16::from_le_bytes([h0, h1]), u16::from_le_bytes([g0, g1]));
        if gso == Gso::None {
            return Ok(Self { checksum, ..Self::default() });
        }
        if checksum.is_none() {
            return Err(HeaderError::GsoWithoutChecksum);
        }
        if gso_size < MIN_GSO_SIZE {
            return Err(HeaderError::SegmentTooSmall(gso_size));
        }
        Ok(Self { checksum, gso, gso_size, hdr_len: hdr_len.min(frame_len.try_into().unwrap_or(u16::MAX)) })
    }

    /// The header as bytes; `num_buffers` is for the receiver to fill.
    #[must_use]
    pub const fn encode(&self) -> [u8; NET_HEADER_BYTES] {
        let (flags, start, offset) = match self.checksum {
            Some(PartialChecksum { start, offset }) => (FLAG_NEEDS_CSUM, start, offset),
            None => (0, 0, 0),
        };
        let gso_type = match self.gso {
            Gso::None => GSO_NONE,
            Gso::TcpV4 => GSO_TCPV4,
            Gso::TcpV6 => GSO_TCPV6,
            Gso::Udp => GSO_UDP_L4,
        };
        let [h0, h1] = self.hdr_len.to_le_bytes();
        let [g0, g1] = self.gso_size.to_le_bytes();
        let [s0, s1] = start.to_le_bytes();
        let [o0, o1] = offset.to_le_bytes();
        [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1, 0, 0]
    }

    /// Whether nothing is left to do: no checksum, and no segments.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.checksum.is_none() && matches!(self.gso, Gso::None)
    }
}
