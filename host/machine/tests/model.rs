//! Machines with a model, and bare ones: what their emulator is started with. A shell script is in its place.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use config::{Backing, Hardware, ImageFormat, Loader, MachinePlan};
use machine::{BareBoot, BareMachine, LaunchOptions, Machine, RunRoot};

const WATCHDOG: Duration = Duration::from_secs(30);

const MACHINE: &str = r#"
name = "test"
[[node]]
harts = 1
memory_mib = 64
[[node]]
harts = 1
memory_mib = 64
[[disk]]
name = "tmp"
size_mib = 1
model = "ssd"
[model]
seed = 3
[machine]
monitor = "monitor.bin"
qemu = "qemu"
"#;

/// Writes its arguments, a line each, and what is in the files that it was given, to standard output.
const SHOW: &str = r#"for word; do printf '%s\n' "$word"; case $word in *ram=*) ram=${word##*ram=};; esac; done
ram=${ram%%,*}; echo "RAM $(stat -L -c %s "$ram")"; exit 0"#;

struct Bench {
    dir: tempfile::TempDir,
    plan: MachinePlan,
}

impl Bench {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in [
            ("monitor.bin", "monitor"),
            ("script", script),
            ("m.toml", MACHINE),
            ("plugin.so", "plugin"),
            ("Image", "k"),
        ] {
            fs::write(dir.path().join(name), text).expect("it is writable");
        }
        fs::create_dir(dir.path().join("bare")).expect("it is writable");
        let emulator = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/emulator.sh");
        symlink(emulator, dir.path().join("qemu")).expect("it is writable");
        let plan = Loader { cache: None, check_files: true, is_restricted: false }.load(&dir.path().join("m.toml"));
        Self { plan: plan.unwrap_or_else(|error| panic!("{error:#}")), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn hardware(&self) -> &Hardware {
        &self.plan.hardware
    }

    fn bare(&self, plugin: Option<&str>) -> BareBoot {
        BareBoot {
            kernel: self.path("Image"),
            initrd: None,
            cmdline: "quiet".into(),
            dir: self.path("bare"),
            plugin: plugin.map(|name| self.path(name)),
            firmware: None,
            faults: Vec::new(),
        }
    }

    /// The message of a machine that does not start.
    fn error(&self, plugin: Option<&str>) -> String {
        let options = LaunchOptions {
            root: RunRoot::at(self.path("run")),
            monitor: None,
            plugin: plugin.map(|name| self.path(name)),
            firmware: None,
            boot_timeout: WATCHDOG,
        };
        let error = Machine::launch(&self.plan, &options, |_| {}).map(drop).expect_err("it does not start");
        self.short(&error.to_string())
    }

    fn bare_error(&self, boot: &BareBoot) -> String {
        let error = BareMachine::launch(self.hardware(), boot).map(drop).expect_err("it does not start");
        self.short(&error.to_string())
    }

    fn short(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "DIR")
    }
}

