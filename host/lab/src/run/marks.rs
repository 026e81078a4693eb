//! What the machine model has written at the marks of a workload.
//!
//! A line of JSON for each mark, with totals since the machine started:
//! ```text
//! {"mark": 2, "hart": 0, "now_ps": 81250000, "harts": [{"modes": {"u": COUNTERS, "s": COUNTERS, ...}}, ...]}
//! COUNTERS = {"instructions": 1, "time_ps": 1, "stall_ps": {"l2": 1, "walk": 1, ...}, "walk_reads": 1, ...}
//! ```
//! Modes and stalls are those of crate `model-file`. One that is not there has counted nothing.

use std::collections::BTreeMap;
use std::path::Path;

use machine_model::MarkLocks;
use model_file::{Mode, STALLS, Stall};
use serde::Deserialize;

use crate::LabError;
use crate::compare::ratio;
use crate::plan::{Mark, Phase, System};
use crate::store::Value;

/// A line.
#[derive(Debug, Deserialize)]
struct Line {
    mark: u16,
    hart: usize,
    /// The time of the hart that came by.
    #[serde(rename = "now_ps", alias = "time_ps")]
    time_ps: u64,
    harts: Vec<Hart>,
}

/// A hart at a mark.
#[derive(Debug, Deserialize)]
struct Hart {
    modes: BTreeMap<String, ModeLine>,
    /// What of it was for locks, where the guest has told the model which code that is.
    #[serde(default)]
    locks: BTreeMap<String, MarkLocks>,
}

/// Totals of one mode of one hart, as they are written.
#[derive(Debug, Deserialize)]
struct ModeLine {
    instructions: u64,
    time_ps: u64,
    #[serde(default)]
    stall_ps: BTreeMap<String, u64>,
    /// How many stalls there were.
    #[serde(default)]
    stalls: BTreeMap<String, u64>,
    #[serde(default)]
    walk_reads: u64,
}

/// Totals of one mode of one hart.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    instructions: u64,
    time_ps: u64,
    stall_ps: [u64; STALLS],
    stalls: [u64; STALLS],
    walk_reads: u64,
}

impl From<&ModeLine> for Counters {
    fn from(line: &ModeLine) -> Self {
        let by_kind = |map: &BTreeMap<String, u64>| Stall::ALL.map(|kind| map.get(kind.name()).copied().unwrap_or(0));
        let (stall_ps, stalls) = (by_kind(&line.stall_ps), by_kind(&line.stalls));
        Self { instructions: line.instructions, time_ps: line.time_ps, stall_ps, stalls, walk_reads: line.walk_reads }
    }
}

/// The marks of a run.
#[derive(Debug)]
pub struct Marks(Vec<Line>);

