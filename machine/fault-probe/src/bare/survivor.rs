//! What each hart does: access everything until something fails, then check what is left.
//
// UNSAFETY: the status page is read by address.
#![expect(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrayvec::ArrayVec;
use faults::{NodeSet, STATUS_AT, Status};

use super::access::{self, Access, Mode, Trap, sweep, time, try_access};
use super::entry::print_at;
use super::machine::{self, MAX_NODES, Machine, NodeMemory};
use super::{sbi, tables};

/// Offset, in a node's page, of an instruction that returns.
const CODE: u64 = 0x800;
const RETURN: u64 = 0x8082;
/// Longest wait, in ticks: 20 s of the machine's time. Only a watchdog.
const WATCHDOG: u64 = 200_000_000;
/// Longest that a call to the firmware may take, 10 s: below what it takes to give up on a hart, and far above what a busy
/// host makes of it.
const PROMPT: u64 = 100_000_000;

static IS_TRANSLATED: AtomicBool = AtomicBool::new(false);

/// Whether the program runs at its linked address in its node's copy.
pub fn is_translated() -> bool {
    IS_TRANSLATED.load(Ordering::Relaxed)
}

/// Fills every node's page, before there are copies.
pub fn prepare(machine: &Machine) {
    assert_eq!(sbi::status_address(), STATUS_AT, "the status page is where it is documented");
    for memory in &machine.nodes {
        for (hart, _) in &machine.harts {
            write(own_word(*memory, *hart), pattern(*memory, *hart));
        }
        write(memory.page() + CODE, RETURN);
    }
}

/// The write firewall around the first hart's node, while it is alone: all may be read, its own node written.
pub fn check_firewall(hart: usize) {
    let machine = machine::get();
    let home = machine.home(hart);
    let check = |is_closed: bool| {
        for memory in &machine.nodes {
            let address = own_word(*memory, hart);
            let is_own = memory.node == home.node;
            let store = try_access(Mode::Hs, Access::Store, address, pattern(*memory, hart));
            let is_right = match store {
                Ok(_) => is_own || !is_closed,
                Err(trap) => is_closed && !is_own && trap.cause == Access::Store.fault() && trap.stval == address,
            };
            let load = try_access(Mode::Hs, Access::Load, address, 0);
            if !is_right || load != Ok(pattern(*memory, hart)) {
                print_at(hart, home, format_args!("PROBE FAILED: firewall {is_closed}: {store:x?}, {load:x?}"));
            }
        }
    };
    for cell in [NodeSet::one(home.node), NodeSet::EMPTY] {
        let (error, _) = sbi::firewall(cell.0);
        if error != 0 {
            print_at(hart, home, format_args!("PROBE FAILED: the firewall around {cell}: error {error}"));
        }
        check(!cell.is_empty());
    }
}

fn write(address: u64, value: u64) {
    // SAFETY: a page of memory that only probes use.
    unsafe { (address as *mut u64).write_volatile(value) };
}

/// Each hart has a word of its own in each page.
fn own_word(memory: NodeMemory, hart: usize) -> u64 {
    memory.page() + 8 * hart as u64
}

fn pattern(memory: NodeMemory, hart: usize) -> u64 {
    0x5eed_0000_0000_0000 | (memory.node as u64) << 32 | hart as u64
}

fn status() -> Status {
    // SAFETY: the firmware's status page may be read at any time; volatile, as the firmware writes it.
    let word = |index: usize| unsafe { (STATUS_AT as *const u64).add(index).read_volatile() };
    let begin = time();
    // An emulator whose host has something else to do may stand still in the middle of writing it.
    while time() - begin < WATCHDOG {
        if let Some(status) = Status::read(word) {
            return status;
        }
    }
    panic!("the status page does not come to rest");
}

struct Survivor {
    hart: usize,
    memory: NodeMemory,
    mode: Mode,
    machine: &'static Machine,
    /// The words that this hart accesses, and a 0 behind them.
    words: ArrayVec<u64, { MAX_NODES + 1 }>,
}

/// Harts of this node that are ready.
static READY: AtomicU64 = AtomicU64::new(0);

/// A hart's life.
pub fn run(hart: usize) -> ! {
    IS_TRANSLATED.store(true, Ordering::Relaxed);
    let machine = machine::get();
    let memory = machine.home(hart);
    let (satp, hgatp) = tables::registers(memory);
    access::open(satp, hgatp);
    let mode = if hart % 2 == 1 { Mode::Guest } else { Mode::Hs };
    let words = machine.nodes.iter().map(|memory| own_word(*memory, hart)).chain([0]).collect();
    let survivor = Survivor { hart, memory, mode, machine, words };
    READY.fetch_or(1 << hart, Ordering::Relaxed);
    survivor.say(format_args!("READY hart={hart} node={}", memory.node));
    let mut epoch = 0;
    loop {
        let first = survivor.work_until_change(epoch);
        epoch = survivor.check(first);
    }
}

impl Survivor {
    fn say(&self, text: core::fmt::Arguments<'_>) {
        print_at(self.hart, self.memory, text);
    }

    fn fail(&self, text: core::fmt::Arguments<'_>) {
        self.say(format_args!("PROBE FAILED: hart {} of node {}: {text}", self.hart, self.memory.node));
    }

