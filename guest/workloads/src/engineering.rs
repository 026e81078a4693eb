//! Workload `engineering`: an event-driven simulation of a circuit of gates, as chip designers run many at a time. Its
//! state is tens of MiB of small things linked to each other at random, it uses the operating system for nothing, and
//! so it lives and dies by caches and TLBs.
//!
//! Each process simulates a circuit of its own.
//!
//! Workload `designs` is the same with threads: one loads all circuits and a library of cells, as a program does that reads
//! them from a file; then each thread simulates circuits of its own, and all look cells up. So the memory of all is first
//! touched by one.

use alloc::vec;
use alloc::vec::Vec;

use spin::Mutex;

use crate::digest::Digest;
use crate::random::Random;
use crate::{Crew, Size};

/// The end of a list.
const NONE: u32 = u32::MAX;
/// Slots of the wheel of time; no gate is slower.
const SLOTS: usize = 16;

/// How many processes run at once.
pub const fn processes(size: Size) -> u64 {
    size.pick(4, 6)
}

/// Simulates the circuit of process `number`.
pub fn run(size: Size, number: u64) -> u64 {
    let mut circuit = Circuit::random(size.pick(80_000, 400_000), number);
    circuit.simulate(size.pick(500_000, 5_000_000), number)
}

/// The sum of all processes' results.
pub const fn expected(size: Size) -> u64 {
    size.pick(0xa064_8531_bb87_1c1d, 0xc6a4_265e_c0d7_cccc)
}

/// Circuits of `designs`.
const DESIGNS: u64 = 8;
/// Words of the library of cells: 1 MiB.
const CELLS: u32 = 1 << 18;

/// Workload `designs`: simulates circuits that one thread has loaded, each on one of the threads. Calls `loaded` when all is
/// loaded. The sum of all circuits' states.
pub fn run_loaded(crew: &dyn Crew, size: Size, loaded: &dyn Fn()) -> u64 {
    let library: Vec<u32> = {
        let mut random = Random::new(77);
        (0..CELLS).map(|_| random.below(SLOTS as u32 - 1)).collect()
    };
    let circuit = |number| Circuit { library: Some(&library), ..Circuit::random(size.pick(40_000, 400_000), number) };
    let circuits: Vec<Mutex<Option<Circuit<'_>>>> =
        (0..DESIGNS).map(|number| Mutex::new(Some(circuit(number)))).collect();
    let sum = Mutex::new(0_u64);
    loaded();
    crew.each(&|thread| {
        for (number, circuit) in circuits.iter().enumerate().filter(|(number, _)| number % crew.threads() == thread) {
            // Off to the thread's stack: side by side, two circuits would share a cache line that each event writes.
            let Some(mut circuit) = circuit.lock().take() else { continue };
            let state = circuit.simulate(4_000_000, number as u64);
            let mut sum = sum.lock();
            *sum = sum.wrapping_add(state);
        }
    });
    sum.into_inner()
}

/// What [`run_loaded`] must give.
pub const fn expected_loaded(size: Size) -> u64 {
    size.pick(0xd2e5_2a59_4349_cc48, 0x2609_10b5_3935_2c3d)
}

/// A gate with two inputs: a cache line of its own, as the records of real simulators are at least.
#[repr(align(64))]
#[derive(Clone)]
struct Gate {
    /// Output for each of the four values of the inputs, one bit each.
    table: u8,
    output: bool,
    inputs: [u32; 2],
    /// List of those that the output drives.
    fanout: u32,
    delay: u32,
    toggles: u64,
    last_change: u64,
}

/// An entry of a fan-out list.
#[derive(Clone, Copy)]
struct Wire {
    gate: u32,
    next: u32,
}

/// A gate that is to be looked at, in the list of a slot of the wheel or of those that are free.
#[derive(Clone, Copy)]
struct Event {
    gate: u32,
    next: u32,
}

struct Circuit<'a> {
    /// Delays of cells, which all circuits look up.
    library: Option<&'a [u32]>,
    gates: Vec<Gate>,
    wires: Vec<Wire>,
    events: Vec<Event>,
    free: u32,
    wheel: [u32; SLOTS],
    now: u64,
}

