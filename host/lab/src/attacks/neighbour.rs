//! Who must not feel an attack: the probe's `figure=pulse`, which computes, and tells when it is asked.

use control::{StreamData, VmSpec};
use machine::Stream;

use crate::LabError;
use crate::rig::{Running, WATCHDOG, probe_vm};

/// As in `guest/probe/src/figures/pulse.rs`.
const WORDS: usize = 4096;
const ROUND: u64 = 64;

/// A neighbour at its work.
#[derive(Debug)]
pub struct Neighbour {
    spec: VmSpec,
    console: Stream,
    /// What it said, and nobody has read yet.
    said: String,
    work: Work,
}

/// What a neighbour did while it watched itself, in the machine's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// How long it was.
    pub ticks: u64,
    /// Rounds that it computed.
    pub rounds: u64,
    /// The longest time between the ends of two rounds.
    pub gap_ticks: u64,
    /// Whether all its numbers, since it began, are what they must be.
    pub is_right: bool,
}

impl Pulse {
    /// Rounds in a thousand ticks.
    #[must_use]
    pub fn rate(&self) -> f64 {
        1_000.0 * crate::compare::ratio(self.rounds, self.ticks.max(1))
    }

    /// `PULSE ticks rounds gap total sum`, checked.
    fn parse(line: &str, work: &mut Work) -> Option<Self> {
        let mut words = line.trim().strip_prefix("PULSE ")?.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (ticks, rounds, gap_ticks, total) = (number()?, number()?, number()?, number()?);
        let sum = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(Self { ticks, rounds, gap_ticks, is_right: work.sum_of(total) == Some(sum) })
    }
}

impl Neighbour {
    /// A VM of one vCPU that computes from now on, and watches itself for so many milliseconds when it is asked.
    ///
    /// # Errors
    /// [`LabError`] if it does not begin.
    pub fn start(machine: &Running, window_ms: u64) -> Result<Self, LabError> {
        let spec = probe_vm("neighbour", 1, 64, &format!("figure=pulse n={window_ms}"))?;
        machine.start(&spec)?;
        machine.wait_text(&spec.name, "PULSE ready")?;
        let (_, console) = machine.client().console(&spec.name, u64::MAX)?;
        Ok(Self { spec, console, said: String::new(), work: Work::default() })
    }

    /// What it does from now on. Nobody asks the monitor for anything meanwhile.
    ///
    /// # Errors
    /// [`LabError`] if it does not answer.
    pub fn ask(&mut self) -> Result<Pulse, LabError> {
        self.console.send_all(b"?", WATCHDOG)?;
        loop {
            let end = self.said.find('\n').map(|end| end + 1);
            let line: String = self.said.drain(..end.unwrap_or(0)).collect();
            if let Some(pulse) = Pulse::parse(&line, &mut self.work) {
                return Ok(pulse);
            }
            if end.is_some() {
                continue;
            }
            match self.console.recv_timeout(WATCHDOG)? {
                Some(StreamData::Console { bytes, .. }) => self.said += &String::from_utf8_lossy(&bytes),
                Some(_) => {}
                None => return Err(self.silent()),
            }
        }
    }

    fn silent(&self) -> LabError {
        let (experiment, reason) = (self.spec.name.to_string(), "it does not answer any more".to_owned());
        LabError::Guest { experiment, reason, console: self.said.clone() }
    }
}

/// What it must have computed so far.
#[derive(Debug)]
struct Work {
    words: Vec<u64>,
    state: u64,
    sum: u64,
    total: u64,
}

impl Default for Work {
    fn default() -> Self {
        Self { words: vec![0; WORDS], state: 0x9e37_79b9_7f4a_7c15, sum: 0, total: 0 }
    }
}

impl Work {
    /// The sum after so many rounds in all; `None` if it was further before.
    fn sum_of(&mut self, total: u64) -> Option<u64> {
        let steps = total.checked_sub(self.total)? * ROUND;
        let begin = usize::try_from(self.total * ROUND).unwrap_or(0) % WORDS;
        let mut place = begin;
        for _ in 0..steps {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            let word = self.words.get_mut(place)?;
            self.sum = self.sum.rotate_left(5) ^ std::mem::replace(word, self.state);
            place = (place + 1) % WORDS;
        }
        self.total = total;
        Some(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_when_it_was_asked() {
        let (mut once, mut often) = (Work::default(), Work::default());
        assert_eq!(once.sum_of(0), Some(0));
        for total in [1, 7, 64, 65, 200] {
            often.sum_of(total);
        }
        assert_eq!(often.sum_of(200), once.sum_of(200));
        assert_ne!(once.sum_of(201), often.sum_of(200));
        // It cannot go back.
        assert_eq!(once.sum_of(100), None);
    }

    #[test]
    fn only_whole_lines_with_the_right_sum_are_right() {
        let sum = Work::default().sum_of(100).expect("it begins at 0");
        let line = format!("PULSE 2000 100 17 100 {sum:#x}\r\n");
        let pulse = Pulse::parse(&line, &mut Work::default()).expect("a line");
        assert_eq!(pulse, Pulse { ticks: 2000, rounds: 100, gap_ticks: 17, is_right: true });
        assert!((pulse.rate() - 50.0).abs() < 1e-9);
        let wrong = Pulse::parse("PULSE 2000 100 17 100 0x1", &mut Work::default());
        assert_eq!(wrong.map(|pulse| pulse.is_right), Some(false));
        assert_eq!(Pulse::parse("PULSE ready", &mut Work::default()), None);
        assert_eq!(Pulse::parse("PULSE 1000 1 1 1 1", &mut Work::default()), None);
    }
}
