//! The binary against a fake monitor behind a real supervisor.

mod fake;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fake::{DEMO, FakeMachine, Size};
use serde_json::Value;

/// A runtime directory of its own, with a fake machine.
struct Fixture {
    dir: tempfile::TempDir,
    machine: Option<FakeMachine>,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture = Self::empty();
        fixture.machine = Some(FakeMachine::start(fixture.dir.path(), DEMO, false));
        fixture
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // The runtime directory must be its owner's alone.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("it is ours");
        Self { dir, machine: None }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mirrorball"));
        command.args(arguments).env("MIRRORBALL_RUNTIME_DIR", self.dir.path()).env_remove("MIRRORBALL_MACHINE");
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Done {
        Done(self.command(arguments).output().expect("the binary is built"))
    }
}

struct Done(Output);

impl Done {
    fn status(&self) -> i32 {
        self.0.status.code().expect("it was not killed")
    }

    fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    fn json(&self) -> Value {
        assert_eq!(self.status(), 0, "{}", self.err());
        serde_json::from_str(&self.out()).expect("it is JSON")
    }
}

#[test]
fn without_a_machine_it_says_what_to_do() {
    let fixture = Fixture::empty();
    let done = fixture.run(&["kill", "web"]);
    assert_eq!(done.status(), 1);
    assert_eq!(done.err(), "mirrorball: no machine is running; start one with `mirrorball run MACHINE.toml`\n");
    let list = fixture.run(&["ls", "--json"]);
    assert_eq!(list.json()["machines"], Value::Array(Vec::new()));
    assert_eq!(fixture.run(&["version"]).status(), 0);
    assert_eq!(fixture.run(&["no-such-command"]).status(), 2);
}

#[test]
fn several_machines_need_a_choice() {
    let mut fixture = Fixture::new();
    let other = FakeMachine::named(fixture.dir.path(), "other", Size { vms: 1, ..DEMO }, false);
    let done = fixture.run(&["stats"]);
    assert_eq!((done.status(), done.err().contains("demo, other")), (2, true), "{}", done.err());
    assert_eq!(fixture.run(&["stats", "-m", "other"]).status(), 0);
    assert_eq!(fixture.run(&["-m", "nobody", "stats"]).status(), 1);
    let names = fixture.run(&["ls", "--json"]).json();
    assert_eq!(
        (names["machines"][0]["name"].as_str(), names["machines"][1]["name"].as_str()),
        (Some("demo"), Some("other"))
    );
    drop(other);
    drop(fixture.machine.take());
    assert_eq!(fixture.run(&["ls"]).out(), "");
}

#[test]
fn data_comes_as_text_and_json() {
    let fixture = Fixture::new();
    let list = fixture.run(&["ls"]);
    assert!(list.out().contains("build-4  stopped"), "{}", list.out());
    assert!(!list.out().contains('\x1b'), "no colour without a terminal");
    assert!(fixture.run(&["--color", "always", "ls"]).out().contains('\x1b'));
    let stats = fixture.run(&["stats", "--json"]).json();
    assert_eq!(
        (stats["harts"].as_array().map(Vec::len), stats["vms"][0]["state"].as_str()),
        (Some(8), Some("running"))
    );
    let two = fixture.run(&["stats", "build-1", "build-2", "--json"]).json();
    assert_eq!(two.as_array().map(Vec::len), Some(2));
    assert!(fixture.run(&["stats", "--rates", "100ms"]).out().contains("HART"));
    let info = fixture.run(&["info", "--json"]).json();
    assert_eq!((info["sbi_version"].as_str(), info["firmware"].as_str()), (Some("2.0"), Some("OpenSBI 1.5")));
    assert_eq!(info["miss_counters"]["pages"].as_u64(), Some(524_288));
    let cells = fixture.run(&["cells", "--json"]).json();
    assert_eq!(
        (&cells["cells"][1]["state"], &cells["cells"][1]["free_bytes"]),
        (&"lost".into(), &serde_json::Value::Null)
    );
    let text = fixture.run(&["info"]).out();
    assert!(text.contains("sv39x4") && text.contains("model file version 2, misses on 524,288 pages"), "{text}");
    assert!(fixture.run(&["version"]).out().contains("monitor 0.1.0 (fake)"));
}

