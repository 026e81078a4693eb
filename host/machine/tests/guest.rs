//! The guest agent and the waits, over a fake monitor with a fake guest.

mod fake;

use std::time::Duration;

use addr::VmId;
use control::{
    Body, ConsoleRange, ControlError, EventBatch, Followed, Reply, Request, StopReason, StreamData, VmState, VmSummary,
};
use fake::{FakeMonitor, Fixture, WATCHDOG, name};
use machine::{AgentError, ExecStatus, GuestAgent, ShutdownMode, WaitError, wait_for_text, wait_for_vm};

/// A guest agent's side: whole lines in, bytes out.
struct FakeGuest {
    monitor: FakeMonitor,
    stream: u32,
}

impl FakeGuest {
    fn open(mut monitor: FakeMonitor, is_running: bool) -> Self {
        let open = monitor.expect();
        assert!(matches!(open.request, Request::PortOpen { .. }));
        monitor.reply(open.id, Reply::Opened);
        monitor.stream(open.id, StreamData::PortState { guest_open: is_running });
        Self { monitor, stream: open.id }
    }

    /// The next line that the host sends, as JSON; without the byte that synchronises.
    fn line(&mut self) -> serde_json::Value {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let message = self.monitor.expect();
            let Request::Input { stream, bytes } = message.request else { panic!("input was expected") };
            assert_eq!(stream, self.stream);
            // A guest that reads slowly: never more than seven bytes at once.
            let taken = bytes.len().min(7);
            line.extend_from_slice(&bytes[..taken]);
            let bytes = u32::try_from(taken).expect("it is small");
            self.monitor.reply(message.id, Reply::Accepted { bytes });
        }
        let start = usize::from(line.first() == Some(&0xff));
        serde_json::from_slice(&line[start..]).expect("the host sends JSON")
    }

    fn say(&mut self, text: &[u8]) {
        // In pieces, as a port may deliver them.
        for part in text.chunks(5) {
            self.monitor.stream(self.stream, StreamData::Port { bytes: part.to_vec() });
        }
    }

    /// Expects a command and answers it.
    fn answer(&mut self, command: &str, reply: &str) -> serde_json::Value {
        let line = self.line();
        assert_eq!(line["execute"], command);
        self.say(format!("{reply}\n").as_bytes());
        line["arguments"].clone()
    }

    /// Gives the id that the session has chosen.
    fn synchronise(&mut self) -> u64 {
        // Left from an earlier session: half an answer, and a whole one.
        self.say(b"rn\": 3}\n{\"return\": {}}\n");
        let line = self.line();
        assert_eq!(line["execute"], "guest-sync-delimited");
        let id = line["arguments"]["id"].as_u64().expect("there is an id");
        self.say(b"\xff");
        self.say(format!("{{\"return\": {id}}}\n").as_bytes());
        id
    }
}

