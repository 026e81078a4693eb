//! What an experiment gives: JSON for programs, a table for people, charts, and a page of all.

mod figure;
mod page;
mod table;

use std::time::SystemTime;

use control::MachineInfo;
use serde::{Serialize, Serializer};

pub use figure::{AtMost, Figure, Goal, Goals, Paper, Target};
pub use page::{page, write};

use crate::plan::Size;
use crate::plot::Chart;

/// What an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The experiment.
    pub name: String,
    /// The machine that it ran on.
    pub machine: String,
    /// The commit that the monitor was built from, `-dirty` behind it if the tree was not as committed.
    pub commit: String,
    /// The figures, those with a target first in the order of the list.
    pub figures: Vec<Figure>,
    /// How much of it ran.
    #[serde(serialize_with = "size_label")]
    pub size: Size,
    /// Trials that failed, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// When the newest stored result was measured; `None` of a run that has just ended.
    #[serde(skip)]
    pub measured_at: Option<SystemTime>,
    /// What is drawn.
    #[serde(skip)]
    pub charts: Vec<Chart>,
}

fn size_label<S: Serializer>(size: &Size, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(size.label())
}

impl Report {
    /// Another figure, in its place among the goals.
    pub fn add(&mut self, figure: Option<Figure>, goals: Goals<'_>) {
        self.figures.extend(figure);
        self.figures.sort_by_key(|figure| goals.place(&figure.id));
    }

    /// One object in JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The figure of this id.
    #[must_use]
    pub fn figure(&self, id: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.id == id)
    }
}

/// The machine in a few words.
#[must_use]
pub fn describe(info: &MachineInfo) -> String {
    let (nodes, harts) = (info.nodes.len(), info.harts.len());
    format!("{}: {nodes} nodes, {harts} harts, {}, {}", info.model, info.monitor.gstage_mode, info.interrupts)
}

/// The commit in a monitor's version, as `0.1.0 (0123456789ab)` has it.
#[must_use]
pub fn commit_of(version: &str) -> String {
    let commit = version.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    commit.unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::{FirmwareInfo, InterruptArchitecture, MonitorInfo, Name};

    #[test]
    fn the_machine_is_described_in_words() {
        let info = MachineInfo {
            name: Name::new("m").unwrap(),
            model: "riscv-virtio,qemu".to_owned(),
            nodes: Vec::new(),
            distances: Vec::new(),
            harts: Vec::new(),
            disks: Vec::new(),
            devices: Vec::new(),
            timebase_hz: 10_000_000,
            now_ticks: 0,
            firmware: FirmwareInfo { sbi_version: 0x0200_0000, implementation: 1, implementation_version: 0 },
            monitor: MonitorInfo {
                version: "0.1.0 (0123456789ab)".to_owned(),
                text_bytes: 0,
                rodata_bytes: 0,
                data_bytes: 0,
                gstage_mode: "Sv39x4".to_owned(),
                vmid_bits: 14,
            },
            interrupts: InterruptArchitecture::Aia,
            modules: Vec::new(),
        };
        assert_eq!(describe(&info), "riscv-virtio,qemu: 0 nodes, 0 harts, Sv39x4, AIA");
        assert_eq!(commit_of(&info.monitor.version), "0123456789ab");
    }
}
