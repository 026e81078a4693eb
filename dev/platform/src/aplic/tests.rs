extern crate std;

use super::*;
use std::vec::Vec;

const DOMAINCFG: u64 = 0;
const SETIPNUM_LE: u64 = 0x2000;
const CLRIPNUM: u64 = 0x1ddc;
const SETIENUM: u64 = 0x1edc;
const CLRIENUM: u64 = 0x1fdc;
const GENMSI: u64 = 0x3000;
const EDGE1: u64 = 4;
const EDGE0: u64 = 5;
const LEVEL1: u64 = 6;
const LEVEL0: u64 = 7;

fn put(aplic: &mut Aplic, offset: u64, value: u64) {
    aplic.write(offset, Width::Word, value);
}

fn get(aplic: &mut Aplic, offset: u64) -> u64 {
    aplic.read(offset, Width::Word)
}

fn drain(aplic: &mut Aplic) -> Vec<Msi> {
    core::iter::from_fn(|| aplic.next_delivery()).collect()
}

const fn msi(vcpu: u16, eiid: u16) -> Msi {
    Msi { vcpu: VcpuIndex(vcpu), eiid }
}

const fn target(vcpu: u64, eiid: u64) -> u64 {
    vcpu << 18 | eiid
}

/// As Linux leaves it: sources in `mode`, source n to vCPU n % 4 with identity 100 + n, enabled.
fn ready(mode: u64, sources: &[u64]) -> Aplic {
    let mut aplic = Aplic::new(4);
    put(&mut aplic, DOMAINCFG, 1 << 8 | 1 << 2);
    for &source in sources {
        put(&mut aplic, 4 * source, mode);
        put(&mut aplic, GENMSI + 4 * source, target(source % 4, 100 + source));
        put(&mut aplic, SETIENUM, source);
    }
    aplic
}

#[test]
fn linux_sees_msi_delivery() {
    let mut aplic = Aplic::new(1);
    assert_eq!(get(&mut aplic, DOMAINCFG), 0x8000_0004);
    put(&mut aplic, DOMAINCFG, 0x104);
    assert_eq!(get(&mut aplic, DOMAINCFG), 0x8000_0104);
    put(&mut aplic, DOMAINCFG, 1);
    assert_eq!(get(&mut aplic, DOMAINCFG), 0x8000_0004, "no big-endian registers, no wired delivery");
}

#[test]
fn an_edge_sends_one_message() {
    let mut aplic = ready(EDGE1, &[1, 96]);
    assert_eq!(aplic.pulse(IrqLine(1)), Some(msi(1, 101)));
    assert_eq!(aplic.set_line(IrqLine(96), true), Some(msi(0, 196)));
    assert_eq!(aplic.set_line(IrqLine(96), true), None);
    assert_eq!(aplic.set_line(IrqLine(96), false), None);
    assert_eq!(aplic.set_line(IrqLine(96), true), Some(msi(0, 196)));
    assert_eq!(drain(&mut aplic), []);
}

#[test]
fn a_falling_edge_counts_where_it_is_asked_for() {
    let mut aplic = ready(EDGE0, &[2]);
    // The idle line is the active state of an inverted source when it is configured.
    assert_eq!(drain(&mut aplic), [msi(2, 102)]);
    assert_eq!(aplic.set_line(IrqLine(2), true), None);
    assert_eq!(aplic.set_line(IrqLine(2), false), Some(msi(2, 102)));
    assert_eq!(aplic.pulse(IrqLine(2)), Some(msi(2, 102)));
}

#[test]
fn a_level_is_sent_again_when_its_handler_asks() {
    let mut aplic = ready(LEVEL1, &[10]);
    assert_eq!(aplic.set_line(IrqLine(10), true), Some(msi(2, 110)));
    put(&mut aplic, SETIPNUM_LE, 10);
    assert_eq!(drain(&mut aplic), [msi(2, 110)]);
    assert_eq!(aplic.set_line(IrqLine(10), false), None);
    put(&mut aplic, SETIPNUM_LE, 10);
    assert_eq!(drain(&mut aplic), [], "the input is inactive");
}

#[test]
fn a_level_that_falls_takes_its_pending_bit_along() {
    let mut aplic = ready(LEVEL1, &[10]);
    put(&mut aplic, CLRIENUM, 10);
    assert_eq!(aplic.set_line(IrqLine(10), true), None);
    assert_eq!(get(&mut aplic, 0x1c00), 1 << 10);
    assert_eq!(get(&mut aplic, 0x1d00), 1 << 10);
    assert_eq!(aplic.set_line(IrqLine(10), false), None);
    assert_eq!(get(&mut aplic, 0x1c00), 0);
    put(&mut aplic, SETIENUM, 10);
    assert_eq!(drain(&mut aplic), []);
}

#[test]
fn an_active_low_level_works_upside_down() {
    let mut aplic = ready(LEVEL0, &[10]);
    assert_eq!(drain(&mut aplic), [msi(2, 110)]);
    assert_eq!(get(&mut aplic, 0x1d00), 1 << 10);
    assert_eq!(aplic.set_line(IrqLine(10), true), None);
    assert_eq!(aplic.set_line(IrqLine(10), false), Some(msi(2, 110)));
}