#[test]
fn a_command_runs_and_its_output_comes_back() {
    let fixture = Fixture::start(|monitor| {
        let mut guest = FakeGuest::open(monitor, true);
        guest.synchronise();
        let arguments = guest.answer("guest-exec", r#"{"return": {"pid": 42}}"#);
        assert_eq!(arguments["path"], "sh");
        assert_eq!(arguments["arg"][1], "echo hi");
        assert_eq!(arguments["input-data"], "aW4=");
        assert_eq!(arguments["capture-output"], true);
        guest.answer("guest-exec-status", r#"{"return": {"exited": false}}"#);
        let done = r#"{"return": {"exited": true, "exitcode": 3, "out-data": "aGkK", "err-data": "b2g="}}"#;
        let arguments = guest.answer("guest-exec-status", done);
        assert_eq!(arguments["pid"], 42);
    });
    let client = fixture.client();
    let mut agent = GuestAgent::connect(&client, &name("vm"), WATCHDOG).expect("the agent is there");
    let arguments = ["-c".to_owned(), "echo hi".to_owned()];
    let result = agent.exec("sh", &arguments, b"in", Some(WATCHDOG)).expect("it runs");
    assert_eq!(result.status, ExecStatus::Exited(3));
    assert_eq!((result.stdout.as_slice(), result.stderr.as_slice()), (b"hi\n".as_slice(), b"oh".as_slice()));
    fixture.monitor.join().expect("the guest's script holds");
}

#[test]
fn what_the_agent_says_wrong_is_told() {
    let fixture = Fixture::start(|monitor| {
        let mut guest = FakeGuest::open(monitor, true);
        guest.synchronise();
        guest.answer("guest-exec", r#"{"error": {"class": "GenericError", "desc": "no such file"}}"#);
        guest.answer("guest-ping", r#"{"hello": 1}"#);
        guest.answer("guest-ping", "][");
        guest.answer("guest-ping", r#"{"return": {}}"#);
        let arguments = guest.line();
        assert_eq!(arguments["arguments"]["mode"], "powerdown");
    });
    let client = fixture.client();
    let mut agent = GuestAgent::connect(&client, &name("vm"), WATCHDOG).expect("the agent is there");
    let error = agent.exec("/no", &[], b"", None).expect_err("there is no such program");
    assert_eq!(error.to_string(), "the guest agent of VM \"vm\" refused guest-exec: no such file");
    let error = agent.ping().expect_err("it is nonsense");
    assert!(error.to_string().ends_with("answered guest-ping with nonsense: neither `return` nor `error`"));
    assert!(matches!(agent.ping(), Err(AgentError::Nonsense { .. })));
    agent.ping().expect("it has come to its senses");
    agent.shutdown(ShutdownMode::PowerDown).expect("it takes the command");
    fixture.monitor.join().expect("the guest's script holds");
}

#[test]
fn answers_to_others_are_left_alone() {
    let fixture = Fixture::start(|monitor| {
        let mut guest = FakeGuest::open(monitor, true);
        let first = guest.line();
        let id = first["arguments"]["id"].as_u64().expect("there is an id");
        guest.say(b"\xff");
        guest.say(format!("{{\"return\": {id}, \"id\": {id}}}\n").as_bytes());
        // The complaint about the delimiter comes late, and so does what an earlier session has asked.
        guest.say(b"{\"error\": {\"class\": \"GenericError\", \"desc\": \"JSON parse error, stray '0xff'\"}}\n");
        guest.say(b"{\"return\": {\"pid\": 1}, \"id\": 1}\n");
        let ping = guest.line();
        assert_ne!(ping["id"], first["id"]);
        guest.say(format!("{{\"return\": {{}}, \"id\": {}}}\n", ping["id"]).as_bytes());
    });
    let client = fixture.client();
    let mut agent = GuestAgent::connect(&client, &name("vm"), WATCHDOG).expect("the agent is there");
    agent.ping().expect("it answers");
    fixture.monitor.join().expect("the guest's script holds");
}

#[test]
fn sessions_of_one_process_have_ids_of_their_own() {
    let session = || {
        let fixture = Fixture::start(|monitor| {
            let mut guest = FakeGuest::open(monitor, true);
            guest.synchronise()
        });
        let client = fixture.client();
        GuestAgent::connect(&client, &name("vm"), WATCHDOG).expect("the agent is there");
        fixture.monitor.join().expect("the guest's script holds")
    };
    assert_ne!(session(), session());
}

#[test]
fn no_agent_and_no_port_are_told_apart() {
    let fixture = Fixture::start(|mut monitor| {
        let open = monitor.expect();
        let Request::PortOpen { vm, port } = open.request else { panic!("a port was expected") };
        monitor.refuse(open.id, ControlError::NoSuchPort { vm, port });
        let mut guest = FakeGuest::open(monitor, false);
        // Until the client gives up and closes the port.
        let close = guest.monitor.expect();
        assert_eq!(close.request, Request::Close { stream: guest.stream });
    });
    let client = fixture.client();
    let short = Duration::from_millis(1);
    let error = GuestAgent::connect(&client, &name("vm"), short).expect_err("there is no port");
    assert_eq!(error.to_string(), "VM \"vm\" has no guest-agent port: add \"org.qemu.guest_agent.0\" to its ports");
    let error = GuestAgent::connect(&client, &name("vm"), short).expect_err("there is no agent");
    assert!(matches!(error, AgentError::NotRunning { .. }), "{error}");
    fixture.monitor.join().expect("the guest's script holds");
}

fn summary(state: VmState) -> VmSummary {
    VmSummary {
        name: name("vm"),
        id: VmId(1),
        state,
        reason: (state == VmState::Stopped).then_some(StopReason::PowerOff),
        vcpus: 1,
        memory_mib: 64,
        promised_mib: 64,
        resident: Vec::new(),
        uptime_ticks: 0,
        resets: 0,
        cell: 0,
        disks: Vec::new(),
    }
}

/// Answers one request for all VMs.
fn list(monitor: &mut FakeMonitor, vms: Vec<VmSummary>) {
    let ask = monitor.expect();
    assert_eq!(ask.request, Request::ListVms);
    monitor.reply(ask.id, Reply::Vms(vms));
}

#[test]
fn a_wait_looks_again_when_something_happened() {
    let fixture = Fixture::start(|mut monitor| {
        let follow = monitor.expect();
        assert_eq!(follow.request, Request::EventsFollow { from: u64::MAX, which: Followed::Lives });
        monitor.reply(follow.id, Reply::Opened);
        list(&mut monitor, vec![summary(VmState::Running)]);
        let batch = EventBatch { lost: 0, events: Vec::new(), next: 1 };
        monitor.send(follow.id, Body::Stream(StreamData::Events(batch)));
        list(&mut monitor, vec![summary(VmState::Stopped)]);
        // The stream is closed; then a wait for a VM that is not there.
        while let Some(message) = monitor.next() {
            match message.request {
                Request::EventsFollow { .. } => monitor.reply(message.id, Reply::Opened),
                Request::ListVms => monitor.reply(message.id, Reply::Vms(Vec::new())),
                _ => monitor.reply(message.id, Reply::Done),
            }
        }
    });
    let client = fixture.client();
    let stopped = wait_for_vm(&client, &name("vm"), WATCHDOG, |vm| vm.state == VmState::Stopped);
    assert_eq!(stopped.expect("it stops").reason, Some(StopReason::PowerOff));
    let error = wait_for_vm(&client, &name("vm"), WATCHDOG, |_| true).expect_err("it is gone");
    assert_eq!(error.to_string(), "there is no VM \"vm\"");
    fixture.finish();
}

#[test]
fn a_text_may_come_in_pieces() {
    let fixture = Fixture::start(|mut monitor| {
        let open = monitor.expect();
        monitor.reply(open.id, Reply::Console(ConsoleRange { oldest: 0, first: 0, end: 0 }));
        for (offset, part) in [(0, "boot\nlog"), (8, "in:"), (11, " ")] {
            monitor.stream(open.id, StreamData::Console { offset, bytes: part.into() });
        }
        monitor.next().is_none()
    });
    let client = fixture.client();
    let (_, console) = client.console(&name("vm"), 0).expect("it opens");
    let mut seen = Vec::new();
    wait_for_text(&console, "login: ", WATCHDOG, &mut seen).expect("it comes");
    assert_eq!(seen, b"boot\nlogin: ");
    let error = wait_for_text(&console, "Password", Duration::from_millis(1), &mut seen).expect_err("it does not");
    assert!(matches!(&error, WaitError::Text { seen, .. } if seen == "boot\nlogin: "), "{error}");
    drop((console, client));
    fixture.monitor.join().expect("the monitor's script holds");
}
