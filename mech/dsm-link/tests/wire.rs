//! Wires that lose, double, reorder and change frames.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use dsm_link::{Seal, Setup, State, TRIES, Wire};
use dsm_wire::{HEADER_BYTES, MachineId};
use proptest::prelude::*;

const A: MachineId = MachineId(0);
const B: MachineId = MachineId(1);

fn setup(me: MachineId, life: u64) -> Setup {
    Setup { me, machines: 2, life, agreement: 7, mtu: HEADER_BYTES + 16 + 12, longest: 64, patience: 10 }
}

/// Two machines and what is between them.
#[derive(Clone, Debug)]
struct World {
    wires: [Wire; 2],
    /// To whom, and what.
    air: Vec<(usize, Vec<u8>)>,
    got: [Vec<Vec<u8>>; 2],
    now: u64,
}

impl World {
    fn new(seal: &Seal) -> Self {
        let wires = [Wire::new(setup(A, 101), seal.clone()), Wire::new(setup(B, 102), seal.clone())];
        let mut world = Self { wires, air: Vec::new(), got: [Vec::new(), Vec::new()], now: 0 };
        world.emit();
        world
    }

    fn emit(&mut self) {
        for at in 0..2 {
            let mut frame = Vec::new();
            while let Some(to) = self.wires[at].next_frame(self.now, &mut frame) {
                self.air.push((usize::from(to.0), frame.clone()));
            }
        }
    }

    fn receive(&mut self, to: usize, mut frame: Vec<u8>) {
        self.wires[to].receive(&mut frame);
        while let Some((_, message)) = self.wires[to].next_message() {
            self.got[to].push(message);
        }
        self.emit();
    }

    /// Time passes until somebody does something.
    fn pass(&mut self) -> bool {
        let Some(next) = self.wires.iter().filter_map(Wire::deadline).min() else { return false };
        self.now = self.now.max(next);
        self.emit();
        true
    }

    fn calm(&mut self) {
        for _ in 0..1_000 {
            match self.air.pop() {
                Some((to, frame)) => self.receive(to, frame),
                None if !self.pass() => return,
                None => {}
            }
        }
        panic!("it never ends");
    }
}

fn is_start(got: &[Vec<u8>], sent: &[Vec<u8>]) -> bool {
    sent.starts_with(got)
}

/// Every choice: a frame arrives, is lost, arrives and stays; or time passes early. At most `faults` of the last three.
fn search(world: World, faults: usize, sent: &[Vec<Vec<u8>>; 2], seen: &mut HashSet<u64>, ends: &mut usize) {
    let mut hasher = DefaultHasher::new();
    format!("{world:?} {faults}").hash(&mut hasher);
    if !seen.insert(hasher.finish()) {
        return;
    }
    for (got, sent) in world.got.iter().zip(sent) {
        assert!(is_start(got, sent), "{got:?} is not what was sent");
    }
    if world.air.is_empty() {
        let mut next = world.clone();
        if next.pass() {
            search(next, faults, sent, seen, ends);
        } else {
            assert_eq!(world.got, *sent, "not everything has come");
            *ends += 1;
        }
        return;
    }
    for at in 0..world.air.len() {
        let mut next = world.clone();
        let (to, frame) = next.air.remove(at);
        let lost = next.clone();
        next.receive(to, frame.clone());
        search(next.clone(), faults, sent, seen, ends);
        if faults > 0 {
            search(lost, faults - 1, sent, seen, ends);
            next.air.push((to, frame));
            search(next, faults - 1, sent, seen, ends);
        }
    }
    if faults > 0 {
        let mut next = world;
        if next.pass() {
            search(next, faults - 1, sent, seen, ends);
        }
    }
}

/// A sends so many messages, and B answers with one if `both`.
fn every(messages: usize, both: bool, faults: usize) -> usize {
    let mut world = World::new(&Seal::Off);
    world.calm();
    // The first is longer than a frame.
    let sent: Vec<Vec<u8>> = (0..messages).map(|at| vec![at as u8; 15 - 12 * (at % 2)]).collect();
    for message in &sent {
        world.wires[0].send(B, message.clone()).expect("there is room");
    }
    let answer: Vec<Vec<u8>> = if both { vec![vec![9]] } else { Vec::new() };
    for message in &answer {
        world.wires[1].send(A, message.clone()).expect("there is room");
    }
    world.emit();
    let (mut seen, mut ends) = (HashSet::new(), 0);
    search(world, faults, &[answer, sent], &mut seen, &mut ends);
    assert!(ends > 0);
    seen.len()
}

#[test]
fn every_loss_repetition_and_reordering_of_a_few_frames() {
    println!("{} states", every(1, true, 1));
}