impl Marks {
    /// Reads the model's file.
    ///
    /// # Errors
    /// [`LabError::Io`], or [`LabError::Marks`] for what is no mark.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read_to_string(path).map_err(LabError::io(path.display().to_string()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, LabError> {
        let mut lines: Vec<Line> = Vec::new();
        for (number, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let bad = |why: String| LabError::Marks { line: number, why };
            let line: Line = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
            let mut modes = line.harts.iter().flat_map(|hart| &hart.modes);
            if let Some((mode, _)) = modes.clone().find(|(name, _)| mode_of(name).is_none()) {
                return Err(bad(format!("there is no mode {mode:?}")));
            }
            let known = |name: &String| Stall::ALL.iter().any(|stall| stall.name() == name);
            if let Some(stall) = modes.find_map(|(_, mode)| mode.stall_ps.keys().find(|name| !known(name))) {
                return Err(bad(format!("there is no stall {stall:?}")));
            }
            if let Some(before) = lines.last() {
                if before.harts.len() != line.harts.len() {
                    return Err(bad(format!("{} harts, {} before", line.harts.len(), before.harts.len())));
                }
                // Harts may be a little apart.
                if lines.iter().any(|before| before.hart == line.hart && before.time_ps > line.time_ps) {
                    return Err(bad("time runs backwards".to_owned()));
                }
            } else if line.harts.is_empty() {
                return Err(bad("it has no harts".to_owned()));
            }
            lines.push(line);
        }
        Ok(Self(lines))
    }

    /// `phase.total` and what it is made of, or a missing total if a mark is missing.
    ///
    /// Times are in nanoseconds. Parts are means over the harts, so that they add up to the total. A phase of several guests
    /// lasts until the last of them has set its mark.
    pub fn values(&self, phase: &Phase, system: System, guests: u16) -> Vec<Value> {
        let Some((from, to)) = self.between(phase, guests) else {
            let why = "a mark is missing: the workload did not run, or the model was off";
            return vec![Value::missing(&format!("{}.total", phase.name), why)];
        };
        let owners = Owners::of(from, to, system);
        let harts = u64::try_from(to.harts.len().max(1)).unwrap_or(1);
        let value =
            |part: &str, number: f64, unit: &str| Value::new(&format!("{}.{part}", phase.name), number, unit, 1);
        let time = |part: &str, ps: u64| value(part, ratio(ps, harts * 1000), "ns");
        let mut values = vec![value("total", ratio(to.time_ps.saturating_sub(from.time_ps), 1000), "ns")];
        for (name, counters) in owners.each() {
            let stall = counters.stall_ps.iter().sum();
            values.push(time(name, counters.time_ps));
            values.push(time(&format!("{name}_busy"), counters.time_ps.saturating_sub(stall)));
            values.push(time(&format!("{name}_stall"), stall));
            values.push(value(&format!("{name}_instructions"), ratio(counters.instructions, 1), "instructions"));
        }
        // What the papers call system time.
        values.push(time("system", [owners.kernel, owners.monitor, owners.vmm].iter().map(|part| part.time_ps).sum()));
        let all = owners.all();
        for stall in Stall::ALL {
            values.push(time(&format!("stall_{}", stall.name()), all.stall_ps[stall as usize]));
        }
        // Of the misses of programs and their kernel, those that their own nodes' memory served.
        let misses = |kind: Stall| owners.user.stalls[kind as usize] + owners.kernel.stalls[kind as usize];
        let (local, remote) = (misses(Stall::Local), misses(Stall::Remote));
        if local + remote != 0 {
            values.push(value("local_share", 100.0 * ratio(local, local + remote), "%"));
        }
        values.extend(
            locks(from, to, system).iter().flat_map(|locks| locks.split(&owners)).map(|(part, ps)| time(part, ps)),
        );
        values.push(value("walk_reads", ratio(all.walk_reads, 1), "reads"));
        values.push(value("instructions", ratio(all.instructions, 1), "instructions"));
        values
    }

    /// The first line of the first mark, and of the other behind it the first, or as many as there are guests.
    fn between(&self, phase: &Phase, guests: u16) -> Option<(&Line, &Line)> {
        let (Mark::Hint(from), Mark::Hint(to)) = (phase.from, phase.to) else { return None };
        let start = self.0.iter().position(|line| line.mark == from)?;
        let mut ends = self.0.iter().skip(start).filter(|line| line.mark == to);
        let end = ends.nth(usize::from(guests.checked_sub(1)?))?;
        Some((self.0.get(start)?, end))
    }
}

/// Counters by whose they are.
#[derive(Debug, Default)]
struct Owners {
    user: Counters,
    kernel: Counters,
    /// The monitor; under KVM the host's kernel.
    monitor: Counters,
    /// KVM's user side, and whatever else the host runs.
    vmm: Counters,
    firmware: Counters,
    idle: Counters,
}

impl Owners {
    /// What was counted from one line to another.
    fn of(from: &Line, to: &Line, system: System) -> Self {
        let mut owners = Self::default();
        for (before, after) in from.harts.iter().zip(&to.harts) {
            for (name, counters) in &after.modes {
                let Some(mode) = mode_of(name) else { continue };
                let before = before.modes.get(name).map(Counters::from).unwrap_or_default();
                owners.owner(mode, system).add(Counters::from(counters).since(before));
            }
        }
        owners
    }

    const fn owner(&mut self, mode: Mode, system: System) -> &mut Counters {
        match (mode, system) {
            (Mode::Idle, _) => &mut self.idle,
            (Mode::M, _) => &mut self.firmware,
            (Mode::VU, _) | (Mode::U, System::Bare) => &mut self.user,
            (Mode::VS, _) | (Mode::S, System::Bare) => &mut self.kernel,
            (Mode::S, _) => &mut self.monitor,
            (Mode::U, _) => &mut self.vmm,
        }
    }