    /// Accesses all that this hart reaches, and keeps others busy, until the epoch is another one; the first access that
    /// failed, if one did before.
    fn work_until_change(&self, epoch: u64) -> Option<Trap> {
        let before = status();
        let reached: ArrayVec<u64, { MAX_NODES + 1 }> =
            self.words.iter().copied().filter(|word| *word == 0 || !self.is_lost(&before, *word)).collect();
        let mut round = self.hart as u64;
        loop {
            let trap = match self.mode {
                Mode::Guest => sweep(&reached, 500),
                Mode::Hs => self.sweep_in_hs(&reached),
            };
            if trap.is_some() || status().epoch != epoch {
                return trap;
            }
            round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let others = self.machine.mask();
            match round >> 60 {
                0 => drop(sbi::fence(others)),
                1 => drop(sbi::guest_fence(others)),
                2..=5 => drop(sbi::interrupt(others & (1 << (round >> 40 & 63)))),
                _ => {}
            }
        }
    }

    fn sweep_in_hs(&self, words: &[u64]) -> Option<Trap> {
        let words = || words.iter().take_while(|word| **word != 0);
        (0..50).flat_map(|_| words()).find_map(|word| {
            let value = try_access(Mode::Hs, Access::Load, *word, 0);
            value.and_then(|value| try_access(Mode::Hs, Access::Store, *word, value)).err()
        })
    }

    /// Waits for the recovery to be over, and checks everything; the epoch.
    fn check(&self, first: Option<Trap>) -> u64 {
        let Some(now) = self.wait_for_recovery() else {
            self.fail(format_args!("no recovery within {WATCHDOG} ticks: {:x?}", status().epoch));
            return status().epoch;
        };
        let mut failures = 0;
        let mut expect = |is_right: bool, text: core::fmt::Arguments<'_>| {
            if !is_right {
                failures += 1;
                self.fail(text);
            }
        };
        if let Some(trap) = first {
            let is_right = self.is_documented(self.mode, trap) && self.is_lost(&now, trap.stval);
            expect(is_right, format_args!("first trap {trap:x?}"));
        }
        expect(now.reach[self.memory.node].has(self.memory.node), format_args!("is told that its own node is dead"));
        for memory in &self.machine.nodes {
            for (mode, access) in
                [Mode::Hs, Mode::Guest].iter().flat_map(|mode| Access::ALL.map(|access| (*mode, access)))
            {
                let (is_right, seen) = self.check_access(&now, *memory, mode, access);
                expect(is_right, format_args!("{access:?} of node {} in {mode:?}: {seen:x?}", memory.node));
            }
        }
        self.check_firmware(&mut expect);
        let (cause, stval) = first.map_or((0, 0), |trap| (trap.cause, trap.stval));
        let reach = now.reach[self.memory.node].0;
        if failures == 0 {
            self.say(format_args!(
                "SURVIVOR hart={} node={} mode={:?} epoch={} reach={reach:#x} cause={cause} stval={stval:#x} ok",
                self.hart, self.memory.node, self.mode, now.epoch
            ));
        }
        now.epoch
    }

    fn wait_for_recovery(&self) -> Option<Status> {
        let begin = time();
        loop {
            let now = status();
            if now.epoch != 0 && now.recovered == now.epoch {
                return Some(now);
            }
            if time() - begin > WATCHDOG {
                return None;
            }
            core::hint::spin_loop();
        }
    }

    /// Whether this address is out of this hart's reach: its page is poisoned, or its node cannot be reached.
    fn is_lost(&self, now: &Status, address: u64) -> bool {
        let page = address & !0xfff;
        let owner = self.machine.nodes.iter().find(|memory| memory.page() == page).map(|memory| memory.node);
        let reach: NodeSet = now.reach[self.memory.node];
        now.poisoned().contains(&page) || owner.is_some_and(|node| !reach.has(node))
    }

    /// An access fault as `docs/abi/faults.md` has it, whatever its address.
    fn is_documented(&self, mode: Mode, trap: Trap) -> bool {
        matches!(trap.cause, 1 | 5 | 7) && trap.htval == 0 && trap.is_guest_address == (mode == Mode::Guest)
    }

    fn check_access(&self, now: &Status, memory: NodeMemory, mode: Mode, access: Access) -> (bool, Result<u64, Trap>) {
        let word = own_word(memory, self.hart);
        let address = if access == Access::Execute { memory.page() + CODE } else { word };
        let value = pattern(memory, self.hart);
        let seen = try_access(mode, access, address, value);
        let is_right = match seen {
            Ok(loaded) => {
                let is_kept = mode == Mode::Guest || access != Access::Load || loaded == value;
                !self.is_lost(now, address) && is_kept
            }
            Err(trap) => {
                let is_exact = trap.cause == access.fault() && trap.stval == address;
                self.is_lost(now, address) && is_exact && self.is_documented(mode, trap)
            }
        };
        (is_right, seen)
    }

    /// The firmware still answers, in time, whoever is named.
    fn check_firmware(&self, expect: &mut impl FnMut(bool, core::fmt::Arguments<'_>)) {
        let all = self.machine.mask();
        for (name, call) in [
            ("fence", sbi::fence as fn(u64) -> sbi::Answer),
            ("guest fence", sbi::guest_fence),
            ("interrupt", sbi::interrupt),
        ] {
            let begin = time();
            let (error, _) = call(all);
            let took = time() - begin;
            expect(error == 0 && took < PROMPT, format_args!("{name} of all harts: error {error}, {took} ticks"));
        }
        let own = faults::NodeSet::one(63).0;
        let (error, refusal) = sbi::inject(faults::Kind::NodePower as u64, own, 0);
        let is_refused = error != 0 && faults::Refusal::from_word(refusal) == Some(faults::Refusal::UnknownNode);
        expect(is_refused, format_args!("a fault of no node: error {error}, {refusal}"));
    }
}
