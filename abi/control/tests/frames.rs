//! The byte stream: every message comes through, in chunks of any size, with garbage between; no bytes panic.

use control::{
    Body, BootConfig, ClientMessage, Decoder, FrameError, HEADER_LEN, MAX_DATA, MAX_PAYLOAD, Name, Reply, Request,
    ServerMessage, StreamData, encode,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn decode_all(bytes: &[u8], chunk: usize) -> (Vec<ClientMessage>, Vec<FrameError>) {
    let mut decoder = Decoder::new();
    let (mut messages, mut errors) = (Vec::new(), Vec::new());
    for part in bytes.chunks(chunk) {
        decoder.push(part);
        while let Some(next) = decoder.next_message() {
            match next {
                Ok(message) => messages.push(message),
                Err(error) => errors.push(error),
            }
        }
    }
    (messages, errors)
}

fn message(id: u32, bytes: Vec<u8>) -> ClientMessage {
    ClientMessage { id, request: Request::Input { stream: id, bytes } }
}

proptest! {
    #[test]
    fn messages_come_through_chunks_of_any_size(
        data in vec((any::<u32>(), vec(any::<u8>(), 0..300)), 0..10), chunk in 1_usize..70,
    ) {
        let sent: Vec<_> = data.into_iter().map(|(id, bytes)| message(id, bytes)).collect();
        let stream: Vec<u8> = sent.iter().flat_map(|m| encode(m).expect("it is small")).collect();
        let (received, errors) = decode_all(&stream, chunk);
        prop_assert_eq!(received, sent);
        prop_assert!(errors.is_empty());
    }

    #[test]
    fn garbage_without_headers_costs_no_message(
        data in vec((vec(any::<u8>(), 0..100), any::<u32>(), vec(any::<u8>(), 0..100)), 1..8), chunk in 1_usize..70,
    ) {
        let mut stream = Vec::new();
        let mut sent = Vec::new();
        for (garbage, id, bytes) in data {
            stream.extend(garbage);
            let good = message(id, bytes);
            stream.extend(encode(&good).expect("it is small"));
            sent.push(good);
        }
        let (received, _) = decode_all(&stream, chunk);
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn a_flipped_bit_never_yields_a_wrong_message(
        bytes in vec(any::<u8>(), 0..100), place in any::<prop::sample::Index>(), bit in 0_u8..8,
    ) {
        let good = message(7, bytes);
        let mut stream = encode(&good).expect("it is small");
        let place = place.index(stream.len());
        stream[place] ^= 1 << bit;
        // Enough good frames behind it that even a damaged length cannot swallow all of them.
        for _ in 0..3 {
            stream.extend(encode(&good).expect("it is small"));
        }
        let (received, errors) = decode_all(&stream, stream.len());
        prop_assert_eq!(received, vec![good.clone(), good.clone(), good]);
        prop_assert!(!errors.is_empty());
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..2000), chunk in 1_usize..300) {
        let _ = decode_all(&bytes, chunk);
        let _ = BootConfig::from_bytes(&bytes);
    }

    /// Frames that hold, with any payload: what a client with a bug or with malice sends.
    #[test]
    fn no_payload_panics(payload in vec(any::<u8>(), 0..500)) {
        let mut decoder = Decoder::new();
        // A byte sequence encodes as its length and its bytes; cut the length off by sending the bytes themselves.
        let frame = encode(&Raw(&payload)).expect("it is small");
        decoder.push(&frame);
        let _ = decoder.next_message::<ClientMessage>();
        decoder.push(&frame);
        let _ = decoder.next_message::<ServerMessage>();
    }
}

/// Bytes that encode as themselves.
struct Raw<'a>(&'a [u8]);

impl serde::Serialize for Raw<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for byte in self.0 {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }
}

#[test]
fn the_largest_data_fits_and_more_is_refused() {
    let body = Body::Stream(StreamData::Console { offset: u64::MAX, bytes: vec![1; MAX_DATA] });
    assert!(encode(&ServerMessage { id: u32::MAX, body }).is_ok());
    let error = encode(&message(1, vec![0; MAX_PAYLOAD])).expect_err("it is too large");
    assert_eq!(error.to_string(), format!("the message has {} bytes, a frame holds at most 65536", MAX_PAYLOAD + 6));
}

#[test]
fn a_length_over_the_maximum_is_garbage_at_once() {
    let mut frame = encode(&message(1, vec![0; 8])).expect("it is small");
    frame[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut decoder = Decoder::new();
    decoder.push(&frame);
    assert!(matches!(decoder.next_payload(), Some(Err(FrameError::Garbage { .. }))));
    assert!(decoder.pending_bytes() < HEADER_LEN);
}

#[test]
fn a_bad_name_is_refused_while_decoding() {
    // `StartVm` with a name that climbs out of a directory, written by hand as variant, length, text.
    let Ok(frame) = encode(&Raw(b"\x01\x04\x04../a")) else { panic!("it is small") };
    let mut decoder = Decoder::new();
    decoder.push(&frame);
    assert_eq!(decoder.next_message::<ClientMessage>(), Some(Err(FrameError::Undecodable { len: 7 })));
    let Ok(frame) =
        encode(&Raw(b"\x01\x04\x04../a".map(|b| if b.is_ascii_punctuation() { b'a' } else { b }).as_slice()))
    else {
        panic!("it is small")
    };
    decoder.push(&frame);
    let vm = Name::new("aaaa").expect("it is good");
    assert_eq!(decoder.next_message(), Some(Ok(ClientMessage { id: 1, request: Request::StartVm { vm } })));
}

/// These bytes are the contract. Whoever changes them raises `PROTOCOL_VERSION`.
#[test]
fn golden_bytes() {
    let hello = encode(&ClientMessage { id: 1, request: Request::Hello { version: 1 } }).expect("it is small");
    assert_eq!(hello, b"MBc\xA7\x03\0\0\0\xb3\x83\x84\x89\x8c\xa5\x98\x48\x01\x00\x01");
    let done = encode(&ServerMessage { id: 300, body: Body::Reply(Reply::Done) }).expect("it is small");
    assert_eq!(&done[HEADER_LEN..], b"\xac\x02\x00\x00");
    let shutdown = encode(&ClientMessage { id: 2, request: Request::Shutdown }).expect("it is small");
    assert_eq!(&shutdown[HEADER_LEN..], b"\x02\x15");
}
