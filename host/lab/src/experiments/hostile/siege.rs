//! The measurement of `hostile`: a machine, a neighbour, and one attack after the other.
//!
//! All times are the machine's. The host cannot read its clock, so each is bounded by what the monitor says of itself:
//! - *Answer*: the time between the answers to two questions of which the second is asked when the first has been answered. The way
//!   to the host and back is in it.
//! - *Kill*: from the answer before the order to the event of the VM's end, which comes after its pages have been counted. The way of
//!   the answer and of the order are in it.
//! - *Pause* and *loss*: what the neighbour says, by its own clock, of some milliseconds in which nobody asks the monitor for anything:
//!   the longest time between two rounds of its work, and its rounds beside those that it did alone.
//! - *Stretch*: the monitor's histogram: the longest one if it has grown meanwhile, else at most the limit of the longest class that has.

use std::thread;
use std::time::Duration;

use control::{EventKind, MachineStats, Name, STRETCH_CLASSES, STRETCH_LIMITS_US, VmState};

use crate::LabError;
use crate::attacks::{self, Attack, Neighbour};
use crate::compare::ratio;
use crate::plan::{Size, Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Ended, Rig, Running};
use crate::run::{self, Progress};
use crate::store::{Measured, Parts, Value};

/// vCPUs of attackers where each has a hart for itself, and where all share one.
const APART: [u16; 3] = [1, 2, 4];
const APART_QUICK: [u16; 2] = [2, 4];
const SHARED: u16 = 2;
/// What is done from a hart that is shared, in the small size: what costs the neighbour most, and something else.
const SHARED_QUICK: [(&str, [&str; 2]); 7] = [
    ("block", ["refill", "wipe"]),
    ("net", ["segments", "tiny"]),
    ("console", ["refill", "flood"]),
    ("balloon", ["long", "report"]),
    ("imsic", ["own", "wakes"]),
    ("sbi", ["calls", "fences"]),
    ("memory", ["ping-pong", "tables"]),
];
/// Between two harms of one attack.
const HARMS: &str = "; ";
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
    let attacks = APART.iter().flat_map(|vcpus| attacks::on(&trial.name, *vcpus)).collect();
    siege(trial, Size::Full, progress, &trial.name, attacks)
}

/// The same, each behaviour once.
///
/// # Errors
/// As [`apart`].
pub fn apart_quick(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let by_turns = |(attack, vcpus)| Attack { vcpus, ..attack };
    let attacks = attacks::on(&trial.name, 1).into_iter().zip(APART_QUICK.into_iter().cycle()).map(by_turns).collect();
    siege(trial, Size::Quick, progress, &trial.name, attacks)
}

/// All vCPUs on one hart.
///
/// # Errors
/// As [`apart`].
pub fn shared(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let device = shared_device(trial);
    siege(trial, Size::Full, progress, device, attacks::on(device, SHARED))
}

/// The same, a few of them.
///
/// # Errors
/// As [`apart`].
pub fn shared_quick(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let device = shared_device(trial);
    let few = SHARED_QUICK.iter().find(|(known, _)| *known == device).map_or(&[][..], |(_, few)| few);
    let attacks = attacks::on(device, SHARED).into_iter().filter(|attack| few.contains(&attack.behaviour)).collect();
    siege(trial, Size::Quick, progress, device, attacks)
}

/// Whether a device is attacked from a shared hart in the small size.
pub fn is_shared_in_quick(device: &str) -> bool {
    SHARED_QUICK.iter().any(|(known, _)| *known == device)
}

fn shared_device(trial: &Trial) -> &str {
    trial.name.strip_prefix("shared-").unwrap_or(&trial.name)
}

/// The name of a trial's figure.
pub fn figure(trial: &str, part: &str) -> String {
    format!("{}_{part}", trial.replace('-', "_"))
}

/// All of the attacks, those that have not been withstood yet on a machine of their own.
fn siege(
    trial: &Trial,
    size: Size,
    progress: &Progress,
    device: &str,
    attacks: Vec<Attack>,
) -> Result<Measured, LabError> {
    let parts = run::parts("hostile", size, trial)?;
    let known = |attack: Attack| {
        let part = parts.find(&attack.to_string());
        (attack, part)
    };
    let (done, rest): (Vec<_>, Vec<_>) = attacks.into_iter().map(known).partition(|(_, part)| part.is_some());
    if !done.is_empty() {
        progress.note(&format!("{}: {} attacks as stored", trial.label(), done.len()));
    }
    let mut withstood: Vec<_> = done.into_iter().filter_map(|(attack, part)| Some((attack, part?))).collect();
    let rest: Vec<_> = rest.into_iter().map(|(attack, _)| attack).collect();
    if !rest.is_empty() {
        withstood.extend(withstand_all(trial, device, &rest, progress, &parts)?);
    }
    let Some((_, first)) = withstood.first() else { return Ok(Measured::default()) };
    let (machine, commit) = (first.machine.clone(), first.commit.clone());
    let withstood: Vec<_> = withstood.iter().map(|(attack, part)| (*attack, Withstood::of_part(part))).collect();
    Ok(Measured { machine, commit, values: values(trial, &withstood) })
}

fn withstand_all(
    trial: &Trial,
    device: &str,
    attacks: &[Attack],
    progress: &Progress,
    parts: &Parts,
) -> Result<Vec<(Attack, Measured)>, LabError> {
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
    for attack in attacks {
        let what = siege.withstand(attack)?;
        progress.say(&format!("{attack}: {what}"));
        let part =
            Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values: what.to_values() };
        parts.keep(&attack.to_string(), &part)?;
        withstood.push((*attack, part));
    }
    let after = siege.peace()?;
    progress.say(&format!("the neighbour alone: {:.1} rounds in a ms before, {after:.1} after", siege.alone));
    Ok(withstood)
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
    /// The longest stretch meanwhile, and what it was for. Where one before was longer, it is at most this.
    stretch_us: f64,
    place: String,
}

