//! Debuggers at guests: registers, memory, breakpoints and steps by gdb's protocol, and core files.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::{self, JoinHandle};

use control::{RAM_START, VmState};
use inspect::gdb::{Peer, serve};
use inspect::{GuestRam, InspectError, Session};
use lab::rig::{Rig, Running};
use system_tests::{checksum, ok, probe};

/// Rounds of the guest's work, long enough for a debugger to find it at that.
const ROUNDS: u64 = 400;
/// Where the program counter is among the registers that `g` gives, in bytes.
const PC: usize = 32 * 8;

/// gdb's side of its protocol.
struct Gdb {
    stream: UnixStream,
    served: Option<JoinHandle<Result<(), InspectError>>>,
}

impl Gdb {
    fn at(machine: &Running, vm: &control::Name) -> Self {
        let session = ok(Session::open(machine.client(), vm));
        let (stream, other) = ok(UnixStream::pair());
        let served = thread::spawn(move || serve(session, Peer::Unix(other)));
        Self { stream, served: Some(served) }
    }

    fn send(&mut self, packet: &str) {
        let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
        ok(self.stream.write_all(format!("${packet}#{sum:02x}").as_bytes()));
    }

    fn byte(&mut self) -> u8 {
        let mut byte = [0];
        if let Err(error) = self.stream.read_exact(&mut byte) {
            panic!("{error}: {:?}", self.served.take().map(JoinHandle::join));
        }
        byte[0]
    }

    /// The next packet, its run lengths expanded.
    fn receive(&mut self) -> String {
        while self.byte() != b'$' {}
        let mut packet = String::new();
        loop {
            match self.byte() {
                b'#' => break,
                b'*' => {
                    let last = packet.pop().expect("something is repeated");
                    let count = usize::from(self.byte() - 29) + 1;
                    packet.extend(std::iter::repeat_n(last, count));
                }
                byte => packet.push(char::from(byte)),
            }
        }
        let _ = [self.byte(), self.byte()];
        // Who has said the last word does not wait for this.
        let _ = self.stream.write_all(b"+");
        packet
    }

    fn ask(&mut self, packet: &str) -> String {
        self.send(packet);
        self.receive()
    }

    fn pc(&mut self) -> u64 {
        let registers = self.ask("g");
        word(&registers[2 * PC..2 * PC + 16])
    }

    /// Lets it run a moment, as somebody does who types Ctrl-C.
    fn interrupt(&mut self) -> String {
        self.send("vCont;c");
        ok(self.stream.write_all(&[3]));
        self.receive()
    }

    fn detach(mut self) {
        assert_eq!(self.ask("D"), "OK");
        let served = self.served.take().map(JoinHandle::join);
        assert!(matches!(served, Some(Ok(Ok(())))), "{served:?}");
    }
}

/// A little-endian number in hexadecimal.
fn word(text: &str) -> u64 {
    ok(u64::from_str_radix(text, 16)).swap_bytes()
}

fn machine() -> Running {
    ok(ok(Rig::new("inspect", 2, 512)).node(1, 384).with_probe()).boot().unwrap_or_else(|error| panic!("{error}"))
}

/// A guest that computes is looked at, stepped and stopped, and computes the right thing all the same.
#[test]
fn gdb_steps_and_stops_a_guest_that_comes_to_no_harm() {
    let machine = machine();
    let spec = probe("work", 2, &format!("figure=checksum n={ROUNDS}"));
    ok(machine.start(&spec));
    ok(machine.wait_text(&spec.name, "\n"));
    let mut gdb = Gdb::at(&machine, &spec.name);
    assert!(gdb.ask("qSupported:multiprocess+;vContSupported+").contains("PacketSize"));
    assert!(gdb.ask("qXfer:features:read:target.xml:0,fff").contains("riscv:rv64"));
    assert!(gdb.ask("?").starts_with("T05"));
    assert_eq!(ok(machine.client().vm(&spec.name)).state, VmState::Paused);
    let refused = Session::open(machine.client(), &spec.name).expect_err("one debugger at a time");
    assert!(refused.to_string().contains("debugger"), "{refused}");

    // Memory is what the guest executes; each step leads on.
    assert_eq!(gdb.ask("Hg1"), "OK");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let pc = gdb.pc();
        assert!(pc >= RAM_START && gdb.ask(&format!("m{pc:x},2")).len() == 4, "{pc:#x}");
        let stopped = gdb.ask("vCont;s:1");
        assert_eq!(stopped, "S05");
        assert_ne!(gdb.pc(), pc);
        seen.insert(pc);
    }
    assert!(seen.len() > 3, "it goes nowhere: {seen:x?}");

    // A place that it comes to again and again, but for whatever it does between two rounds.
    let place = *seen.iter().next_back().expect("it has been somewhere");
    let original = gdb.ask(&format!("m{place:x},4"));
    assert_eq!(gdb.ask(&format!("Z0,{place:x},2")), "OK");
    assert_eq!(gdb.ask(&format!("m{place:x},4")), original, "breakpoints are not seen");
    for _ in 0..5 {
        let stopped = gdb.ask("vCont;c");
        assert!(stopped.starts_with("T05") && stopped.contains("swbreak"), "{stopped}");
        assert_eq!(gdb.pc(), place);
        assert_eq!(gdb.ask(&format!("z0,{place:x},2")), "OK");
        assert_eq!(gdb.ask("vCont;s:1"), "S05");
        assert_eq!(gdb.ask(&format!("Z0,{place:x},2")), "OK");
    }
    assert_eq!(gdb.ask(&format!("z0,{place:x},2")), "OK");
    let stopped = gdb.interrupt();
    assert!(stopped.starts_with("T02"), "{stopped}");
    assert!(gdb.ask("m0,4").starts_with('E'), "there is nothing");
    // What is left behind goes with the debugger.
    assert_eq!(gdb.ask(&format!("Z0,{place:x},2")), "OK");
    gdb.detach();
    let ended = ok(machine.end_of(&spec.name));
    assert!(ended.console.contains(&checksum(ROUNDS)), "{}", ended.console);
}

