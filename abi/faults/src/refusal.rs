//! Why a fault is not injected.

use core::fmt;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why a fault is not injected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u64)]
        pub enum Refusal {
            $($(#[$doc])* $name = $code,)*
        }

        impl Refusal {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What is wrong, as a person would say it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

refusals! {
    /// No such kind.
    UnknownKind = 1, "there is no such kind of fault";
    /// No node is named.
    NoNodes = 2, "no node is named";
    /// More than one node is named.
    ManyNodes = 3, "this kind of fault is about one node: for several name a router";
    /// A node that the machine does not have.
    UnknownNode = 4, "the machine has no such node";
    /// Nobody would be left, or on the other side of the link.
    NobodyLeft = 5, "no live node would be left on the other side";
    /// The nodes are gone, or cut off, already.
    AlreadyGone = 6, "what is to fail has failed already";
    /// The address is not that of a page.
    Unaligned = 7, "the address is not that of a page (a multiple of 0x1000)";
    /// The address is not one of memory, or the firmware's.
    NotMemory = 8, "there is no memory at this address, or it is the firmware's own";
    /// The harts have no protection entries left for it.
    NoEntries = 9, "the harts have no protection entries (PMP) left for another fault";
    /// No such trigger.
    UnknownTrigger = 10, "there is no such trigger";
    /// The trigger's hart does not exist.
    UnknownHart = 11, "the machine has no such hart";
    /// The harts have no protection entries at all.
    NoProtection = 12, "the harts have no physical memory protection: QEMU's profile CPUs need pmp=on";
}

impl Refusal {
    /// The refusal with this code.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        Self::ALL.iter().copied().find(|refusal| *refusal as u64 == word)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_codes_of_their_own() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_word(*refusal as u64), Some(*refusal));
        }
        assert_eq!(Refusal::from_word(0), None);
    }
}