#[test]
fn events_are_filtered_and_counted() {
    let fixture = Fixture::new();
    let lines = fixture.run(&["events", "--json", "--vm", "build-4"]).out();
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect();
    let words: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(words, ["vm-created", "vm-started", "vm-stopped"]);
    assert_eq!(fixture.run(&["events", "-n", "2"]).out().lines().count(), 2);
}

#[test]
fn following_events_ends_with_the_machine() {
    let mut fixture = Fixture::new();
    let child = fixture.command(&["events", "--follow"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the binary is built");
    // Told once what is kept has come, so it is connected: one that is not would be refused below.
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut told = String::new();
    out.read_line(&mut told).expect("it is text");
    assert_eq!(fixture.run(&["pause", "build-1"]).out(), "VM build-1 paused\n");
    // As the supervisor's process would: it goes when the monitor has.
    let machine = fixture.machine.take().expect("it runs");
    let end = std::thread::spawn(move || machine.wait());
    let shutdown = fixture.run(&["shutdown"]);
    assert_eq!((shutdown.status(), shutdown.out().as_str()), (0, "machine demo is off\n"), "{}", shutdown.err());
    end.join().expect("it ends");
    out.read_to_string(&mut told).expect("it is text");
    let done = Done(child.wait_with_output().expect("it ends"));
    assert_eq!(done.status(), 0, "{}", done.err());
    assert!(told.contains("machine booted"), "{told}");
}

#[test]
fn vms_change_their_state() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["pause", "build-1"]).status(), 0);
    let refused = fixture.run(&["pause", "build-1"]);
    assert_eq!(refused.status(), 1);
    assert!(refused.err().ends_with("; try `mirrorball resume build-1` first\n"), "{}", refused.err());
    assert_eq!(fixture.run(&["resume", "build-1"]).status(), 0);
    assert_eq!(fixture.run(&["reset", "build-1"]).status(), 0);
    assert_eq!(fixture.run(&["kill", "build-1"]).status(), 0);
    assert_eq!(fixture.run(&["start", "build-1"]).status(), 0);
    assert_eq!(fixture.run(&["destroy", "build-4"]).status(), 0);
    let unknown = fixture.run(&["start", "build-4"]);
    assert_eq!(unknown.err(), "mirrorball: there is no VM \"build-4\"; `mirrorball ls` shows those that exist\n");
}

#[test]
fn a_guest_that_goes_down_is_listened_to_until_it_has() {
    let fixture = Fixture::new();
    let done = fixture.run(&["stop", "build-2", "--timeout", "5s"]);
    assert_eq!((done.status(), done.out().as_str()), (0, "VM build-2 stopped\n"), "{}", done.err());
}

#[test]
fn a_guest_that_does_not_stop_can_be_killed() {
    let fixture = Fixture::new();
    let done = fixture.run(&["stop", "build-1", "--timeout", "300ms"]);
    assert_eq!(done.status(), 1);
    assert!(done.err().contains("`mirrorball kill build-1` takes its power"), "{}", done.err());
}

#[test]
fn commands_pass_output_and_status_on() {
    let fixture = Fixture::new();
    let echo = fixture.run(&["exec", "build-1", "--", "echo", "a b", "c"]);
    assert_eq!((echo.status(), echo.out().as_str()), (0, "a b c\n"), "{}", echo.err());
    assert_eq!(fixture.run(&["exec", "build-1", "--", "false"]).status(), 1);
    let shell = fixture.run(&["exec", "build-1", "--", "echo a | tr a b; echo c >&2; exit 42"]);
    assert_eq!((shell.status(), shell.out().as_str(), shell.err().as_str()), (42, "b\n", "c\n"));
    let killed = fixture.run(&["exec", "build-1", "--", "kill -9 $$"]);
    assert_eq!(killed.status(), 128 + 9);
    let stopped = fixture.run(&["exec", "build-4", "--", "true"]);
    assert!(stopped.err().contains("try `mirrorball start build-4` first"), "{}", stopped.err());
}

