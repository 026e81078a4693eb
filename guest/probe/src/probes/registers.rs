//! Floating-point and vector registers keep their values while others run.

use super::{Outcome, check, skip};
use crate::{
    cpu,
    figures::block::{BLOCK_BYTES, Direction, Disk},
    fpu, sbi,
    tree::Machine,
};

const ROUNDS: u64 = 100;
/// Ticks to let others run between fill and look.
const PAUSE: u64 = 2_000;

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
pub fn floating_point(machine: &Machine, _: u64) -> Outcome {
    if !machine.isa.has_double {
        return skip("no D extension");
    }
    fpu::enable_fp();
    for round in 0..ROUNDS {
        let seed = cpu::time();
        let want = core::array::from_fn(|index| seed.wrapping_mul(index as u64 + 3));
        fpu::load_fp(&want);
        fpu::set_fcsr(round & 0xff & !0xe0);
        be_interrupted();
        let mut found = [0; 32];
        fpu::store_fp(&mut found);
        check(found == want, "FP registers changed")?;
        check(fpu::fcsr() == round & 0xff & !0xe0, "fcsr changed")?;
    }
    fpu::disable_fp();
    Ok(())
}

/// All 32 vector registers, `vl` and `vtype`.
pub fn vector(machine: &Machine, _: u64) -> Outcome {
    if !machine.isa.has_vector {
        return skip("no V extension");
    }
    fpu::enable_vector();
    let Some(mut image) = fpu::VectorImage::new() else { return skip("vector registers longer than the probe's") };
    for round in 0..ROUNDS {
        let seed = cpu::time();
        image.fill(seed);
        image.load();
        let vl = fpu::set_vector_length(round % 16);
        be_interrupted();
        check(fpu::vector_length() == vl, "vl changed")?;
        image.store();
        check(image.is_filled(seed), "vector registers changed")?;
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
