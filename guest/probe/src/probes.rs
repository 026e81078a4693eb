//! The checks. Each is a function that returns why it failed.

use crate::{
    console::println,
    cpu,
    entry::{self, SEEN},
    figures, sbi,
    tree::Machine,
};
use core::sync::atomic::{AtomicU64, Ordering};

type Outcome = Result<(), &'static str>;
type Probe = fn(&Machine, u64) -> Outcome;

const PROBES: &[(&str, Probe)] = &[
    ("sbi-base", sbi_base),
    ("sbi-errors", sbi_errors),
    ("timer", timer),
    ("wfi-timer", wfi_timer),
    ("ipi", ipi),
    ("hsm", hsm),
    ("rfence", rfence),
    ("fp", floating_point),
    ("memory", memory),
    ("wild-mmio", wild_mmio),
    ("illegal-csr", illegal_csr),
    ("devices", devices),
];

/// Runs what the command line selects.
pub fn run(hart: u64, machine: &Machine) {
    if let Some(figure) = argument(machine, "figure=") {
        let count = argument(machine, "n=").and_then(|text| text.parse().ok()).unwrap_or(1_000);
        figures::run(figure, machine, hart, count);
        return;
    }
    let selected = argument(machine, "probe=");
    let (mut passed, mut failed) = (0, 0);
    for (name, probe) in PROBES {
        if selected.is_some_and(|list| !list.split(',').any(|wanted| wanted == *name)) {
            continue;
        }
        match probe(machine, hart) {
            Ok(()) => {
                passed += 1;
                println!("PROBE {name} ok");
            }
            Err(why) => {
                failed += 1;
                println!("PROBE {name} FAILED: {why}");
            }
        }
    }
    println!("PROBES passed={passed} failed={failed}");
}

fn argument(machine: &Machine, key: &str) -> Option<&'static str> {
    machine.bootargs.split(' ').find_map(|word| word.strip_prefix(key))
}

fn check(condition: bool, why: &'static str) -> Outcome {
    if condition { Ok(()) } else { Err(why) }
}

