//! What is written is read, whatever else is in the log.

use core::fmt::Write as _;

use crash::{
    Begin, Exit, HartLine, How, MAX_CALLS, MAX_LINE, MAX_RECENT, MAX_TEXT, Record, Text, Trap, Writer, fingerprint,
    read,
};
use proptest::prelude::*;

const MOST: u64 = u64::MAX;

fn begin(hart: u64) -> Begin {
    Begin { hart, ticks: 0x1234, timebase_hz: 10_000_000, harts: 2, fingerprint: MOST }
}

fn text(text: &str) -> Text {
    let mut kept = Text::new();
    write!(kept, "{text}").expect("it never fails");
    kept
}

/// A record with all that there can be, each as long as it can be.
fn full() -> Record {
    let mut record = Record { how: How::Panicked, sp: MOST, message: text(&"\u{1}".repeat(600)), ..Record::new() };
    record.trap = Some(Trap { scause: MOST, sepc: MOST, stval: MOST, sstatus: MOST });
    (1..32).for_each(|index| record.set_register(index, MOST));
    (record.calls, record.call_count) = ([MOST; MAX_CALLS], MAX_CALLS);
    record
}

fn write(cell: usize, record: &Record, running: Option<(u16, u16)>) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut writer = Writer::new(|line: &[u8]| lines.push(line.to_vec()), cell);
    writer.begin(&begin(1), "0.1.0 (0123456789ab)");
    let line = |index| HartLine { index, hart_id: index + 4, node: MOST, running };
    writer.hart(&line(0), &Record::new());
    writer.hart(&line(1), record);
    for _ in 0..MAX_RECENT {
        writer.exit(&Exit { ticks: MOST, scause: MOST, pc: MOST, stval: MOST });
        writer.event(&[0xff; 96]);
    }
    writer.event(&[0; 97]);
    writer.end();
    lines
}

#[test]
fn the_longest_block_is_read_as_it_was_written() {
    let record = full();
    let lines = write(usize::MAX, &record, Some((u16::MAX, u16::MAX)));
    assert!(lines.iter().all(|line| line.len() <= MAX_LINE && line.ends_with(b"\n")));
    let crashes = read(&lines.concat());
    let [crash] = &crashes[..] else { panic!("{crashes:?}") };
    assert_eq!((crash.cell, crash.begin, crash.lost, crash.is_whole), (MOST, begin(1), 0, true));
    assert_eq!(crash.build, "0.1.0 (0123456789ab)");
    assert_eq!(crash.message().len(), MAX_TEXT);
    let [silent, culprit] = &crash.harts[..] else { panic!("{crash:?}") };
    assert_eq!((silent.how, silent.sp, silent.hart.hart_id, silent.registers), (How::Silent, 0, 4, [None; 32]));
    assert_eq!(crash.culprit(), Some(culprit));
    assert_eq!((culprit.how, culprit.sp, culprit.trap), (How::Panicked, MOST, record.trap));
    assert_eq!((culprit.registers[0], culprit.registers[31]), (None, Some(MOST)));
    assert_eq!(culprit.calls, [MOST; MAX_CALLS]);
    assert_eq!(
        (culprit.exits.len(), culprit.events.len()),
        (MAX_RECENT, MAX_RECENT),
        "the event that is too long is not there"
    );
    assert_eq!(culprit.events[0], [0xff; 96]);
}

/// The lines are what later readers know: changing one raises the version.
#[test]
fn lines_look_as_they_always_did() {
    let mut lines = Vec::new();
    let mut writer = Writer::new(|line: &[u8]| lines.extend_from_slice(line), 2);
    writer.begin(&Begin { hart: 10, ticks: 255, timebase_hz: 16, harts: 1, fingerprint: 0xabc }, "0.1.0");
    let mut record = Record { how: How::Panicked, sp: 0x80, message: text("a\\b\n c"), ..Record::new() };
    record.set_register(2, 0x80);
    (record.calls[0], record.call_count) = (0xffff, 1);
    writer.hart(&HartLine { index: 10, hart_id: 11, node: 0, running: Some((3, 1)) }, &record);
    writer.end();
    let expected = "\n\
        !crash 2 0 begin 1 a ff 10 1 abc SUM\n\
        !crash 2 1 build 0.1.0 SUM\n\
        !crash 2 2 hart a b 0 panicked 80 3 1 SUM\n\
        !crash 2 3 say a\\\\b\\x0a c SUM\n\
        !crash 2 4 x 0 - - 80 - - - - - SUM\n\
        !crash 2 5 x 8 - - - - - - - - SUM\n\
        !crash 2 6 x 10 - - - - - - - - SUM\n\
        !crash 2 7 x 18 - - - - - - - - SUM\n\
        !crash 2 8 stack ffff SUM\n\
        !crash 2 9 end SUM\n";
    let text = String::from_utf8(lines.clone()).expect("it is text");
    for (line, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(line.rsplit_once(' ').map(|(head, _)| head), expected.rsplit_once(' ').map(|(head, _)| head));
    }
    assert_eq!(text.lines().count(), expected.lines().count());
    assert_eq!(read(&lines)[0].message(), "a\\b\n c");
}

