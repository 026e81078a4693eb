//! Eight bytes for a page's state, and for a block's.

use addr::Mfn;

use crate::{PageState, StateKind};

const KIND_MASK: u64 = 0xf;
const WATCHED: u64 = 1 << 4;
const PAYLOAD_SHIFT: u32 = 12;
const MFN_BITS: u32 = 44;
const MFN_MASK: u64 = (1 << MFN_BITS) - 1;
const PINS_SHIFT: u32 = PAYLOAD_SHIFT + MFN_BITS;

/// One page's state in a word. Zero is absent, so a zeroed table is one of absent pages.
///
/// Kind 0..4, watched 4, machine page 12..56, pins or replica nodes 56..64; for paged-out pages the slot 12..64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u64);

impl Slot {
    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline]
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn pack(state: PageState) -> Self {
        let kind = state.kind() as u64;
        Self(match state {
            PageState::Absent | PageState::Zero => kind,
            PageState::Private { mfn, pins, watched } => {
                let watched = if watched { WATCHED } else { 0 };
                kind | watched | mfn.raw() << PAYLOAD_SHIFT | (pins as u64) << PINS_SHIFT
            }
            PageState::Shared { mfn, pins } => kind | mfn.raw() << PAYLOAD_SHIFT | (pins as u64) << PINS_SHIFT,
            PageState::Replicated { master, nodes } => {
                kind | master.raw() << PAYLOAD_SHIFT | (nodes as u64) << PINS_SHIFT
            }
            PageState::PagedOut { slot } => kind | slot << PAYLOAD_SHIFT,
            PageState::Remote { holder } => kind | (holder as u64) << PAYLOAD_SHIFT,
        })
    }

    /// A shared page that no device uses.
    #[inline(always)]
    pub(crate) const fn shared(mfn: Mfn) -> Self {
        Self(StateKind::Shared as u64 | mfn.raw() << PAYLOAD_SHIFT)
    }

    /// The machine page of a private page that nobody watches: the quick question of every access by a device.
    #[inline]
    pub(crate) const fn private_page(self) -> Option<Mfn> {
        const PRIVATE: u64 = StateKind::Private as u64;
        if self.0 & (KIND_MASK | WATCHED) == PRIVATE {
            Some(Mfn::new(self.0 >> PAYLOAD_SHIFT & MFN_MASK))
        } else {
            None
        }
    }

    /// The machine page of a private or shared page that no device uses, and whether it is shared.
    #[inline(always)]
    pub(crate) const fn replaceable_page(self) -> Option<(Mfn, bool)> {
        const PRIVATE: u64 = StateKind::Private as u64;
        const SHARED: u64 = StateKind::Shared as u64;
        let kind = self.0 & KIND_MASK;
        if (kind == PRIVATE || kind == SHARED) && self.0 >> PINS_SHIFT == 0 {
            Some((Mfn::new(self.0 >> PAYLOAD_SHIFT & MFN_MASK), kind == SHARED))
        } else {
            None
        }
    }

    /// A private page that no device uses.
    #[inline(always)]
    pub(crate) const fn private(mfn: Mfn, watched: bool) -> Self {
        let watched = if watched { WATCHED } else { 0 };
        Self(StateKind::Private as u64 | watched | mfn.raw() << PAYLOAD_SHIFT)
    }

    /// A page with copies on these nodes.
    #[inline(always)]
    pub(crate) const fn replicated(master: Mfn, nodes: u8) -> Self {
        Self(StateKind::Replicated as u64 | master.raw() << PAYLOAD_SHIFT | (nodes as u64) << PINS_SHIFT)
    }

    /// The machine page of a private page that no device uses, and whether it is watched.
    #[inline(always)]
    pub(crate) const fn sole_page(self) -> Option<(Mfn, bool)> {
        const PRIVATE: u64 = StateKind::Private as u64;
        if self.0 & KIND_MASK == PRIVATE && self.0 >> PINS_SHIFT == 0 {
            Some((Mfn::new(self.0 >> PAYLOAD_SHIFT & MFN_MASK), self.0 & WATCHED != 0))
        } else {
            None
        }
    }

    /// The machine page of a page that may get one more copy, and the nodes that have one.
    #[inline(always)]
    pub(crate) const fn replicable_page(self) -> Option<(Mfn, u8)> {
        const REPLICATED: u64 = StateKind::Replicated as u64;
        let mfn = Mfn::new(self.0 >> PAYLOAD_SHIFT & MFN_MASK);
        match self.sole_page() {
            Some((_, true)) => Some((mfn, 0)),
            None if self.0 & KIND_MASK == REPLICATED => Some((mfn, (self.0 >> PINS_SHIFT) as u8)),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) const fn is_absent(self) -> bool {
        self.0 == 0
    }

    /// The state; `None` for a word that [`Slot::pack`] never made.
    #[inline]
    pub(crate) const fn unpack(self) -> Option<PageState> {
        let payload = self.0 >> PAYLOAD_SHIFT;
        let mfn = Mfn::new(payload & MFN_MASK);
        let high = (self.0 >> PINS_SHIFT) as u8;
        Some(match self.0 & KIND_MASK {
            0 => PageState::Absent,
            1 => PageState::Zero,
            2 => PageState::Private { mfn, pins: high, watched: self.0 & WATCHED != 0 },
            3 => PageState::Shared { mfn, pins: high },
            4 => PageState::Replicated { master: mfn, nodes: high },
            5 => PageState::PagedOut { slot: payload },
            6 => PageState::Remote { holder: payload as u16 },
            _ => return None,
        })
    }
}

