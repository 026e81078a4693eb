//! The control protocol, as monitor and supervisor read it.

use control::{ClientMessage, Decoder, EncodeError, HEADER_LEN, ServerMessage, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::ser::{SerializeTuple, Serializer};

use crate::Input;

/// Whose stream it is, the chunks in which it comes, then pieces: good frames with any payload, or anything.
pub fn frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (is_client, chunk) = (input.flag(), usize::from(input.byte()) + 1);
    let (mut stream, mut payloads) = (Vec::new(), 0);
    while !input.is_empty() {
        let is_framed = input.below(4) != 0;
        let count = usize::from(input.byte());
        let piece = input.bytes(count);
        if is_framed {
            stream.extend(encode(&Raw(piece)).expect("it is small"));
            payloads += 1;
        } else {
            stream.extend(piece);
        }
    }
    let found = if is_client { read::<ClientMessage>(&stream, chunk) } else { read::<ServerMessage>(&stream, chunk) };
    let whole = stream.len() / HEADER_LEN;
    assert!(found <= whole.max(payloads), "more frames than there is room for");
}

/// The number of good frames. Every message is what was encoded, whatever it says.
fn read<T: DeserializeOwned + Serialize + PartialEq + core::fmt::Debug>(stream: &[u8], chunk: usize) -> usize {
    let (mut decoder, mut found) = (Decoder::new(), 0);
    for part in stream.chunks(chunk) {
        decoder.push(part);
        while let Some(next) = decoder.next_message::<T>() {
            let Ok(message) = next else { continue };
            found += 1;
            match encode(&message) {
                Ok(frame) => {
                    let mut again = Decoder::new();
                    again.push(&frame);
                    assert_eq!(again.next_message::<T>(), Some(Ok(message)));
                }
                Err(EncodeError::TooLarge { .. }) => {}
                Err(EncodeError::Unencodable) => panic!("{message:?} cannot be encoded"),
            }
        }
        assert!(decoder.pending_bytes() <= stream.len());
    }
    found
}

/// Bytes that encode as themselves.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for byte in self.0 {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }
}
