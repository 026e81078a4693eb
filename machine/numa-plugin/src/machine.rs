//! The modelled machine: its harts' time, its counters, its switch.
//!
//! All harts are emulated by one thread, in turn; it alone changes anything here. Other threads read the time.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use machine_model::{Clocks, Description};
use model_file::{HartClock, Mode, ModeCounters, Request, at};

use crate::counts::{Board, LIMIT, Stalls};
use crate::marks::{Marks, hart_value};
use crate::qemu::Inside;
use crate::shared::Shared;

/// Virtual time between two looks of the tools at all counters.
const PUBLISH_PS: u64 = 1_000_000_000;

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// The machine of this emulator.
pub struct Machine {
    pub inside: Inside,
    pub clocks: Clocks,
    pub board: Board,
    pub shared: Shared,
    pub cycle_ps: u64,
    harts: Box<[Hart]>,
    marks: Marks,
    is_on: AtomicBool,
}

/// What is known of a hart besides its clock.
#[derive(Default)]
pub struct Hart {
    /// QEMU's address of it; 0 before it is made.
    cpu: AtomicUsize,
    node: usize,
    /// Its record's time when it was last let go.
    armed: AtomicU64,
    /// When its counters were last written.
    published_ps: AtomicU64,
    pub stalls: Stalls,
}

impl Machine {
    /// Sets the machine up, once.
    ///
    /// # Errors
    /// The files cannot be used, or another machine is there.
    pub fn set_up(
        inside: Inside,
        description: &Description,
        start_ps: u64,
        shared: &Path,
        marks: &Path,
    ) -> Result<(), String> {
        let config = &description.machine;
        let header = config.header().map_err(|error| error.to_string())?;
        let hart = |number| Hart { node: config.node_of(number), ..Hart::default() };
        let machine = Self {
            inside,
            clocks: Clocks::new(config.harts, start_ps, config.window_ps, description.seed),
            board: Board::new(),
            shared: Shared::open(shared, header)?,
            cycle_ps: config.cycle_ps,
            harts: (0..config.harts).map(hart).collect(),
            marks: Marks::open(marks)?,
            is_on: description.starts_on.into(),
        };
        machine.shared.word(at::HOT_THRESHOLD).store(config.hot_misses.into(), Relaxed);
        machine.shared.word(at::IS_ON).store(description.starts_on.into(), Relaxed);
        MACHINE.set(machine).map_err(|_| "the plugin is loaded twice".to_owned())
    }

    /// The machine, after it was set up.
    pub fn get() -> Option<&'static Self> {
        MACHINE.get()
    }

    /// Whether stalls are modelled at the moment.
    #[expect(dead_code, reason = "asked by the caches")]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// A hart exists.
    pub fn add_hart(&self, hart: usize) {
        let cpu = self.inside.cpu(hart);
        self.harts[hart].cpu.store(cpu.address(), Relaxed);
        self.inside.count_by_hart(cpu);
        self.clocks.start(hart);
        self.arm(hart, 0);
    }

    /// The hart that this thread emulates at the moment.
    pub fn current(&self) -> Option<usize> {
        let cpu = self.inside.current()?.address();
        self.harts.iter().position(|hart| hart.cpu.load(Relaxed) == cpu)
    }

    /// The clock of a hart, to the block that it runs.
    pub fn hart_now(&self, hart: usize) -> u64 {
        let run = self.board.time(hart) - self.harts[hart].armed.load(Relaxed);
        self.clocks.now(hart) + run
    }

    /// Lets a hart run for so long before it has to come back.
    pub fn arm(&self, hart: usize, leave_ps: u64) {
        let start = LIMIT - leave_ps.min(LIMIT);
        self.harts[hart].armed.store(start, Relaxed);
        self.board.set_time(hart, start);
    }

    /// Takes what the tools ask for.
    pub fn take_request(&self) {
        let word = self.shared.word(at::REQUEST);
        let asked = word.load(Relaxed);
        if asked == 0 {
            return;
        }
        match Request::from_word(asked) {
            Some(Request::On) => self.switch(true),
            Some(Request::Off) => self.switch(false),
            Some(Request::ResetPages) => self.reset_pages(),
            None => {}
        }
        word.store(0, Relaxed);
    }

    /// Switches the model of caches and page walks. Time goes on either way.
    pub fn switch(&self, on: bool) {
        if self.is_on.swap(on, Relaxed) == on {
            return;
        }
        self.shared.word(at::IS_ON).store(on.into(), Relaxed);
        let switches = self.shared.word(at::SWITCHES);
        switches.store(switches.load(Relaxed) + 1, Relaxed);
        if let Some(cpu) = self.inside.current() {
            self.inside.flush(cpu);
        }
    }

    /// A guest marks a place.
    pub fn mark(&self, mark: u64, hart: usize) {
        let harts = (0..self.harts.len()).map(|hart| {
            let modes = Mode::ALL.map(|mode| (mode, self.counters(hart, mode)));
            hart_value(self.harts[hart].node, self.clocks.now(hart), &modes)
        });
        self.marks.write(mark, hart, self.hart_now(hart), self.is_on.load(Relaxed), harts.collect());
    }

    /// Shows the time, and now and then the counters, to whoever reads the file.
    pub fn publish(&self, hart: usize) {
        let now_ps = self.clocks.now(hart);
        self.shared.word(at::NOW).store(self.clocks.machine(), Relaxed);
        self.show_clock(hart);
        if now_ps.saturating_sub(self.harts[hart].published_ps.load(Relaxed)) >= PUBLISH_PS {
            self.show_counters(hart);
        }
    }

    /// Shows all counters as they are.
    pub fn publish_all(&self) {
        for hart in 0..self.harts.len() {
            self.show_clock(hart);
            self.show_counters(hart);
        }
    }

    fn show_clock(&self, hart: usize) {
        let is_idle = self.clocks.is_waiting(hart).into();
        let clock = HartClock { now_ps: self.clocks.now(hart), is_idle, node: self.harts[hart].node as u64 };
        if let Some(place) = self.shared.header().clock_at(hart as u64) {
            self.shared.write(place, &clock.words());
        }
    }

    fn show_counters(&self, hart: usize) {
        self.harts[hart].published_ps.store(self.clocks.now(hart), Relaxed);
        for mode in Mode::ALL {
            if let Some(place) = self.shared.header().counters_at(hart as u64, mode as usize) {
                self.shared.write(place, &self.counters(hart, mode).words());
            }
        }
    }

    fn counters(&self, hart: usize, mode: Mode) -> ModeCounters {
        match mode {
            Mode::Idle => ModeCounters { time_ps: self.clocks.idle(hart), ..ModeCounters::default() },
            mode => self.harts[hart].stalls.counters(&self.board, hart, mode, self.cycle_ps),
        }
    }

    fn reset_pages(&self) {
        let header = self.shared.header();
        for page in 0..header.pages() {
            for node in 0..header.nodes().len() {
                if let Some(place) = header.misses_at(page, node) {
                    self.shared.counter(place).store(0, Relaxed);
                }
            }
        }
    }
}
