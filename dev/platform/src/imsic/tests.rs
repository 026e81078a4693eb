extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// A file as Linux leaves it: delivering, everything enabled.
fn ready(num_ids: u16) -> ImsicFile {
    let mut file = ImsicFile::new(num_ids);
    file.write(Register::Eidelivery, 1);
    for word in 0..4 {
        file.write(Register::Eie(word), u64::MAX);
    }
    file
}

#[test]
fn registers_are_selected_as_the_specification_numbers_them() {
    assert_eq!(Register::decode(0x70), Ok(Register::Eidelivery));
    assert_eq!(Register::decode(0x72), Ok(Register::Eithreshold));
    assert_eq!(Register::decode(0x80), Ok(Register::Eip(0)));
    assert_eq!(Register::decode(0xbe), Ok(Register::Eip(31)));
    assert_eq!(Register::decode(0xc2), Ok(Register::Eie(1)));
    for select in 0..0x200 {
        if let Ok(register) = Register::decode(select) {
            assert_eq!(register.select(), select);
        }
    }
    for reserved in [0, 0x6f, 0x71, 0x73, 0x7f, 0x81, 0xc1, 0xff, 0x100, u64::MAX] {
        assert_eq!(Register::decode(reserved), Err(NoSuchRegister));
    }
}

#[test]
fn every_identity_is_delivered_and_claimed() {
    for eiid in 1..=MAX_IDS {
        let mut file = ready(MAX_IDS);
        assert!(!file.is_asserted());
        file.raise(eiid);
        assert!(file.is_asserted());
        assert_eq!(file.topei(), u64::from(eiid) << 16 | u64::from(eiid));
        assert_eq!(file.claim(), u64::from(eiid) << 16 | u64::from(eiid));
        assert_eq!(*file.state(), *ready(MAX_IDS).state());
        assert_eq!(file.claim(), 0);
    }
}

#[test]
fn the_lowest_identity_comes_first() {
    let mut file = ready(MAX_IDS);
    for eiid in [200, 64, 63, 1, 255] {
        file.raise(eiid);
    }
    let order: Vec<_> = core::iter::from_fn(|| Some(file.claim() >> 16).filter(|id| *id != 0)).collect();
    assert_eq!(order, [1, 63, 64, 200, 255]);
}

#[test]
fn disabled_identities_wait() {
    let mut file = ready(MAX_IDS);
    file.write(Register::Eie(0), 0);
    file.raise(5);
    assert!(!file.is_asserted());
    assert_eq!(file.claim(), 0);
    assert_eq!(file.read(Register::Eip(0)), 1 << 5);
    file.write(Register::Eie(0), 1 << 5);
    assert!(file.is_asserted());
}

#[test]
fn the_threshold_holds_its_identity_and_those_after_it_back() {
    let mut file = ready(MAX_IDS);
    file.raise(10);
    for (threshold, is_asserted) in [(0, true), (1, false), (10, false), (11, true), (0x7ff, true)] {
        file.write(Register::Eithreshold, threshold);
        assert_eq!((file.is_asserted(), file.topei() != 0), (is_asserted, is_asserted), "{threshold}");
    }
}

#[test]
fn delivery_off_silences_the_wire_but_not_topei() {
    let mut file = ready(MAX_IDS);
    file.raise(10);
    file.write(Register::Eidelivery, 0x4000_0000);
    assert_eq!(file.read(Register::Eidelivery), 0);
    assert!(!file.is_asserted());
    assert_eq!(file.topei(), 10 << 16 | 10);
}

#[test]
fn a_small_file_ignores_what_it_does_not_have() {
    let mut file = ready(63);
    for eiid in [0, 64, 255, 256, u16::MAX] {
        file.raise(eiid);
    }
    assert_eq!(file.topei(), 0);
    file.write(Register::Eip(1), u64::MAX);
    file.write(Register::Eip(255), u64::MAX);
    file.write(Register::Eip(0), u64::MAX);
    assert_eq!([0, 1, 4, 31, 255].map(|word| file.read(Register::Eip(word))), [!1, 0, 0, 0, 0]);
    assert_eq!([0, 1].map(|word| file.read(Register::Eie(word))), [!1, 0]);
}

#[test]
fn only_a_word_to_seteipnum_le_is_a_message() {
    assert_eq!(decode_msi(0, Width::Word, 255), Some(255));
    assert_eq!(decode_msi(0, Width::Word, 0xffff_ffff_0000_0001), Some(1), "a word is stored, the rest is not");
    for (offset, width, value) in [
        (0, Width::Word, 0),
        (0, Width::Word, 256),
        (0, Width::Word, 0xffff_ffff),
        (4, Width::Word, 1),
        (0, Width::Byte, 1),
        (0, Width::Double, 1),
        (u64::MAX, Width::Word, 1),
    ] {
        assert_eq!(decode_msi(offset, width, value), None);
    }
}

