//! Many clients, one monitor, and what goes wrong between them.

mod fake;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use control::{
    Body, ClientMessage, ConsoleRange, ControlError, Decoder, Followed, Label, MAX_DATA, Reply, Request, ServerMessage,
    StreamData, StreamEnd,
};
use fake::{FakeMonitor, Fixture, WATCHDOG, hello, name};
use machine::{Client, ClientError, Limits, Supervisor, SupervisorError};

const RANGE: ConsoleRange = ConsoleRange { oldest: 0, first: 0, end: 0 };

fn console(offset: u64, bytes: &[u8]) -> StreamData {
    StreamData::Console { offset, bytes: bytes.to_vec() }
}

/// All that comes until the connection ends.
fn read_to_end(mut socket: &UnixStream) -> Vec<ServerMessage> {
    let mut decoder = Decoder::new();
    let mut chunk = [0; 4096];
    let mut messages = Vec::new();
    while let Ok(count @ 1..) = socket.read(&mut chunk) {
        decoder.push(&chunk[..count]);
        while let Some(message) = decoder.next_message() {
            messages.push(message.expect("the supervisor sends good frames"));
        }
    }
    messages
}

#[test]
fn answers_reach_who_asked_in_whatever_order() {
    let fixture = Fixture::start(|mut monitor| {
        let (first, second) = (monitor.expect(), monitor.expect());
        assert_ne!(first.id, second.id, "clients choose the same ids, the monitor sees different ones");
        for message in [second, first] {
            let Request::StartVm { vm } = message.request else { panic!("a start was asked for") };
            monitor.refuse(message.id, ControlError::UnknownVm { name: vm });
        }
    });
    let ask = |vm: &'static str, client: Client| {
        std::thread::spawn(move || client.start_vm(&name(vm)).expect_err("there is no such VM").to_string())
    };
    let (one, two) = (ask("one", fixture.client()), ask("two", fixture.client()));
    assert_eq!(one.join().expect("it holds"), "there is no VM \"one\"");
    assert_eq!(two.join().expect("it holds"), "there is no VM \"two\"");
    fixture.finish();
}

#[test]
fn a_stream_flows_both_ways_until_it_is_closed() {
    let fixture = Fixture::start(|mut monitor| {
        let open = monitor.expect();
        assert_eq!(open.request, Request::ConsoleAttach { vm: name("vm"), from: 0 });
        monitor.reply(open.id, Reply::Console(RANGE));
        monitor.stream(open.id, console(0, b"login: "));
        let input = monitor.expect();
        assert_eq!(input.request, Request::Input { stream: open.id, bytes: b"root\n".to_vec() });
        monitor.reply(input.id, Reply::Accepted { bytes: 3 });
        let rest = monitor.expect();
        assert_eq!(rest.request, Request::Input { stream: open.id, bytes: b"t\n".to_vec() });
        monitor.reply(rest.id, Reply::Accepted { bytes: 2 });
        let close = monitor.expect();
        assert_eq!(close.request, Request::Close { stream: open.id });
        monitor.reply(close.id, Reply::Done);
    });
    let client = fixture.client();
    let (range, stream) = client.console(&name("vm"), 0).expect("it opens");
    assert_eq!(range, RANGE);
    assert_eq!(stream.recv().expect("there is output"), console(0, b"login: "));
    stream.send_all(b"root\n", WATCHDOG).expect("the guest reads");
    drop(stream);
    drop(client);
    let monitor = fixture.monitor;
    monitor.join().expect("the monitor's script holds");
}

#[test]
fn the_streams_of_a_client_that_goes_are_closed() {
    let (told, opened) = channel();
    let fixture = Fixture::start(move |mut monitor| {
        let open = monitor.expect();
        monitor.reply(open.id, Reply::Opened);
        told.send(()).expect("the test waits");
        let close = monitor.expect();
        assert_eq!(close.request, Request::Close { stream: open.id });
        // Data that was under way finds nobody, and harms nobody.
        monitor.stream(open.id, StreamData::PortState { guest_open: true });
        monitor.reply(close.id, Reply::Done);
        told.send(()).expect("the test waits");
        let next = monitor.expect();
        monitor.reply(next.id, Reply::Vms(vec![]));
    });
    let mut socket = fixture.socket();
    let port = Label::new("port").expect("a good label");
    for message in [
        ClientMessage { id: 1, request: Request::Hello { version: 1 } },
        ClientMessage { id: 2, request: Request::PortOpen { vm: name("vm"), port } },
    ] {
        socket.write_all(&control::encode(&message).expect("it is small")).expect("the supervisor reads");
    }
    opened.recv().expect("the monitor opened it");
    drop(socket);
    opened.recv().expect("the monitor saw it closed");
    assert_eq!(fixture.client().vms().expect("the others go on"), []);
    fixture.finish();
}