    const fn each(&self) -> [(&'static str, Counters); 6] {
        [
            ("user", self.user),
            ("kernel", self.kernel),
            ("monitor", self.monitor),
            ("vmm", self.vmm),
            ("firmware", self.firmware),
            ("idle", self.idle),
        ]
    }

    fn all(&self) -> Counters {
        let mut all = Counters::default();
        self.each().into_iter().for_each(|(_, counters)| all.add(counters));
        all
    }
}

/// What the workload's kernel did for its locks, on all harts. `None` where nobody has said which code that is.
fn locks(from: &Line, to: &Line, system: System) -> Option<Locks> {
    let mode = if system == System::Bare { Mode::S } else { Mode::VS };
    let of = |hart: &Hart| hart.locks.get(mode.name()).copied();
    let mut sum = None;
    for (before, after) in from.harts.iter().zip(&to.harts) {
        let Some(after) = of(after) else { continue };
        let (before, sum) = (of(before).unwrap_or_default(), sum.get_or_insert_with(MarkLocks::default));
        sum.time_ps += after.time_ps.saturating_sub(before.time_ps);
        sum.stall_ps += after.stall_ps.saturating_sub(before.stall_ps);
        sum.wait_ps += after.wait_ps.saturating_sub(before.wait_ps);
    }
    // Waiting alone tells nothing of the rest.
    sum.filter(|sum| sum.time_ps > 0).map(Locks)
}

/// What of the kernel's and of idle time was for locks.
struct Locks(MarkLocks);

impl Locks {
    /// All of it, and what remains of the parts that it was taken from.
    fn split(&self, owners: &Owners) -> [(&'static str, u64); 4] {
        let MarkLocks { time_ps, stall_ps, wait_ps } = self.0;
        let stall = owners.kernel.stall_ps.iter().sum::<u64>();
        let busy = owners.kernel.time_ps.saturating_sub(stall);
        [
            ("sync", time_ps + wait_ps),
            ("kernel_rest_busy", busy.saturating_sub(time_ps - stall_ps)),
            ("kernel_rest_stall", stall.saturating_sub(stall_ps)),
            ("idle_rest", owners.idle.time_ps.saturating_sub(wait_ps)),
        ]
    }
}

impl Counters {
    fn since(self, before: Self) -> Self {
        let since = |now: [u64; STALLS], before: [u64; STALLS]| {
            core::array::from_fn(|kind| now[kind].saturating_sub(before[kind]))
        };
        let (stall_ps, stalls) = (since(self.stall_ps, before.stall_ps), since(self.stalls, before.stalls));
        Self {
            instructions: self.instructions.saturating_sub(before.instructions),
            time_ps: self.time_ps.saturating_sub(before.time_ps),
            stall_ps,
            stalls,
            walk_reads: self.walk_reads.saturating_sub(before.walk_reads),
        }
    }

    fn add(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.time_ps += other.time_ps;
        self.stall_ps.iter_mut().zip(other.stall_ps).for_each(|(sum, more)| *sum += more);
        self.stalls.iter_mut().zip(other.stalls).for_each(|(sum, more)| *sum += more);
        self.walk_reads += other.walk_reads;
    }
}

fn mode_of(name: &str) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASE: Phase = Phase { name: "a", from: Mark::Hint(2), to: Mark::Hint(3) };

    /// A line of two harts; all counters of a hart are multiples of `n`.
    fn line(mark: u16, time_ps: u64, n: u64) -> String {
        let counters = |scale: u64| {
            let time = scale * n;
            let stall = serde_json::json!({"l2": time, "walk": 2 * time});
            serde_json::json!({"instructions": time, "time_ps": 1000 * time, "stall_ps": stall, "stalls": {}})
        };
        let first = serde_json::json!({"vu": counters(4), "vs": counters(3), "s": counters(2), "m": counters(1)});
        let second = serde_json::json!({"idle": counters(8), "u": counters(2)});
        let harts = serde_json::json!([{"node": 0, "modes": first}, {"node": 1, "modes": second}]);
        serde_json::json!({"mark": mark, "hart": 0, "now_ps": time_ps, "is_on": true, "harts": harts}).to_string()
    }

    fn numbers(marks: &Marks, system: System) -> BTreeMap<String, Option<f64>> {
        marks.values(&PHASE, system, 1).into_iter().map(|value| (value.name, value.number)).collect()
    }

    #[test]
    fn parts_add_up_to_the_total() {
        let text = [line(1, 0, 0), line(2, 10_000, 1), line(3, 110_000, 11), line(3, 900_000, 99)].join("\n");
        let marks = Marks::parse(&text).expect("all are marks");
        let vm = numbers(&marks, System::Mirrorball);
        let parts = [("total", 100.0), ("user", 20.0), ("kernel", 15.0), ("monitor", 10.0), ("firmware", 5.0)];
        for (name, number) in parts.into_iter().chain([("idle", 40.0), ("vmm", 10.0), ("user_instructions", 40.0)]) {
            assert_eq!(vm[&format!("a.{name}")], Some(number), "{name}");
        }
        let time: f64 = ["user", "kernel", "monitor", "vmm", "firmware", "idle"]
            .iter()
            .filter_map(|name| vm[&format!("a.{name}")])
            .sum();
        assert!((time - 100.0).abs() < 1e-9);
        assert_eq!((vm["a.user_stall"], vm["a.stall_l2"], vm["a.stall_walk"]), (Some(0.06), Some(0.1), Some(0.2)));
        // The same counters of a bare machine would be its own.
        let bare = numbers(&marks, System::Bare);
        assert_eq!((bare["a.user"], bare["a.kernel"], bare["a.monitor"]), (Some(30.0), Some(25.0), Some(0.0)));
    }

