//! The whole memory side of the machine, as the one who sees every access drives it.
//!
//! [`Machine::load`], [`Machine::store`] and [`Machine::fetch`] take virtual addresses and give stalls. Most accesses end
//! in the filter of `caches`; the rest is translated by the modelled TLB, which walks the guest's own tables, and goes
//! through the hierarchy.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use model_file::{MODES, Mode, ModeCounters, Stall};

use crate::hierarchy::{Access, Hierarchy, Outcome, Source};
use crate::space::{Port, Root, Spaces};
use crate::tlb::{Fence, Gone, Tlb, mask};
use crate::{Config, ConfigError, Shared};

/// Address bits in the filter's keys: Sv57's and their sign. The space comes above.
const KEY_MASK: u64 = (1 << 58) - 1;
const SPACE_SHIFT: u32 = 52;
/// A key part that is in no entry of the filter: the space has to be found out.
const UNKNOWN_SPACE: u64 = 0xffe << SPACE_SHIFT;

/// Caches, TLBs and counters of all harts.
#[derive(Debug)]
pub struct Machine {
    hierarchy: Hierarchy,
    harts: Vec<Hart>,
    line_shift: u32,
}

#[derive(Debug)]
struct Hart {
    /// The space of each mode as part of a key.
    space: [u64; MODES],
    tlb: Tlb,
    spaces: Spaces,
    counters: [ModeCounters; MODES],
}

/// A place in a program that is fetched from: a line of a block of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchSite {
    /// Virtual address when the block was translated.
    pub virt: u64,
    /// Machine address.
    pub addr: u64,
    /// The mode that runs it.
    pub mode: Mode,
}

impl Machine {
    /// Cold caches.
    ///
    /// # Errors
    /// What [`Config::check`] refuses.
    pub fn new(config: &Config, shared: Shared) -> Result<Self, ConfigError> {
        let hierarchy = Hierarchy::new(config.clone(), shared)?;
        let hart = || Hart {
            space: [UNKNOWN_SPACE; MODES],
            tlb: Tlb::new(config.tlb),
            spaces: Spaces::new(),
            counters: [ModeCounters::default(); MODES],
        };
        let harts = (0..config.harts).map(|_| hart()).collect();
        Ok(Self { hierarchy, harts, line_shift: config.line_bytes.trailing_zeros() })
    }

    /// The shared file.
    pub fn shared(&self) -> &Shared {
        self.hierarchy.shared()
    }

    /// What was counted of a hart: all but instructions and time.
    pub fn counters(&self, hart: usize) -> &[ModeCounters; MODES] {
        &self.harts[hart].counters
    }

    /// `hart` has read `addr`; gives the stall.
    ///
    /// # Errors
    /// The machine address, if it is a device's: nothing is timed.
    #[inline(always)]
    pub fn load(&mut self, hart: usize, mode: Mode, addr: u64, port: &mut impl Port) -> Result<u64, u64> {
        let key = self.key(hart, mode, addr);
        if self.hierarchy.harts[hart].knows_read(key) {
            return Ok(0);
        }
        self.data(hart, mode, addr, Access::Load, port)
    }

    /// `hart` has written to `addr`; gives the stall.
    ///
    /// # Errors
    /// As [`Machine::load`].
    #[inline(always)]
    pub fn store(&mut self, hart: usize, mode: Mode, addr: u64, port: &mut impl Port) -> Result<u64, u64> {
        let key = self.key(hart, mode, addr);
        if self.hierarchy.harts[hart].knows_write(key) {
            return Ok(0);
        }
        self.data(hart, mode, addr, Access::Store, port)
    }

    /// Where the caller looks before it calls [`Machine::fetch`]: for each set of the instruction cache the number of its
    /// most recently used line, plus one. A fetch of that line changes nothing and is not told.
    pub fn watch_fetches(&mut self, hart: usize, fetched: &'static [AtomicU64]) {
        self.hierarchy.harts[hart].watch_fetches(fetched);
    }

    /// The number of the line of a machine address, as in [`Machine::watch_fetches`]; `None` for what is not RAM.
    pub fn line_of(&self, addr: u64) -> Option<u32> {
        self.hierarchy.line_of(addr)
    }

    /// `hart` runs instructions of the line of `site`. The hart is asked where it really is if that is not
    /// where the TLB has the line: a block serves every address at which its page is mapped. Gives the stall.
    pub fn fetch(&mut self, hart: usize, site: &FetchSite, port: &mut impl Port) -> u64 {
        let Some(line) = self.hierarchy.line_of(site.addr) else { return 0 };
        let mut stall_ps = 0;
        if self.translated(hart, site, port) != Some(site.addr) {
            let virt = port.program_counter() & !0xfff | site.virt & 0xfff;
            stall_ps = self.translate(hart, site.mode, virt, port).1;
        }
        let outcome = self.hierarchy.access_line(hart, Access::Fetch, line);
        self.harts[hart].count(site.mode, &outcome);
        self.hierarchy.harts[hart].fetched(line);
        stall_ps + outcome.stall_ps
    }

    /// A register of `hart` that says how it translates is about to be written.
    pub fn root_written(&mut self, hart: usize, root: Root) {
        let hart_state = &mut self.harts[hart];
        hart_state.spaces.written(root);
        let modes = if root == Root::Satp { [Mode::U, Mode::S] } else { [Mode::VU, Mode::VS] };
        modes.into_iter().for_each(|mode| hart_state.space[mode as usize] = UNKNOWN_SPACE);
        // Fetches are recognized by machine address alone.
        self.hierarchy.harts[hart].unknow_all();
    }

