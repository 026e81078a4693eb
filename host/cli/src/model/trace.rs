//! Exits as the trace rings of vCPUs hold them.

use control::ExitTrace;
use serde::Serialize;

use super::seconds;

/// The latest exits of a vCPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VcpuTraceView {
    /// Its index.
    pub vcpu: u16,
    /// Exits before those here.
    pub earlier: u64,
    /// Oldest first.
    pub exits: Vec<ExitRecordView>,
}

/// One exit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExitRecordView {
    /// When, in seconds of the machine's clock.
    pub time_s: f64,
    /// Why: a word.
    pub cause: String,
    /// `scause`.
    pub scause: u64,
    /// The guest's program counter.
    pub pc: u64,
    /// `stval`.
    pub stval: u64,
}

impl VcpuTraceView {
    pub fn new(vcpu: u16, trace: &ExitTrace, timebase_hz: u64) -> Self {
        let exits = trace.exits.iter().map(|exit| ExitRecordView {
            time_s: seconds(exit.ticks, timebase_hz),
            cause: cause_label(exit.scause),
            scause: exit.scause,
            pc: exit.pc,
            stval: exit.stval,
        });
        Self { vcpu, earlier: trace.lost, exits: exits.collect() }
    }
}

/// A trap's cause in words (Privileged Architecture, table "Supervisor cause register values after trap", with the
/// hypervisor extension's).
pub fn cause_label(scause: u64) -> String {
    const INTERRUPT: u64 = 1 << 63;
    let known = match scause {
        0 => "fetch-misaligned",
        1 => "fetch-access",
        2 => "illegal-instruction",
        3 => "breakpoint",
        4 => "load-misaligned",
        5 => "load-access",
        6 => "store-misaligned",
        7 => "store-access",
        8 => "ecall-user",
        10 => "ecall-supervisor",
        20 => "fetch-guest-page",
        21 => "load-guest-page",
        22 => "virtual-instruction",
        23 => "store-guest-page",
        _ => match scause ^ INTERRUPT {
            1 => "ipi",
            5 => "timer",
            9 => "external",
            12 => "guest-external",
            _ => return format!("cause {scause:#x}"),
        },
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_have_names() {
        assert_eq!(cause_label(21), "load-guest-page");
        assert_eq!(cause_label(1 << 63 | 5), "timer");
        assert_eq!(cause_label(1 << 63 | 77), "cause 0x800000000000004d");
        assert_eq!(cause_label(63), "cause 0x3f");
    }
}
