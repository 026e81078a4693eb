//! One memory over machines that nobody here has: the crate `dsm` over a model of links, with synthetic sharing.
//!
//! Each machine has one hart that goes through a fixed number of accesses. What is synthetic is what they touch: pages of its own, pages that
//! all read and some write a word of now and then, and locks with what they protect. A link has a latency, a bandwidth that the sender's
//! frames share, and losses, each of which costs the patience after which a frame is sent again; messages between two machines stay in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dsm::testing::Memory;
use dsm::{Atomic, Config, Dsm, Envelope, Fence, MachineId, Operation, Outcome, Page, Protocol, Store, Visibility};

/// Bytes around each message: Ethernet, header, record and tag.
const AROUND: u64 = 38 + 56 + 16 + 2;
const READ_PAGES: u64 = 48;
const LOCKS: u64 = 8;

/// A link.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// From the last bit sent to the message handled.
    pub latency_ns: u64,
    /// Megabits per second.
    pub mbit: u64,
    /// Frames lost, of a million.
    pub lost_ppm: u64,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Machines, 1 to 64.
    pub machines: u8,
    /// The links.
    pub link: Link,
    /// Which modes pages may have.
    pub protocol: Protocol,
    /// When stores are seen.
    pub visibility: Visibility,
    /// Accesses of each machine.
    pub accesses: u64,
    /// Time between two of them.
    pub think_ns: u64,
    /// First random number.
    pub seed: u64,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Until the last machine was done.
    pub time_ns: u64,
    /// Accesses that waited, of all machines.
    pub stalls: u64,
    /// How long, together.
    pub stalled_ns: u64,
    /// Stores that were logged.
    pub logged: u64,
    /// Messages.
    pub messages: u64,
    /// Bytes, with what is around them.
    pub bytes: u64,
    /// The same of the machine that sent most.
    pub most_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Access {
    Load(Page),
    Store(Store),
    Lock(Atomic),
    Fence,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Message(u8, u8, u64),
    Hart(u8),
}

#[derive(Debug)]
struct Hart {
    numbers: u64,
    left: u64,
    access: Option<Access>,
    waits_since: Option<u64>,
    /// Accesses of a critical section that are still to come, last first.
    section: Vec<Access>,
}

/// Plays it.
///
/// # Panics
/// If a machine refuses a message of another, or hangs: a fault of the protocol.
#[must_use]
pub fn play(question: &Question) -> Report {
    let mut game = Game::new(question);
    while let Some(Reverse((now, _, what))) = game.events.pop() {
        game.now = now;
        match what {
            What::Hart(machine) => game.step(usize::from(machine)),
            What::Message(from, to, number) => game.arrive(from, usize::from(to), number),
        }
    }
    let are_done = game.harts.iter().all(|hart| hart.left == 0 && hart.waits_since.is_none());
    assert!(are_done, "a machine hangs");
    game.report.logged = game.machines.iter().map(|machine| machine.counters().logged).sum();
    game.report.bytes = game.sent.iter().sum();
    game.report.most_bytes = game.sent.iter().copied().max().unwrap_or(0);
    game.report
}

struct Game {
    question: Question,
    machines: Vec<Dsm>,
    memories: Vec<Memory>,
    harts: Vec<Hart>,
    events: BinaryHeap<Reverse<(u64, u64, What)>>,
    messages: std::collections::HashMap<u64, Envelope>,
    /// When each machine's link is free, and when the last message of each pair arrives.
    free: Vec<u64>,
    last: Vec<u64>,
    sent: Vec<u64>,
    next: u64,
    now: u64,
    numbers: u64,
    report: Report,
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
}

impl Game {
    fn new(question: &Question) -> Self {
        let count = usize::from(question.machines);
        let pages = READ_PAGES + LOCKS + 8 * u64::from(question.machines);
        let config = Config {
            block_pages: 1,
            pages,
            protocol: question.protocol,
            visibility: question.visibility,
            ..Config::new(MachineId(0), question.machines, 1)
        };
        let machine = |me| Dsm::new(Config { me: MachineId(me), ..config });
        let hart = |me: u8| Hart {
            numbers: (question.seed << 8 | u64::from(me)) * 2 + 1,
            left: question.accesses,
            access: None,
            waits_since: None,
            section: Vec::new(),
        };
        let mut game = Self {
            question: *question,
            machines: (0..question.machines).map(machine).collect(),
            memories: (0..count).map(|_| Memory::new(pages as usize, 512)).collect(),
            harts: (0..question.machines).map(hart).collect(),
            events: BinaryHeap::new(),
            messages: std::collections::HashMap::new(),
            free: vec![0; count],
            last: vec![0; count * count],
            sent: vec![0; count],
            next: 0,
            now: 0,
            numbers: question.seed * 2 + 1,
            report: Report::default(),
        };
        (0..question.machines).for_each(|me| game.at(u64::from(me) * 37, What::Hart(me)));
        game
    }

    fn at(&mut self, time: u64, what: What) {
        self.next += 1;
        self.events.push(Reverse((time, self.next, what)));
    }

