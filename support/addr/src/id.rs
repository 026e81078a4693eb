//! Identities.

use core::fmt;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident($raw:ty), $tag:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $raw);

        impl $name {
            /// The number as an array index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($tag, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

identity!(
    /// A processor of the machine, by its SBI hart id (sparse, chosen by the firmware).
    HartId(u64),
    "hart#"
);
identity!(
    /// A processor of the machine, by our dense index 0..n.
    CpuIndex(u16),
    "cpu"
);
identity!(
    /// Harts, memory and devices with one local latency; dense index 0..n.
    NodeId(u8),
    "node"
);
identity!(
    /// A virtual machine. Never reused while anything may still name the old one.
    VmId(u16),
    "vm"
);
identity!(
    /// A virtual processor's index inside its VM; also the hart id that its guest sees.
    VcpuIndex(u16),
    "vcpu"
);
identity!(
    /// The `hgatp.VMID` tag that a hart has lent to an address space for now. Not an identity of a VM.
    Vmid(u16),
    "vmid"
);
identity!(
    /// A software performance unit (paper 004): who is charged for a resource.
    SpuId(u16),
    "spu"
);
