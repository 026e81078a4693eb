//! A machine of a cluster: frames from its wire, and what a peer that has the key but no sense says.

use dsm::testing::Memory;
use dsm::{Config, Dsm, MachineId, Page, Store};
use dsm_link::{Seal, Setup, State, Wire};
use dsm_wire::{HEADER_BYTES, Header, Kind, TAG_BYTES, decode, encode};

use crate::Input;

const PAGES: usize = 4;
const WORDS: usize = 2;
const LIFE: u64 = 5;

/// The first byte chooses: bytes as envelopes to the protocol, or as frames to the link.
pub fn dsm(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.below(2) == 0 { messages(&mut input) } else { frames(&mut input) }
}

/// Envelopes with their lengths, between accesses of a hart. Whatever is refused, nothing panics, and what was decoded comes back.
fn messages(input: &mut Input<'_>) {
    let config = Config { pages: PAGES as u64, block_pages: 2, ..Config::new(MachineId(input.below(2)), 3, 2) };
    let (mut machine, mut memory) = (Dsm::new(config), Memory::new(PAGES, WORDS));
    while !input.is_empty() {
        let from = MachineId(input.below(4));
        let length = usize::from(input.byte());
        if length == 0 {
            access(&mut machine, &mut memory, input);
            continue;
        }
        let bytes = input.bytes(length);
        let Ok(envelope) = decode(bytes, WORDS * 8) else { continue };
        let mut again = Vec::new();
        if encode(&envelope, &mut again).is_ok() {
            assert_eq!(again, bytes, "an envelope has one form");
        }
        let _ = machine.deliver(from, envelope, &mut memory);
        while machine.next_message().is_some() {}
    }
}

fn access(machine: &mut Dsm, memory: &mut Memory, input: &mut Input<'_>) {
    let (hart, page) = (input.below(2), Page(u64::from(input.below(PAGES as u8))));
    let store = Store { page, word: 0, mask: input.byte() | 1, value: input.u64() };
    let _ = match input.below(4) {
        0 => machine.load(hart, page, memory).map(drop),
        1 => machine.store(hart, store, memory).map(drop),
        2 => machine.load_reserved(hart, page, 0, true, memory).map(drop),
        _ => machine.store_conditional(hart, store, false, memory).map(drop),
    };
    let _ = machine.retired(hart, 1, memory);
    while machine.next_message().is_some() {}
}

/// Frames with a header that is mostly right. Whatever comes, the link stays within its bounds, and a frame that is not sealed has no
/// effect.
fn frames(input: &mut Input<'_>) {
    let setup = Setup { me: MachineId(0), machines: 3, life: LIFE, agreement: 1, mtu: 200, longest: 64, patience: 10 };
    let mut open = Wire::new(setup, Seal::Off);
    let mut sealed = Wire::new(setup, Seal::with_key(&[9; 32]));
    let mut now = 0;
    while !input.is_empty() {
        let header = Header {
            kind: if input.below(4) == 0 { Kind::Hello } else { Kind::Data },
            from: input.below(4),
            to: input.below(2),
            sender_life: 6 + u64::from(input.byte() / 128),
            receiver_life: if input.below(8) == 0 { 0 } else { LIFE },
            packet: u64::from(input.u16()),
            sequence: u64::from(input.below(40)),
            received: u64::from(input.byte()),
            agreement: 1,
        };
        let length = usize::from(input.below(100));
        let mut frame = [&header.to_bytes()[..], input.bytes(length), &[0; TAG_BYTES]].concat();
        sealed.receive(&mut frame.clone());
        open.receive(&mut frame);
        while let Some((_, message)) = open.next_message() {
            assert!(message.len() <= setup.longest);
        }
        now += u64::from(input.byte());
        let _ = open.send(MachineId(1), vec![1; 1 + length]);
        // Each frame is answered by few.
        for _ in 0..8 {
            if open.next_frame(now, &mut frame).is_none() {
                break;
            }
            assert!(frame.len() >= HEADER_BYTES + TAG_BYTES && frame.len() <= setup.mtu);
        }
    }
    assert!(sealed.next_message().is_none() && sealed.state(MachineId(1)) == State::Unknown);
}