    fn step(&mut self, me: usize) {
        let question = self.question;
        let hart = &mut self.harts[me];
        let access = match hart.access {
            Some(access) => access,
            None if hart.left == 0 => return,
            None => {
                hart.left -= 1;
                choose(hart, me as u64)
            }
        };
        hart.access = Some(access);
        match execute(&mut self.machines[me], &mut self.memories[me], access) {
            Outcome::Done(()) => {
                hart.access = None;
                if let Some(since) = hart.waits_since.take() {
                    self.report.stalls += 1;
                    self.report.stalled_ns += self.now - since;
                }
                self.report.time_ns = self.report.time_ns.max(self.now);
                let result = self.machines[me].retired(0, 1_000, &mut self.memories[me]);
                result.expect("nothing is refused");
                if self.harts[me].left > 0 {
                    self.at(self.now + question.think_ns, What::Hart(me as u8));
                }
            }
            Outcome::Wait => {
                hart.waits_since.get_or_insert(self.now);
            }
        }
        self.collect(me);
    }

    fn arrive(&mut self, from: u8, to: usize, number: u64) {
        let envelope = self.messages.remove(&number).expect("it was sent");
        let result = self.machines[to].deliver(MachineId(from), envelope, &mut self.memories[to]);
        result.unwrap_or_else(|refused| panic!("{refused}"));
        self.collect(to);
    }

    /// Sends what the machine says, and lets its hart go on if it may.
    fn collect(&mut self, me: usize) {
        let mut bytes = Vec::new();
        while let Some((to, envelope)) = self.machines[me].next_message() {
            bytes.clear();
            dsm_wire::encode(&envelope, &mut bytes).expect("there is memory");
            let to_index = usize::from(to.0);
            let size = bytes.len() as u64 + AROUND * (bytes.len() as u64).div_ceil(1_400);
            let begin = self.free[me].max(self.now);
            self.free[me] = begin + size * 8_000 / self.question.link.mbit;
            let is_lost = random(&mut self.numbers) % 1_000_000 < self.question.link.lost_ppm;
            let again = if is_lost { self.question.link.latency_ns * 4 } else { 0 };
            let pair = me * self.machines.len() + to_index;
            let arrives = (self.free[me] + self.question.link.latency_ns + again).max(self.last[pair]);
            self.last[pair] = arrives;
            self.sent[me] += size;
            self.report.messages += 1;
            self.messages.insert(self.next + 1, envelope);
            self.at(arrives, What::Message(me as u8, to.0, self.next + 1));
        }
        if self.machines[me].take_wakes() != 0 {
            self.at(self.now, What::Hart(me as u8));
        }
    }
}

/// The next access: of a hundred, 80 to pages of its own, 16 loads and one store of what all read, three to a lock and what is behind it.
fn choose(hart: &mut Hart, me: u64) -> Access {
    if let Some(access) = hart.section.pop() {
        return access;
    }
    let (kind, pick) = (random(&mut hart.numbers) % 100, random(&mut hart.numbers));
    let word = (random(&mut hart.numbers) % 512) as u16;
    let store = |page, word| Store { page: Page(page), word, mask: 255, value: pick };
    match kind {
        0..40 => Access::Load(Page(READ_PAGES + LOCKS + me * 8 + pick % 8)),
        40..80 => Access::Store(store(READ_PAGES + LOCKS + me * 8 + pick % 8, word)),
        80..96 => Access::Load(Page(pick % READ_PAGES)),
        96 => Access::Store(store(pick % READ_PAGES, word)),
        _ => {
            let page = READ_PAGES + pick % LOCKS;
            let swap = |value| {
                let to = Store { page: Page(page), word: 0, mask: 15, value };
                Access::Lock(Atomic { operation: Operation::Swap, to, acquire: value == 1 })
            };
            hart.section = vec![Access::Store(store(page, 0)), Access::Fence, Access::Store(store(page, 1 + word % 8))];
            hart.section.push(Access::Load(Page(page)));
            swap(1)
        }
    }
}

fn execute(machine: &mut Dsm, memory: &mut Memory, access: Access) -> Outcome<()> {
    let outcome = match access {
        Access::Load(page) => machine.load(0, page, memory),
        Access::Store(store) => machine.store(0, store, memory),
        // What comes before an unlock: `fence rw,w`, which costs nothing.
        Access::Fence => machine.fence(0, Fence { after_stores: true, before_loads: false }, memory),
        Access::Lock(atomic) => machine.atomic(0, atomic, memory).map(|outcome| match outcome {
            Outcome::Done(_) => Outcome::Done(()),
            Outcome::Wait => Outcome::Wait,
        }),
    };
    outcome.unwrap_or_else(|refused| panic!("{refused}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(protocol: Protocol) -> Question {
        let link = Link { latency_ns: 10_000, mbit: 1_000, lost_ppm: 10_000 };
        Question { machines: 4, link, protocol, visibility: Visibility::Early, accesses: 3_000, think_ns: 500, seed: 3 }
    }

    #[test]
    fn the_same_question_has_the_same_answer() {
        assert_eq!(play(&question(Protocol::UpdatePlus)), play(&question(Protocol::UpdatePlus)));
    }

    #[test]
    fn updates_stall_less_than_invalidation() {
        let [invalidate, update, plus] = [Protocol::Invalidate, Protocol::Update, Protocol::UpdatePlus]
            .map(|protocol| play(&question(protocol)).stalls);
        assert!(update < invalidate && plus < invalidate, "{invalidate} : {update} : {plus}");
    }
}