/// gdb that goes without a word leaves a guest that runs. One that is there when the VM ends hears of it.
#[test]
fn guests_outlive_debuggers_and_debuggers_guests() {
    let machine = machine();
    let spec = probe("work", 1, "figure=pulse n=1");
    ok(machine.start(&spec));
    ok(machine.wait_text(&spec.name, "PULSE ready"));
    let mut gdb = Gdb::at(&machine, &spec.name);
    let pc = gdb.pc();
    assert_eq!(gdb.ask(&format!("Z0,{pc:x},4")), "OK");
    drop(gdb.stream);
    drop(gdb.served.map(JoinHandle::join));
    assert_eq!(ok(machine.client().vm(&spec.name)).state, VmState::Running);
    // It answers, so it executes.
    let (_, console) = ok(machine.client().console(&spec.name, 0));
    assert_eq!(ok(console.send(b"x")), 1);
    ok(machine.wait_text(&spec.name, "PULSE 1"));

    let mut gdb = Gdb::at(&machine, &spec.name);
    assert!(gdb.ask("?").starts_with("T05"));
    gdb.send("vCont;c");
    ok(machine.client().kill_vm(&spec.name));
    assert_eq!(gdb.receive(), "W00");
    ok(machine.wait_stopped(&spec.name));
}

/// A core file has the guest's memory and registers; Debian's gdb reads it, and is served, where it is installed.
#[test]
fn a_core_file_is_what_the_guest_is() {
    let machine = machine();
    let spec = probe("work", 2, "figure=pulse n=1");
    ok(machine.start(&spec));
    ok(machine.wait_text(&spec.name, "PULSE ready"));
    let directory = ok(tempfile::tempdir());
    let path = directory.path().join("core");
    let session = ok(Session::open(machine.client(), &spec.name));
    ok(session.stop());
    let pages = ok(machine.client().page_map(&spec.name));
    let mut file = ok(std::fs::File::create(&path));
    let written = ok(inspect::core::write(&session, &pages, &mut file, |_| {}));
    let registers = ok(session.registers(addr::VcpuIndex(0)));
    let mut code = [0; 16];
    ok(session.read(registers.pc, &mut code));
    let core = ok(std::fs::read(&path));
    assert_eq!(core.len() as u64, written.file_bytes);
    let ram = core.len() - session.memory_bytes() as usize;
    let at = ram + (registers.pc - RAM_START) as usize;
    assert_eq!(core[at..at + 16], code);
    drop(session);
    let Ok(gdb) = Command::new("gdb-multiarch")
        .args(["-q", "-batch", "-c"])
        .arg(&path)
        .args(["-ex", "set architecture riscv:rv64", "-ex", "info threads", "-ex", "p/x $pc", "-ex", "x/2xw $pc"])
        .output()
    else {
        return;
    };
    let said = String::from_utf8_lossy(&gdb.stdout).into_owned() + &String::from_utf8_lossy(&gdb.stderr);
    assert!(said.contains(&format!("= {:#x}", registers.pc)), "{said}");
    let first = u32::from_le_bytes([code[0], code[1], code[2], code[3]]);
    assert!(said.contains(&format!("{first:#010x}")), "{said}");
    serve_debians_gdb(&machine, &spec.name, directory.path());
}

fn serve_debians_gdb(machine: &Running, vm: &control::Name, directory: &std::path::Path) {
    let socket = directory.join("gdb");
    let listener = ok(std::os::unix::net::UnixListener::bind(&socket));
    let session = ok(Session::open(machine.client(), vm));
    let served = thread::spawn(move || serve(session, Peer::Unix(ok(listener.accept()).0)));
    let target = format!("target remote {}", socket.display());
    let gdb = ok(Command::new("gdb-multiarch")
        .args(["-q", "-batch", "-ex", "set architecture riscv:rv64", "-ex", &target])
        .args([
            "-ex",
            "info threads",
            "-ex",
            "stepi",
            "-ex",
            "stepi",
            "-ex",
            "hbreak *0",
            "-ex",
            "p $priv",
            "-ex",
            "p/x $sstatus",
            "-ex",
            "x/3i $pc",
            "-ex",
            "break *$pc",
            "-ex",
            "continue",
            "-ex",
            "p 40 + 2",
            "-ex",
            "detach",
        ])
        .output());
    let said = String::from_utf8_lossy(&gdb.stdout).into_owned() + &String::from_utf8_lossy(&gdb.stderr);
    for text in ["vCPU 1", "=> 0x", "Breakpoint ", "= 42", "detached"] {
        assert!(said.contains(text), "{text:?} is not in\n{said}");
    }
    assert!(matches!(served.join(), Ok(Ok(()))));
}
