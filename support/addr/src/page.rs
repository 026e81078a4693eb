//! Address and frame-number types.

use core::fmt;

/// log2 of the base page size.
pub const BASE_PAGE_SHIFT: u32 = 12;
/// Bytes in a base page (4 KiB).
pub const BASE_PAGE: u64 = 1 << BASE_PAGE_SHIFT;
/// log2 of the large page size.
pub const LARGE_PAGE_SHIFT: u32 = 21;
/// Bytes in a large page (2 MiB), the leaf size of level 1 of every RISC-V paging mode used here.
pub const LARGE_PAGE: u64 = 1 << LARGE_PAGE_SHIFT;
/// Base pages in a large page.
pub const PAGES_PER_LARGE: u64 = LARGE_PAGE / BASE_PAGE;

/// The two leaf sizes that the monitor hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageSize {
    /// 4 KiB.
    Base,
    /// 2 MiB.
    Large,
}

impl PageSize {
    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Base => BASE_PAGE,
            Self::Large => LARGE_PAGE,
        }
    }

    /// Size in base pages.
    #[must_use]
    pub const fn base_pages(self) -> u64 {
        self.bytes() / BASE_PAGE
    }
}

macro_rules! address {
    ($(#[$doc:meta])* $name:ident, $tag:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(u64);

        impl $name {
            /// Wraps a raw address.
            #[must_use]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The raw address.
            #[must_use]
            pub const fn raw(self) -> u64 {
                self.0
            }

            /// `self + bytes`, or `None` if that wraps.
            #[must_use]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// Bytes from `base` up to `self`, or `None` if `self` lies below `base`.
            #[must_use]
            pub const fn offset_from(self, base: Self) -> Option<u64> {
                self.0.checked_sub(base.0)
            }

            /// The address rounded down to a multiple of `size`'s bytes.
            #[must_use]
            pub const fn align_down(self, size: PageSize) -> Self {
                Self(self.0 & !(size.bytes() - 1))
            }

            /// Whether the address is a multiple of `size`'s bytes.
            #[must_use]
            pub const fn is_aligned(self, size: PageSize) -> bool {
                self.0 & (size.bytes() - 1) == 0
            }

            /// Offset inside the base page.
            #[must_use]
            pub const fn page_offset(self) -> u64 {
                self.0 & (BASE_PAGE - 1)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($tag, ":{:#x}"), self.0)
            }
        }
    };
}

address!(
    /// An address of the real machine (the ISA's supervisor physical address).
    MachineAddr,
    "ma"
);
address!(
    /// An address of a guest's physical memory: the input of the G-stage. Only meaningful with its VM.
    GuestPhysAddr,
    "gpa"
);
address!(
    /// A guest virtual address: the input of the VS-stage.
    GuestVirtAddr,
    "gva"
);

macro_rules! frame {
    ($(#[$doc:meta])* $name:ident, $addr:ident, $conv:ident, $tag:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(u64);

        impl $name {
            /// Wraps a frame number (address >> 12).
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The frame number.
            #[must_use]
            pub const fn raw(self) -> u64 {
                self.0
            }

            /// The address of the frame's first byte.
            #[must_use]
            pub const fn addr(self) -> $addr {
                $addr::new(self.0 << BASE_PAGE_SHIFT)
            }

            /// The frame `pages` further on, or `None` if that is beyond the address space.
            #[must_use]
            pub const fn checked_add(self, pages: u64) -> Option<Self> {
                match self.0.checked_add(pages) {
                    Some(number) if number <= u64::MAX >> BASE_PAGE_SHIFT => Some(Self(number)),
                    _ => None,
                }
            }

            /// The frame number rounded down to the start of its 2 MiB block.
            #[must_use]
            pub const fn large_base(self) -> Self {
                Self(self.0 & !(PAGES_PER_LARGE - 1))
            }

            /// Index inside its 2 MiB block, 0..512.
            #[must_use]
            pub const fn index_in_large(self) -> usize {
                (self.0 & (PAGES_PER_LARGE - 1)) as usize
            }
        }

        impl $addr {
            /// The base-page frame that holds this address.
            #[must_use]
            pub const fn $conv(self) -> $name {
                $name::new(self.0 >> BASE_PAGE_SHIFT)
            }
        }

        impl fmt::Display for $name {
            /// The frame number in hexadecimal.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($tag, ":{:#x}"), self.0)
            }
        }
    };
}

frame!(
    /// A 4 KiB frame of machine memory.
    Mfn,
    MachineAddr,
    mfn,
    "mfn"
);
frame!(
    /// A 4 KiB frame of guest-physical memory.
    Gfn,
    GuestPhysAddr,
    gfn,
    "gfn"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_addresses_convert_both_ways() {
        let a = MachineAddr::new(0x8020_1fff);
        assert_eq!(a.mfn(), Mfn::new(0x80201));
        assert_eq!(a.mfn().addr(), MachineAddr::new(0x8020_1000));
        assert_eq!(a.page_offset(), 0xfff);
        assert_eq!(Gfn::new(0x80201).large_base(), Gfn::new(0x80200));
        assert_eq!(Gfn::new(0x80201).index_in_large(), 1);
    }

    #[test]
    fn wrapping_is_refused() {
        assert_eq!(GuestPhysAddr::new(u64::MAX).checked_add(1), None);
        assert_eq!(Gfn::new(u64::MAX >> 12).checked_add(1), None);
        assert_eq!(GuestPhysAddr::new(5).offset_from(GuestPhysAddr::new(6)), None);
    }
}
