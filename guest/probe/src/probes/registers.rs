//! Floating-point and vector registers keep their values while others run.

use super::{Outcome, check, harts::STOPPED, skip, wait_for};
use crate::{
    console::println,
    cpu, entry,
    figures::block::{BLOCK_BYTES, Direction, Disk},
    fpu, sbi,
    tree::Machine,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ROUNDS: u64 = 100;
/// Rounds where all harts take part, which share the machine's.
const ROUNDS_TOGETHER: u64 = 40;
/// Ticks to let others run between fill and look.
const PAUSE: u64 = 2_000;
/// What sets one hart's patterns apart from those that another one makes at the same time.
const HART_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Something that makes the monitor run, and sometimes somebody else.
fn be_interrupted() {
    sbi::spec_version();
    let until = cpu::time() + PAUSE;
    while cpu::time() < until {
        core::hint::spin_loop();
    }
    cpu::set_sie(cpu::TIMER);
    cpu::set_stimecmp(cpu::time() + 100);
    cpu::wfi();
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
}

/// All 32 FP registers and `fcsr`. Different in every guest: the seed is the time.
pub fn floating_point(machine: &Machine, hart: u64) -> Outcome {
    if !machine.isa.has_double {
        return skip("no D extension");
    }
    fpu::enable_fp();
    for round in 0..ROUNDS {
        fp_round(round, hart, be_interrupted)?;
    }
    fpu::disable_fp();
    Ok(())
}

/// All 32 vector registers, `vl` and `vtype`.
pub fn vector(machine: &Machine, hart: u64) -> Outcome {
    if !machine.isa.has_vector {
        return skip("no V extension");
    }
    fpu::enable_vector();
    let Some(mut image) = fpu::VectorImage::new() else { return skip("vector registers longer than the probe's") };
    for round in 0..ROUNDS {
        vector_round(round, hart, &mut image, be_interrupted)?;
    }
    fpu::disable_vector();
    Ok(())
}

/// Data moves to and from a disk, and the vector registers, which a monitor may copy with, stay as they are.
pub fn vector_and_disk(machine: &Machine, _: u64) -> Outcome {
    if !machine.isa.has_vector {
        return skip("no V extension");
    }
    let Ok(mut disk) = Disk::open() else { return skip("no disk") };
    fpu::enable_vector();
    let Some(mut image) = fpu::VectorImage::new() else { return skip("vector registers longer than the probe's") };
    let words = || (Disk::data()..Disk::data() + u64::from(BLOCK_BYTES)).step_by(8);
    for round in 0..ROUNDS.min(32) {
        let seed = cpu::time();
        words().for_each(|at| cpu::store(at, at.wrapping_mul(seed | 1)));
        image.fill(seed);
        image.load();
        let vl = fpu::set_vector_length(round % 16);
        let written = disk.transfer(Direction::Write, round);
        words().for_each(|at| cpu::store(at, 0));
        let read = disk.transfer(Direction::Read, round);
        check(fpu::vector_length() == vl, "vl changed")?;
        image.store();
        check(written.status == 0 && read.status == 0, "the disk refuses")?;
        check(image.is_filled(seed), "vector registers changed")?;
        check(words().all(|at| cpu::load(at) == at.wrapping_mul(seed | 1)), "the disk gives other data")?;
    }
    fpu::disable_vector();
    Ok(())
}

fn fp_round(round: u64, hart: u64, meanwhile: impl FnOnce()) -> Outcome {
    let seed = cpu::time() ^ hart.wrapping_mul(HART_SEED);
    let want = core::array::from_fn(|index| seed.wrapping_mul(index as u64 + 3));
    fpu::load_fp(&want);
    fpu::set_fcsr(round & 0xff & !0xe0);
    meanwhile();
    let mut found = [0; 32];
    fpu::store_fp(&mut found);
    check(found == want, "FP registers changed")?;
    check(fpu::fcsr() == round & 0xff & !0xe0, "fcsr changed")
}

fn vector_round(round: u64, hart: u64, image: &mut fpu::VectorImage, meanwhile: impl FnOnce()) -> Outcome {
    // The pattern is made of the low bits.
    let seed = cpu::time() ^ hart.wrapping_mul(HART_SEED) >> 56;
    image.fill(seed);
    image.load();
    let vl = fpu::set_vector_length(round % 16);
    meanwhile();
    check(fpu::vector_length() == vl, "vl changed")?;
    image.store();
    check(image.is_filled(seed), "vector registers changed")
}

/// Harts that have found their registers right, and those that have not.
static RIGHT: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static USE_VECTOR: AtomicBool = AtomicBool::new(false);

/// Every hart with its own patterns in both register files at the same time; where they share harts of the machine,
/// one's registers must not turn up in another.
pub fn on_all_harts(machine: &Machine, hart: u64) -> Outcome {
    if !machine.isa.has_double {
        return skip("no D extension");
    }
    USE_VECTOR.store(machine.isa.has_vector, Ordering::SeqCst);
    RIGHT.store(0, Ordering::SeqCst);
    WRONG.store(0, Ordering::SeqCst);
    let others = || (0..machine.harts).filter(|other| *other != hart);
    for other in others() {
        check(entry::start_hart(other, keep_registers_and_stop) == 0, "hart_start failed")?;
    }
    keep_registers(hart)?;
    let ended = || RIGHT.load(Ordering::SeqCst) + WRONG.load(Ordering::SeqCst);
    check(wait_for(|| ended() == machine.harts - 1), "a hart does not end")?;
    check(WRONG.load(Ordering::SeqCst) == 0, "registers of another hart changed")?;
    check(wait_for(|| others().all(|other| sbi::hart_status(other) == STOPPED)), "a hart does not stop")
}

fn keep_registers(hart: u64) -> Outcome {
    fpu::enable_fp();
    let mut image = None;
    if USE_VECTOR.load(Ordering::SeqCst) {
        fpu::enable_vector();
        image = fpu::VectorImage::new();
    }
    for round in 0..ROUNDS_TOGETHER {
        // Both at once: the FP registers stay filled while the vector registers are looked at.
        let mut inner = Ok(());
        fp_round(round, hart, || match &mut image {
            Some(image) => inner = vector_round(round, hart, image, be_interrupted),
            None => be_interrupted(),
        })?;
        inner?;
    }
    fpu::disable_vector();
    fpu::disable_fp();
    Ok(())
}

extern "C" fn keep_registers_and_stop() -> ! {
    match keep_registers(cpu::this_hart() as u64) {
        Ok(()) => RIGHT.fetch_add(1, Ordering::SeqCst),
        Err(_) => WRONG.fetch_add(1, Ordering::SeqCst),
    };
    sbi::hart_stop();
    println!("PROBE all-registers FAILED: hart_stop returned");
    sbi::shutdown(true)
}