#[test]
fn a_bare_machine_with_a_model_gets_its_files_and_leaves_its_logs() {
    let bench = Bench::new(&format!("echo hello > \"${{0%/*}}/bare/console.log\"\n{SHOW}"));
    let machine = BareMachine::launch(bench.hardware(), &bench.bare(Some("plugin.so"))).expect("it starts");
    let outcome = machine.wait_timeout(WATCHDOG).expect("it ends");
    assert!(outcome.is_orderly());
    assert_eq!(machine.console(), "hello\n");
    let said = bench.short(&fs::read_to_string(bench.path("bare/qemu.log")).expect("it was made"));
    assert!(said.contains("\nRAM 134217728\n"), "the emulator can open the RAM: {said}");
    for part in [
        "-plugin\nDIR/plugin.so,shared=DIR/bare/model.bin,machine=DIR/bare/model.json,ram=/proc/",
        "-kernel\nDIR/Image\n-append\nquiet\n",
        "-seed\n3\n",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let text = fs::read_to_string(bench.path("bare/model.json")).expect("it was made");
    let description: machine_model::Description = serde_json::from_str(&text).expect("it is a description");
    assert_eq!((description.machine.nodes, description.machine.node_bytes, description.seed), (2, 64 << 20, 3));
    let size = fs::metadata(machine.shared_file()).expect("it was made").len();
    assert!(size.is_power_of_two() && said.contains(&format!("id=model,share=on,size={size},")), "{said}");
    assert_eq!(fs::read(machine.marks()).expect("it was made"), b"");
    assert_eq!(fs::metadata(bench.path("bare/disk-tmp.img")).expect("it was made").len(), 1 << 20);
    drop(machine);
    let link = fs::symlink_metadata(bench.path("bare/ram"));
    assert!(link.is_err(), "what comes to have the number of RAM's file must not be taken for it");
}

#[test]
fn a_bare_machine_that_still_runs_is_ended_with_its_owner() {
    let bench = Bench::new("exec sleep 1000");
    let machine = BareMachine::launch(bench.hardware(), &bench.bare(Some("plugin.so"))).expect("it starts");
    assert!(machine.wait_timeout(Duration::ZERO).is_none());
    machine.kill();
    assert!(!machine.wait_timeout(WATCHDOG).expect("it ends").is_orderly());
}

#[test]
fn what_the_model_needs_is_asked_for_before_anything_starts() {
    let bench = Bench::new("echo started > \"${0%/*}/started\"; exit 1");
    let advice = "run `./x build` in the source tree of Mirrorball, or leave out [model]";
    assert_eq!(bench.error(None), format!("the machine model's plugin libnuma_model.so is not built: {advice}"));
    assert_eq!(bench.error(Some("no.so")), format!("there is no plugin DIR/no.so: {advice}"));
    assert_eq!(bench.bare_error(&bench.bare(Some("no.so"))), format!("there is no plugin DIR/no.so: {advice}"));
    let no_kernel = BareBoot { kernel: bench.path("no"), ..bench.bare(Some("plugin.so")) };
    assert_eq!(bench.bare_error(&no_kernel), "there is no file DIR/no");
    let no_dir = BareBoot { dir: bench.path("no"), ..bench.bare(Some("plugin.so")) };
    assert_eq!(bench.bare_error(&no_dir), "DIR/no/model.bin: No such file or directory (os error 2)");
    fs::write(bench.path("version"), "10.1.0\n").expect("it is writable");
    assert_eq!(
        bench.error(Some("plugin.so")),
        "DIR/qemu is version 10.1.0, and the machine model knows only 10.0: name a QEMU of that version with \
         `qemu = ...` in [machine], or leave out [model]"
    );
    assert!(!bench.path("started").exists());
}

#[test]
fn a_plugin_that_refuses_the_emulator_is_heard() {
    let bench = Bench::new("echo 'numa-model: this build of QEMU is not known' >&2; exit 1");
    assert_eq!(
        bench.error(Some("plugin.so")),
        "the emulator ended before the monitor answered (exit status: 1)\nthe emulator said:\n  \
         numa-model: this build of QEMU is not known"
    );
}

#[test]
fn a_machine_without_a_model_is_as_before() {
    let mut bench = Bench::new(SHOW);
    bench.plan.hardware.model = None;
    bench.plan.hardware.disks[0].model = None;
    let machine = BareMachine::launch(bench.hardware(), &bench.bare(None)).expect("it starts");
    assert!(machine.wait_timeout(WATCHDOG).expect("it ends").is_orderly());
    let said = fs::read_to_string(bench.path("bare/qemu.log")).expect("it was made");
    assert!(said.contains("memory-backend-ram") && !said.contains("plugin") && !said.contains("-accel"), "{said}");
    assert!(!machine.shared_file().exists());
}

#[test]
fn disks_of_the_model_are_served_while_the_machine_runs() {
    let bench = Bench::new("exec sleep 1000");
    let machine = BareMachine::launch(bench.hardware(), &bench.bare(Some("plugin.so"))).expect("it starts");
    let mut client = UnixStream::connect(bench.path("bare/disk-tmp.sock")).expect("it is served");
    let mut greeting = [0; 8];
    client.read_exact(&mut greeting).expect("the server greets");
    assert_eq!(&greeting, b"NBDMAGIC");
    client.write_all(&[0xff; 64]).expect("the server reads");
    let log = bench.path("bare/disks.log");
    let deadline = Instant::now() + WATCHDOG;
    while !log.exists() && Instant::now() < deadline {
        thread::yield_now();
    }
    drop(machine);
    let said = fs::read_to_string(log).expect("the end was told");
    assert_eq!(said, "disk tmp: the client does not speak the fixed newstyle handshake\n");
    assert!(UnixStream::connect(bench.path("bare/disk-tmp.sock")).is_err());
}

#[test]
fn disks_that_cannot_be_served_are_told() {
    let mut bench = Bench::new("echo started > \"${0%/*}/started\"; exit 1");
    let path = bench.path("no.img");
    bench.plan.hardware.disks[0].backing = Backing::File { path, format: ImageFormat::Raw };
    let boot = bench.bare(Some("plugin.so"));
    assert_eq!(bench.bare_error(&boot), "disk image DIR/no.img: No such file or directory (os error 2)");
    bench.plan.hardware.model = None;
    let want = "disk \"tmp\" has a model, whose time only a machine with [model] keeps";
    assert_eq!(bench.bare_error(&boot), want);
    assert!(!bench.path("started").exists());
}