#[test]
fn a_client_that_talks_nonsense_is_cut_off_alone() {
    let fixture = Fixture::start(|mut monitor| {
        let ask = monitor.expect();
        monitor.reply(ask.id, Reply::Vms(vec![]));
    });
    let good = fixture.client();
    let mut bad = fixture.socket();
    bad.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("the supervisor reads");
    let last_words = ServerMessage { id: 0, body: Body::Error(ControlError::BadMessage) };
    assert_eq!(read_to_end(&bad), [last_words]);
    assert_eq!(good.vms().expect("the others go on"), []);
    fixture.finish();
}

#[test]
fn garbage_from_the_monitor_is_skipped_and_counted() {
    let fixture = Fixture::start(|mut monitor| {
        let ask = monitor.expect();
        monitor.raw(b"panic at somewhere\n");
        // A frame that holds, but no message.
        monitor.raw(&control::encode(&[0xffff_ffff_u32; 4]).expect("it is small"));
        // An answer to nobody, data of no stream, a stream's data for a call.
        monitor.reply(7777, Reply::Done);
        monitor.stream(8888, StreamData::PortState { guest_open: true });
        monitor.stream(ask.id, StreamData::PortState { guest_open: true });
        monitor.reply(ask.id, Reply::Vms(vec![]));
    });
    assert_eq!(fixture.client().vms().expect("it comes through"), []);
    let supervisor = fixture.supervisor.as_ref().expect("it runs");
    assert!(supervisor.garbage_bytes() >= 19);
    fixture.finish();
}

#[test]
fn a_client_that_does_not_read_is_cut_off_alone() {
    const CHUNK: usize = MAX_DATA;
    let limits = Limits { client_bytes: 4 * CHUNK, ..Limits::default() };
    let (told, opened) = channel();
    let fixture = Fixture::with_limits(limits, move |mut monitor| {
        let open = monitor.expect();
        monitor.reply(open.id, Reply::Console(RANGE));
        told.send(()).expect("the test waits");
        let mut sent = 0;
        // Far more than the limit and any socket buffer; a supervisor that waited for the reader would stop here.
        for _ in 0..200 {
            monitor.stream(open.id, console(sent, &[b'x'; CHUNK]));
            sent += CHUNK as u64;
        }
        loop {
            let ask = monitor.expect();
            match ask.request {
                Request::ListVms => return monitor.reply(ask.id, Reply::Vms(vec![])),
                // Because the slow client has gone.
                Request::Close { .. } => monitor.reply(ask.id, Reply::Done),
                other => panic!("{other:?} was not to be expected"),
            }
        }
    });
    let mut slow = fixture.socket();
    for message in [
        ClientMessage { id: 1, request: Request::Hello { version: 1 } },
        ClientMessage { id: 9, request: Request::ConsoleAttach { vm: name("vm"), from: 0 } },
    ] {
        slow.write_all(&control::encode(&message).expect("it is small")).expect("the supervisor reads");
    }
    opened.recv().expect("the monitor opened it");
    assert_eq!(fixture.client().vms().expect("the others go on"), []);
    let messages = read_to_end(&slow);
    let last = messages.last().expect("something came");
    assert_eq!(last.id, 9);
    assert!(matches!(last.body, Body::Stream(StreamData::End(StreamEnd::TooSlow { waiting })) if waiting > 0));
    fixture.finish();
}

#[test]
fn when_the_monitor_goes_everybody_learns_it() {
    let fixture = Fixture::start(|mut monitor| {
        let open = monitor.expect();
        monitor.reply(open.id, Reply::Console(RANGE));
        // A request that it never answers.
        monitor.expect();
    });
    let client = fixture.client();
    let (_, stream) = client.console(&name("vm"), 0).expect("it opens");
    let error = client.machine_info().expect_err("there is no answer");
    assert!(matches!(error, ClientError::Refused(ControlError::ShuttingDown)), "{error}");
    let error = stream.recv().expect_err("there is no more data");
    assert!(matches!(error, ClientError::StreamEnded(StreamEnd::ShuttingDown)), "{error}");
    let error = client.vms().expect_err("there is no connection");
    assert!(matches!(error, ClientError::Disconnected { .. } | ClientError::Refused(_)), "{error}");
    fixture.finish();
}

