//! The launcher, with programs in place of the emulator.

mod fake;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{Loader, MachinePlan};
use control::{Reply, Request};
use fake::{FakeMonitor, WATCHDOG};
use machine::{Client, ClientError, LaunchError, LaunchOptions, Machine, Phase, RunRoot, Step, find};

/// Tells this test program, run in place of the emulator, where to connect.
const SOCKET_VARIABLE: &str = "MIRRORBALL_TEST_SOCKET";

const MACHINE: &str = r#"
name = "test"
[[node]]
harts = 1
memory_mib = 128
[[disk]]
name = "tmp"
size_mib = 1
[machine]
monitor = "monitor.bin"
qemu = "qemu"
"#;

struct Bench {
    dir: tempfile::TempDir,
    plan: MachinePlan,
    options: LaunchOptions,
}

impl Bench {
    /// A machine whose emulator is a shell script.
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("it is writable");
            path
        };
        write("monitor.bin", "monitor");
        write("script", script);
        let emulator = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/emulator.sh");
        symlink(emulator, dir.path().join("qemu")).expect("it is writable");
        let file = write("m.toml", MACHINE);
        let plan = Loader { cache: None, check_files: true, is_restricted: false }
            .load(&file)
            .unwrap_or_else(|error| panic!("{error:#}"));
        let root = RunRoot::at(dir.path().join("run"));
        Self {
            dir,
            plan,
            options: LaunchOptions { root, monitor: None, plugin: None, firmware: None, boot_timeout: WATCHDOG },
        }
    }

    /// A machine whose emulator is this program: it runs [`emulator`].
    fn with_fake_monitor() -> Self {
        let this = std::env::current_exe().expect("this program has a path");
        let find_socket = "for word; do case $word in *,path=*/qemu.sock) socket=${word##*path=};; esac; done";
        let run = format!("{SOCKET_VARIABLE}=$socket exec {} --ignored --exact emulator", this.display());
        Self::new(&format!("{find_socket}\n{run}"))
    }

    fn launch(&self) -> Result<(Machine, Vec<Step>), LaunchError> {
        let mut steps = Vec::new();
        let machine = Machine::launch(&self.plan, &self.options, |step| steps.push(step))?;
        Ok((machine, steps))
    }

    fn error(&self) -> String {
        let error = self.launch().map(drop).expect_err("it does not start").to_string();
        error.replace(&self.dir.path().display().to_string(), "DIR")
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path().join("run/test")).expect("it was made");
        let mut names: Vec<_> = entries.map(|entry| PathBuf::from(entry.expect("it is there").file_name())).collect();
        names.sort();
        names
    }
}

/// Not a test of its own: the emulator of the others, with a monitor that knows three requests.
#[test]
#[ignore = "runs in place of the emulator of the other tests"]
fn emulator() {
    let Some(path) = std::env::var_os(SOCKET_VARIABLE) else { return };
    let socket = UnixStream::connect(Path::new(&path)).expect("the launcher listens");
    let mut monitor = FakeMonitor::new(socket);
    monitor.greet();
    while let Some(message) = monitor.next() {
        match message.request {
            Request::ListVms => monitor.reply(message.id, Reply::Vms(Vec::new())),
            Request::Shutdown => {
                monitor.reply(message.id, Reply::Done);
                return;
            }
            other => panic!("{other:?} was not to be expected"),
        }
    }
}

#[test]
fn a_machine_starts_serves_and_powers_off() {
    let bench = Bench::with_fake_monitor();
    let (machine, steps) = bench.launch().unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(
        &steps[..],
        [Step::Emulator { .. }, Step::Bundle { .. }, Step::Started { .. }, Step::Ready { hello }]
            if hello.machine.as_str() == "fake"
    ));
    let root = &bench.options.root;
    let state = machine.dir().state().expect("it runs");
    assert_eq!((state.phase, state.supervisor_pid), (Phase::Running, std::process::id()));
    assert_eq!(fs::metadata(machine.dir().path().join("disk-tmp.img")).expect("it was made").len(), 1 << 20);
    assert!(fs::read(machine.dir().bundle()).expect("it was made").starts_with(b"070701"));
    assert!(matches!(bench.launch(), Err(LaunchError::RunDir(_))), "one machine of a name");
    // As another process would: by the only machine that runs.
    let client = Client::connect_to(&find(root, None).expect("it is the only one")).expect("it serves");
    assert_eq!(client.vms().expect("it answers"), []);
    client.shutdown().expect("it obeys");
    let outcome = machine.wait();
    assert!(outcome.is_orderly(), "{}", outcome.logs);
    assert_eq!(bench.files(), ["lock", "qemu.log"].map(PathBuf::from), "only the log stays");
    assert!(matches!(find(root, None), Err(ClientError::NoMachine)));
}

#[test]
fn dropping_a_machine_ends_it() {
    let bench = Bench::with_fake_monitor();
    let (machine, _) = bench.launch().unwrap_or_else(|error| panic!("{error}"));
    let client = machine.client().expect("it serves");
    drop(machine);
    let _ = client.vms().expect_err("it is gone");
    assert!(bench.options.root.running().is_empty());
}

#[test]
fn an_emulator_that_dies_early_is_told_with_its_last_words() {
    let bench = Bench::new("echo 'qemu: -M virt,what=1: no such property' >&2; exit 1");
    assert_eq!(
        bench.error(),
        "the emulator ended before the monitor answered (exit status: 1)\nthe emulator said:\n  \
         qemu: -M virt,what=1: no such property"
    );
    // The machine's log says more, if it got so far.
    let find_log = "for word; do case $word in file,*path=*) log=${word##*path=};; esac; done";
    let bench = Bench::new(&format!("{find_log}; printf 'OpenSBI\\nmonitor: panic\\n' > $log; kill -9 $$"));
    assert_eq!(
        bench.error(),
        "the emulator ended before the monitor answered (signal: 9 (SIGKILL))\nthe machine's log ends with:\n  \
         OpenSBI\n  monitor: panic\nthe whole log: DIR/run/test/monitor.log"
    );
}

#[test]
fn a_monitor_that_says_nothing_is_given_up() {
    // The port opens, and nobody answers: the greeting is never read.
    let mut bench = Bench::with_fake_monitor();
    bench.options.boot_timeout = Duration::ZERO;
    let error = bench.error();
    assert!(error.starts_with("the monitor did not answer within 0 s"), "{error}");
    assert!(bench.options.root.running().is_empty());
}

#[test]
fn what_is_missing_is_said_before_anything_starts() {
    let mut bench = Bench::new("exit 0");
    fs::remove_file(bench.dir.path().join("monitor.bin")).expect("it is there");
    let advice = "run `./x build` in the source tree of Mirrorball, or name one with --monitor";
    assert_eq!(bench.error(), format!("there is no monitor image DIR/monitor.bin: {advice}"));
    bench.plan.hardware.monitor = None;
    assert_eq!(bench.error(), format!("no monitor image is found: {advice}"));
    bench.plan.hardware.qemu = Some("/no/qemu".into());
    assert!(bench.error().starts_with("/no/qemu is not installed: run `./x setup`"));
    assert!(!bench.dir.path().join("run").exists());
}
