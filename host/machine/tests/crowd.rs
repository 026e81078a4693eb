//! Far more clients than there may be, and clients of every bad kind. A program of its own: it changes how many files may be open.

mod fake;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use control::{ClientMessage, ControlError, Reply, Request};
use fake::{FakeMonitor, Fixture, WATCHDOG, name};
use machine::ClientError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Answers whatever is asked for, until the supervisor goes; how much that was.
fn answer_all(mut monitor: FakeMonitor) -> usize {
    let mut asked = 0;
    while let Some(message) = monitor.next() {
        asked += 1;
        match message.request {
            Request::ListVms => monitor.reply(message.id, Reply::Vms(Vec::new())),
            _ => monitor.reply(message.id, Reply::Done),
        }
    }
    asked
}

fn frame(id: u32, request: Request) -> Vec<u8> {
    control::encode(&ClientMessage { id, request }).expect("it is small")
}

fn greeting() -> Vec<u8> {
    frame(1, Request::Hello { version: control::PROTOCOL_VERSION })
}

/// Entries of a folder of this process: its threads, or its open files.
fn count(what: &str) -> usize {
    fs::read_dir(format!("/proc/self/{what}")).expect("the system tells").count()
}

/// Waits until this holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// One after the other: processes have one limit of open files and one number of threads.
#[test]
fn a_crowd_of_clients_leaves_the_supervisor_as_it_was() {
    ten_thousand_bad_clients();
    more_clients_than_open_files();
    pipelined_and_slow_clients();
}

fn ten_thousand_bad_clients() {
    let fixture = Fixture::start(answer_all);
    let good = fixture.client();
    assert_eq!(good.vms().expect("it is served"), []);
    let (threads, files) = (count("task"), count("fd"));
    for number in 0..10_000 {
        let mut socket = fixture.socket();
        // Some are refused, as those before them may not have gone yet: their writes may fail.
        let _ = match number % 5 {
            0 => Ok(()),
            1 => socket.write_all(&greeting()[..7]),
            2 => socket.write_all(&[greeting(), frame(2, Request::ListVms)].concat()),
            3 => socket.write_all(b"GET / HTTP/1.1\r\n\r\n"),
            _ => socket.write_all(&greeting()).and_then(|()| socket.shutdown(Shutdown::Write)),
        };
    }
    until("a thread or an open file is left of a client that has gone", || {
        count("task") <= threads && count("fd") <= files
    });
    assert_eq!(good.vms().expect("it is served still"), []);
    until("a place is free again", || fixture_has_room(&fixture));
    drop(good);
    let _ = fixture.finish();
}

fn fixture_has_room(fixture: &Fixture<usize>) -> bool {
    let mut socket = fixture.socket();
    let _ = socket.write_all(&[greeting(), frame(2, Request::ListVms)].concat());
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).is_ok()
        && machine::Client::over(fixture.socket()).is_ok_and(|client| client.vms().is_ok())
}

fn more_clients_than_open_files() {
    let before = getrlimit(Resource::Nofile);
    let fixture = Fixture::start(answer_all);
    let limit = Rlimit { current: Some(count("fd") as u64 + 40), ..before };
    setrlimit(Resource::Nofile, limit).expect("less is always allowed");
    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).take(200).collect();
    assert!((10..200).contains(&fillers.len()), "{} files", fillers.len());
    // One for this side and one for the supervisor's, which has a place for the connection already: none for the next.
    fillers.truncate(fillers.len() - 2);
    let client = fixture.socket();
    thread::sleep(Duration::from_millis(120));
    drop((client, fillers));
    setrlimit(Resource::Nofile, before).expect("as much as before");
    assert_eq!(fixture.client().vms().expect("it is served"), []);
    let _ = fixture.finish();
}

fn pipelined_and_slow_clients() {
    const EACH: u32 = 200;
    let fixture = Fixture::start(answer_all);
    // All at once, and the answers byte by byte.
    let mut fast = fixture.socket();
    let mut requests = greeting();
    (2..2 + EACH).for_each(|id| requests.extend(frame(id, Request::ListVms)));
    fast.write_all(&requests).expect("the supervisor reads");
    let mut decoder = control::Decoder::new();
    let (mut byte, mut answers) = ([0], 0);
    while answers < EACH + 1 {
        fast.read_exact(&mut byte).expect("answers come");
        decoder.push(&byte);
        if let Some(answer) = decoder.next_message::<control::ServerMessage>() {
            assert!(matches!(answer.expect("a good frame").body, control::Body::Reply(_)));
            answers += 1;
        }
    }
    // Byte by byte, and a stream that does not exist.
    let mut slow = fixture.socket();
    for byte in [greeting(), frame(2, Request::Close { stream: 77 })].concat() {
        slow.write_all(&[byte]).expect("the supervisor reads");
    }
    // More than may wait for an answer: some are told so, and nobody is cut off.
    let good = fixture.client();
    let error = good.call(Request::Close { stream: 5 }).expect_err("there is none");
    assert!(matches!(error, ClientError::Refused(ControlError::UnknownStream { stream: 5 })), "{error}");
    assert_eq!(good.call(Request::PauseVm { vm: name("vm") }).expect("it is passed on"), Reply::Done);
    drop((fast, slow, good));
    assert!(fixture.finish() > EACH as usize);
}
