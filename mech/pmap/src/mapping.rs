//! What a lookup finds.

use addr::{Gfn, Mfn, PageSize};

use crate::{PageState, Rights};

/// The backing of the page or block that a guest page lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First guest page.
    pub gfn: Gfn,
    /// Size: the largest leaf that may be installed. An absent block counts as [`PageSize::Large`] only when a large page
    /// may be put there.
    pub size: PageSize,
    /// The state; its machine page backs `gfn`, the next ones follow.
    pub state: PageState,
}

impl Mapping {
    /// The machine page behind a guest page of this mapping.
    #[must_use]
    #[inline]
    pub fn machine_page(&self, gfn: Gfn) -> Option<Mfn> {
        let index = gfn.raw().checked_sub(self.gfn.raw())?;
        let first = self.state.mfn()?;
        if index < self.size.base_pages() { first.checked_add(index) } else { None }
    }

    /// What a leaf may allow.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.state.rights()
    }

    /// Whether there is something that may be read but not written.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        matches!(self.state.rights(), Rights::Read)
    }

    /// Whether nothing backs it yet.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self.state, PageState::Absent)
    }
}
