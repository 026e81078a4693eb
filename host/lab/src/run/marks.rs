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
    /// The time of the hart that came by.
    #[serde(rename = "now_ps", alias = "time_ps")]
    time_ps: u64,
    harts: Vec<Hart>,
}

/// A hart at a mark.
#[derive(Debug, Deserialize)]
struct Hart {
    modes: BTreeMap<String, ModeLine>,
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
                if before.time_ps > line.time_ps {
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
    /// Times are in nanoseconds. Parts are means over the harts, so that they add up to the total.
    pub fn values(&self, phase: &Phase, system: System) -> Vec<Value> {
        let Some((from, to)) = self.between(phase) else {
            let why = "a mark is missing: the workload did not run, or the model was off";
            return vec![Value::missing(&format!("{}.total", phase.name), why)];
        };
        let owners = Owners::of(from, to, system);
        let harts = u64::try_from(to.harts.len().max(1)).unwrap_or(1);
        let value =
            |part: &str, number: f64, unit: &str| Value::new(&format!("{}.{part}", phase.name), number, unit, 1);
        let time = |part: &str, ps: u64| value(part, ratio(ps, harts * 1000), "ns");
        let mut values = vec![value("total", ratio(to.time_ps - from.time_ps, 1000), "ns")];
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
        values.push(value("walk_reads", ratio(all.walk_reads, 1), "reads"));
        values.push(value("instructions", ratio(all.instructions, 1), "instructions"));
        values
    }

    /// The first line of the first mark, and the first of the other behind it.
    fn between(&self, phase: &Phase) -> Option<(&Line, &Line)> {
        let (Mark::Hint(from), Mark::Hint(to)) = (phase.from, phase.to) else { return None };
        let start = self.0.iter().position(|line| line.mark == from)?;
        let end = self.0.iter().skip(start).find(|line| line.mark == to)?;
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
        marks.values(&PHASE, system).into_iter().map(|value| (value.name, value.number)).collect()
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
            let values = Marks::parse(&text).expect("all are marks").values(&PHASE, System::Bare);
            assert_eq!((values.len(), values[0].number), (1, None));
            assert!(values[0].note.contains("a mark is missing"));
        }
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
