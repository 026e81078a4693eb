//! The plugin's state, and what begins and ends it.
//
// UNSAFETY: QEMU's callbacks carry no pointer to state, and the memory of the shared file and of the scoreboard is seen
// by others, as atomics.
#![expect(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{c_uint, c_void};
use std::fs::OpenOptions;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;

use machine_model::{
    Clocks, Config, Description, FetchSite, Fidelity, Machine, MarkLine, MarkLocks, Port, Root, Shared,
};
use model_file::{MODES, Mode, ModeCounters, at};

use crate::hooks::Cpu;
use crate::marks::Marks;
use crate::options::Options;
use crate::ram::Ram;
use crate::registers::Registers;
use crate::{give_up, hooks, refuse, time};
use qemu_plugin::{Entry, Id, Scoreboard};

/// A hart looks up when its time counter is here.
pub const LOOK_UP: u64 = 1 << 62;
/// The machine's time when it begins: later than QEMU's clock then is, and the same in each run.
const START_PS: u64 = 100_000_000_000;
/// How far harts may be apart while the model is off.
const OFF_WINDOW_PS: u64 = 20_000_000;
/// The least in the fast mode.
const FAST_WINDOW_PS: u64 = 20_000_000;
/// How many pieces of code of locks are looked for in each block that is translated.
const MOST_LOCK_CODE: usize = 64;
/// A hart's counters are published after so many of its turns.
const PUBLISH_TURNS: u32 = 64;

/// Everything. Only the thread of the harts uses it.
pub struct Model {
    pub config: Config,
    pub fidelity: Fidelity,
    seed: u64,
    pub is_on: bool,
    pub machine: Machine,
    pub clocks: Clocks,
    pub harts: Vec<Hart>,
    pub sites: Vec<FetchSite>,
    /// Where kernels take and wait for locks: virtual addresses.
    pub lock_code: Vec<Range<u64>>,
    pub view: View,
    pub score: Scoreboard,
    marks: Marks,
    thread: Option<ThreadId>,
    /// The emulator may be busy with input or output for the machine.
    pub io_is_due: bool,
}

/// A hart, from the plugin's side.
pub struct Hart {
    pub cpu: Option<Cpu>,
    /// Its part of the scoreboard: time counter, instructions per mode, lines fetched.
    pub words: &'static [AtomicU64],
    /// The time counter when the clock was last brought up to date.
    pub seen: u64,
    /// Stalls in the code of locks and waits for them, by mode. Its instructions are counted in `words`.
    pub locks: [MarkLocks; MODES],
    turns: u32,
}

/// What the model reads of the machine.
pub struct View {
    pub registers: Option<Registers>,
    pub ram: Option<Ram>,
}

impl Port for View {
    fn root(&mut self, root: Root, is_virtual: bool) -> u64 {
        self.registers.as_ref().map_or(0, |registers| registers.root(root, is_virtual))
    }

    fn program_counter(&mut self) -> u64 {
        self.registers.as_ref().map_or(0, Registers::pc)
    }

    fn table_entry(&mut self, addr: u64) -> u64 {
        self.ram.as_ref().map_or(0, |ram| ram.read(addr))
    }
}

struct Place(UnsafeCell<Option<Model>>);

// SAFETY: see `model`.
unsafe impl Sync for Place {}

static MODEL: Place = Place(UnsafeCell::new(None));
static HAS_BEGUN: OnceLock<()> = OnceLock::new();

/// The state. Every callback takes it once, at its start.
#[inline(always)]
pub fn model() -> &'static mut Model {
    // SAFETY: (1) `prepare` has filled it before any callback is registered. (2) All callbacks run on the one thread of
    // the harts: `hart_begins` refuses a second one. The last, `exit`, runs when no hart does. (3) Callbacks do not nest:
    // what runs inside of them (timers) calls nothing of the plugin but the clock, which uses atomics of its own.
    unsafe { (*MODEL.0.get()).as_mut().unwrap_unchecked() }
}

/// Makes the state.
pub fn prepare(options: &Options, harts: usize) -> Result<(), String> {
    let Description { machine: config, mode, seed, starts_on } = options.description.clone();
    if config.harts != harts {
        return Err(format!("the description has {} harts, the emulator {harts}", config.harts));
    }
    let shared = match &options.file {
        Some(path) => map(path, &config).map_err(|problem| format!("{}: {problem}", path.display()))?,
        None => Shared::private(&config).map_err(|error| error.to_string())?,
    };
    let machine = Machine::new(&config, shared).map_err(|error| error.to_string())?;
    let clocks = Clocks::new(&config, START_PS).map_err(|error| error.to_string())?;
    let hart = || Hart { cpu: None, words: &[], seen: 0, locks: Default::default(), turns: 0 };
    let words = words::FETCHED + config.l1i.sets(config.line_bytes) as usize;
    let model = Model {
        seed,
        is_on: starts_on,
        fidelity: mode,
        machine,
        clocks,
        harts: (0..harts).map(|_| hart()).collect(),
        sites: Vec::new(),
        lock_code: Vec::new(),
        view: View { registers: None, ram: None },
        score: Scoreboard::new(words),
        marks: Marks::open(options.marks.as_deref())?,
        thread: None,
        io_is_due: false,
        config,
    };
    // SAFETY: nobody else knows of it yet.
    unsafe { *MODEL.0.get() = Some(model) };
    let model = self::model();
    model.set_window();
    model.machine.shared().set(at::IS_ON, starts_on.into());
    Ok(())
}

