extern crate std;

use super::*;

const LINE: IrqLine = IrqLine(10);

/// A PLIC as Linux leaves it: `LINE` with priority 1, enabled for `vcpu`.
fn ready(vcpus: u16, vcpu: u64) -> Plic {
    let mut plic = Plic::new(vcpus);
    put(&mut plic, 4 * u64::from(LINE.0), 1);
    put(&mut plic, enable(vcpu), 1 << LINE.0);
    put(&mut plic, threshold(vcpu), 0);
    assert_eq!(plic.next_delivery(), None);
    plic
}

fn put(plic: &mut Plic, offset: u64, value: u64) {
    plic.write(offset, Width::Word, value);
}

fn get(plic: &mut Plic, offset: u64) -> u64 {
    plic.read(offset, Width::Word)
}

const fn enable(vcpu: u64) -> u64 {
    0x2080 + vcpu * 0x100
}

const fn threshold(vcpu: u64) -> u64 {
    0x20_1000 + vcpu * 0x2000
}

const fn claim(vcpu: u64) -> u64 {
    threshold(vcpu) + 4
}

const fn levels(changed: u32, asserted: u32) -> Option<Levels> {
    Some(Levels { changed, asserted })
}

#[test]
fn a_level_is_claimed_served_and_completed() {
    let mut plic = ready(2, 1);
    assert_eq!(plic.set_line(LINE, true), levels(2, 2));
    assert_eq!(plic.set_line(LINE, true), None);
    assert_eq!(get(&mut plic, 0x1000), 1 << 10);
    assert_eq!(get(&mut plic, claim(0)), 0, "not enabled there");
    assert_eq!(get(&mut plic, claim(1)), 10);
    assert_eq!(plic.next_delivery(), levels(2, 0));
    assert_eq!(get(&mut plic, claim(1)), 0);
    assert_eq!(plic.set_line(LINE, false), None);
    put(&mut plic, claim(1), 10);
    assert_eq!(plic.next_delivery(), None);
}

#[test]
fn a_line_that_stays_high_interrupts_again_after_completion() {
    let mut plic = ready(1, 0);
    assert_eq!(plic.set_line(LINE, true), levels(1, 1));
    assert_eq!(get(&mut plic, claim(0)), 10);
    assert_eq!(plic.next_delivery(), levels(1, 0));
    put(&mut plic, claim(0), 10);
    assert_eq!(plic.next_delivery(), levels(1, 1));
}

#[test]
fn a_withdrawn_line_is_not_pending() {
    let mut plic = ready(1, 0);
    assert_eq!(plic.set_line(LINE, true), levels(1, 1));
    assert_eq!(plic.set_line(LINE, false), levels(1, 0));
    assert_eq!(get(&mut plic, claim(0)), 0);
}

#[test]
fn a_pulse_during_service_is_not_lost() {
    let mut plic = ready(1, 0);
    assert_eq!(plic.pulse(LINE), levels(1, 1));
    assert_eq!(get(&mut plic, claim(0)), 10);
    assert_eq!(plic.next_delivery(), levels(1, 0));
    assert_eq!(plic.pulse(LINE), None);
    put(&mut plic, claim(0), 10);
    assert_eq!(plic.next_delivery(), levels(1, 1));
    assert_eq!(get(&mut plic, claim(0)), 10);
    put(&mut plic, claim(0), 10);
    assert_eq!(plic.next_delivery(), levels(1, 0));
}

#[test]
fn priority_then_number_decides_and_the_threshold_masks() {
    let mut plic = Plic::new(1);
    for (source, priority) in [(3, 2), (4, 7), (5, 7), (95, 1), (6, 0)] {
        put(&mut plic, 4 * source, priority);
        assert_eq!(plic.set_line(IrqLine(source as u16), true), None);
    }
    put(&mut plic, enable(0), 0xffff_ffff);
    put(&mut plic, enable(0) + 8, 0xffff_ffff);
    put(&mut plic, threshold(0), 1);
    assert_eq!(plic.next_delivery(), levels(1, 1));
    assert_eq!([(); 4].map(|()| get(&mut plic, claim(0))), [4, 5, 3, 0]);
    assert_eq!(plic.next_delivery(), levels(1, 0));
    put(&mut plic, threshold(0), 0);
    assert_eq!(plic.next_delivery(), levels(1, 1));
    assert_eq!([(); 2].map(|()| get(&mut plic, claim(0))), [95, 0], "priority 0 never interrupts");
}

#[test]
fn registers_keep_only_legal_bits() {
    let mut plic = Plic::new(2);
    put(&mut plic, 0, 7);
    assert_eq!(get(&mut plic, 0), 0, "source 0 does not exist");
    put(&mut plic, 4 * 96, 7);
    assert_eq!(get(&mut plic, 4 * 96), 0);
    put(&mut plic, 4, 0xffff_ffff);
    assert_eq!(get(&mut plic, 4), 7);
    put(&mut plic, enable(0), 0xffff_ffff);
    assert_eq!(get(&mut plic, enable(0)), 0xffff_fffe);
    put(&mut plic, enable(0) + 12, 1);
    assert_eq!(get(&mut plic, enable(0) + 12), 0);
    put(&mut plic, threshold(1), 0x1f);
    assert_eq!(get(&mut plic, threshold(1)), 7);
    put(&mut plic, 0x1000, 0xffff_ffff);
    assert_eq!(get(&mut plic, 0x1000), 0, "pending bits are read-only");
}

#[test]
fn absent_contexts_widths_and_sources_read_as_zero() {
    let mut plic = ready(1, 0);
    // M-mode of vCPU 0, S-mode of vCPU 1, far away.
    for offset in [0x2000, 0x2180, 0x20_0000, 0x20_3000, !3] {
        put(&mut plic, offset, 0xffff_ffff);
        assert_eq!(get(&mut plic, offset), 0);
    }
    plic.write(4 * 10, Width::Byte, 5);
    plic.write(4 * 10, Width::Double, 5);
    plic.write(4 * 10 + 1, Width::Word, 5);
    assert_eq!(get(&mut plic, 4 * 10), 1);
    assert_eq!(plic.read(4 * 10, Width::Double), 0);
    assert_eq!(plic.set_line(IrqLine(0), true), None);
    assert_eq!(plic.set_line(IrqLine(96), true), None);
    assert_eq!(plic.pulse(IrqLine(u16::MAX)), None);
    put(&mut plic, claim(0), 0xffff_ffff);
}

#[test]
fn the_thirty_second_vcpu_has_a_context() {
    let mut plic = ready(32, 31);
    assert_eq!(plic.set_line(LINE, true), levels(1 << 31, 1 << 31));
    plic.reset();
    assert_eq!(plic.next_delivery(), None);
    assert_eq!(get(&mut plic, enable(31)), 0);
}
