//! What a guest is to be told about its machine.

use crate::{MAX_IDS, MAX_VCPUS, Plic, map};
use addr::BASE_PAGE;
use core::{fmt, ops::Range};

/// The description of a virtual machine from which its device tree is made.
#[derive(Clone, Copy, Debug)]
pub struct PlatformSpec<'a> {
    /// Number of vCPUs, 1 to [`MAX_VCPUS`]; vCPU `n` has hart id `n`.
    pub vcpus: u16,
    /// ISA extensions in canonical order, lower case (`"i"`, `"m"`, ... `"zicsr"`, ...): what the machine has and the
    /// guest is allowed to use.
    pub extensions: &'a [&'a str],
    /// Largest paging mode.
    pub mmu: MmuType,
    /// Block sizes of cache-block instructions, in bytes.
    pub cache_blocks: CacheBlocks,
    /// Frequency of the `time` counter.
    pub timebase_hz: u32,
    /// Bytes of RAM from [`map::RAM_BASE`]: a multiple of 4 KiB.
    pub ram_bytes: u64,
    /// Interrupt controllers.
    pub interrupts: Interrupts,
    /// The virtio-mmio slots that hold a device, ascending.
    pub virtio_slots: &'a [u8],
    /// Kernel command line.
    pub bootargs: &'a str,
    /// Where the initrd lies in guest-physical memory.
    pub initrd: Option<&'a Range<u64>>,
    /// Random bytes for the guest's generator, at least 32 or none. Never the same twice.
    pub rng_seed: &'a [u8],
    /// Nodes to show to the guest; `None` hides that there are any.
    pub numa: Option<Numa<'a>>,
}

/// A paging mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmuType {
    /// 39-bit addresses.
    Sv39,
    /// 48-bit addresses.
    Sv48,
    /// 57-bit addresses.
    Sv57,
}

impl MmuType {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sv39 => "riscv,sv39",
            Self::Sv48 => "riscv,sv48",
            Self::Sv57 => "riscv,sv57",
        }
    }
}

/// Block sizes of the cache-block extensions in bytes; `None` where the extension is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheBlocks {
    /// Zicbom: management.
    pub management: Option<u32>,
    /// Zicbop: prefetch.
    pub prefetch: Option<u32>,
    /// Zicboz: zero.
    pub zero: Option<u32>,
}

/// The interrupt controllers of a VM. They also decide how sources are declared: with AIA the UART and virtio devices
/// are edge-triggered, because Linux follows each level-triggered interrupt with a store to the APLIC, an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// A PLIC; all sources level-triggered.
    Plic,
    /// APLIC and interrupt files.
    Aia {
        /// Identities per file: 63, 127, 191 or 255. With hardware guest files no more than those have.
        num_ids: u16,
    },
}

/// The nodes that a guest sees.
#[derive(Clone, Copy, Debug)]
pub struct Numa<'a> {
    /// The node of each vCPU.
    pub vcpu_nodes: &'a [u32],
    /// Bytes of RAM per node, in order of address; their sum is all RAM.
    pub memory_bytes: &'a [u64],
    /// Distances row by row, 10 on the diagonal.
    pub distances: &'a [u32],
}

/// Why a description cannot be a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// Not 1 to [`MAX_VCPUS`].
    VcpuCount(u16),
    /// RAM is no positive multiple of a page, or does not fit into the address space.
    RamSize(u64),
    /// The ISA lacks an extension that every guest needs: the base `i`.
    NoBaseIsa,
    /// A time that does not pass.
    ZeroTimebase,
    /// Not one of the sizes that an interrupt file can have.
    NumIds(u16),
    /// A slot that does not exist, or out of order.
    VirtioSlot(u8),
    /// The command line has a NUL byte.
    BootArgs,
    /// The initrd does not lie in RAM.
    Initrd {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
    },
    /// A seed too short to be one.
    RngSeed(usize),
    /// A list of the NUMA description that does not fit the rest.
    Numa(NumaPart),
}