    /// `hart` executes a fence.
    pub fn fence(&mut self, hart: usize, fence: &Fence) {
        let Hart { tlb, spaces, .. } = &mut self.harts[hart];
        tlb.flush(spaces, fence);
        self.hierarchy.harts[hart].unknow_all();
    }

    /// The VMs that `hart` has run.
    pub fn vmids(&self, hart: usize) -> Vec<u16> {
        self.harts[hart].spaces.vmids()
    }

    /// Nothing is known any more of how harts translate: the machine was not watched for some time.
    pub fn forget_translations(&mut self) {
        for (hart, caches) in self.harts.iter_mut().zip(&mut self.hierarchy.harts) {
            hart.tlb.clear();
            hart.spaces = Spaces::new();
            hart.space = [UNKNOWN_SPACE; MODES];
            caches.unknow_all();
        }
    }

    #[inline(always)]
    fn key(&self, hart: usize, mode: Mode, addr: u64) -> u64 {
        (addr & KEY_MASK) >> self.line_shift | self.harts[hart].space[mode as usize]
    }

    #[inline(never)]
    fn data(&mut self, hart: usize, mode: Mode, addr: u64, access: Access, port: &mut impl Port) -> Result<u64, u64> {
        let (found, walk_ps) = self.translate(hart, mode, addr, port);
        // An access has succeeded; that the tables say otherwise means that they were changed just then.
        let Some(machine_addr) = found else { return Ok(walk_ps) };
        let line = self.hierarchy.line_of(machine_addr).ok_or(machine_addr)?;
        let outcome = self.hierarchy.access_line(hart, access, line);
        self.harts[hart].count(mode, &outcome);
        let key = self.key(hart, mode, addr);
        self.hierarchy.harts[hart].know(key, line);
        Ok(walk_ps + outcome.stall_ps)
    }

    /// What the TLB says of a site's address.
    fn translated(&mut self, hart: usize, site: &FetchSite, port: &mut impl Port) -> Option<u64> {
        let Hart { tlb, spaces, .. } = &mut self.harts[hart];
        let context = spaces.context(site.mode, port);
        if context.space == crate::space::PHYSICAL { Some(site.addr) } else { tlb.lookup(&context, site.virt) }
    }

    /// The machine address, by TLB or walk, and the stall of the walk.
    #[inline]
    fn translate(&mut self, hart: usize, mode: Mode, addr: u64, port: &mut impl Port) -> (Option<u64>, u64) {
        let Self { hierarchy, harts, line_shift } = self;
        let state = &mut harts[hart];
        if state.space[mode as usize] == UNKNOWN_SPACE {
            state.find_space(mode, port);
            hierarchy.harts[hart].unknow_all();
        }
        let context = state.spaces.context(mode, port);
        if context.space == crate::space::PHYSICAL {
            return (Some(addr), 0);
        }
        if let Some(found) = state.tlb.lookup(&context, addr) {
            return (Some(found), 0);
        }
        let (mut stall_ps, mut reads) = (0, 0);
        let walked = state.tlb.walk(&context, addr, &mut |entry| {
            stall_ps += hierarchy.read_entry(hart, entry);
            reads += 1;
            port.table_entry(entry)
        });
        let counters = &mut state.counters[mode as usize];
        counters.stalls[Stall::Walk as usize] += 1;
        counters.stall_ps[Stall::Walk as usize] += stall_ps;
        counters.walk_reads += reads;
        let found = walked.map(|(found, gone)| {
            if let Some(gone) = gone {
                forget(hierarchy, hart, *line_shift, &gone);
            }
            found
        });
        (found, stall_ps)
    }
}

impl Hart {
    /// The part of the filter's keys that stands for the space of `mode`.
    #[cold]
    fn find_space(&mut self, mode: Mode, port: &mut impl Port) {
        if self.spaces.make_room() {
            self.tlb.clear();
            self.space = [UNKNOWN_SPACE; MODES];
        }
        let space = u64::from(self.spaces.context(mode, port).space) << SPACE_SHIFT;
        let same: &[Mode] = match mode {
            Mode::U | Mode::S => &[Mode::U, Mode::S],
            Mode::VU | Mode::VS => &[Mode::VU, Mode::VS],
            Mode::M | Mode::Idle => &[Mode::M],
        };
        same.iter().for_each(|mode| self.space[*mode as usize] = space);
    }

    fn count(&mut self, mode: Mode, outcome: &Outcome) {
        let kind = match outcome.source {
            Source::L1 | Source::Device => return,
            Source::L2 => Stall::L2,
            Source::Local => Stall::Local,
            Source::Remote => Stall::Remote,
            Source::Upgrade => Stall::Upgrade,
        };
        let counters = &mut self.counters[mode as usize];
        counters.stalls[kind as usize] += 1;
        counters.stall_ps[kind as usize] += outcome.stall_ps;
        counters.invalidations += u64::from(outcome.invalidated);
    }
}

/// A translation left the TLB: its lines are no longer recognized without look-up.
fn forget(hierarchy: &mut Hierarchy, hart: usize, line_shift: u32, gone: &Gone) {
    let lines = ((mask(gone.size) + 1) >> line_shift) as usize;
    let line = hierarchy.line_of(gone.addr);
    let caches = &mut hierarchy.harts[hart];
    if gone.size > 0 {
        caches.unknow_all();
        return;
    }
    caches.unknow_lines((gone.virt & KEY_MASK) >> line_shift, lines);
    if let Some(line) = line {
        caches.forget_fetched(line, lines);
    }
}