#[test]
fn what_is_cut_off_or_overwritten_is_counted() {
    let mut lines = write(0, &full(), None);
    let whole = lines.len() as u64;
    // The first is the empty one.
    lines.remove(5);
    lines[7][20] ^= 1;
    let crash = &read(&lines.concat())[0];
    assert_eq!((crash.lost, crash.is_whole), (2, true));
    lines.truncate(10);
    let crash = &read(&lines.concat())[0];
    assert_eq!((crash.lost, crash.is_whole), (2, false));
    assert!(whole > 10);
}

#[test]
fn cells_write_at_the_same_time() {
    let (one, two) = (write(0, &full(), None), write(1, &Record::new(), None));
    let mixed: Vec<_> = one.iter().zip(&two).flat_map(|(one, two)| [one.clone(), two.clone()]).collect();
    let rest = [&one[two.len().min(one.len())..], &two[one.len().min(two.len())..]].concat();
    let crashes = read(&[mixed, rest].concat().concat());
    assert_eq!(
        crashes.iter().map(|crash| (crash.cell, crash.lost, crash.is_whole)).collect::<Vec<_>>(),
        [(0, 0, true), (1, 0, true)]
    );
}

#[test]
fn what_a_guest_prints_is_no_crash() {
    let lines = write(0, &full(), None);
    let of_guest = |line: &[u8]| [b"[    1.000000] INFO  cell b: far| ".to_vec(), line.to_vec()].concat();
    assert!(read(&lines.iter().flat_map(|line| of_guest(line)).collect::<Vec<_>>()).is_empty());
}

#[test]
fn lines_end_as_a_uart_ends_them() {
    let lines: Vec<u8> = write(0, &full(), None).concat();
    let with_returns: Vec<u8> =
        lines.iter().flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] }).collect();
    assert_eq!(read(&with_returns), read(&lines));
}

#[test]
fn a_word_that_moves_changes_the_fingerprint() {
    assert_ne!(fingerprint([1, 2].into_iter()), fingerprint([2, 1].into_iter()));
    assert_ne!(fingerprint([0].into_iter()), fingerprint([0, 0].into_iter()));
}

/// Gives a hostile line a right checksum.
fn sealed(text: &str) -> Vec<u8> {
    let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(text.as_bytes());
    format!("{text} {sum:08x}\n").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_log_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes);
    }

    /// Right checksums, wrong content: nothing grows without a bound, and nothing panics.
    #[test]
    fn hostile_lines_are_borne(
        lines in proptest::collection::vec(
            "(begin 1 0 0 0 0 0|build [ -~]{0,40}|hart [0-9a-f] 0 0 (panicked|mad) 0 (- -|1 ffffff)|say [ -~]{0,40}|trap( [0-9a-f]{0,17}){0,5}\
             |x [0-9a-f]{1,17}( [0-9a-f-]{1,17}){0,9}|stack( [0-9a-f]{0,17}){0,9}|exit( [0-9a-f]{0,17}){0,5}|event [0-9a-f]{0,9}|end|odd)",
            0..60,
        ),
        numbers in proptest::collection::vec(prop_oneof![0_u64..9, any::<u64>()], 60),
    ) {
        let log: Vec<u8> =
            lines.iter().zip(numbers).flat_map(|(line, number)| sealed(&format!("!crash 0 {number:x} {line}"))).collect();
        let with_begin = [sealed("!crash 0 0 begin 1 0 0 0 0 0"), log].concat();
        for crash in read(&with_begin) {
            prop_assert!(crash.harts.iter().all(|hart| hart.calls.len() <= MAX_CALLS && hart.exits.len() <= MAX_RECENT));
        }
    }

    #[test]
    fn any_part_of_a_block_is_read(cut in 0_usize..6000, from in 0_usize..6000) {
        let log = write(0, &full(), None).concat();
        let part = log.get(from.min(log.len())..cut.max(from).min(log.len())).unwrap_or_default();
        prop_assert!(read(part).len() <= 1);
    }
}
