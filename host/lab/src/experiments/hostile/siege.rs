//! The measurement of `hostile`: a machine, a neighbour, and one attack after the other.
//!
//! All times are the machine's. The host cannot read its clock, so each is bounded by what the monitor says of itself:
//! - *Answer*: the time between the answers to two questions of which the second is asked when the first has been answered. The way
//!   to the host and back is in it.
//! - *Kill*: from the answer before the order to the event of the VM's end, which comes after its pages have been counted. The way of
//!   the answer and of the order are in it.
//! - *Pause* and *loss*: what the neighbour says, by its own clock, of some milliseconds in which nobody asks the monitor for anything:
//!   the longest time between two rounds of its work, and its rounds beside those that it did alone.
//! - *Stretch*: the monitor's histogram. A stretch counts for the attack after which the longest has grown.

use std::thread;
use std::time::Duration;

use control::{EventKind, MachineStats, Name, VmState};

use crate::LabError;
use crate::attacks::{self, Attack, Neighbour};
use crate::compare::ratio;
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Ended, Rig, Running};
use crate::run::Progress;
use crate::store::{Measured, Value};

/// vCPUs of attackers where each has a hart for itself, and where all share one.
const APART: [u16; 3] = [1, 2, 4];
const APART_QUICK: [u16; 2] = [2, 4];
const SHARED: [u16; 1] = [2];
/// What an order or a question may take.
const LATE_MS: f64 = 100.0;
/// Exits of a guest that has begun with its attack: more than it takes to say so. Some are so busy with the first one that it is the
/// machine's time that tells.
const AT_WORK: u64 = 400;
const AT_WORK_MS: u64 = 100;
/// How often the neighbour is asked without an attack.
const PEACES: usize = 5;
/// Questions to the monitor during each attack.
const QUESTIONS: usize = 5;
/// Looks at a guest that may begin.
const LOOKS: usize = 20_000;
/// The host's time between two looks. The machine's goes on by a fraction of it.
const BETWEEN: Duration = Duration::from_millis(10);

/// A neighbour with a hart for itself.
///
/// # Errors
/// [`LabError`] if the machine or the neighbour fails.
pub fn apart(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    siege(trial, progress, &trial.name, &APART)
}

/// The same with fewer numbers of vCPUs.
///
/// # Errors
/// As [`apart`].
pub fn apart_quick(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    siege(trial, progress, &trial.name, &APART_QUICK)
}

/// All vCPUs on one hart.
///
/// # Errors
/// As [`apart`].
pub fn shared(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    siege(trial, progress, trial.name.strip_prefix("shared-").unwrap_or(&trial.name), &SHARED)
}

/// The name of a trial's figure.
pub fn figure(trial: &str, part: &str) -> String {
    format!("{}_{part}", trial.replace('-', "_"))
}

fn siege(trial: &Trial, progress: &Progress, device: &str, vcpus: &[u16]) -> Result<Measured, LabError> {
    let dir = tempfile::tempdir().map_err(LabError::io("a temporary directory"))?;
    let disk = dir.path().join("pattern.img");
    std::fs::write(&disk, vec![0x5a; 4 << 20]).map_err(LabError::io("a disk"))?;
    let rig = Rig::of("bench-hostile", trial)?
        .hardware(|hardware| hardware.interrupts = attacks::board(device).machine())
        .with_probe()?
        .image(attacks::DISK, disk)?
        .subnet(attacks::SUBNET, false)?;
    let machine = rig.boot()?;
    let info = machine.client().machine_info()?;
    let window_ms = match &trial.work {
        Work::Procedure(procedure) => procedure.count,
        Work::Guest(_) => 1,
    };
    let neighbour = Neighbour::start(&machine, window_ms)?;
    let mut siege = Siege { machine: &machine, neighbour, hz: info.timebase_hz, events: 0, alone: 0.0 };
    // What the monitor keeps for its first VM is there from now on.
    let first = attacks::on(device, 1);
    for attack in first.iter().take(1) {
        siege.withstand(attack)?;
    }
    siege.alone = siege.peace()?;
    let mut withstood = Vec::new();
    for attack in vcpus.iter().flat_map(|vcpus| attacks::on(device, *vcpus)) {
        let what = siege.withstand(&attack)?;
        progress.say(&format!("{attack}: {what}"));
        withstood.push((attack, what));
    }
    let after = siege.peace()?;
    progress.say(&format!("the neighbour alone: {:.1} rounds in a ms before, {after:.1} after", siege.alone));
    let values = values(trial, &withstood);
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// A machine with a neighbour, under attack.
struct Siege<'a> {
    machine: &'a Running,
    neighbour: Neighbour,
    hz: u64,
    /// The first event that has not been read.
    events: u64,
    /// The neighbour's rate alone.
    alone: f64,
}