impl Withstood {
    /// As it is stored.
    fn to_values(&self) -> Vec<Value> {
        let ms = |name: &str, number: f64| Value::new(name, number, "ms", 1);
        let mut values = vec![
            Value {
                note: self.harm.join(HARMS),
                ..Value::new("harm", f64::from(u8::from(!self.harm.is_empty())), "", 1)
            },
            ms("answer", self.answer_ms),
            ms("pause", self.pause_ms),
            Value::new("loss", self.loss, "%", 1),
            Value { note: self.place.clone(), ..Value::new("stretch", self.stretch_us, "us", 1) },
        ];
        values.extend(self.kill_ms.map(|number| ms("kill", number)));
        values
    }

    fn of_part(part: &Measured) -> Self {
        let number = |name: &str| part.number(name).ok();
        let note = |name: &str| part.value(name).map(|value| value.note.clone()).unwrap_or_default();
        let harm = note("harm");
        Self {
            harm: harm.split(HARMS).filter(|harm| !harm.is_empty()).map(str::to_owned).collect(),
            kill_ms: number("kill"),
            answer_ms: number("answer").unwrap_or(f64::INFINITY),
            pause_ms: number("pause").unwrap_or(f64::INFINITY),
            loss: number("loss").unwrap_or(100.0),
            stretch_us: number("stretch").unwrap_or(f64::INFINITY),
            place: note("stretch"),
        }
    }
}

impl std::fmt::Display for Withstood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kill_ms {
            Some(ms) => write!(f, "kill {ms:.2} ms")?,
            None => f.write_str("ended itself")?,
        }
        write!(f, ", answer {:.2} ms, pause {:.2} ms, loss {:.2} %", self.answer_ms, self.pause_ms, self.loss)?;
        write!(f, ", stretch {:.0} us {}", self.stretch_us, self.place)?;
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
        for (hart, old) in after.harts.iter().zip(&before.harts) {
            let (worst, new) = (hart.stretches.worst_ticks, &hart.stretches.counts);
            let us = if worst > old.stretches.worst_ticks {
                1_000.0 * self.ms(worst)
            } else {
                longest(new, &old.stretches.counts).min(1_000.0 * self.ms(worst))
            };
            if us > seen.stretch_us {
                seen.stretch_us = us;
                let is_exact = worst > old.stretches.worst_ticks;
                seen.place = if is_exact { hart.stretches.worst_place.to_string() } else { "at most".to_owned() };
            }
        }
        Ok(())
    }
}

/// The limit of the longest class that has more stretches than before, in microseconds.
fn longest(after: &[u64; STRETCH_CLASSES], before: &[u64; STRETCH_CLASSES]) -> f64 {
    let limits = STRETCH_LIMITS_US.iter().map(|limit| f64::from(*limit)).chain([f64::INFINITY]);
    let grown = after.iter().zip(before).zip(limits).filter(|((after, before), _)| after > before);
    grown.map(|(_, limit)| limit).last().unwrap_or(0.0)
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
    values.extend(
        worst("stretch", "us", &|_, what| Some(what.stretch_us))
            .map(|value| Value { note: with_place(&value.note, withstood), ..value }),
    );
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
    // Each attack by its longest stretch; the rest in words.
    let trial = trial.name.split_once('-').map_or("", |_| "shared-");
    values.extend(withstood.iter().map(|(attack, what)| Value {
        note: what.to_string(),
        ..Value::new(&format!("attack.{trial}{attack}"), what.stretch_us, "us", 1)
    }));
    values
}

/// The attack with what its longest stretch was for.
fn with_place(attack: &str, withstood: &[(Attack, Withstood)]) -> String {
    let place = withstood.iter().find(|(known, _)| known.to_string() == attack).map_or("", |(_, what)| &what.place);
    format!("{place}, {attack}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_withstood_is_read_as_it_was_kept() {
        let harm = vec!["it was late".to_owned(), "3 pages were lost".to_owned()];
        let first = Withstood { harm, kill_ms: Some(3.5), loss: 67.0, place: "clients".into(), ..Withstood::default() };
        let second = Withstood { answer_ms: 1.5, pause_ms: 0.1, stretch_us: 900.0, ..Withstood::default() };
        for what in [first, second] {
            let part = Measured { values: what.to_values(), ..Measured::default() };
            assert!(part.is_complete());
            assert_eq!(Withstood::of_part(&part), what);
        }
    }

    #[test]
    fn a_stretch_is_told_by_the_longest_class_that_grew() {
        let before = [5; STRETCH_CLASSES];
        let mut after = before;
        assert!(longest(&after, &before).abs() < 1e-9);
        after[0] += 1;
        after[6] += 1;
        assert!((longest(&after, &before) - 500.0).abs() < 1e-9);
        after[STRETCH_CLASSES - 1] += 1;
        assert!(longest(&after, &before).is_infinite());
    }

    #[test]
    fn the_small_size_has_attacks_that_there_are() {
        for (device, behaviours) in SHARED_QUICK {
            let all = attacks::on(device, SHARED);
            assert!(behaviours.iter().all(|one| all.iter().any(|attack| attack.behaviour == *one)), "{device}");
        }
    }
}