/// Waits for `condition`, at most about a second of guest time.
fn wait_for(condition: impl Fn() -> bool) -> bool {
    let begin = cpu::time();
    while !condition() {
        if cpu::time() - begin > 20_000_000 {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

const NOT_SUPPORTED: i64 = -2;
const INVALID_PARAM: i64 = -3;
const ALREADY_AVAILABLE: i64 = -6;

fn sbi_base(_: &Machine, _: u64) -> Outcome {
    let (error, version) = sbi::spec_version();
    check(error == 0 && version >> 24 >= 1, "spec version below 1.0")?;
    check(sbi::call(0x10, 3, [0x48_534D, 0, 0, 0, 0]) == (0, 1), "HSM is not offered")?;
    check(sbi::call(0x10, 3, [0x1234_5678, 0, 0, 0, 0]) == (0, 0), "an extension that nobody has is offered")
}

fn sbi_errors(machine: &Machine, hart: u64) -> Outcome {
    check(sbi::call(0x1234_5678, 0, [0; 5]).0 == NOT_SUPPORTED, "unknown extension")?;
    check(sbi::call(0x48_534D, 99, [0; 5]).0 == NOT_SUPPORTED, "unknown HSM function")?;
    check(sbi::hart_status(4_000).0 == INVALID_PARAM, "status of a hart that is not there")?;
    check(sbi::hart_start(4_000, 0x8020_0000, 0) == INVALID_PARAM, "start of a hart that is not there")?;
    check(sbi::hart_start(hart, 0x8020_0000, 0) == ALREADY_AVAILABLE, "start of the running hart")?;
    check(sbi::send_ipi(1, machine.harts + 1_000) == INVALID_PARAM, "IPI to a hart that is not there")
}

fn timer(_: &Machine, hart: u64) -> Outcome {
    let seen = &SEEN[hart as usize].interrupts[5];
    let before = seen.load(Ordering::SeqCst);
    cpu::set_stimecmp(cpu::time() + 1_000);
    cpu::set_sie(cpu::TIMER);
    cpu::interrupts(true);
    let came = wait_for(|| seen.load(Ordering::SeqCst) == before + 1);
    cpu::interrupts(false);
    cpu::set_sie(0);
    check(came, "the timer interrupt did not come")
}

fn wfi_timer(_: &Machine, hart: u64) -> Outcome {
    let seen = &SEEN[hart as usize].interrupts[5];
    cpu::set_sie(cpu::TIMER);
    for _ in 0..20 {
        let before = seen.load(Ordering::SeqCst);
        let deadline = cpu::time() + 5_000;
        cpu::set_stimecmp(deadline);
        // Interrupts are off in between: WFI has to return although the interrupt is not taken.
        cpu::wfi();
        check(cpu::time() >= deadline, "WFI came back before the deadline with nothing pending")?;
        cpu::interrupts(true);
        cpu::interrupts(false);
        check(seen.load(Ordering::SeqCst) == before + 1, "WFI came back without the interrupt")?;
    }
    cpu::set_sie(0);
    Ok(())
}

fn ipi(_: &Machine, hart: u64) -> Outcome {
    let seen = &SEEN[hart as usize].interrupts[1];
    let before = seen.load(Ordering::SeqCst);
    cpu::set_sie(cpu::SOFTWARE);
    check(sbi::send_ipi(1, hart) == 0, "send_ipi failed")?;
    cpu::interrupts(true);
    let came = wait_for(|| seen.load(Ordering::SeqCst) == before + 1);
    cpu::interrupts(false);
    cpu::set_sie(0);
    check(came, "the IPI to oneself did not come")
}

static PINGS: AtomicU64 = AtomicU64::new(0);
static FENCES: AtomicU64 = AtomicU64::new(0);

/// A started hart: counts the IPIs that it gets, stops at the third.
extern "C" fn echo() -> ! {
    let me = cpu::this_hart();
    cpu::set_sie(cpu::SOFTWARE);
    PINGS.fetch_add(1, Ordering::SeqCst);
    for wanted in 1..=3 {
        while SEEN[me].interrupts[1].load(Ordering::SeqCst) % 3 != wanted % 3 {
            cpu::interrupts(true);
            cpu::interrupts(false);
            cpu::wfi();
        }
        PINGS.fetch_add(1, Ordering::SeqCst);
    }
    sbi::hart_stop();
    println!("PROBE hsm FAILED: hart_stop returned");
    sbi::shutdown(true)
}

fn hsm(machine: &Machine, hart: u64) -> Outcome {
    let Some(other) = (0..machine.harts).find(|other| *other != hart) else { return Ok(()) };
    for _ in 0..3 {
        PINGS.store(0, Ordering::SeqCst);
        check(sbi::hart_status(other) == (0, 1), "the other hart is not stopped")?;
        check(entry::start_hart(other, echo) == 0, "hart_start failed")?;
        for count in 1..=3 {
            check(wait_for(|| PINGS.load(Ordering::SeqCst) == count), "the other hart does not answer")?;
            check(sbi::send_ipi(1 << other, 0) == 0, "send_ipi failed")?;
        }
        check(wait_for(|| sbi::hart_status(other) == (0, 1)), "the other hart does not stop")?;
    }
    Ok(())
}

extern "C" fn spin_for_fences() -> ! {
    FENCES.store(1, Ordering::SeqCst);
    while FENCES.load(Ordering::SeqCst) != 2 {
        core::hint::spin_loop();
    }
    sbi::hart_stop();
    sbi::shutdown(true)
}

fn rfence(machine: &Machine, hart: u64) -> Outcome {
    for fid in 0..3 {
        check(sbi::remote_fence(fid, 1, hart) == 0, "a fence of oneself failed")?;
        check(sbi::remote_fence(fid, 0, u64::MAX) == 0, "a fence of everybody failed")?;
    }
    check(sbi::remote_fence(1, 1, 5_000) == INVALID_PARAM, "a fence of a hart that is not there")?;
    let Some(other) = (0..machine.harts).find(|other| *other != hart) else { return Ok(()) };
    FENCES.store(0, Ordering::SeqCst);
    check(entry::start_hart(other, spin_for_fences) == 0, "hart_start failed")?;
    check(wait_for(|| FENCES.load(Ordering::SeqCst) == 1), "the other hart does not run")?;
    for round in 0..50 {
        check(sbi::remote_fence(round % 3, 1 << other, 0) == 0, "a fence of a running hart failed")?;
    }
    FENCES.store(2, Ordering::SeqCst);
    check(wait_for(|| sbi::hart_status(other) == (0, 1)), "the other hart does not stop")
}

fn floating_point(machine: &Machine, _: u64) -> Outcome {
    if !machine.has_fp {
        return Ok(());
    }
    cpu::enable_fp();
    for seed in 0..200 {
        cpu::fill_fp(seed * 1_000);
        // Something that makes the monitor run, and sometimes somebody else.
        sbi::spec_version();
        let until = cpu::time() + 500;
        while cpu::time() < until {
            core::hint::spin_loop();
        }
        let base = seed * 1_000;
        check(cpu::read_fp() == [base, base + 1, base + 2, base + 3], "FP registers changed")?;
    }
    Ok(())
}

fn memory(machine: &Machine, _: u64) -> Outcome {
    const STEP: u64 = 64 << 10;
    let start = 0x8020_0000 + (8 << 20);
    let end = machine.ram_start + machine.ram_bytes - (4 << 20);
    let mut at = start;
    while at + 8 <= end {
        check(cpu::load(at) == 0, "memory is not zero at first touch")?;
        cpu::store(at, at ^ 0x5a5a);
        at += STEP;
    }
    let mut at = start;
    while at + 8 <= end {
        check(cpu::load(at) == at ^ 0x5a5a, "memory lost what was written")?;
        at += STEP;
    }
    Ok(())
}

fn expect_exception(hart: u64, act: impl Fn()) -> Option<u64> {
    let seen = &SEEN[hart as usize];
    seen.exception.store(u64::MAX, Ordering::SeqCst);
    seen.expect.store(1, Ordering::SeqCst);
    act();
    seen.expect.store(0, Ordering::SeqCst);
    let cause = seen.exception.load(Ordering::SeqCst);
    (cause != u64::MAX).then_some(cause)
}

fn wild_mmio(machine: &Machine, hart: u64) -> Outcome {
    let beyond = machine.ram_start + machine.ram_bytes + (1 << 30);
    for address in [0x3000_u64, beyond, 1 << 40] {
        check(
            expect_exception(hart, || {
                cpu::load(address);
            }) == Some(5),
            "a load from nowhere is no access fault",
        )?;
        check(expect_exception(hart, || cpu::store(address, 1)) == Some(7), "a store to nowhere is no access fault")?;
    }
    Ok(())
}

fn illegal_csr(_: &Machine, hart: u64) -> Outcome {
    check(expect_exception(hart, cpu::illegal) == Some(2), "an unknown CSR is no illegal instruction")
}

fn devices(_: &Machine, _: u64) -> Outcome {
    const VIRT: u64 = 0x7472_6976;
    let mut found = 0;
    for slot in 0..8 {
        let base = 0x1000_1000 + slot * 0x1000;
        if cpu::load32(base) == VIRT {
            check(cpu::load32(base + 4) == 2, "virtio-mmio version is not 2")?;
            found += u64::from(cpu::load32(base + 8) != 0);
        }
    }
    println!("PROBE devices: {found} virtio devices");
    Ok(())
}