#[test]
fn a_line_raised_before_its_driver_came_is_heard() {
    let mut aplic = Aplic::new(4);
    assert_eq!(aplic.set_line(IrqLine(10), true), None);
    put(&mut aplic, DOMAINCFG, 1 << 8);
    put(&mut aplic, 4 * 10, EDGE1);
    put(&mut aplic, GENMSI + 4 * 10, target(3, 7));
    assert_eq!(drain(&mut aplic), []);
    put(&mut aplic, SETIENUM, 10);
    assert_eq!(drain(&mut aplic), [msi(3, 7)]);
}

#[test]
fn disabled_or_closed_sources_wait() {
    let mut aplic = ready(EDGE1, &[1, 40, 70]);
    put(&mut aplic, DOMAINCFG, 0);
    for line in [1, 40, 70] {
        assert_eq!(aplic.pulse(IrqLine(line)), None);
    }
    assert_eq!([0x1c00, 0x1c04, 0x1c08, 0x1c0c].map(|word| get(&mut aplic, word)), [1 << 1, 1 << 8, 1 << 6, 0]);
    put(&mut aplic, 0x1f04, 1 << 8);
    put(&mut aplic, CLRIPNUM, 70);
    put(&mut aplic, DOMAINCFG, 1 << 8);
    assert_eq!(drain(&mut aplic), [msi(1, 101)]);
    put(&mut aplic, 0x1e04, 0xffff_ffff);
    assert_eq!(get(&mut aplic, 0x1e04), 1 << 8, "inactive sources cannot be enabled");
    assert_eq!(drain(&mut aplic), [msi(0, 140)]);
}

#[test]
fn a_detached_source_is_pending_by_register_alone() {
    let mut aplic = ready(1, &[5]);
    assert_eq!(aplic.pulse(IrqLine(5)), None);
    put(&mut aplic, 0x2004, 5_u64 << 24);
    assert_eq!(drain(&mut aplic), [msi(1, 105)], "setipnum_be");
    put(&mut aplic, 0x1c00, 1 << 5);
    assert_eq!(drain(&mut aplic), [msi(1, 105)]);
}

#[test]
fn an_extempore_message_needs_no_source() {
    let mut aplic = Aplic::new(4);
    put(&mut aplic, GENMSI, target(3, 255) | 1 << 12);
    assert_eq!(drain(&mut aplic), [msi(3, 255)]);
    assert_eq!(get(&mut aplic, GENMSI), target(3, 255), "not busy");
    put(&mut aplic, GENMSI, target(4, 255));
    assert_eq!(drain(&mut aplic), [], "no such vCPU");
}

#[test]
fn messages_to_nowhere_are_dropped() {
    for bad in [target(4, 9), target(0x3fff, 9), target(0, 0), target(0, 9) | 1 << 12] {
        let mut aplic = ready(EDGE1, &[1]);
        put(&mut aplic, GENMSI + 4, bad);
        assert_eq!(aplic.pulse(IrqLine(1)), None);
        assert_eq!(drain(&mut aplic), []);
        assert_eq!(get(&mut aplic, 0x1c00), 0);
    }
}

#[test]
fn an_inactive_source_has_no_state() {
    let mut aplic = ready(EDGE1, &[1]);
    put(&mut aplic, DOMAINCFG, 0);
    let _ = aplic.pulse(IrqLine(1));
    for inactive in [0, 2, 3, 1 << 10 | 4] {
        put(&mut aplic, 4, inactive);
        assert_eq!([4, 0x1c00, 0x1e00, GENMSI + 4].map(|offset| get(&mut aplic, offset)), [0; 4]);
        put(&mut aplic, GENMSI + 4, 77);
        put(&mut aplic, SETIENUM, 1);
        put(&mut aplic, SETIPNUM_LE, 1);
        assert_eq!([4, 0x1c00, 0x1e00, GENMSI + 4].map(|offset| get(&mut aplic, offset)), [0; 4]);
    }
}

#[test]
fn what_does_not_exist_reads_as_zero() {
    let mut aplic = Aplic::new(1);
    for offset in [4 * 97, 0xffc, 0x1bc0, 0x1bc8, 0x1c10, 0x1c80, 0x2008, 0x3000 + 4 * 97, 0x4000, 0x401c, !3] {
        put(&mut aplic, offset, 0xffff_ffff);
        assert_eq!(get(&mut aplic, offset), 0, "{offset:#x}");
    }
    aplic.write(4, Width::Double, 4);
    aplic.write(4, Width::Byte, 4);
    aplic.write(5, Width::Word, 4);
    assert_eq!(get(&mut aplic, 4), 0);
    for line in [0, 97, u16::MAX] {
        assert_eq!(aplic.pulse(IrqLine(line)), None);
    }
    put(&mut aplic, SETIENUM, 0xffff_ffff);
    put(&mut aplic, SETIPNUM_LE, 0xffff_ffff);
    assert_eq!(drain(&mut aplic), []);
}

#[test]
fn reserved_target_bits_are_dropped() {
    let mut aplic = ready(EDGE1, &[1]);
    put(&mut aplic, GENMSI + 4, 0xffff_ffff);
    assert_eq!(get(&mut aplic, GENMSI + 4), 0xffff_f7ff);
}

#[test]
fn reset_forgets_everything() {
    let mut aplic = ready(LEVEL1, &[1]);
    let _ = aplic.set_line(IrqLine(1), true);
    aplic.reset();
    assert_eq!([0, 4, 0x1c00, 0x1d00, 0x1e00].map(|offset| get(&mut aplic, offset)), [0x8000_0004, 0, 0, 0, 0]);
}