    #[test]
    fn missing_marks_are_told() {
        for text in [String::new(), line(2, 1, 1), [line(3, 1, 1), line(2, 2, 2)].join("\n")] {
            let values = Marks::parse(&text).expect("all are marks").values(&PHASE, System::Bare, 1);
            assert_eq!((values.len(), values[0].number), (1, None));
            assert!(values[0].note.contains("a mark is missing"));
        }
    }

    #[test]
    fn locks_are_taken_from_the_kernels_and_from_idle_time() {
        let locked = |line: &str, n: u64| {
            let mut line: serde_json::Value = serde_json::from_str(line).expect("a line");
            line["harts"][0]["locks"] =
                serde_json::json!({"vs": {"time_ps": 400 * n, "stall_ps": n, "wait_ps": 1000 * n}});
            line.to_string()
        };
        let (from, to) = (line(2, 10_000, 1), line(3, 110_000, 11));
        let text = [locked(&from, 1), locked(&to, 11)].join("\n");
        let vm = numbers(&Marks::parse(&text).expect("all are marks"), System::Mirrorball);
        assert_eq!((vm["a.sync"], vm["a.idle_rest"]), (Some(7.0), Some(35.0)));
        let parts = ["sync", "kernel_rest_busy", "kernel_rest_stall", "idle_rest"].map(|part| vm[&format!("a.{part}")]);
        let split: f64 = parts.iter().flatten().sum();
        assert!((split - 55.0).abs() < 1e-9, "kernel and idle time together: {split}");
        // On a bare machine these are somebody else's.
        assert!(!numbers(&Marks::parse(&text).expect("all are marks"), System::Bare).contains_key("a.sync"));
        assert!(
            !numbers(&Marks::parse(&[from, to].join("\n")).expect("marks"), System::Mirrorball).contains_key("a.sync")
        );
    }

    #[test]
    fn clocks_of_harts_may_be_a_little_apart() {
        let other = line(2, 9_999, 1).replace("\"hart\":0", "\"hart\":1");
        let text = [line(2, 10_000, 1), other, line(3, 110_000, 11)].join("\n");
        let total = numbers(&Marks::parse(&text).expect("all are marks"), System::Bare)["a.total"];
        assert_eq!(total, Some(100.0));
    }

    #[test]
    fn several_guests_end_with_the_last() {
        let text = [line(2, 10_000, 1), line(2, 10_500, 1), line(3, 60_000, 6), line(3, 110_000, 11)].join("\n");
        let marks = Marks::parse(&text).expect("all are marks");
        let total = |guests| marks.values(&PHASE, System::Mirrorball, guests)[0].number;
        assert_eq!([total(1), total(2), total(3), total(0)], [Some(50.0), Some(100.0), None, None]);
    }

    #[test]
    fn what_is_no_marks_file_is_refused_with_its_line() {
        let good = line(2, 10, 1);
        let cut = good[..good.len() / 2].to_owned();
        let no_harts = r#"{"mark":1,"hart":0,"now_ps":1,"harts":[]}"#.to_owned();
        let fewer = r#"{"mark":3,"hart":0,"now_ps":20,"harts":[{"modes":{}}]}"#.to_owned();
        let (mode, stall) = (good.replace("\"vu\"", "\"hyper\""), good.replace("\"walk\"", "\"walks\""));
        for (lines, number, why) in [
            (vec![good.clone(), cut], 2, "EOF"),
            (vec![no_harts], 1, "no harts"),
            (vec![good.clone(), fewer], 2, "1 harts, 2 before"),
            (vec![mode], 1, "no mode \"hyper\""),
            (vec![stall], 1, "no stall \"walks\""),
            (vec![good.clone(), line(3, 9, 2)], 2, "backwards"),
            (vec!["MARK 1 0 0 0".to_owned()], 1, "expected"),
        ] {
            let error = Marks::parse(&lines.join("\n")).expect_err("it was taken").to_string();
            assert!(error.contains(&format!("line {number}")) && error.contains(why), "{error:?} has no {why:?}");
        }
    }
}
