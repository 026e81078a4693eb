//! Headers that must be accepted or refused, and the places of the parts.

use model_file::{
    HEADER_BYTES, HartClock, Header, HotPage, LayoutError, MAX_NODES, MODES, Mode, ModeCounters, Node, PAGE_BYTES,
    Request, Stall, at,
};
use proptest::prelude::*;

const BASE: u64 = 0x8000_0000;

fn nodes() -> [Node; 3] {
    let mib = 1 << 20;
    [(0, 2, 3), (2, 4, 1), (6, 2, 4)].map(|(at, size, harts)| Node { base: BASE + at * mib, bytes: size * mib, harts })
}

fn header() -> Header {
    Header::new(&nodes(), 200, 1000, |from, to| if from == to { 300_000 } else { 900_000 }).unwrap()
}

#[test]
fn a_header_survives_its_bytes() {
    let header = header();
    assert_eq!(Header::decode(&header.encode(), header.file_bytes()), Ok(header));
    assert_eq!((header.harts(), header.pages(), header.ram_base()), (8, 2048, BASE));
    assert_eq!(
        (header.latency_ps(0, 0), header.latency_ps(0, 2), header.latency_ps(0, 3)),
        (Some(300_000), Some(900_000), None)
    );
    assert!(header.file_bytes().is_power_of_two());
}

#[test]
fn parts_do_not_overlap() {
    let header = header();
    let counters = ModeCounters::BYTES as u64;
    let mut parts = vec![(0, HEADER_BYTES as u64)];
    let words =
        [at::REQUEST, at::HOT_THRESHOLD, at::CONSUMER, at::IS_ON, at::NOW, at::SWITCHES, at::PRODUCER, at::DROPPED];
    parts.extend(words.map(|at| (at, 8)));
    parts.extend((0..64).map(|gate| (header.gate_at(gate).unwrap(), 8)));
    for hart in 0..8 {
        parts.push((header.clock_at(hart).unwrap(), HartClock::BYTES as u64));
        parts.extend((0..MODES).map(|mode| (header.counters_at(hart, mode).unwrap(), counters)));
    }
    parts.extend((0..200).map(|index| (header.queue_at(index), HotPage::BYTES as u64)));
    parts.extend((0..2048 * 3).map(|at| (header.misses_at(at / 3, at as usize % 3).unwrap(), 4)));
    parts.sort_unstable();
    for pair in parts.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
    }
    assert!(parts.last().is_some_and(|(at, bytes)| at + bytes <= header.file_bytes()));
    assert_eq!(header.queue_at(200), header.queue_at(0));
    assert_eq!((header.clock_at(8), header.counters_at(0, MODES), header.gate_at(64)), (None, None, None));
    assert_eq!((header.misses_at(2048, 0), header.misses_at(0, 3)), (None, None));
}

#[test]
fn impossible_machines_are_refused() {
    let make = |nodes: &[Node]| Header::new(nodes, 200, 1000, |_, _| 1);
    assert!(matches!(make(&[]), Err(LayoutError::Field { .. })));
    assert!(make(&[nodes()[0]; MAX_NODES + 1]).is_err());
    let spoils: [fn(&mut Node); 6] = [
        |node| node.harts = 0,
        |node| node.harts = 61,
        |node| node.base += PAGE_BYTES,
        |node| node.bytes -= 1,
        |node| node.bytes = 0,
        |node| node.bytes = !0xfff,
    ];
    for (case, spoil) in spoils.into_iter().enumerate() {
        let mut nodes = nodes();
        spoil(&mut nodes[2]);
        assert!(make(&nodes).is_err(), "case {case}");
    }
    assert!(make(&[Node { base: BASE, bytes: 1 << 41, harts: 1 }]).is_err(), "too many page counters");
    assert!(Header::new(&nodes(), 0, 1000, |_, _| 1).is_err());
}

proptest! {
    #[test]
    fn a_spoilt_header_is_refused_or_fits(at in 0..HEADER_BYTES, bit in 0u8..8) {
        let header = header();
        let mut bytes = header.encode();
        bytes[at] ^= 1 << bit;
        if let Ok(other) = Header::decode(&bytes, header.file_bytes()) {
            prop_assert_eq!(other.file_bytes(), header.file_bytes());
        }
        prop_assert!(Header::decode(&header.encode(), header.file_bytes() - 1).is_err());
    }

    #[test]
    fn counters_survive_their_bytes(words: [u64; ModeCounters::WORDS], index in 0..ModeCounters::WORDS) {
        let counters = ModeCounters::from_words(&words);
        prop_assert_eq!(ModeCounters::decode(&counters.encode()), counters);
        prop_assert_eq!(counters.words(), words);
        let mut later = words;
        later[index] = later[index].wrapping_add(7);
        prop_assert_eq!(ModeCounters::from_words(&later).since(&counters).words().iter().sum::<u64>(), 7);
    }
}

#[test]
fn numbers_and_names_agree() {
    for (number, mode) in Mode::ALL.into_iter().enumerate() {
        assert_eq!(mode as usize, number);
    }
    for (number, stall) in Stall::ALL.into_iter().enumerate() {
        assert_eq!(stall as usize, number);
    }
    assert_eq!([0, 1, 3].map(|privilege| Mode::of(privilege, false)), [Mode::U, Mode::S, Mode::M]);
    assert_eq!([0, 1].map(|privilege| Mode::of(privilege, true)), [Mode::VU, Mode::VS]);
    for request in [Request::On, Request::Off, Request::ResetPages] {
        assert_eq!(Request::from_word(request as u64), Some(request));
    }
    assert_eq!((Request::from_word(0), Request::from_word(4)), (None, None));
    let hot = HotPage { page: 9, node: 2 };
    assert_eq!(HotPage::decode(&hot.encode()), hot);
}