#[test]
fn failures_of_exec_and_of_its_command_differ() {
    let fixture = Fixture::new();
    let status = |words: &[&str]| fixture.run(&[&["exec"], words].concat()).status();
    assert_eq!(status(&["build-1", "--", "no-such-command-here"]), 127);
    assert_eq!(status(&["build-1", "--", "/etc/passwd"]), 126);
    for wrong in [&["no-vm", "--", "true"][..], &["build-4", "--", "true"], &["build-1", "--nonsense", "--", "true"]] {
        assert_eq!(status(wrong), 125, "{wrong:?}");
    }
    assert_eq!(fixture.run(&["exec", "--help"]).status(), 0);
    let late = fixture.run(&["exec", "build-1", "--timeout", "300ms", "--", "echo begun; exec sleep 60"]);
    assert_eq!((late.status(), late.out().as_str()), (124, "begun\n"));
    assert!(late.err().contains("`/bin/sh` still runs in VM \"build-1\" after 300 ms"), "{}", late.err());
    assert!(late.err().contains("--timeout gives it more time"), "{}", late.err());
}

/// Each side waits for the other's words: nothing would move if input and output came at the command's ends alone.
#[test]
fn input_and_output_of_a_command_flow() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["exec", "-i", "build-1", "--", "while read -r word; do echo got $word; done"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it was piped");
    let mut output = BufReader::new(child.stdout.take().expect("it was piped"));
    for word in ["one", "two", "three"] {
        writeln!(input, "{word}").expect("it reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("it is text");
        assert_eq!(line, format!("got {word}\n"));
    }
    drop(input);
    assert!(child.wait().expect("it ends with its input").success());
}

/// More than all pieces that may wait on the way, through a command that is slower than its input.
#[test]
fn much_input_waits_for_a_slow_command() {
    let fixture = Fixture::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let script = "dd bs=1000 count=1 status=none; sleep 0.3; cat";
    let mut command = fixture.command(&["exec", "-i", "build-1", "--", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("it was piped");
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("all is read");
    assert!(output.status.success() && output.stdout == bytes, "{} bytes came back", output.stdout.len());
    // One that reads nothing does not wait for it.
    let mut child =
        fixture.command(&["exec", "-i", "build-1", "--", "true"]).stdin(Stdio::piped()).spawn().expect("starts");
    let _input = child.stdin.take();
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_console_works_through_pipes() {
    let fixture = Fixture::new();
    let dump = fixture.run(&["console", "build-1", "--dump"]);
    assert!(dump.out().starts_with("Debian GNU/Linux 13"), "{}", dump.err());
    let mut child = fixture
        .command(&["console", "build-1", "--until", "hello\n", "--timeout", "60s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary is built");
    child.stdin.take().expect("it is piped").write_all(b"hello\n").expect("it reads");
    let done = Done(child.wait_with_output().expect("it ends"));
    assert_eq!(done.status(), 0);
    assert!(done.out().ends_with("hello\n") && done.out().contains("login"), "{}", done.out());
    let late = fixture.run(&["console", "build-1", "--until", "never", "--timeout", "100ms"]);
    assert_eq!((late.status(), late.err().contains("did not show \"never\"")), (1, true));
    assert_eq!(fixture.run(&["console", "build-4"]).status(), 0, "a stopped VM has nothing more to say");
}

#[test]
fn modules_are_uploaded_once() {
    let fixture = Fixture::new();
    let file = fixture.dir.path().join("kernel-x");
    std::fs::write(&file, vec![7; 300_000]).expect("it can be written");
    let path = file.to_str().expect("a plain path");
    assert_eq!(fixture.run(&["put", path]).out(), "module kernel-x stored, 293 KiB\n");
    let again = fixture.run(&["put", path]);
    assert!(again.err().contains("--replace"), "{}", again.err());
    assert_eq!(fixture.run(&["put", path, "--replace"]).status(), 0);
    assert!(fixture.run(&["info"]).out().contains("kernel-x"));
}

#[test]
fn a_live_view_needs_a_terminal() {
    let done = Fixture::new().run(&["top"]);
    assert_eq!(done.status(), 2);
    assert!(done.err().contains("mirrorball stats --rates"), "{}", done.err());
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let fixture = Fixture::new();
    let mut child =
        fixture.command(&["stats"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it is built");
    drop(child.stdout.take());
    let done = Done(child.wait_with_output().expect("it ends"));
    assert_eq!((done.status(), done.err().as_str()), (0, ""));
}

#[test]
fn the_examples_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let fixture = Fixture::empty();
    for name in ["hello", "demo", "plic", "uneven", "overcommit", "uboot"] {
        let file = folder.join(format!("{name}.toml"));
        let done = fixture.run(&["check", "--no-files", "--json", file.to_str().expect("a plain path")]);
        let view = done.json();
        assert_eq!((&view["ok"], &view["problems"]), (&Value::Bool(true), &Value::Array(Vec::new())), "{name}");
    }
}

#[test]
fn a_wrong_description_is_refused() {
    let fixture = Fixture::empty();
    let file = fixture.dir.path().join("bad.toml");
    std::fs::write(&file, "name = \"bad\"\n[[node]]\nhart = 2\nmemory_mib = 512\n").expect("it can be written");
    let path = file.to_str().expect("a plain path");
    let check = fixture.run(&["check", path]);
    assert_eq!(check.status(), 2);
    assert!(check.err().contains("bad.toml:3:") && check.err().contains("harts"), "{}", check.err());
    assert_eq!(fixture.run(&["run", path]).status(), 2);
    assert_eq!(fixture.run(&["check", "--json", path]).status(), 2);
}

/// Somebody who has a machine file from a stranger hears what it asks for, and need not run it.
#[test]
fn a_file_that_asks_for_much_is_told_apart() {
    let fixture = Fixture::empty();
    let file = fixture.dir.path().join("far.toml");
    let text = "name = \"far\"\n[machine]\nqemu_args = [\"-s\"]\n[network]\nreach = \"host\"\n[[node]]\nharts = 1\nmemory_mib = 512\n";
    std::fs::write(&file, text).expect("it can be written");
    let path = file.to_str().expect("a plain path");
    let check = fixture.run(&["check", path]);
    assert_eq!((check.status(), check.err().as_str()), (0, ""));
    for line in
        ["run it only if you trust its author", "line 3: machine.qemu_args gives", "line 5: network.reach lets VMs"]
    {
        assert!(check.out().contains(line), "{line:?} is not in {}", check.out());
    }
    let view = fixture.run(&["check", "--json", path]).json();
    assert_eq!((&view["ok"], &view["grants"][1]["key"]), (&Value::Bool(true), &Value::from("network.reach")));
    for command in [&["check", "--restricted", path][..], &["run", "--restricted", path]] {
        let refused = fixture.run(command);
        assert_eq!(refused.status(), 2, "{command:?}");
        assert!(refused.err().contains("far.toml:3:") && refused.err().contains("--restricted"), "{}", refused.err());
    }
}

#[test]
fn experiments_are_listed() {
    let fixture = Fixture::empty();
    assert!(fixture.run(&["bench", "list"]).out().contains("exits"));
    assert!(fixture.run(&["bench", "list", "--json"]).json()[0]["summary"].is_string());
    let unknown = fixture.run(&["bench", "nonsense"]);
    assert_eq!((unknown.status(), unknown.err().contains("bench list")), (2, true), "{}", unknown.err());
}

#[test]
fn completions_know_the_vms_of_machines_that_run() {
    let fixture = Fixture::new();
    for shell in ["bash", "zsh", "fish"] {
        let done = fixture.run(&["completion", shell]);
        assert!(done.out().contains("COMPLETE=") || done.out().contains("COMPLETE "), "{shell}: {}", done.out());
    }
    let mut ask = fixture.command(&["--", "mirrorball", "console", "build-"]);
    ask.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").env("_CLAP_COMPLETE_COMP_TYPE", "9");
    ask.env("_CLAP_COMPLETE_SPACE", "true").env("_CLAP_IFS", "\n");
    let names = Done(ask.output().expect("the binary is built")).out();
    assert!(
        names.lines().any(|name| name == "build-1") && names.lines().all(|name| name.starts_with("build-")),
        "{names}"
    );
}

#[test]
fn manual_pages_are_written() {
    let fixture = Fixture::empty();
    let folder = fixture.dir.path().join("man");
    assert_eq!(fixture.run(&["man", &folder.display().to_string()]).status(), 0);
    for page in ["mirrorball.1", "mirrorball-launch.1"] {
        let text = std::fs::read_to_string(folder.join(page)).expect("it is there");
        assert!(text.contains(".TH"), "{page}");
    }
}

/// A shared file of two nodes of one hart, with a few counts, as the machine model's plugin writes it.
fn write_model(path: &Path) {
    use model_file::{Header, Mode, ModeCounters, Node, Stall, at};
    let node = |at: u64| Node { base: 0x8000_0000 + (at << 20), bytes: 1 << 20, harts: 1 };
    let latency = |from, to| if from == to { 300_000 } else { 900_000 };
    let header = Header::new(&[node(0), node(1)], 16, 5000, latency).expect("it is good");
    let mut bytes = vec![0; usize::try_from(header.file_bytes()).expect("it is small")];
    let mut put = |offset: u64, content: &[u8]| {
        let offset = usize::try_from(offset).expect("it is small");
        bytes[offset..offset + content.len()].copy_from_slice(content);
    };
    put(0, &header.encode());
    put(at::IS_ON, &1_u64.to_le_bytes());
    put(at::NOW, &1_500_000_000_000_u64.to_le_bytes());
    put(header.clock_at(1).expect("it is there") + 16, &1_u64.to_le_bytes());
    let mut counters = ModeCounters { instructions: 1234, time_ps: 2_000_000_000, ..ModeCounters::default() };
    counters.stalls[Stall::Remote as usize] = 30;
    counters.stall_ps[Stall::Remote as usize] = 27_000_000;
    counters.stalls[Stall::Local as usize] = 10;
    put(header.counters_at(1, Mode::VS as usize).expect("it is there"), &counters.encode());
    put(header.misses_at(3, 1).expect("it is there"), &30_u32.to_le_bytes());
    std::fs::write(path, bytes).expect("it is writable");
}

#[test]
fn the_model_is_shown_and_switched() {
    let fixture = Fixture::new();
    let done = fixture.run(&["model"]);
    assert_eq!(done.status(), 1);
    assert_eq!(
        done.err(),
        "mirrorball: machine demo runs without the machine model: give its file a section [model]\n"
    );
    let path = fixture.dir.path().join("demo/model.bin");
    write_model(&path);
    assert_eq!(
        fixture.run(&["model"]).out(),
        "demo  model on, 1.500000 s of machine time, switched 0 times\n\n\
         HART  NODE  MODE          INSTRUCTIONS      TIME        L2     LOCAL    REMOTE   UPGRADE      WALK\n\
         1        1  guest kernel         1,234  2.000 ms  0.000 ms  0.000 ms  0.027 ms  0.000 ms  0.000 ms\n\n\
         NODE  LOCAL MISSES  REMOTE MISSES  LOCAL%  LATENCIES IN ns\n\
         0                0              0       -  300 900\n\
         1               10             30      25  900 300\n\n\
         PAGE        HOME  MISSES OF EACH NODE\n\
         0x80003000     0  0 30\n"
    );
    let view = fixture.run(&["model", "--json"]).json();
    let mode = &view["harts"][1]["modes"][0];
    assert_eq!((view["on"].as_bool(), mode["mode"].as_str()), (Some(true), Some("vs")));
    assert_eq!((mode["stalls"][2]["kind"].as_str(), mode["stalls"][2]["count"].as_u64()), (Some("remote"), Some(30)));
    assert_eq!(view["hottest_pages"][0]["address"].as_u64(), Some(0x8000_3000));
    let taken = take_requests(&path, 1);
    assert_eq!(fixture.run(&["model", "off"]).out(), "machine demo: the model is off, time has no stalls\n");
    assert_eq!(taken.join().expect("it ended"), [model_file::Request::Off as u64]);
    assert_eq!(fixture.run(&["model", "maybe"]).status(), 2);
    std::fs::write(&path, vec![0; 8192]).expect("it is writable");
    let done = fixture.run(&["model"]);
    assert!(done.err().contains("not a file of the machine model"), "{}", done.err());
}

/// Takes so many requests, as the plugin does.
fn take_requests(path: &Path, count: usize) -> std::thread::JoinHandle<Vec<u64>> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("it was made");
    std::thread::spawn(move || {
        let mut taken = Vec::new();
        while taken.len() < count {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, model_file::at::REQUEST).expect("it is there");
            if word != [0; 8] {
                taken.push(u64::from_le_bytes(word));
                file.write_all_at(&[0; 8], model_file::at::REQUEST).expect("it is there");
            }
            std::thread::yield_now();
        }
        taken
    })
}

/// The emulator and its supervisor have a session of their own, without a terminal: no hangup reaches them.
#[test]
fn machines_leave_the_terminals_session() {
    let fixture = Fixture::empty();
    let file = |name: &str, text: &str| {
        let path = fixture.dir.path().join(name);
        std::fs::write(&path, text).expect("it is writable");
        path
    };
    // Tells the session and the terminal of its process, fields 6 and 7, and ends. Run through a link to a file that is there
    // already: a program just written may be open in a process that another thread makes.
    file("script", "while read -r stat; do echo \"$stat\"; done </proc/$$/stat >\"${0%/*}/stat\"\nexit 1\n");
    let emulator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machine/tests/fake/emulator.sh");
    std::os::unix::fs::symlink(emulator, fixture.dir.path().join("emulator")).expect("it is writable");
    file("monitor.bin", "monitor");
    let text = "[machine]\nqemu = \"emulator\"\nmonitor = \"monitor.bin\"\n[[node]]\nharts = 1\nmemory_mib = 256\n";
    let machine = file("m.toml", text);
    let done = fixture.run(&["run", "--detach", &machine.display().to_string()]);
    assert!(done.err().contains("the emulator ended before the monitor answered"), "{}", done.err());
    let session = |stat: &str| -> Vec<String> {
        let (_, rest) = stat.rsplit_once(')').expect("a name stands in parentheses");
        rest.split_whitespace().skip(3).take(2).map(str::to_owned).collect()
    };
    let theirs = session(&std::fs::read_to_string(fixture.dir.path().join("stat")).expect("it ran"));
    let ours = session(&std::fs::read_to_string("/proc/self/stat").expect("this process runs"));
    assert!(theirs[0] != ours[0] && theirs[1] == "0", "{theirs:?}, and this is {ours:?}");
}

/// What the text, the page of the docs and the dashboard name is the same.
#[test]
fn metrics_are_those_that_are_documented() {
    let fixture = Fixture::new();
    let done = fixture.run(&["metrics"]);
    assert_eq!(done.status(), 0, "{}", done.err());
    let text = done.out();
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("mirrorball_vm_vcpus{vm=\"build-1\"} "), "{text}");
    let of = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("mirrorball_")).map(str::to_owned).collect()
    };
    let told: String = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let (told, documented) = (of(&told), of(include_str!("../../../docs/metrics.md")));
    assert_eq!(told, documented);
    let dashboard = include_str!("../../../share/grafana/mirrorball.json");
    serde_json::from_str::<Value>(dashboard).expect("it is JSON");
    let unknown: Vec<_> = of(dashboard).difference(&told).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn metrics_are_served_on_this_host_only() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["metrics", "--listen", "0.0.0.0:0"]).status(), 2);
    let mut command = fixture.command(&["metrics", "--listen", "127.0.0.1:0"]);
    let mut served = command.stdout(Stdio::piped()).spawn().expect("the binary is built");
    let mut line = String::new();
    BufReader::new(served.stdout.take().expect("it is a pipe")).read_line(&mut line).expect("it says where");
    let address = line.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let mut stream = std::net::TcpStream::connect(address.expect(&line)).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    served.kill().expect("it runs");
    served.wait().expect("it ends");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("openmetrics-text"), "{answer}");
    assert!(answer.contains("mirrorball_hart_time_seconds_total{"));
}

#[test]
fn a_trace_for_perfetto_names_harts_and_vms() {
    let fixture = Fixture::new();
    let file = fixture.dir.path().join("trace.json");
    let path = file.to_str().expect("it is text");
    let done = fixture.run(&["trace", "--perfetto", path, "--for", "200ms", "--interval", "20ms"]);
    assert_eq!(done.status(), 0, "{}", done.err());
    let trace: Value = serde_json::from_slice(&std::fs::read(&file).expect("it is there")).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let names: Vec<_> = events.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    assert!(names.contains(&"hart 0 (node 0)") && names.contains(&"VM build-1"), "{names:?}");
    assert!(events.iter().any(|event| event["ph"] == "C"));
    assert_eq!(fixture.run(&["trace"]).status(), 2);
}