impl Circuit<'_> {
    fn random(count: u32, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5bd1_e995);
        let gate = |random: &mut Random| Gate {
            table: (random.draw() % 14 + 1) as u8,
            output: random.draw().is_multiple_of(2),
            inputs: [random.below(count), random.below(count)],
            fanout: NONE,
            delay: random.below(SLOTS as u32 - 1) + 1,
            toggles: 0,
            last_change: 0,
        };
        let mut gates: Vec<Gate> = (0..count).map(|_| gate(&mut random)).collect();
        // Lists are threaded through the pool in random order, as they are in a heap after a while.
        let mut order: Vec<u32> = (0..2 * count).collect();
        for index in (1..order.len()).rev() {
            order.swap(index, random.below(index as u32 + 1) as usize);
        }
        let mut wires = vec![Wire { gate: 0, next: NONE }; order.len()];
        for (number, place) in order.into_iter().enumerate() {
            let gate = number / 2;
            let driver = gates[gate].inputs[number % 2] as usize;
            wires[place as usize] = Wire { gate: gate as u32, next: gates[driver].fanout };
            gates[driver].fanout = place;
        }
        Self { library: None, gates, wires, events: Vec::new(), free: NONE, wheel: [NONE; SLOTS], now: 0 }
    }

    /// Looks at `count` events, and gives the circuit's state.
    fn simulate(&mut self, count: u64, seed: u64) -> u64 {
        let mut random = Random::new(seed);
        let mut seen = 0;
        while seen < count {
            let slot = (self.now % SLOTS as u64) as usize;
            let mut event = core::mem::replace(&mut self.wheel[slot], NONE);
            if event == NONE {
                // Inputs from outside keep the circuit busy.
                for _ in 0..64 {
                    let gate = random.below(self.gates.len() as u32);
                    self.toggle(gate);
                }
            }
            while event != NONE {
                let Event { gate, next } = self.events[event as usize];
                self.release(event);
                self.evaluate(gate);
                seen += 1;
                event = next;
            }
            self.now += 1;
        }
        self.state()
    }

    fn evaluate(&mut self, number: u32) {
        let gate = &self.gates[number as usize];
        let [a, b] = gate.inputs.map(|input| u8::from(self.gates[input as usize].output));
        if (gate.table >> (2 * a + b) & 1 != 0) != gate.output {
            self.toggle(number);
        }
    }

    /// The output changes: what it drives is looked at later.
    fn toggle(&mut self, number: u32) {
        let now = self.now;
        let gate = &mut self.gates[number as usize];
        gate.output = !gate.output;
        gate.toggles += 1;
        gate.last_change = now;
        let (mut wire, mut delay) = (gate.fanout, u64::from(gate.delay));
        if let Some(library) = self.library {
            // Which cell it is depends on the gate and its neighbours: nearly any of the library's.
            let cell = number.wrapping_mul(0x9e37_79b1) ^ gate.inputs[0].wrapping_mul(0x85eb_ca6b);
            delay = 1 + (delay + u64::from(library[(cell % CELLS) as usize])) % (SLOTS as u64 - 1);
        }
        let slot = ((now + delay) % SLOTS as u64) as usize;
        while wire != NONE {
            let Wire { gate, next } = self.wires[wire as usize];
            self.schedule(slot, gate);
            wire = next;
        }
    }

    fn schedule(&mut self, slot: usize, gate: u32) {
        let event = Event { gate, next: self.wheel[slot] };
        self.wheel[slot] = if self.free == NONE {
            self.events.push(event);
            self.events.len() as u32 - 1
        } else {
            let place = self.free;
            self.free = self.events[place as usize].next;
            self.events[place as usize] = event;
            place
        };
    }

    fn release(&mut self, event: u32) {
        self.events[event as usize].next = self.free;
        self.free = event;
    }

    fn state(&self) -> u64 {
        let mut digest = Digest::default();
        for gate in &self.gates {
            digest.add(gate.toggles << 1 | u64::from(gate.output));
            digest.add(gate.last_change);
        }
        digest.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_the_known_ones() {
        for size in [Size::Small, Size::Full] {
            let sum = (0..processes(size)).fold(0_u64, |sum, number| sum.wrapping_add(run(size, number)));
            assert_eq!(sum, expected(size), "{size:?}");
        }
    }

    #[test]
    fn designs_have_the_known_results_however_many_threads_there_are() {
        use crate::crew::tests::HostCrew;
        for (size, threads) in [(Size::Small, 3), (Size::Small, 1), (Size::Full, 8)] {
            let loaded = core::cell::Cell::new(0);
            let sum = run_loaded(&HostCrew(threads), size, &|| loaded.set(loaded.get() + 1));
            assert_eq!((sum, loaded.get()), (expected_loaded(size), 1), "{size:?} {sum:#x}");
        }
    }

    #[test]
    fn every_wire_leads_from_a_gate_to_one_that_it_drives() {
        let circuit = Circuit::random(1000, 1);
        let mut wires = 0;
        for (number, gate) in circuit.gates.iter().enumerate() {
            let mut wire = gate.fanout;
            while wire != NONE {
                let Wire { gate, next } = circuit.wires[wire as usize];
                assert!(circuit.gates[gate as usize].inputs.contains(&(number as u32)));
                (wire, wires) = (next, wires + 1);
            }
        }
        assert_eq!(wires, 2000);
    }

    #[test]
    fn a_steady_circuit_needs_its_inputs() {
        // One gate that always gives 0 and drives itself: only inputs from outside ever change it.
        let mut circuit = Circuit::random(1, 1);
        circuit.gates[0] = Gate { table: 0, output: false, ..circuit.gates[0].clone() };
        circuit.simulate(100, 1);
        assert!(circuit.gates[0].toggles >= 100);
    }
}
