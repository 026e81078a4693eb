//! Who has the key.

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, Tag, XChaCha20Poly1305, XNonce};
use dsm_wire::{HEADER_BYTES, Header, TAG_BYTES};

/// How frames are sealed.
#[derive(Clone)]
pub enum Seal {
    /// Not at all: the wire is private. The tag is zero.
    Off,
    /// With the cluster's key.
    Key(alloc::boxed::Box<XChaCha20Poly1305>),
}

impl core::fmt::Debug for Seal {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str(match self {
            Self::Off => "Off",
            Self::Key(_) => "Key",
        })
    }
}

impl Seal {
    /// With this key, which all machines of the cluster have.
    #[must_use]
    pub fn with_key(key: &[u8; 32]) -> Self {
        Self::Key(alloc::boxed::Box::new(XChaCha20Poly1305::new(key.into())))
    }

    /// No two frames of any machine have the same one: lives are drawn at random, and a packet number is used once.
    fn nonce(header: &Header) -> XNonce {
        let mut nonce = [0; 24];
        nonce[0] = header.from;
        nonce[1] = header.to;
        nonce[2..10].copy_from_slice(&header.sender_life.to_le_bytes());
        nonce[10..18].copy_from_slice(&header.packet.to_le_bytes());
        nonce.into()
    }

    /// Seals `records` in place. Returns the tag; nothing if they are longer than the cipher takes.
    pub fn close(&self, header: &Header, head: &[u8; HEADER_BYTES], records: &mut [u8]) -> Option<[u8; TAG_BYTES]> {
        match self {
            Self::Off => Some([0; TAG_BYTES]),
            Self::Key(cipher) => {
                cipher.encrypt_in_place_detached(&Self::nonce(header), head, records).ok().map(Into::into)
            }
        }
    }

    /// Opens them. Says whether they and the header are from somebody with the key.
    #[must_use]
    pub fn open(&self, header: &Header, head: &[u8], records: &mut [u8], tag: &[u8; TAG_BYTES]) -> bool {
        match self {
            Self::Off => *tag == [0; TAG_BYTES],
            Self::Key(cipher) => {
                cipher.decrypt_in_place_detached(&Self::nonce(header), head, records, Tag::from_slice(tag)).is_ok()
            }
        }
    }
}