/// What was felt of an attack.
#[derive(Clone, Debug, Default, PartialEq)]
struct Withstood {
    /// Why it harmed somebody.
    harm: Vec<String>,
    /// `None`: it had ended by itself.
    kill_ms: Option<f64>,
    answer_ms: f64,
    pause_ms: f64,
    /// Of the neighbour's rate alone.
    loss: f64,
    /// The longest stretch so far, and what it was for.
    stretch_us: f64,
    place: String,
    /// Whether it came during this attack.
    is_new: bool,
}

impl std::fmt::Display for Withstood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kill_ms {
            Some(ms) => write!(f, "kill {ms:.2} ms")?,
            None => f.write_str("ended itself")?,
        }
        write!(f, ", answer {:.2} ms, pause {:.2} ms, loss {:.2} %", self.answer_ms, self.pause_ms, self.loss)?;
        if self.is_new {
            write!(f, ", stretch {:.0} us ({})", self.stretch_us, self.place)?;
        }
        self.harm.iter().try_for_each(|harm| write!(f, ", HARM: {harm}"))
    }
}

impl Siege<'_> {
    fn ms(&self, ticks: u64) -> f64 {
        1_000.0 * ratio(ticks, self.hz.max(1))
    }

    /// The neighbour alone: its rate, the median of a few.
    fn peace(&mut self) -> Result<f64, LabError> {
        let mut rates = [0.0; PEACES];
        for rate in &mut rates {
            *rate = self.neighbour.ask()?.rate();
        }
        rates.sort_by(f64::total_cmp);
        Ok(rates[PEACES / 2])
    }

    /// Asks the monitor a few times; the longest time between two answers.
    fn ask(&self) -> Result<u64, LabError> {
        let mut longest = 0;
        let mut last = self.machine.stats()?.now_ticks;
        for _ in 0..QUESTIONS {
            let now = self.machine.stats()?.now_ticks;
            longest = longest.max(now.saturating_sub(last));
            last = now;
        }
        Ok(longest)
    }

    fn withstand(&mut self, attack: &Attack) -> Result<Withstood, LabError> {
        let spec = attack.spec()?;
        let before = self.machine.stats()?;
        self.machine.start(&spec)?;
        let mut seen = Withstood::default();
        if !self.has_begun(attack, &spec.name)? {
            seen.harm.push("it never began".to_owned());
        }
        let machine = self.machine;
        let pulse = self.neighbour.ask()?;
        let longest = self.ask()?;
        let ordered = machine.stats()?.now_ticks;
        let killed = machine.client().kill_vm(&spec.name);
        let ended = machine.end_of(&spec.name)?;
        let end = self.end_of(&ended, &mut seen)?;
        if killed.is_ok() {
            seen.kill_ms = Some(self.ms(end.saturating_sub(ordered)));
        }
        seen.answer_ms = self.ms(longest);
        seen.pause_ms = self.ms(pulse.gap_ticks);
        seen.loss = if self.alone > 0.0 { 100.0 * (1.0 - pulse.rate() / self.alone) } else { 0.0 };
        if !pulse.is_right {
            seen.harm.push("the neighbour's numbers are wrong".to_owned());
        }
        if seen.kill_ms.is_some_and(|ms| ms > LATE_MS) || seen.answer_ms > LATE_MS {
            seen.harm.push("it was late".to_owned());
        }
        self.note_stretches(&before, &mut seen)?;
        Ok(seen)
    }

    /// Waits until a guest attacks, or has ended by what it did.
    fn has_begun(&self, attack: &Attack, vm: &Name) -> Result<bool, LabError> {
        let says = format!("HOSTILE {}", attack.behaviour());
        let begin = self.machine.stats()?.now_ticks;
        for _ in 0..LOOKS {
            let stats = self.machine.client().vm_stats(vm)?;
            let exits: u64 = stats.vcpus.iter().map(|vcpu| vcpu.exits.total()).sum();
            let is_slow = stats.now_ticks.saturating_sub(begin) > AT_WORK_MS * self.hz / 1_000;
            if is_slow && (attack.is_on_console() || self.machine.console(vm)?.contains(&says)) {
                return Ok(true);
            }
            if exits > AT_WORK && (attack.is_on_console() || self.machine.console(vm)?.contains("HOSTILE at work")) {
                return Ok(true);
            }
            if has_ended(self.machine, vm)? {
                return Ok(attack.is_on_console() || self.machine.console(vm)?.contains(&says));
            }
            thread::sleep(BETWEEN);
        }
        Ok(false)
    }

    /// When it ended; what is wrong with how it did.
    fn end_of(&mut self, ended: &Ended, seen: &mut Withstood) -> Result<u64, LabError> {
        match &ended.summary.reason {
            Some(reason) if Attack::may_end(reason) => {}
            reason => seen.harm.push(format!("it ended with {reason:?}")),
        }
        let mut end = 0;
        loop {
            let batch = self.machine.client().events(self.events)?;
            if batch.events.is_empty() {
                return Ok(end);
            }
            self.events = batch.next;
            for event in batch.events {
                match event.kind {
                    EventKind::VmStopped { .. } => end = event.ticks,
                    EventKind::PagesLost { pages } => seen.harm.push(format!("{pages} pages were lost")),
                    _ => {}
                }
            }
        }
    }

    fn note_stretches(&self, before: &MachineStats, seen: &mut Withstood) -> Result<(), LabError> {
        let after = self.machine.stats()?;
        let longest = |stats: &MachineStats| stats.harts.iter().map(|hart| hart.stretches.worst_ticks).max();
        if let Some(hart) = after.harts.iter().max_by_key(|hart| hart.stretches.worst_ticks) {
            seen.stretch_us = 1_000.0 * self.ms(hart.stretches.worst_ticks);
            seen.place = hart.stretches.worst_place.to_string();
        }
        seen.is_new = longest(&after) > longest(before);
        Ok(())
    }
}

