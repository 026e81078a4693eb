//! A monitor that exists only in tests, behind a real supervisor: it answers every request about a machine of fixed
//! numbers, echoes what is typed on consoles, and has a guest agent whose guest is this host.
#![allow(dead_code, reason = "each user takes what it needs")]

mod agent;
#[path = "../../src/model/fixture/raw.rs"]
mod raw;
mod state;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use control::{Body, ClientMessage, Decoder, Name, ServerMessage};
use machine::{Claim, Limits, Phase, RunRoot, State, Supervisor};

pub use raw::{DEMO, Size};
use state::Monitor;

/// A machine that can be talked to. It ends when dropped, or when a client shuts it down.
pub struct FakeMachine {
    supervisor: Option<Supervisor>,
    claim: Option<Claim>,
    link: UnixStream,
    ended: std::sync::mpsc::Receiver<()>,
}

impl FakeMachine {
    /// Starts one named `demo` under this runtime directory. `is_live`: its clock runs; else it stands at 61 s.
    pub fn start(runtime_dir: &Path, size: Size, is_live: bool) -> Self {
        Self::named(runtime_dir, "demo", size, is_live)
    }

    pub fn named(runtime_dir: &Path, name: &str, size: Size, is_live: bool) -> Self {
        let name = Name::new(name).expect("a good name");
        let claim = RunRoot::at(runtime_dir).claim(&name).expect("it is free");
        let dir = claim.dir().clone();
        let clients = UnixListener::bind(dir.control_socket()).expect("the path is free");
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let link = theirs.try_clone().expect("a second handle");
        let monitor = Monitor::new(size, name.clone(), is_live.then(Instant::now));
        thread::spawn(move || serve(theirs, monitor));
        let (sender, ended) = std::sync::mpsc::channel();
        let on_end = move || {
            let _ = sender.send(());
        };
        let supervisor = Supervisor::start(ours, clients, Limits::default(), Duration::from_secs(60), on_end);
        let state = State {
            name,
            supervisor_pid: 1,
            emulator_pid: None,
            config: Some(PathBuf::from("demo.toml")),
            can_fail: false,
            counts_instructions: false,
            started_unix: 0,
            phase: Phase::Running,
        };
        claim.publish(&state).expect("the directory is ours");
        std::fs::write(dir.monitor_log(), "[0] mirrorball: fake monitor\n").expect("the directory is ours");
        Self { supervisor: Some(supervisor.expect("the fake answers")), claim: Some(claim), link, ended }
    }

    /// Waits until a client has shut it down.
    pub fn wait(mut self) {
        let _ = self.ended.recv();
        self.end();
    }

    fn end(&mut self) {
        let _ = self.link.shutdown(std::net::Shutdown::Both);
        drop(self.supervisor.take());
        drop(self.claim.take());
    }
}

impl Drop for FakeMachine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Answers until the link is closed or the machine is shut down.
fn serve(mut link: UnixStream, mut monitor: Monitor) {
    let mut decoder = Decoder::new();
    let mut chunk = [0; 64 * 1024];
    loop {
        let count = match link.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        decoder.push(&chunk[..count]);
        while let Some(message) = decoder.next_message::<ClientMessage>() {
            let answers = monitor.answer(message.expect("the supervisor sends good frames"));
            for (id, body) in answers {
                send(&mut link, id, body);
            }
            if monitor.is_off() {
                let _ = link.shutdown(std::net::Shutdown::Both);
                return;
            }
        }
    }
}

fn send(link: &mut UnixStream, id: u32, body: Body) {
    let frame = control::encode(&ServerMessage { id, body }).expect("it is small");
    // That the other side is gone already is no matter here.
    let _ = link.write_all(&frame);
}