#[test]
fn stream_ids_in_errors_are_the_clients_own() {
    let fixture = Fixture::start(|mut monitor| {
        let open = monitor.expect();
        monitor.reply(open.id, Reply::Opened);
        let chunk = monitor.expect();
        let Some(stream) = chunk.request.stream() else { panic!("a chunk was expected") };
        assert_eq!(stream, open.id);
        monitor.refuse(chunk.id, ControlError::WrongStream { stream });
        monitor
    });
    let client = fixture.client();
    let (_, stream) = client.open(Request::EventsFollow { from: 0, which: Followed::All }).expect("it opens");
    let chunk = Request::ModuleChunk { upload: stream.id(), offset: 0, bytes: vec![1] };
    let error = client.call(chunk).expect_err("it is no upload");
    assert_eq!(error.to_string(), format!("stream {} does not take this", stream.id()));
    // What the supervisor knows itself it answers itself.
    let error = client.call(Request::Close { stream: 999 }).expect_err("there is no such stream");
    assert_eq!(error.to_string(), "there is no open stream 999");
    drop(stream);
    drop(fixture.finish());
}

#[test]
fn modules_are_uploaded_in_chunks() {
    let content: Vec<u8> = (0..3 * MAX_DATA / 2).map(|n| u8::try_from(n % 251).expect("it is small")).collect();
    let expected = content.clone();
    let fixture = Fixture::start(move |mut monitor| {
        let open = monitor.expect();
        let Request::PutModule { total_len, .. } = open.request else { panic!("an upload was expected") };
        monitor.reply(open.id, Reply::Opened);
        let mut received = Vec::new();
        while (received.len() as u64) < total_len {
            let chunk = monitor.expect();
            let Request::ModuleChunk { upload, offset, bytes } = chunk.request else { panic!("not a chunk") };
            assert_eq!((upload, offset), (open.id, received.len() as u64));
            received.extend(bytes);
            monitor.reply(chunk.id, Reply::Done);
        }
        assert_eq!(received, expected);
    });
    let mut steps = Vec::new();
    let label = Label::new("kernel").expect("a good label");
    let client = fixture.client();
    client
        .put_module(&label, content.len() as u64, content.as_slice(), |sent| steps.push(sent))
        .expect("the monitor takes it");
    assert_eq!(steps, [MAX_DATA as u64, content.len() as u64]);
    fixture.monitor.join().expect("the monitor's script holds");
}

#[test]
fn clients_of_another_version_and_too_many_clients_are_refused() {
    let limits = Limits { clients: 2, ..Limits::default() };
    let fixture = Fixture::with_limits(limits, |mut monitor| monitor.next().is_none());
    let mut old = fixture.socket();
    let greeting = ClientMessage { id: 5, request: Request::Hello { version: 0 } };
    old.write_all(&control::encode(&greeting).expect("it is small")).expect("the supervisor reads");
    let mut chunk = [0; 1000];
    let count = old.read(&mut chunk).expect("an answer comes");
    let mut decoder = Decoder::new();
    decoder.push(&chunk[..count]);
    let body = Body::Error(ControlError::VersionMismatch { client: 0, server: control::PROTOCOL_VERSION });
    assert_eq!(decoder.next_message(), Some(Ok(ServerMessage { id: 5, body })));
    let _second = fixture.client();
    let messages = read_to_end(&fixture.socket());
    assert!(matches!(&messages[..], [ServerMessage { id: 0, body: Body::Error(ControlError::Busy { .. }) }]));
    drop(old);
    assert!(fixture.finish());
}

#[test]
fn a_silent_or_unwilling_monitor_is_an_error() {
    let start = |script: fn(FakeMonitor), timeout| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let listener = UnixListener::bind(dir.path().join("s")).expect("the path is free");
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let monitor = std::thread::spawn(move || script(FakeMonitor::new(theirs)));
        let result = Supervisor::start(ours, listener, Limits::default(), timeout, || {});
        monitor.join().expect("the monitor's script holds");
        result.expect_err("the monitor does not answer")
    };
    let silent = |mut monitor: FakeMonitor| while monitor.next().is_some() {};
    assert!(matches!(start(silent, Duration::from_millis(1)), SupervisorError::Silent { .. }));
    assert!(matches!(start(drop, WATCHDOG), SupervisorError::Closed));
    let unwilling = |mut monitor: FakeMonitor| {
        let greeting = monitor.expect();
        monitor.refuse(greeting.id, ControlError::VersionMismatch { client: 1, server: 2 });
    };
    assert!(matches!(start(unwilling, WATCHDOG), SupervisorError::Refused(_)));
    let confused = |mut monitor: FakeMonitor| {
        let greeting = monitor.expect();
        monitor.reply(greeting.id, Reply::Done);
    };
    assert!(matches!(start(confused, WATCHDOG), SupervisorError::WrongAnswer));
}

#[test]
fn the_greeting_tells_who_answers() {
    let fixture = Fixture::start(|mut monitor| monitor.next().is_none());
    assert_eq!(*fixture.client().server(), hello());
    assert_eq!(*fixture.supervisor.as_ref().expect("it runs").hello(), hello());
    assert!(fixture.finish());
}
