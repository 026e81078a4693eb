//! The supervisor binary interface (SBI specification 2.0). The crate `rustsbi` decodes calls and answers BASE; here is what
//! the calls do.

pub mod console;
pub mod fence;
pub mod fwft;
pub mod hsm;
pub mod ipi;
pub mod own;
pub mod pmu;
pub mod reset;
pub mod time;

use rustsbi::RustSBI;

use super::trap::Frame;

/// The fields' names choose the extensions: `rustsbi` ignores others silently.
#[derive(RustSBI)]
struct Firmware {
    console: console::Console,
    fence: fence::Fences,
    hsm: hsm::Harts,
    ipi: ipi::Interrupts,
    pmu: pmu::Counters,
    reset: reset::Reset,
    timer: time::Timer,
}

static FIRMWARE: Firmware = Firmware {
    console: console::Console,
    fence: fence::Fences,
    hsm: hsm::Harts,
    ipi: ipi::Interrupts,
    pmu: pmu::Counters,
    reset: reset::Reset,
    timer: time::Timer,
};

const BASE: u64 = 0x10;
const PROBE_EXTENSION: u64 = 3;

/// Answers a call.
pub fn call(frame: &mut Frame) {
    let [a0, a1, a2, a3, a4, a5, function, extension] = frame.saved.arguments;
    let answer = if extension == faults::sbi::EID {
        own::call(function, [a0, a1, a2])
    } else if extension == fwft::EID {
        fwft::call(function, [a0, a1, a2])
    } else if extension == BASE && function == PROBE_EXTENSION && [faults::sbi::EID, fwft::EID].contains(&a0) {
        rustsbi::SbiRet::success(1)
    } else {
        let arguments = [a0, a1, a2, a3, a4, a5].map(|argument| argument as usize);
        FIRMWARE.handle_ecall(extension as usize, function as usize, arguments)
    };
    frame.saved.arguments[0] = answer.error as u64;
    frame.saved.arguments[1] = answer.value as u64;
}
