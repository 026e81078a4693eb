use faults::{Fault, MAILBOX_WORDS, NodeSet, STATUS_MAGIC, Trigger, status_word};
use tempfile::TempDir;

use super::*;

/// RAM as the firmware leaves it, and a way to it.
fn machine() -> (TempDir, FaultPort) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ram");
    File::create(&path).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let port = FaultPort::open(&path).expect("it is there");
    port.prepare(&[]).expect("room");
    let mut status = [0; 16];
    (status[status_word::MAGIC], status[status_word::VERSION]) = (STATUS_MAGIC, VERSION);
    port.write(STATUS_AT, 0, &status).expect("room");
    (dir, port)
}

fn request(node: usize) -> Request {
    Request { fault: Fault::NodePower(NodeSet::one(node)), trigger: Trigger::At { ticks: 1000 } }
}

/// Plays the firmware for one request: answers it so.
fn answer(port: &FaultPort, slot: usize, state: SlotState, words: &[(usize, u64)]) {
    while port.state(slot) != SlotState::Ready {
        thread::yield_now();
    }
    for (index, value) in words.iter().chain(&[(word::STATE, state as u64)]) {
        port.write(MAILBOX_AT, slot_at(slot) + index, &[*value]).expect("room");
    }
}

#[test]
fn requests_are_answered() {
    let (_dir, port) = machine();
    let second = FaultPort::open(&port.path).expect("it is there");
    let firmware = thread::spawn(move || {
        answer(&second, 0, SlotState::Armed, &[]);
        answer(&second, 1, SlotState::Done, &[(word::EPOCH, 7), (word::TIME, 99)]);
        answer(&second, 1, SlotState::Refused, &[(word::REFUSAL, Refusal::UnknownNode as u64)]);
    });
    let inject = |node| port.inject(request(node), Duration::from_secs(60));
    assert_eq!(inject(1).ok(), Some(Injection::Armed));
    assert_eq!(port.armed(), [request(1)]);
    assert_eq!(inject(2).ok(), Some(Injection::Done { epoch: 7, ticks: 99 }));
    let refused = inject(9).expect_err("no such node").to_string();
    assert_eq!(refused, "the machine has no such node");
    firmware.join().expect("it ends");
}

#[test]
fn a_silent_firmware_and_a_full_mailbox_are_told() {
    let (_dir, port) = machine();
    for slot in 0..SLOTS {
        let silent = port.inject(request(slot % 4), Duration::ZERO);
        assert!(matches!(silent, Err(FaultError::Deaf { .. })), "slot {slot}");
    }
    assert!(matches!(port.inject(request(0), Duration::ZERO), Err(FaultError::Full)));
    assert!(matches!(port.prepare(&[request(0); SLOTS + 1]), Err(FaultError::Full)));
}

#[test]
fn ram_without_a_mailbox_is_no_port() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ram");
    for bytes in [0, 4096, 4 << 20] {
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        let port = FaultPort::open(&path).expect("it is there");
        assert!(!port.has_mailbox() && port.history().is_empty() && port.armed().is_empty());
    }
    assert!(FaultPort::open(&dir.path().join("no")).is_err());
}

/// Whatever a machine writes there: a view or none, without a panic.
#[test]
fn any_ram_is_survived() {
    let (_dir, port) = machine();
    for value in [u64::MAX, 1, 0x8000_0000_0000_0000] {
        let mut words = vec![value; MAILBOX_WORDS];
        port.write(MAILBOX_AT, 0, &words).expect("room");
        (words[status_word::MAGIC], words[status_word::VERSION], words[status_word::SEQUENCE]) =
            (STATUS_MAGIC, VERSION, 2);
        port.write(STATUS_AT, 0, &words).expect("room");
        let _ = (port.status(), port.history(), port.armed());
    }
}
