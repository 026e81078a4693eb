//! Hardware that fails: the fault firmware under a program that looks at every fault from HS-mode and from a guest.
//!
//! Each run is a machine of its own: of random shape, with one or two random faults at random moments. All harts that are
//! left must say that they are, that what is lost faults as documented and that the rest works. `MIRRORBALL_FAULT_RUNS`
//! sets the number of runs (200 take five minutes), `MIRRORBALL_FAULT_SEED` the first one's seed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use config::{Firmware, Hardware, MachineInterrupts, NodePlan};
use faults::{Fault, NodeSet, Request, Status, TICKS_PER_SECOND, Trigger};
use lab::rig::Rig;
use machine::{BareBoot, BareMachine, FaultPort, Injection};
use system_tests::{assert_passed, ok, probe};

const WATCHDOG: Duration = Duration::from_secs(120);
/// The implementation id of `rustsbi`.
const RUSTSBI: u64 = 4;
/// Memory of a node.
const MEMORY_MIB: u32 = 64;
/// The page of each node that all harts access lies so far behind the node's beginning.
const PAGE: u64 = 8 << 20;

/// xorshift: a seed is a run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// A machine that runs the fault probe.
struct Bench {
    machine: BareMachine,
    port: FaultPort,
    nodes: Vec<u16>,
    _dir: tempfile::TempDir,
}

fn hardware(nodes: &[u16], cpu: &str, interrupts: MachineInterrupts) -> Hardware {
    Hardware {
        cpu: cpu.into(),
        interrupts,
        nodes: nodes.iter().map(|harts| NodePlan { harts: *harts, memory_mib: MEMORY_MIB }).collect(),
        distances: None,
        disks: Vec::new(),
        uplink: None,
        icount: false,
        model: None,
        firmware: Firmware::Faults,
        qemu: None,
        monitor: None,
        qemu_args: Vec::new(),
    }
}

impl Bench {
    fn start(hardware: &Hardware, faults: Vec<Request>) -> Self {
        let dir = ok(tempfile::tempdir());
        let boot = BareBoot {
            kernel: ok(lab::artifacts::fault_probe()),
            initrd: None,
            cmdline: String::new(),
            dir: dir.path().to_owned(),
            plugin: None,
            firmware: Some(ok(lab::artifacts::firmware())),
            faults,
        };
        let machine = ok(BareMachine::launch(hardware, &boot));
        let port = ok(machine.fault_port());
        let nodes = hardware.nodes.iter().map(|node| node.harts).collect();
        Self { machine, port, nodes, _dir: dir }
    }