/// A 2 MiB block of guest memory: of one state, or with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Absent, or a private large page.
    Whole(PageState),
    /// 512 slots in a machine page, so many of them not absent.
    Table { mfn: Mfn, used: u16 },
}

/// A block in a word: a slot, or kind 15 with the count 4..14 and the table's page 14..58.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockWord(u64);

const TABLE_KIND: u64 = 15;
const USED_SHIFT: u32 = 4;
const USED_MASK: u64 = 0x3ff;
const TABLE_SHIFT: u32 = 14;

impl BlockWord {
    pub(crate) const ABSENT: Self = Self(0);

    #[inline]
    pub(crate) const fn pack(block: Block) -> Self {
        match block {
            Block::Whole(state) => Self(Slot::pack(state).0),
            Block::Table { mfn, used } => Self(TABLE_KIND | (used as u64) << USED_SHIFT | mfn.raw() << TABLE_SHIFT),
        }
    }

    /// The page of slots, if the block has one.
    #[inline]
    pub(crate) const fn table(self) -> Option<Mfn> {
        if self.0 & KIND_MASK == TABLE_KIND { Some(Mfn::new(self.0 >> TABLE_SHIFT & MFN_MASK)) } else { None }
    }

    /// Slots that are not absent, if the block has a page of them.
    #[inline(always)]
    pub(crate) const fn used(self) -> u16 {
        (self.0 >> USED_SHIFT & USED_MASK) as u16
    }

    /// One slot more is not absent. At most 512 are, which the field holds.
    #[inline(always)]
    pub(crate) const fn with_one_more(self) -> Self {
        Self(self.0 + (1 << USED_SHIFT))
    }

    /// The state of a block without a page of slots.
    #[inline]
    pub(crate) const fn whole(self) -> Slot {
        Slot(self.0)
    }

    #[inline]
    pub(crate) fn unpack(self) -> Block {
        if let Some(mfn) = self.table() {
            return Block::Table { mfn, used: self.used() };
        }
        Block::Whole(Slot(self.0).unpack().expect("block words are made by `pack` only"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_state() -> impl Strategy<Value = PageState> {
        let mfn = || (0u64..1 << 44).prop_map(Mfn::new);
        prop_oneof![
            Just(PageState::Absent),
            Just(PageState::Zero),
            (mfn(), any::<u8>(), any::<bool>()).prop_map(|(mfn, pins, watched)| PageState::Private {
                mfn,
                pins,
                watched
            }),
            (mfn(), any::<u8>()).prop_map(|(mfn, pins)| PageState::Shared { mfn, pins }),
            (mfn(), any::<u8>()).prop_map(|(master, nodes)| PageState::Replicated { master, nodes }),
            (0u64..1 << 52).prop_map(|slot| PageState::PagedOut { slot }),
            any::<u16>().prop_map(|holder| PageState::Remote { holder }),
        ]
    }

    proptest! {
        #[test]
        fn states_round_trip(state in any_state()) {
            prop_assert_eq!(Slot::pack(state).unpack(), Some(state));
            let private = match state {
                PageState::Private { mfn, watched: false, .. } => Some(mfn),
                _ => None,
            };
            prop_assert_eq!(Slot::pack(state).private_page(), private);
            let replaceable = match state {
                PageState::Private { mfn, pins: 0, .. } => Some((mfn, false)),
                PageState::Shared { mfn, pins: 0 } => Some((mfn, true)),
                _ => None,
            };
            prop_assert_eq!(Slot::pack(state).replaceable_page(), replaceable);
            let sole = match state {
                PageState::Private { mfn, pins: 0, watched } => Some((mfn, watched)),
                _ => None,
            };
            prop_assert_eq!(Slot::pack(state).sole_page(), sole);
            if let Some((mfn, watched)) = sole {
                prop_assert_eq!(Slot::pack(state), Slot::private(mfn, watched));
            }
            let replicable = match state {
                PageState::Private { mfn, pins: 0, watched: true } => Some((mfn, 0)),
                PageState::Replicated { master, nodes } => Some((master, nodes)),
                _ => None,
            };
            prop_assert_eq!(Slot::pack(state).replicable_page(), replicable);
            if let PageState::Replicated { master, nodes } = state {
                prop_assert_eq!(Slot::pack(state), Slot::replicated(master, nodes));
            }
            if let PageState::Shared { mfn, pins: 0 } = state {
                prop_assert_eq!(Slot::pack(state), Slot::shared(mfn));
            }
            prop_assert_eq!(BlockWord::pack(Block::Whole(state)).unpack(), Block::Whole(state));
        }

        #[test]
        fn tables_round_trip(mfn in 0u64..1 << 44, used in 0u16..=512) {
            let block = Block::Table { mfn: Mfn::new(mfn), used };
            prop_assert_eq!(BlockWord::pack(block).unpack(), block);
            if used < 512 {
                let more = Block::Table { mfn: Mfn::new(mfn), used: used + 1 };
                prop_assert_eq!(BlockWord::pack(block).with_one_more().unpack(), more);
            }
        }

        #[test]
        fn no_word_breaks_the_decoder(word: u64) {
            let _ = Slot::from_word(word).unpack();
        }
    }

    #[test]
    fn zero_is_absent() {
        assert_eq!(Slot::from_word(0).unpack(), Some(PageState::Absent));
        assert_eq!(BlockWord::pack(Block::Whole(PageState::Absent)).0, BlockWord::ABSENT.0);
    }
}
