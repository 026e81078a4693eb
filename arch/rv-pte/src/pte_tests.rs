use proptest::prelude::*;

use super::*;

#[test]
fn words_computed_by_hand() {
    let gstage = PteFlags::RWX | PteFlags::U | PteFlags::AD;
    let leaf = Pte::leaf(Mfn::new(0x80200), Level::LARGE, gstage, Pbmt::Pma).unwrap();
    assert_eq!(leaf.raw(), 0x2008_00df);
    assert_eq!(Pte::table(Mfn::new(0x80001)).unwrap().raw(), 0x2000_0401);
    let device =
        Pte::leaf(Mfn::new(0x28001), Level::BASE, PteFlags::RW | PteFlags::U | PteFlags::AD, Pbmt::Io).unwrap();
    assert_eq!(device.raw(), 0x4000_0000_0a00_04d7);
}

#[test]
fn encoders_refuse_what_hardware_would() {
    let frame = Mfn::new(0x80201);
    assert_eq!(
        Pte::leaf(frame, Level::LARGE, PteFlags::R, Pbmt::Pma),
        Err(PteError::Misaligned { frame, level: Level::LARGE })
    );
    assert_eq!(Pte::leaf(frame, Level::BASE, PteFlags::W, Pbmt::Pma), Err(PteError::WriteWithoutRead));
    assert_eq!(Pte::leaf(frame, Level::BASE, PteFlags::U, Pbmt::Pma), Err(PteError::NoPermission));
    let beyond = Mfn::new(1 << 44);
    assert_eq!(Pte::table(beyond), Err(PteError::FrameTooLarge { frame: beyond }));
}

#[test]
fn reserved_encodings_are_named() {
    let at = |raw: u64, level| Pte::from_raw(raw).decode(level).unwrap_err();
    assert_eq!(at(0b0101, Level::BASE), PteError::WriteWithoutRead);
    assert_eq!(at(1 << 54 | 0b11, Level::BASE), PteError::ReservedBits);
    assert_eq!(at(0b01, Level::BASE), PteError::PointerAtLastLevel);
    assert_eq!(at(0b1000_0001, Level::LARGE), PteError::AttributesInPointer);
    assert_eq!(at(3 << 61 | 0b11, Level::BASE), PteError::PbmtReserved);
    assert_eq!(at(1 << 63 | 0b11, Level::BASE), PteError::NapotReserved);
    assert_eq!(at(1 << 63 | 8 << 10 | 0b11, Level::LARGE), PteError::NapotReserved);
    assert_eq!(
        at(0x201 << 10 | 0b11, Level::LARGE),
        PteError::Misaligned { frame: Mfn::new(0x201), level: Level::LARGE }
    );
}

#[test]
fn napot_gives_the_first_frame() {
    let pte = Pte::from_raw(1 << 63 | 0x128 << 10 | 0b11);
    let Ok(Decoded::Leaf(leaf)) = pte.decode(Level::BASE) else { panic!("{pte:?}") };
    assert_eq!((leaf.frame, leaf.is_napot_64k), (Mfn::new(0x120), true));
}

#[test]
fn permissions_of_pointers_cannot_be_changed() {
    let pointer = Pte::table(Mfn::new(5)).unwrap();
    assert_eq!(pointer.with_permissions(PteFlags::RW), pointer);
    assert_eq!(Pte::INVALID.with_permissions(PteFlags::RW), Pte::INVALID);
    let leaf = Pte::leaf(Mfn::new(5), Level::BASE, PteFlags::RWX | PteFlags::U, Pbmt::Pma).unwrap();
    assert_eq!(leaf.with_permissions(PteFlags::empty()), leaf);
    assert_eq!(leaf.with_permissions(PteFlags::W), leaf);
    assert_eq!(leaf.with_permissions(PteFlags::RX).flags(), PteFlags::V | PteFlags::RX | PteFlags::U);
}

proptest! {
    #[test]
    fn leaves_round_trip(frame in 0u64..1 << 44, level in 0u8..5, bits in 0u64..256, pbmt in 0..3) {
        let level = Level::new(level).unwrap();
        let pbmt = [Pbmt::Pma, Pbmt::Nc, Pbmt::Io][pbmt as usize];
        let flags = PteFlags::from_bits_truncate(bits);
        let frame = Mfn::new(frame & !(level.entry_pages() - 1));
        if let Ok(pte) = Pte::leaf(frame, level, flags, pbmt) {
            let want = Leaf { frame, flags: flags | PteFlags::V, pbmt, is_napot_64k: false };
            prop_assert_eq!(pte.decode(level), Ok(Decoded::Leaf(want)));
        }
    }

    #[test]
    fn any_word_decodes_or_is_refused_and_encodes_back(raw: u64, level in 0u8..5) {
        let level = Level::new(level).unwrap();
        let pte = Pte::from_raw(raw);
        match pte.decode(level) {
            Ok(Decoded::Invalid) => prop_assert!(!pte.is_valid()),
            Ok(Decoded::Table(frame)) => {
                let back = Pte::table(frame).unwrap().with_rsw(pte.rsw());
                prop_assert_eq!(back.raw(), raw & !PteFlags::G.bits());
            }
            Ok(Decoded::Leaf(leaf)) if !leaf.is_napot_64k => {
                let back = Pte::leaf(leaf.frame, level, leaf.flags, leaf.pbmt).unwrap().with_rsw(pte.rsw());
                prop_assert_eq!(back, pte);
            }
            Ok(Decoded::Leaf(leaf)) => prop_assert_eq!(leaf.frame.raw() % 16, 0),
            Err(_) => prop_assert!(pte.is_valid()),
        }
    }
}
