//! Control clients that ask for more than the monitor has: each is refused, and all else goes on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use control::{
    Body, ClientMessage, ControlError, Decoder, Label, MAX_MEMORY_MIB, PROTOCOL_VERSION, Reply, Request, ServerMessage,
};
use lab::rig::{Rig, Running, WATCHDOG, label};
use machine::ClientError;
use system_tests::{assert_all_returned, ok, probe};

fn machine(name: &str, memory_mib: u32) -> Running {
    ok(ok(ok(Rig::new(name, 2, memory_mib)).with_probe()).boot())
}

#[track_caller]
fn refusal<T>(result: Result<T, ClientError>) -> ControlError {
    match result {
        Err(ClientError::Refused(error)) => error,
        Err(other) => panic!("not a refusal: {other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Its table of blocks is larger than any run of memory that the monitor has for itself.
#[test]
fn a_vm_of_an_absurd_size_is_refused_and_costs_nothing() {
    let machine = machine("absurd", 512);
    let client = machine.client();
    let before = ok(machine.free_bytes());
    let mut vm = probe("absurd", 1, "figure=checksum n=1");
    vm.memory_mib = MAX_MEMORY_MIB;
    // Nothing is kept for it, or it would not get so far.
    vm.promised_mib = Some(0);
    ok(client.create_vm(vm.clone()));
    // Whatever an attempt has taken has to come back.
    for _ in 0..1000 {
        assert!(matches!(refusal(client.start_vm(&vm.name)), ControlError::OutOfMemory { .. }));
    }
    ok(client.destroy_vm(&vm.name));
    assert_all_returned(&machine, before);
    let ended = ok(machine.run(&probe("sane", 1, "figure=checksum n=1")));
    assert!(ended.console.contains("CHECKSUM"), "{}", ended.console);
}

/// Hundreds of long answers asked for in a row, of which the client reads a few and goes: others are served meanwhile.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    const ASKED: u32 = 300;
    const READ: usize = 10;
    let machine = machine("unread", 256);
    let client = machine.client();
    // Two events each: more than one answer holds.
    for number in 0..200 {
        let vm = probe(&format!("vm-{number}"), 1, "");
        ok(client.create_vm(vm.clone()));
        ok(client.destroy_vm(&vm.name));
    }
    let mut socket = ok(UnixStream::connect(machine.machine().dir().control_socket()));
    ok(socket.set_read_timeout(Some(WATCHDOG)));
    ok(socket.set_write_timeout(Some(WATCHDOG)));
    let ask = |id, request| ok(control::encode(&ClientMessage { id, request }));
    let hello = ask(0, Request::Hello { version: PROTOCOL_VERSION });
    let all = (1..=ASKED).flat_map(|id| ask(id, Request::Events { from: 0 }));
    ok(socket.write_all(&hello.into_iter().chain(all).collect::<Vec<_>>()));
    // Neither a long answer nor a VM waits for that client.
    assert!(!ok(client.events(0)).events.is_empty());
    let ended = ok(machine.run(&probe("beside", 1, "figure=checksum n=1")));
    assert!(ended.console.contains("CHECKSUM"), "{}", ended.console);
    let (mut decoder, mut bytes, mut answers) = (Decoder::new(), [0; 4096], 0);
    while answers < READ {
        let count = ok(socket.read(&mut bytes));
        assert!(count > 0, "the connection has ended after {answers} answers");
        decoder.push(&bytes[..count]);
        while let Some(message) = decoder.next_message::<ServerMessage>() {
            match ok(message).body {
                Body::Reply(Reply::Events(batch)) => assert!(!batch.events.is_empty()),
                // The supervisor takes so many at a time, and refuses the rest.
                Body::Reply(Reply::Hello(_)) | Body::Error(ControlError::Busy { .. }) => continue,
                other => panic!("it was answered {other:?}"),
            }
            answers += 1;
        }
    }
    drop(socket);
    assert!(!ok(client.events(0)).events.is_empty());
    let ended = ok(machine.run(&probe("after", 1, "figure=checksum n=1")));
    assert!(ended.console.contains("CHECKSUM"), "{}", ended.console);
}

/// Small ones, each of which took half a MiB once, until there are too many; then everything else goes on, and there is room when
/// one is forgotten.
#[test]
fn modules_are_taken_until_they_are_too_many() {
    /// More than the monitor keeps.
    const MODULES: u32 = 300;
    let machine = machine("uploads", 128);
    let client = machine.client();
    let named = |number: u32| ok(label(&format!("a-module-with-a-long-name-{number:036}")));
    let put = |name: &Label| client.put_module(name, 1, std::io::repeat(0x5a), |_| ());
    let refused = (0..MODULES).find_map(|number| put(&named(number)).err().map(|why| (number, why)));
    let (count, why) = refused.expect("one is refused");
    assert!(count > 200, "{count} were taken");
    assert!(matches!(refusal::<()>(Err(why)), ControlError::TooLarge { .. }));
    assert!(ok(client.machine_info()).modules.len() >= count as usize, "the list of all of them is one answer");
    let ended = ok(machine.run(&probe("vm", 1, "figure=checksum n=1")));
    assert!(ended.console.contains("CHECKSUM"), "{}", ended.console);
    ok(client.drop_module(&named(0)));
    ok(put(&named(count)));
}

/// What is announced counts with what is there: an upload that cannot end is refused before it begins.
#[test]
fn a_module_of_most_of_the_memory_is_refused() {
    let machine = machine("large", 128);
    let client = machine.client();
    let begin = |name: &str, total_len| client.open(Request::PutModule { name: ok(label(name)), total_len }).map(drop);
    assert!(matches!(refusal(begin("large", 100 << 20)), ControlError::TooLarge { .. }));
    assert!(matches!(refusal(begin("empty", 0)), ControlError::TooLarge { .. }));
    ok(begin("small", 1 << 20));
}
