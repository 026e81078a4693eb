//! A server's end of the stream: whatever clients ask, a bounded number of bytes waits, and each request has its answer.

use std::collections::VecDeque;

use control::{
    Body, ClientMessage, ControlError, Decoder, Exchange, MAX_DATA, MAX_PAYLOAD, NoRoom, Reply, Request, ServerMessage,
    StreamData, encode,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// The largest frame.
const FRAME: usize = control::HEADER_LEN + MAX_PAYLOAD;

fn question(id: u32) -> Vec<u8> {
    encode(&ClientMessage { id, request: Request::Events { from: 0 } }).unwrap()
}

fn answer(id: u32, len: usize) -> ServerMessage {
    ServerMessage { id, body: Body::Stream(StreamData::Port { bytes: vec![7; len] }) }
}

/// A step as the monitor does it; the number of requests that were taken.
fn step(exchange: &mut Exchange, from: &mut VecDeque<u8>, len: impl Fn(u32) -> usize) -> (usize, bool) {
    let mut taken = 0;
    let mut serve = |exchange: &mut Exchange| {
        while let Some(request) = exchange.next_request() {
            let id = request.unwrap().id;
            exchange.send(&answer(id, len(id))).unwrap();
            taken += 1;
        }
    };
    serve(exchange);
    let had_some = exchange.receive(|buf| {
        let count = buf.len().min(from.len());
        buf.iter_mut().zip(from.drain(..count)).for_each(|(to, byte)| *to = byte);
        count
    });
    serve(exchange);
    assert!(exchange.waiting_bytes() < Exchange::LIMIT + FRAME);
    (taken, had_some)
}

fn ids_in(bytes: &[u8]) -> Vec<u32> {
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    std::iter::from_fn(|| decoder.next_message::<ServerMessage>()).map(|message| message.unwrap().id).collect()
}

/// One chunk of the stream holds some 200 of these: they must not all be answered at once.
#[test]
fn a_client_that_does_not_read_is_not_served() {
    let mut exchange = Exchange::default();
    let mut from: VecDeque<u8> = (0..300).flat_map(question).collect();
    let (first, had_some) = step(&mut exchange, &mut from, |_| 60_000);
    assert_eq!(first, 5, "as many as fill the limit");
    assert!(had_some);
    let left = from.len();
    for _ in 0..10 {
        assert_eq!(step(&mut exchange, &mut from, |_| 60_000), (0, false));
    }
    assert_eq!(from.len(), left, "the others wait in the stream");
    assert!(!exchange.can_go_on(), "there is nothing to do before somebody reads");
    assert_eq!(exchange.send(&answer(9, 1)), Err(NoRoom));
    // It reads a little: as much more is answered.
    let mut budget = 100_000;
    exchange.transmit(|bytes| {
        let count = bytes.len().min(budget);
        budget -= count;
        count
    });
    assert!(exchange.can_go_on());
    assert_eq!(step(&mut exchange, &mut from, |_| 60_000), (2, false));
}

#[test]
fn an_answer_larger_than_a_frame_becomes_an_error() {
    let mut exchange = Exchange::default();
    exchange.send(&answer(3, MAX_PAYLOAD)).unwrap();
    exchange.send(&ServerMessage { id: 4, body: Body::Reply(Reply::Done) }).unwrap();
    let mut said = Vec::new();
    exchange.transmit(|bytes| {
        said.extend_from_slice(bytes);
        bytes.len()
    });
    let mut decoder = Decoder::new();
    decoder.push(&said);
    let first: ServerMessage = decoder.next_message().unwrap().unwrap();
    assert!(matches!(first, ServerMessage { id: 3, body: Body::Error(ControlError::TooLarge { .. }) }), "{first:?}");
    let second: ServerMessage = decoder.next_message().unwrap().unwrap();
    assert_eq!(second, ServerMessage { id: 4, body: Body::Reply(Reply::Done) });
}

proptest! {
    /// However the client reads, and however long the answers are: each request is answered once, in order.
    #[test]
    fn all_are_answered_in_the_end(lengths in vec(0..MAX_DATA, 1..40), reads in vec(1_usize..200_000, 1..20)) {
        let mut exchange = Exchange::default();
        let count = lengths.len();
        let mut from: VecDeque<u8> = (0..count as u32).flat_map(question).collect();
        let (mut said, mut reads) = (Vec::new(), reads.into_iter().cycle());
        let mut steps = 0;
        loop {
            let (_, had_some) = step(&mut exchange, &mut from, |id| lengths[id as usize]);
            let mut budget = reads.next().unwrap_or(1);
            exchange.transmit(|bytes| {
                let count = bytes.len().min(budget);
                budget -= count;
                said.extend_from_slice(&bytes[..count]);
                count
            });
            // The server comes back when it says that there is more, or when the client has read.
            let goes_on = exchange.can_go_on();
            if !had_some && !goes_on && exchange.waiting_bytes() == 0 {
                break;
            }
            steps += 1;
            prop_assert!(steps < 1_000_000);
        }
        prop_assert!(from.is_empty(), "{} bytes were never taken", from.len());
        prop_assert_eq!(ids_in(&said), (0..count as u32).collect::<Vec<_>>());
    }
}
