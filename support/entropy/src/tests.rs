extern crate std;

use super::*;
use proptest::prelude::*;
use std::{format, vec::Vec};

fn mixed(inputs: &[&[u8]]) -> Pool {
    let mut pool = Pool::new();
    inputs.iter().for_each(|input| pool.mix(input));
    pool
}

fn bytes<const N: usize>(pool: &mut Pool) -> [u8; N] {
    let mut target = [0; N];
    pool.fill(&mut target);
    target
}

/// RFC 8439, test vector of A.1 with an all-zero key: the first 32 bytes of the stream are the next key, the next 32 what is
/// given.
#[test]
fn the_stream_is_chacha20() {
    let given: [u8; 8] = bytes(&mut Pool::new());
    assert_eq!(given, [0xda, 0x41, 0x59, 0x7c, 0x51, 0x57, 0x48, 0x8d]);
}

#[test]
fn inputs_are_told_apart() {
    let inputs: [&[&[u8]]; 8] =
        [&[], &[b""], &[b"\0"], &[b"\0\0"], &[b"\0", b"\0"], &[&[0; 31]], &[&[0; 62]], &[&[0; 31], &[0; 31]]];
    let first: Vec<[u8; 16]> = inputs.iter().map(|inputs| bytes(&mut mixed(inputs))).collect();
    for (at, one) in first.iter().enumerate() {
        assert!(!first[..at].contains(one), "input {at} is the same as another");
    }
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut pool = mixed(&[b"seed"]);
    let (mut one, mut other) = (pool.fork(), pool.fork());
    let all: [[u8; 16]; 3] = [bytes(&mut pool), bytes(&mut one), bytes(&mut other)];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
}

#[test]
fn debug_output_keeps_the_secret() {
    assert_eq!(format!("{:?}", Pool::new()), "Pool { .. }");
}

proptest! {
    /// Every bit that goes in changes what comes out, and nothing comes out twice.
    #[test]
    fn every_bit_counts(input in prop::collection::vec(any::<u8>(), 1..100), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut other = input.clone();
        other[at.index(input.len())] ^= 1_u8 << bit;
        let (mut a, mut b) = (mixed(&[&input]), mixed(&[&other]));
        let (first, second): ([u8; 32], [u8; 32]) = (bytes(&mut a), bytes(&mut a));
        prop_assert_ne!(first, second);
        prop_assert_ne!(first, bytes(&mut b));
    }
}
