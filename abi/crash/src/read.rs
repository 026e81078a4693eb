//! Reading blocks out of a log.

use crate::write::{Begin, EVENT_BYTES, HartLine};
use crate::{Exit, How, MARK, MAX_CALLS, MAX_CRASHES, MAX_HARTS, MAX_LINE, MAX_RECENT, MAX_TEXT, Trap, VERSION};
use alloc::{string::String, vec::Vec};

/// What a cell left behind when it panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The cell.
    pub cell: u64,
    /// How it began.
    pub begin: Begin,
    /// Version and commit of the monitor.
    pub build: String,
    /// What its harts told.
    pub harts: Vec<HartCrash>,
    /// Lines that are missing or damaged.
    pub lost: u64,
    /// Whether it was written to its end.
    pub is_whole: bool,
    next_line: u64,
}

/// What a hart left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HartCrash {
    /// Who it is.
    pub hart: HartLine,
    /// What it was doing.
    pub how: How,
    /// Its stack pointer; 0 where it has told nothing.
    pub sp: u64,
    /// The message of its panic.
    pub message: String,
    /// The trap that it died of.
    pub trap: Option<Trap>,
    /// Its registers, those known.
    pub registers: [Option<u64>; 32],
    /// Return addresses on its stack, the innermost first.
    pub calls: Vec<u64>,
    /// Exits of its vCPU, the oldest first.
    pub exits: Vec<Exit>,
    /// Its events, each as the bytes of the crate `control`.
    pub events: Vec<Vec<u8>>,
}

/// The crashes in a log, in the order in which they began; the latest [`MAX_CRASHES`] of them. A block that a newer version wrote has
/// no harts.
#[must_use]
pub fn read(log: &[u8]) -> Vec<Crash> {
    let mut crashes: Vec<Crash> = Vec::new();
    for line in log.split(|byte| *byte == b'\n') {
        let Some(line) = Line::parse(line) else { continue };
        if line.kind == "begin" {
            if let Some(crash) = Crash::begun(&line) {
                if crashes.len() == MAX_CRASHES {
                    crashes.remove(0);
                }
                crashes.push(crash);
            }
            continue;
        }
        // Cells write at the same time; each of them panics once.
        let open = crashes.iter_mut().rev().find(|crash| crash.cell == line.cell).filter(|crash| !crash.is_whole);
        if let Some(crash) = open.filter(|crash| line.number >= crash.next_line) {
            crash.lost = crash.lost.saturating_add(line.number - crash.next_line);
            crash.next_line = line.number.saturating_add(1);
            // A line that says nothing understood is as good as missing.
            crash.lost = crash.lost.saturating_add(crash.take(&line).is_none().into());
        }
    }
    crashes
}

/// A line whose checksum is right.
struct Line<'a> {
    cell: u64,
    number: u64,
    kind: &'a str,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        // At its beginning and nowhere else: what guests say stands behind other text.
        if !bytes.starts_with(MARK.as_bytes()) || bytes.len() > MAX_LINE {
            return None;
        }
        let (text, sum) = core::str::from_utf8(bytes).ok()?.rsplit_once(' ')?;
        if sum.len() != 8 || u32::from_str_radix(sum, 16).ok()? != crate::checksum(&[text.as_bytes()]) {
            return None;
        }
        let mut words = text.strip_prefix(MARK)?.strip_prefix(' ')?.splitn(4, ' ');
        let (cell, number, kind) = (number(words.next()?)?, number(words.next()?)?, words.next()?);
        Some(Self { cell, number, kind, rest: words.next().unwrap_or_default() })
    }

    fn numbers(&self) -> impl Iterator<Item = Option<u64>> + use<'a> {
        self.rest.split(' ').filter(|word| !word.is_empty()).map(number)
    }

    /// So many numbers, and no more.
    fn exactly<const N: usize>(&self) -> Option<[u64; N]> {
        let mut numbers = self.numbers();
        let mut found = [0; N];
        for place in &mut found {
            *place = numbers.next()??;
        }
        numbers.next().is_none().then_some(found)
    }

    /// The bytes of a text.
    fn text(&self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut rest = self.rest.as_bytes();
        while let [first, tail @ ..] = rest {
            let (byte, tail) = match (*first, tail) {
                (b'\\', [b'\\', tail @ ..]) => (b'\\', tail),
                (b'\\', [b'x', high, low, tail @ ..]) => (byte(*high, *low)?, tail),
                (b'\\', _) => return None,
                (plain, tail) => (plain, tail),
            };
            text.push(byte);
            rest = tail;
        }
        Some(text)
    }
}