#[test]
fn a_file_of_the_hart_interrupts_by_itself() {
    for level in [false, true] {
        let line = ExternalLine::of(FilePlace::Hardware, level);
        assert_eq!(line, ExternalLine { is_pending: level, shown: Shown::Nothing });
    }
}

#[test]
fn a_file_in_software_interrupts_by_the_registers() {
    for (is_asserted, level, is_pending) in
        [(false, false, false), (true, false, true), (false, true, true), (true, true, true)]
    {
        let line = ExternalLine::of(FilePlace::Software { is_asserted }, level);
        assert_eq!(line, ExternalLine { is_pending, shown: Shown::SoftwareFile(is_asserted) });
    }
}

#[test]
fn without_a_file_the_level_is_all() {
    for level in [false, true] {
        let line = ExternalLine::of(FilePlace::Absent, level);
        assert_eq!(line, ExternalLine { is_pending: level, shown: Shown::NoRegister });
    }
}

/// A file moves between software and a hart; whatever the registers said before, afterwards they say what its new place wants.
#[test]
fn what_was_shown_before_a_move_does_not_stay() {
    let mut file = ready(MAX_IDS);
    file.raise(7);
    let line = |file: &ImsicFile| ExternalLine::of(FilePlace::Software { is_asserted: file.is_asserted() }, false);
    assert!(line(&file).is_pending);
    let hart = *file.state();
    assert!(!ExternalLine::of(FilePlace::Hardware, false).is_pending, "it would be taken for ever");
    assert!(line(&ImsicFile::from_state(MAX_IDS, hart)).is_pending, "it would be lost");
    file = ImsicFile::new(MAX_IDS);
    assert!(!line(&file).is_pending);
}

#[derive(Clone, Debug)]
enum Step {
    Raise(u16),
    Claim,
    Write(u64, u64),
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u16..300).prop_map(Step::Raise),
        2 => Just(Step::Claim),
        3 => (0x60_u64..0x108, prop_oneof![0_u64..300, any::<u64>()]).prop_map(|(s, v)| Step::Write(s, v)),
        1 => Just(Step::Move),
    ]
}

/// The specification, one boolean per identity.
struct Model {
    num_ids: usize,
    pending: Vec<bool>,
    enabled: Vec<bool>,
    delivery: bool,
    threshold: usize,
}

impl Model {
    fn top(&self) -> usize {
        (1..=self.num_ids)
            .find(|&id| self.pending[id] && self.enabled[id] && (self.threshold == 0 || id < self.threshold))
            .unwrap_or(0)
    }

    fn write(&mut self, select: u64, value: u64) {
        match select {
            0x70 => self.delivery = value & 1 != 0,
            0x72 => self.threshold = (value & 0x7ff) as usize,
            0x80..=0xff if select.is_multiple_of(2) => {
                let bits = if select < 0xc0 { &mut self.pending } else { &mut self.enabled };
                let first = (select as usize & 0x3f) * 32;
                for (bit, id) in (first..first + 64).enumerate() {
                    if (1..=self.num_ids).contains(&id) {
                        bits[id] = value >> bit & 1 != 0;
                    }
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn the_file_agrees_with_the_specification(
        num_ids in prop::sample::select(&[63_u16, 127, 191, 255][..]), steps in prop::collection::vec(step(), 0..100)
    ) {
        let (mut file, ids) = (ImsicFile::new(num_ids), usize::from(num_ids));
        let mut model = Model {
            num_ids: ids, pending: std::vec![false; ids + 1], enabled: std::vec![false; ids + 1],
            delivery: false, threshold: 0,
        };
        for step in steps {
            match step {
                Step::Raise(eiid) => {
                    file.raise(eiid);
                    if (1..=num_ids).contains(&eiid) { model.pending[usize::from(eiid)] = true; }
                }
                Step::Claim => {
                    let top = model.top();
                    model.pending[top] = false;
                    prop_assert_eq!(file.claim(), (top << 16 | top) as u64);
                }
                Step::Write(select, value) => {
                    model.write(select, value);
                    if let Ok(register) = Register::decode(select) { file.write(register, value); }
                }
                Step::Move => file = ImsicFile::from_state(num_ids, *file.state()),
            }
            prop_assert_eq!(file.topei() >> 16, model.top() as u64);
            prop_assert_eq!(file.is_asserted(), model.delivery && model.top() != 0);
        }
    }

    #[test]
    fn any_contents_can_be_taken_over(
        num_ids in any::<u16>(), eidelivery in any::<u64>(), eithreshold in any::<u64>(),
        eip in any::<[u64; 4]>(), eie in any::<[u64; 4]>()
    ) {
        let mut file = ImsicFile::from_state(num_ids, ImsicState { eidelivery, eithreshold, eip, eie });
        let mut claims = 0;
        while file.claim() != 0 {
            claims += 1;
            prop_assert!(claims <= 255);
        }
    }
}