/// A part of the NUMA description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaPart {
    /// One node per vCPU, each of which exists.
    VcpuNodes,
    /// Page multiples that add up to the RAM.
    MemoryBytes,
    /// A square, 10 on the diagonal, more elsewhere.
    Distances,
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::VcpuCount(count) => write!(f, "{count} vCPUs: must be 1 to {MAX_VCPUS}"),
            Self::RamSize(bytes) => write!(f, "{bytes:#x} bytes of RAM: must be a multiple of 4 KiB that fits"),
            Self::NoBaseIsa => f.write_str("the ISA lacks `i`"),
            Self::ZeroTimebase => f.write_str("timebase of 0 Hz"),
            Self::NumIds(ids) => write!(f, "{ids} interrupt identities: must be 63, 127, 191 or {MAX_IDS}"),
            Self::VirtioSlot(slot) => write!(f, "virtio slot {slot}: absent, repeated or out of order"),
            Self::BootArgs => f.write_str("the kernel command line has a NUL byte"),
            Self::Initrd { start, end } => write!(f, "initrd at {start:#x}..{end:#x} does not lie in RAM"),
            Self::RngSeed(len) => write!(f, "seed of {len} bytes: must be at least {MIN_SEED_BYTES}"),
            Self::Numa(NumaPart::VcpuNodes) => f.write_str("NUMA: not one existing node per vCPU"),
            Self::Numa(NumaPart::MemoryBytes) => f.write_str("NUMA: memory of the nodes does not add up to the RAM"),
            Self::Numa(NumaPart::Distances) => f.write_str("NUMA: distances are no matrix with 10 on the diagonal"),
        }
    }
}

impl core::error::Error for TreeError {}

/// Linux credits 256 bits.
const MIN_SEED_BYTES: usize = 32;
/// The distance of a node to itself.
const LOCAL_DISTANCE: u32 = 10;

impl PlatformSpec<'_> {
    /// Refuses what contradicts itself.
    ///
    /// # Errors
    /// What does.
    pub fn check(&self) -> Result<(), TreeError> {
        if self.vcpus == 0 || self.vcpus > MAX_VCPUS {
            return Err(TreeError::VcpuCount(self.vcpus));
        }
        let ram_end = map::RAM_BASE.checked_add(self.ram_bytes);
        let Some(ram_end) = ram_end.filter(|_| self.ram_bytes != 0 && self.ram_bytes.is_multiple_of(BASE_PAGE)) else {
            return Err(TreeError::RamSize(self.ram_bytes));
        };
        if !self.extensions.contains(&"i") {
            return Err(TreeError::NoBaseIsa);
        }
        if self.timebase_hz == 0 {
            return Err(TreeError::ZeroTimebase);
        }
        if let Interrupts::Aia { num_ids } = self.interrupts
            && !matches!(num_ids, 63 | 127 | 191 | MAX_IDS)
        {
            return Err(TreeError::NumIds(num_ids));
        }
        self.check_slots()?;
        if self.bootargs.contains('\0') {
            return Err(TreeError::BootArgs);
        }
        if let Some(&Range { start, end }) = self.initrd
            && (start < map::RAM_BASE || end > ram_end || start >= end)
        {
            return Err(TreeError::Initrd { start, end });
        }
        if (1..MIN_SEED_BYTES).contains(&self.rng_seed.len()) {
            return Err(TreeError::RngSeed(self.rng_seed.len()));
        }
        self.numa.map_or(Ok(()), |numa| self.check_numa(numa))
    }

    fn check_slots(&self) -> Result<(), TreeError> {
        let mut next = 0;
        for &slot in self.virtio_slots {
            if slot < next || slot >= map::VIRTIO_SLOTS {
                return Err(TreeError::VirtioSlot(slot));
            }
            next = slot + 1;
        }
        Ok(())
    }

    fn check_numa(&self, numa: Numa<'_>) -> Result<(), TreeError> {
        let nodes = numa.memory_bytes.len();
        let exists = |node: &u32| usize::try_from(*node).is_ok_and(|node| node < nodes);
        if numa.vcpu_nodes.len() != usize::from(self.vcpus) || !numa.vcpu_nodes.iter().all(exists) {
            return Err(TreeError::Numa(NumaPart::VcpuNodes));
        }
        let sum = numa.memory_bytes.iter().try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
        if sum != Some(self.ram_bytes) || numa.memory_bytes.iter().any(|bytes| !bytes.is_multiple_of(BASE_PAGE)) {
            return Err(TreeError::Numa(NumaPart::MemoryBytes));
        }
        let is_distance = |(index, distance): (usize, &u32)| {
            if index / nodes == index % nodes { *distance == LOCAL_DISTANCE } else { *distance > LOCAL_DISTANCE }
        };
        if numa.distances.len() != nodes * nodes || !numa.distances.iter().enumerate().all(is_distance) {
            return Err(TreeError::Numa(NumaPart::Distances));
        }
        Ok(())
    }
}

const _: () = assert!(Plic::SOURCES >= map::RTC_IRQ.0, "the PLIC has every wired line of the map");