/// As [`crate::Writer`] writes it: not what `from_str_radix` takes, too.
fn number(word: &str) -> Option<u64> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(word, 16).ok().filter(|_| is_plain)
}

fn byte(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

impl Crash {
    /// The hart that panicked first.
    #[must_use]
    pub fn culprit(&self) -> Option<&HartCrash> {
        self.harts.iter().find(|hart| hart.hart.index == self.begin.hart)
    }

    /// What its message says; empty if that is lost.
    #[must_use]
    pub fn message(&self) -> &str {
        self.culprit().map_or("", |hart| &hart.message)
    }

    fn begun(line: &Line<'_>) -> Option<Self> {
        let [version, hart, ticks, timebase_hz, harts, fingerprint] = line.exactly()?;
        (version == VERSION && line.number == 0).then(|| Self {
            cell: line.cell,
            begin: Begin { hart, ticks, timebase_hz, harts, fingerprint },
            build: String::new(),
            harts: Vec::new(),
            lost: 0,
            is_whole: false,
            next_line: 1,
        })
    }

    fn take(&mut self, line: &Line<'_>) -> Option<()> {
        match line.kind {
            "build" => add_text(&mut self.build, line),
            "end" => {
                self.is_whole = true;
                Some(())
            }
            "hart" => {
                let hart = HartCrash::begun(line)?;
                (self.harts.len() < MAX_HARTS).then(|| self.harts.push(hart))
            }
            _ => self.harts.last_mut()?.take(line),
        }
    }
}

impl HartCrash {
    fn begun(line: &Line<'_>) -> Option<Self> {
        let mut words = line.rest.split(' ');
        let mut next = || words.next();
        let (index, hart_id, node) = (number(next()?)?, number(next()?)?, number(next()?)?);
        let (how, sp) = (How::of_word(next()?)?, number(next()?)?);
        let running = match (next()?, next()?) {
            ("-", "-") => None,
            (vm, vcpu) => Some((u16::from_str_radix(vm, 16).ok()?, u16::from_str_radix(vcpu, 16).ok()?)),
        };
        next().is_none().then_some(Self {
            hart: HartLine { index, hart_id, node, running },
            how,
            sp,
            message: String::new(),
            trap: None,
            registers: [None; 32],
            calls: Vec::new(),
            exits: Vec::new(),
            events: Vec::new(),
        })
    }

    fn take(&mut self, line: &Line<'_>) -> Option<()> {
        match line.kind {
            "say" => add_text(&mut self.message, line),
            "trap" => {
                let [scause, sepc, stval, sstatus] = line.exactly()?;
                self.trap = Some(Trap { scause, sepc, stval, sstatus });
                Some(())
            }
            "x" => self.take_registers(line),
            "stack" => line.numbers().try_for_each(|call| push(&mut self.calls, call?, MAX_CALLS)),
            "exit" => {
                let [ticks, scause, pc, stval] = line.exactly()?;
                push(&mut self.exits, Exit { ticks, scause, pc, stval }, MAX_RECENT)
            }
            "event" => {
                let digits = line.rest.as_bytes();
                let pairs = (digits.len().is_multiple_of(2) && digits.len() <= 2 * EVENT_BYTES)
                    .then(|| digits.chunks_exact(2))?;
                let bytes: Option<Vec<u8>> = pairs.map(|pair| byte(*pair.first()?, *pair.last()?)).collect();
                push(&mut self.events, bytes?, MAX_RECENT)
            }
            _ => None,
        }
    }

    fn take_registers(&mut self, line: &Line<'_>) -> Option<()> {
        let (first, values) = line.rest.split_once(' ')?;
        let first = usize::try_from(number(first)?).ok()?;
        for (at, word) in values.split(' ').enumerate() {
            let place = self.registers.get_mut(first.checked_add(at)?)?;
            *place = if word == "-" { None } else { Some(number(word)?) };
        }
        Some(())
    }
}

fn push<T>(list: &mut Vec<T>, value: T, most: usize) -> Option<()> {
    (list.len() < most).then(|| list.push(value))
}

fn add_text(whole: &mut String, line: &Line<'_>) -> Option<()> {
    let piece = line.text()?;
    (whole.len() + piece.len() <= MAX_TEXT * 4).then(|| whole.push_str(&String::from_utf8_lossy(&piece)))
}