    /// Waits until so many lines begin with this.
    fn wait(&self, start: &str, count: usize) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let console = self.machine.console();
            // A line that is being written does not count yet.
            let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let lines: Vec<_> = whole.lines().map(str::trim).map(str::to_owned).collect();
            let bad = lines.iter().find(|line| line.contains("FAILED") || line.contains("panicked"));
            assert!(bad.is_none(), "{bad:?} in\n{console}");
            let found: Vec<_> = lines.into_iter().filter(|line| line.starts_with(start)).collect();
            if found.len() >= count {
                return found;
            }
            if let Some(outcome) = self.machine.wait_timeout(Duration::from_millis(5)) {
                panic!("the machine ended: {:?}\n{console}", outcome.status);
            }
            assert!(
                begin.elapsed() < WATCHDOG,
                "only {} of {count} {start}, {:?}\n{console}",
                found.len(),
                self.status()
            );
        }
    }

    fn status(&self) -> Option<Status> {
        self.port.status()
    }

    fn harts(&self) -> usize {
        self.nodes.iter().map(|harts| usize::from(*harts)).sum()
    }

    /// All harts of these nodes.
    fn harts_of(&self, nodes: NodeSet) -> BTreeSet<usize> {
        let owners = self.nodes.iter().enumerate().flat_map(|(node, harts)| (0..*harts).map(move |_| node));
        owners.enumerate().filter(|(_, node)| nodes.has(*node)).map(|(hart, _)| hart).collect()
    }

    /// Waits until all harts that live have found this epoch right; their lines.
    fn survivors(&self, epoch: u64, live: NodeSet) -> Vec<String> {
        let expected = self.harts_of(live);
        let mark = format!("epoch={epoch} ");
        let begin = Instant::now();
        loop {
            let lines = self.wait("SURVIVOR", 0);
            let lines: Vec<_> =
                lines.into_iter().filter(|line| line.contains(&mark) && line.ends_with(" ok")).collect();
            let harts =
                lines.iter().filter_map(|line| line.split(['=', ' ']).nth(2)?.parse().ok()).collect::<BTreeSet<_>>();
            if harts == expected {
                return lines;
            }
            assert!(harts.is_subset(&expected), "{harts:?} of {expected:?} survived");
            let told = format!("{harts:?} of {expected:?}, {:?}\n{}", self.status(), self.machine.console());
            assert!(begin.elapsed() < WATCHDOG, "epoch {epoch}: {told}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The nodes that live after a fault.
fn live_after(live: NodeSet, fault: Fault) -> NodeSet {
    match fault {
        Fault::NodePower(nodes) | Fault::Router(nodes) | Fault::NodeController(nodes) => live.without(nodes),
        Fault::Link(_) | Fault::Page(_) => live,
    }
}

fn node_page(node: usize) -> u64 {
    faults::FIRMWARE_AT + ((node as u64 * u64::from(MEMORY_MIB)) << 20) + PAGE
}

/// The monitor and its guests run on this firmware as on the emulator's own.
#[test]
fn the_monitor_runs_on_the_fault_firmware() {
    let aia = MachineInterrupts::Aia { guest_files: 7 };
    for (cpu, interrupts, nodes) in [("rva23s64", aia, 1), ("max", MachineInterrupts::Plic, 2), ("rv64,h=true", aia, 4)]
    {
        let rig = ok(ok(Rig::new("firmware", 2, 256)).with_probe()).hardware(|hardware| {
            (hardware.cpu, hardware.interrupts) = (cpu.into(), interrupts);
            hardware.firmware = Firmware::Faults;
        });
        let rig = (1..nodes).fold(rig, |rig, _| rig.node(1, 128));
        let machine = ok(rig.boot());
        let firmware = ok(machine.client().machine_info()).firmware.implementation;
        assert_eq!(firmware, RUSTSBI, "{cpu}");
        assert_passed(&ok(machine.run(&probe("guest", 2, ""))));
        let port = ok(FaultPort::of(machine.machine().dir()));
        assert_eq!(port.status().map(|status| status.live()), Some(NodeSet::first(nodes)));
    }
}

/// Each kind once, on each kind of machine; the fault is seen from HS-mode and from a guest.
#[test]
fn each_kind_is_seen_as_documented() {
    let kinds = [
        Fault::NodePower(NodeSet::one(1)),
        Fault::NodePower(NodeSet::one(0)),
        Fault::Router(NodeSet(0b110)),
        Fault::Link(NodeSet(0b011)),
        Fault::NodeController(NodeSet::one(2)),
        Fault::Page(node_page(1)),
    ];
    for (cpu, interrupts) in [("rva23s64", MachineInterrupts::Aia { guest_files: 7 }), ("max", MachineInterrupts::Plic)]
    {
        for fault in kinds {
            let bench = Bench::start(&hardware(&[2, 2, 2], cpu, interrupts), Vec::new());
            bench.wait("READY", bench.harts());
            let request = Request { fault, trigger: Trigger::Now };
            assert!(matches!(ok(bench.port.inject(request, WATCHDOG)), Injection::Done { epoch: 1, .. }));
            let lines = bench.survivors(1, live_after(NodeSet::first(3), fault));
            for mode in ["mode=Hs", "mode=Guest"] {
                let faulted = lines.iter().filter(|line| line.contains(mode) && !line.contains("cause=0"));
                println!("{cpu}: {fault}: {mode}: {} saw it before they were told", faulted.count());
            }
            let status = bench.status().expect("a status page");
            assert_eq!((status.epoch, status.recovered), (1, 1));
            assert_eq!(bench.port.history().last().map(|record| record.fault), Some(fault));
        }
    }
}

/// Random machines, faults and moments.
#[test]
fn random_faults_at_random_moments() {
    let number =
        |name: &str, otherwise| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (runs, first) = (number("MIRRORBALL_FAULT_RUNS", 12), number("MIRRORBALL_FAULT_SEED", 1));
    let begin = Instant::now();
    let mut faults = 0;
    for seed in first..first + runs {
        // The test's output is shown when it fails: with the seed of the run.
        println!("run {seed}");
        faults += random_run(seed);
    }
    eprintln!("{runs} runs, {faults} faults, {:.1} s", begin.elapsed().as_secs_f64());
}

fn random_run(seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..20).for_each(|_| _ = random.below(2));
    let nodes: Vec<u16> = (0..2 + random.below(3)).map(|_| 1 + random.below(3) as u16).collect();
    let cpu = ["rva23s64", "max"][random.below(2) as usize];
    let interrupts = [MachineInterrupts::Aia { guest_files: 7 }, MachineInterrupts::Plic][random.below(2) as usize];
    let bench = Bench::start(&hardware(&nodes, cpu, interrupts), Vec::new());
    bench.wait("READY", bench.harts());
    let mut live = NodeSet::first(nodes.len());
    let wanted = 1 + random.below(2);
    let mut done = 0;
    for _ in 0..wanted * 8 {
        if done == wanted {
            break;
        }
        let fault = random_fault(&mut random, nodes.len());
        // The moment is random anyway; a time soon to come makes it the firmware's, not this process's.
        let soon = TICKS_PER_SECOND / 100 + random.below(TICKS_PER_SECOND / 20);
        let now = bench.port.history().last().map_or(0, |record| record.time);
        let trigger = if random.below(2) == 0 { Trigger::Now } else { Trigger::At { ticks: now + soon } };
        let Some(epoch) = inject(&bench, Request { fault, trigger }) else { continue };
        println!("  {nodes:?} {cpu} {interrupts:?}: {fault}");
        live = live_after(live, fault);
        bench.survivors(epoch, live);
        done += 1;
    }
    done as usize
}

/// Injects, and waits until it has happened; `None` if the firmware refuses, which changes nothing.
fn inject(bench: &Bench, request: Request) -> Option<u64> {
    let before = bench.status()?.epoch;
    match bench.port.inject(request, WATCHDOG) {
        Ok(Injection::Done { epoch, .. }) => Some(epoch),
        Ok(Injection::Armed) => {
            let begin = Instant::now();
            while !bench.port.armed().is_empty() {
                assert!(begin.elapsed() < WATCHDOG, "{request:?} stays armed");
                std::thread::sleep(Duration::from_millis(1));
            }
            let after = bench.status()?.epoch;
            (after > before).then_some(after)
        }
        Err(machine::FaultError::Refused(_)) => {
            assert_eq!(bench.status().map(|status| status.epoch), Some(before));
            None
        }
        Err(error) => panic!("{request:?}: {error}"),
    }
}

fn random_fault(random: &mut Random, nodes: usize) -> Fault {
    let all = 1 << nodes;
    match random.below(5) {
        0 => Fault::NodePower(NodeSet::one(random.below(nodes as u64) as usize)),
        1 => Fault::NodeController(NodeSet::one(random.below(nodes as u64) as usize)),
        2 => Fault::Router(NodeSet(1 + random.below(all - 1))),
        3 => Fault::Link(NodeSet(1 + random.below(all - 1))),
        _ => Fault::Page(node_page(random.below(nodes as u64) as usize)),
    }
}

/// With counted instructions a run repeats exactly: the same fault at the same time after as many instructions.
#[test]
fn counted_instructions_repeat() {
    let run = |trigger| {
        let mut hardware = hardware(&[1, 1], "rva23s64", MachineInterrupts::Aia { guest_files: 7 });
        // Not the usual counting, in which time that nobody uses passes as fast as the host's.
        hardware.qemu_args = ["-icount", "shift=0,sleep=off", "-seed", "1"].map(str::to_owned).to_vec();
        let bench = Bench::start(&hardware, vec![Request { fault: Fault::NodePower(NodeSet::one(1)), trigger }]);
        bench.survivors(1, NodeSet::one(0));
        bench.port.history()[0]
    };
    let after = Trigger::AfterInstructions { count: 30_000_000, hart: 0 };
    let (first, second) = (run(after), run(after));
    assert_eq!((first.time, first.instructions), (second.time, second.instructions));
    assert!((30_000_000..30_020_000).contains(&first.instructions), "{first:?}");
    let at = Trigger::At { ticks: 3_234_567 };
    let (first, second) = (run(at), run(at));
    assert_eq!((first.time, first.instructions), (second.time, second.instructions));
    assert!((3_234_567..3_234_900).contains(&first.time), "{first:?}");
}