fn has_ended(machine: &Running, vm: &Name) -> Result<bool, LabError> {
    Ok(machine.client().vm(vm)?.state == VmState::Stopped)
}

/// The figures of a trial.
fn values(trial: &Trial, withstood: &[(Attack, Withstood)]) -> Vec<Value> {
    let name = |part: &str| figure(&trial.name, part);
    let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let samples = u64::try_from(withstood.len()).unwrap_or(u64::MAX);
    let worst = |part: &str, unit: &str, of: &dyn Fn(&Attack, &Withstood) -> Option<f64>| {
        let numbers = withstood.iter().filter_map(|(attack, what)| Some((attack, of(attack, what)?)));
        let (attack, number) = numbers.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some(Value { note: attack.to_string(), ..Value::new(&name(part), number, unit, samples) })
    };
    let harmful: Vec<_> = withstood.iter().filter(|(_, what)| !what.harm.is_empty()).collect();
    let harm = harmful.iter().map(|(attack, what)| format!("{attack}: {}", what.harm.join(", ")));
    let (is_shared, mut values) = (trial.machine.harts() == 1, Vec::new());
    values.push(Value::new(&name("attacks"), count(withstood.len()), "attacks", samples));
    values.push(Value {
        note: harm.collect::<Vec<_>>().join("; "),
        ..Value::new(&name("harmful"), count(harmful.len()), "attacks", samples)
    });
    values.push(stretch(&name("stretch"), withstood));
    // Of attacks that ended by themselves there is none.
    values.extend(worst("kill", "ms", &|_, what| what.kill_ms));
    values.extend(worst("answer", "ms", &|_, what| Some(what.answer_ms)));
    if is_shared {
        let above = |attack: &Attack, what: &Withstood| {
            let vcpus = f64::from(attack.vcpus);
            Some(what.loss - 100.0 * vcpus / (vcpus + 1.0))
        };
        values.extend(worst("loss_shared", "%", &above));
    } else {
        values.extend(worst("pause", "ms", &|_, what| Some(what.pause_ms)));
        values.extend(worst("loss", "%", &|_, what| Some(what.loss)));
    }
    values
}

/// The longest stretch, and the attack during which it came: none, if it came before them.
fn stretch(name: &str, withstood: &[(Attack, Withstood)]) -> Value {
    let Some((_, last)) = withstood.last() else { return Value::missing(name, "there was no attack") };
    let during = withstood.iter().rfind(|(_, what)| what.is_new);
    let during = during.map_or_else(|| "before the attacks".to_owned(), |(attack, _)| attack.to_string());
    Value { note: format!("{}, {during}", last.place), ..Value::new(name, last.stretch_us, "us", 1) }
}