/// Places in a hart's part of the scoreboard.
pub mod words {
    use model_file::MODES;

    /// Time since the hart last looked up.
    pub const TIME: usize = 0;
    /// Instructions of each mode.
    pub const COUNTS: usize = 1;
    /// Instructions of each mode in the code of locks.
    pub const LOCKS: usize = COUNTS + MODES;
    /// For each set of the instruction cache the line last fetched, plus one.
    pub const FETCHED: usize = LOCKS + MODES;
}

/// A hart is there, and this is its thread.
pub extern "C" fn hart_begins(_: Id, index: c_uint) {
    let thread = std::thread::current().id();
    if HAS_BEGUN.set(()).is_err() && model().thread != Some(thread) {
        give_up("harts have threads of their own: run with -accel tcg,thread=single, or without [model]");
    }
    let model = model();
    model.thread = Some(thread);
    if model.view.registers.is_none() {
        let found = Registers::find();
        model.view.registers = Some(found.unwrap_or_else(|name| give_up(&refuse(&format!("harts have no {name}")))));
        let taken = time::take_clock(START_PS / 1000);
        taken.unwrap_or_else(|problem| give_up(&refuse(problem)));
    }
    let index = index as usize;
    let cpu = hooks().cpu(index);
    if model.harts.len() > 1 {
        hooks().translate_in_parallel(cpu);
    }
    model.harts[index].cpu = Some(cpu);
    model.clocks.start(index, model.seed);
    model.refresh_words(index);
    model.arm(index, 0);
}

/// The emulator ends.
pub extern "C" fn exit(_: Id, _: *mut c_void) {
    // Nothing has run if no hart began; and then the machine's files say nothing.
    if HAS_BEGUN.get().is_some() {
        model().mark(0, 0);
    }
}

impl Model {
    /// The entry of a word of the scoreboard.
    pub fn entry(&self, word: usize) -> Entry {
        self.score.entry(word)
    }

    /// The next look of `hart` is after `budget_ps`.
    pub fn arm(&mut self, hart: usize, budget_ps: u64) {
        let hart = &mut self.harts[hart];
        hart.seen = LOOK_UP - budget_ps;
        hart.words[words::TIME].store(hart.seen, Relaxed);
    }

    /// The time that `hart`, which is running, has used since this was last asked.
    pub fn take_spent(&mut self, hart: usize) -> u64 {
        self.sample(hart);
        let hart = &mut self.harts[hart];
        let now = hart.words[words::TIME].load(Relaxed);
        let spent = now - hart.seen;
        hart.seen = now;
        spent
    }

    /// While the model is off blocks count time only: instructions are those of the mode that `hart` is found in.
    fn sample(&self, hart: usize) {
        let spent = self.spent(hart);
        if self.is_on || spent == 0 {
            return;
        }
        let mode = self.view.registers.as_ref().map_or(Mode::M, Registers::mode);
        let count = &self.harts[hart].words[words::COUNTS + mode as usize];
        count.store(count.load(Relaxed) + spent / self.config.cycle_ps, Relaxed);
    }

    /// The time that `hart` has used since its clock was brought up to date.
    pub fn spent(&self, hart: usize) -> u64 {
        self.harts[hart].words[words::TIME].load(Relaxed) - self.harts[hart].seen
    }

    /// `hart` stalls.
    #[inline]
    pub fn stall(&self, hart: usize, stall_ps: u64) {
        let time = &self.harts[hart].words[words::TIME];
        time.store(time.load(Relaxed) + stall_ps, Relaxed);
    }

    /// Switches the model, if it is not as wanted.
    pub fn switch(&mut self, hart: usize, is_on: bool) {
        if self.is_on == is_on {
            return;
        }
        self.sample(hart);
        self.is_on = is_on;
        self.set_window();
        self.machine.forget_translations();
        let shared = *self.machine.shared();
        shared.set(at::IS_ON, is_on.into());
        shared.set(at::SWITCHES, shared.get(at::SWITCHES) + 1);
        (0..self.harts.len()).for_each(|hart| self.publish(hart));
        if let Some(cpu) = self.harts[hart].cpu {
            hooks().flush(cpu);
        }
    }

    /// A hart's turn is over: now and then the world is told how it does.
    pub fn turn_is_over(&mut self, hart: usize) {
        self.harts[hart].turns += 1;
        if self.harts[hart].turns.is_multiple_of(PUBLISH_TURNS) {
            self.publish(hart);
        }
    }

    /// Tells the world a hart's clock and counters.
    pub fn publish(&self, hart: usize) {
        let now_ps = self.now(hart);
        let is_idle = self.clocks.is_waiting(hart);
        self.machine.shared().publish(hart, now_ps, is_idle, &self.counters(hart, self.clocks.machine()));
    }