#[test]
#[ignore = "long"]
fn every_loss_repetition_and_reordering_of_more_frames() {
    println!("{} states", every(2, true, 2));
}

#[test]
fn greetings_may_be_lost_and_doubled() {
    let mut world = World::new(&Seal::Off);
    world.wires[0].send(B, vec![1]).expect("there is room");
    let (mut seen, mut ends) = (HashSet::new(), 0);
    search(world, 1, &[Vec::new(), vec![vec![1]]], &mut seen, &mut ends);
    println!("{} states", seen.len());
}

#[test]
fn a_peer_that_never_answers_is_gone_in_bounded_time() {
    let mut world = World::new(&Seal::Off);
    world.calm();
    world.wires[0].send(B, vec![1]).expect("there is room");
    world.emit();
    let mut frames = 0;
    while world.wires[0].state(B) == State::Here {
        frames += world.air.len();
        world.air.clear();
        assert!(world.pass());
    }
    assert_eq!(frames, TRIES as usize);
    assert!(world.wires[0].send(B, vec![2]).is_err());
}

#[test]
fn frames_of_strangers_and_old_ones_have_no_effect() {
    let seal = Seal::with_key(&[7; 32]);
    let mut world = World::new(&seal);
    let mut heard = Vec::new();
    for message in 0..4 {
        world.wires[0].send(B, vec![message]).expect("there is room");
        world.emit();
        heard.extend(world.air.clone());
        world.calm();
    }
    let before = (world.got.clone(), world.wires[1].state(A));
    // All that was heard, again: to the same machine, and to one that has begun anew.
    let mut fresh = Wire::new(setup(B, 103), seal.clone());
    for (_, frame) in heard.iter().filter(|(to, _)| *to == 1) {
        world.wires[1].receive(&mut frame.clone());
        fresh.receive(&mut frame.clone());
    }
    assert!(world.wires[1].drops().replayed > 0 && world.wires[1].next_message().is_none());
    assert_eq!((fresh.next_message(), fresh.state(A)), (None, State::Unknown));
    // Made with another key, with none, or changed in any bit.
    let mut stranger = Wire::new(setup(A, 101), Seal::with_key(&[8; 32]));
    let mut frame = Vec::new();
    assert_eq!(stranger.next_frame(0, &mut frame), Some(B));
    world.wires[1].receive(&mut frame);
    for bit in 0..heard[0].1.len() * 8 {
        let mut frame = heard[0].1.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        world.wires[1].receive(&mut frame);
    }
    assert!(world.wires[1].drops().forged > 0 && world.wires[1].drops().foreign > 0);
    world.calm();
    assert_eq!((world.got.clone(), world.wires[1].state(A)), before);
}

#[test]
fn a_machine_that_begins_again_is_not_taken_for_its_former_self() {
    let mut world = World::new(&Seal::Off);
    world.calm();
    world.wires[0] = Wire::new(setup(A, 200), Seal::Off);
    world.emit();
    for _ in 0..8 {
        let (to, frame) = world.air.pop().unwrap_or_else(|| (1, vec![]));
        world.receive(to, frame);
    }
    assert_eq!(world.wires[1].state(A), State::Gone);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// A tenth is lost, a tenth doubled, a few are changed, and the order is any.
    #[test]
    fn everything_comes_once_and_in_order(seed in any::<u64>(), sizes in prop::collection::vec(1..60_usize, 1..40)) {
        let mut numbers = seed | 1;
        let mut number = move |end: usize| {
            numbers ^= numbers << 13;
            numbers ^= numbers >> 7;
            numbers ^= numbers << 17;
            (numbers >> 33) as usize % end
        };
        let mut world = World::new(&Seal::with_key(&[1; 32]));
        let sent: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(at, size)| vec![at as u8; *size]).collect();
        for message in &sent {
            world.wires[0].send(B, message.clone()).expect("there is room");
            world.wires[1].send(A, message.clone()).expect("there is room");
        }
        for _ in 0..200_000 {
            if world.air.is_empty() && !world.pass() {
                break;
            }
            if world.air.is_empty() {
                continue;
            }
            let (to, mut frame) = world.air.swap_remove(number(world.air.len()));
            match number(20) {
                0 | 1 => {}
                2 | 3 => {
                    world.air.push((to, frame.clone()));
                    world.receive(to, frame);
                }
                4 => {
                    let bit = number(frame.len() * 8);
                    frame[bit / 8] ^= 1 << (bit % 8);
                    world.receive(to, frame);
                }
                _ => world.receive(to, frame),
            }
        }
        prop_assert_eq!(&world.got[0], &sent);
        prop_assert_eq!(&world.got[1], &sent);
    }
}