    /// Everything counted, as a line of the file of marks, and in the shared file.
    pub fn mark(&mut self, hart: usize, mark: u16) {
        (0..self.harts.len()).filter(|hart| !self.harts[*hart].words.is_empty()).for_each(|hart| self.publish(hart));
        if !self.marks.is_wanted() {
            return;
        }
        // Whoever waits does so until the hart that has come by.
        let at_ps = self.now(hart);
        let of = |hart| (self.config.node_of(hart), self.now(hart), self.counters(hart, at_ps), self.locks(hart));
        let harts = (0..self.harts.len()).map(of);
        let line = MarkLine::new(mark, hart, self.is_on, harts);
        self.marks.add(&line);
    }

    /// A hart's clock at this moment.
    pub fn now(&self, hart: usize) -> u64 {
        if self.harts[hart].words.is_empty() { 0 } else { self.clocks.now(hart) + self.spent(hart) }
    }

    fn counters(&self, hart: usize, at_ps: u64) -> [ModeCounters; MODES] {
        let mut counters = *self.machine.counters(hart);
        for (mode, counters) in counters.iter_mut().enumerate() {
            let count = self.harts[hart].words.get(words::COUNTS + mode);
            counters.instructions = count.map_or(0, |count| count.load(Relaxed));
            counters.time_ps = counters.instructions * self.config.cycle_ps + counters.stall_ps.iter().sum::<u64>();
        }
        counters[Mode::Idle as usize].time_ps = self.clocks.idle(hart, at_ps);
        counters
    }

    fn locks(&self, hart: usize) -> [MarkLocks; MODES] {
        let Hart { words, locks, .. } = &self.harts[hart];
        core::array::from_fn(|mode| {
            let count = words.get(words::LOCKS + mode).map_or(0, |count| count.load(Relaxed));
            MarkLocks { time_ps: count * self.config.cycle_ps + locks[mode].stall_ps, ..locks[mode] }
        })
    }

    /// Counts code as that of locks from now on. Blocks that were translated before are not counted until they are translated
    /// again, at the latest when the model is next switched on.
    pub fn add_lock_code(&mut self, code: Range<u64>) {
        if self.lock_code.len() < MOST_LOCK_CODE && !self.lock_code.contains(&code) {
            self.lock_code.push(code);
        }
    }

    /// Whether a block in this mode that begins here takes locks.
    pub fn is_lock_code(&self, mode: Mode, virt: u64) -> bool {
        matches!(mode, Mode::S | Mode::VS) && self.lock_code.iter().any(|code| code.contains(&virt))
    }

    fn set_window(&mut self) {
        let window_ps = match (self.is_on, self.fidelity) {
            (true, Fidelity::Reference) => self.config.window_ps,
            (true, Fidelity::Fast) => self.config.window_ps.max(FAST_WINDOW_PS),
            (false, _) => self.config.window_ps.max(OFF_WINDOW_PS),
        };
        self.clocks.set_window(window_ps);
    }

    /// The scoreboard may have moved when QEMU made room for one more hart.
    fn refresh_words(&mut self, newest: usize) {
        let sets = self.config.l1i.sets(self.config.line_bytes) as usize;
        for hart in 0..=newest {
            let start = self.score.words(hart).cast::<AtomicU64>();
            // SAFETY: (1) the scoreboard has this many words for each hart that there is, aligned as QEMU says. (2) It is
            // never freed, and moves only when a hart is added, after which this runs again before any other use.
            // (3) Translated code writes the words on this same thread.
            let words = unsafe { std::slice::from_raw_parts(start, words::FETCHED + sets) };
            self.harts[hart].words = words;
            self.machine.watch_fetches(hart, &words[words::FETCHED..]);
        }
    }
}

/// Maps the shared file.
fn map(path: &std::path::Path, config: &Config) -> Result<Shared, String> {
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|error| error.to_string())?;
    let header = config.header().map_err(|error| error.to_string())?;
    let (found, want) = (file.metadata().map_err(|error| error.to_string())?.len(), header.file_bytes());
    if found != want {
        return Err(format!("it has {found} bytes, this machine's shared file has {want}"));
    }
    // SAFETY: others may write the file at any time, so it is used as atomics only. If somebody cuts it short the
    // emulator dies by a signal; the launcher, who made it, does not.
    let map = unsafe { memmap2::MmapMut::map_mut(&file) }.map_err(|error| error.to_string())?;
    let start = Box::leak(Box::new(map)).as_mut_ptr();
    let (words, misses) = Shared::parts(&header);
    // SAFETY: the mapping is leaked, longer than both parts, page-aligned, and nobody in this process uses it otherwise;
    // the first part ends at a page.
    let (words, misses) = unsafe {
        let misses_start = start.add(words as usize).cast::<AtomicU32>();
        let words = std::slice::from_raw_parts(start.cast::<AtomicU64>(), words as usize / 8);
        (words, std::slice::from_raw_parts(misses_start, misses as usize / 4))
    };
    Shared::new(config, words, misses).map_err(|error| error.to_string())
}
