//! RFENCE: fences on other harts.
//
// UNSAFETY: fences exist only as assembly; they drop translations that the caller says are stale, and no more.
#![expect(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use containment::MAX_HARTS;
use rustsbi::{HartMask, SbiRet};

use super::pmu::event;
use super::{hsm, ipi, pmu};
use crate::bare::csr::{self, HGATP};
use crate::bare::harts::{hardware, hart};
use crate::bare::{doorbell, injection, trap};

/// Longest wait for another hart, in ticks: 20 s. It is only reached if a hart is broken, as M-mode does bounded work; an
/// emulator on a busy host may well let a hart stand still for a second.
const PATIENCE: u64 = 200_000_000;
/// Pages that are fenced one by one; more are fenced by a fence for all.
const SINGLY: u64 = 64;
const PAGE: u64 = 4096;

const INSTRUCTIONS: u64 = 0;
const ADDRESSES: u64 = 1;
const ADDRESSES_OF_SPACE: u64 = 2;
const GUEST_OF_VMID: u64 = 3;
const GUEST: u64 = 4;
const VIRTUAL_OF_SPACE: u64 = 5;
const VIRTUAL: u64 = 6;

/// A request, in the slot of the hart that makes it.
struct Slot {
    kind: AtomicU64,
    start: AtomicU64,
    bytes: AtomicU64,
    /// ASID or VMID.
    space: AtomicU64,
    /// The caller's `hgatp`, whose VMID virtual fences are about.
    hgatp: AtomicU64,
    /// Harts that have not done it.
    pending: AtomicU64,
}

static SLOTS: [Slot; MAX_HARTS] = [const {
    Slot {
        kind: AtomicU64::new(0),
        start: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        space: AtomicU64::new(0),
        hgatp: AtomicU64::new(0),
        pending: AtomicU64::new(0),
    }
}; MAX_HARTS];

/// The extension.
pub struct Fences;

impl rustsbi::Fence for Fences {
    fn remote_fence_i(&self, mask: HartMask) -> SbiRet {
        request(mask, INSTRUCTIONS, [0, 0, 0])
    }
    fn remote_sfence_vma(&self, mask: HartMask, start: usize, bytes: usize) -> SbiRet {
        request(mask, ADDRESSES, [start, bytes, 0])
    }
    fn remote_sfence_vma_asid(&self, mask: HartMask, start: usize, bytes: usize, asid: usize) -> SbiRet {
        request(mask, ADDRESSES_OF_SPACE, [start, bytes, asid])
    }
    fn remote_hfence_gvma_vmid(&self, mask: HartMask, start: usize, bytes: usize, vmid: usize) -> SbiRet {
        request(mask, GUEST_OF_VMID, [start, bytes, vmid])
    }
    fn remote_hfence_gvma(&self, mask: HartMask, start: usize, bytes: usize) -> SbiRet {
        request(mask, GUEST, [start, bytes, 0])
    }
    fn remote_hfence_vvma_asid(&self, mask: HartMask, start: usize, bytes: usize, asid: usize) -> SbiRet {
        request(mask, VIRTUAL_OF_SPACE, [start, bytes, asid])
    }
    fn remote_hfence_vvma(&self, mask: HartMask, start: usize, bytes: usize) -> SbiRet {
        request(mask, VIRTUAL, [start, bytes, 0])
    }
}

/// Fences on all harts of the mask that run a program and are within reach; a hart that starts later fences then.
fn request(mask: HartMask, kind: u64, [start, bytes, space]: [usize; 3]) -> SbiRet {
    if !ipi::names_harts(mask) {
        return SbiRet::invalid_param();
    }
    pmu::count(event::FENCE_I_SENT + 2 * kind);
    let own = csr::this_hart();
    let slot = &SLOTS[own];
    let hgatp = if kind >= GUEST_OF_VMID { csr::read::<HGATP>() } else { 0 };
    let words = [(&slot.kind, kind), (&slot.start, start as u64), (&slot.bytes, bytes as u64)];
    words.into_iter().for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    slot.space.store(space as u64, Ordering::Relaxed);
    slot.hgatp.store(hgatp, Ordering::Relaxed);
    let runs = |id: usize| {
        let state = hart(id).state.load(Ordering::Acquire);
        (state == hsm::STARTED || state == hsm::SUSPENDED) && injection::reaches(own, id)
    };
    let others = hardware().harts().map(|(id, _)| id).filter(|id| *id != own && mask.has_bit(*id) && runs(*id));
    let targets = others.fold(0, |targets, id| targets | 1 << id);
    slot.pending.store(targets, Ordering::SeqCst);
    ids(targets).for_each(doorbell::ring);
    if mask.has_bit(own) {
        execute(slot);
    }
    wait(own, slot)
}

/// Serves others meanwhile; drops those that a fault takes, and gives up on those that do not answer.
fn wait(own: usize, slot: &Slot) -> SbiRet {
    let begin = csr::time();
    loop {
        let pending = slot.pending.load(Ordering::Acquire);
        if pending == 0 {
            return SbiRet::success(0);
        }
        for id in ids(pending).filter(|id| !injection::reaches(own, *id)) {
            slot.pending.fetch_and(!(1 << id), Ordering::AcqRel);
        }
        trap::attend(own);
        if csr::time().wrapping_sub(begin) > PATIENCE {
            slot.pending.store(0, Ordering::Release);
            return SbiRet::failed();
        }
    }
}

fn ids(set: u64) -> impl Iterator<Item = usize> {
    (0..MAX_HARTS).filter(move |id| set >> id & 1 != 0)
}

/// Does what others want of the executing hart.
pub fn serve(own: usize) {
    for (id, _) in hardware().harts() {
        let slot = &SLOTS[id];
        if slot.pending.load(Ordering::Acquire) >> own & 1 != 0 {
            execute(slot);
            pmu::count(event::FENCE_I_SENT + 2 * slot.kind.load(Ordering::Relaxed) + event::FENCE_RECEIVED);
            slot.pending.fetch_and(!(1 << own), Ordering::AcqRel);
        }
    }
}

/// Forgets all translations of this hart.
pub fn everything() {
    // SAFETY: forgets translations, no more.
    unsafe { asm!("sfence.vma", options(nostack)) };
    if has_hypervisor() {
        hfence_gvma_all();
    }
}

fn has_hypervisor() -> bool {
    csr::read::<{ csr::MISA }>() & 1 << 7 != 0
}

fn execute(slot: &Slot) {
    let [kind, start, bytes, space] =
        [&slot.kind, &slot.start, &slot.bytes, &slot.space].map(|word| word.load(Ordering::Relaxed));
    let pages = bytes.div_ceil(PAGE);
    let is_all = pages > SINGLY || (start == 0 && bytes == 0) || bytes == u64::MAX;
    let addresses = (0..if is_all { 0 } else { pages }).map(|page| start.wrapping_add(page * PAGE));
    // SAFETY (all of the assembly below): fences forget translations, no more.
    match kind {
        // SAFETY: see above.
        INSTRUCTIONS => unsafe { asm!("fence.i", options(nostack)) },
        // SAFETY: see above.
        ADDRESSES | ADDRESSES_OF_SPACE if is_all => unsafe { asm!("sfence.vma", options(nostack)) },
        ADDRESSES => addresses.for_each(|at| {
            // SAFETY: see above.
            unsafe { asm!("sfence.vma {0}", in(reg) at, options(nostack)) }
        }),
        ADDRESSES_OF_SPACE => addresses.for_each(|at| {
            // SAFETY: see above.
            unsafe { asm!("sfence.vma {0}, {1}", in(reg) at, in(reg) space, options(nostack)) }
        }),
        _ if !has_hypervisor() => {}
        GUEST | GUEST_OF_VMID if is_all => hfence_gvma_all(),
        GUEST => addresses.for_each(|at| {
            // SAFETY: see above. hfence.gvma takes the guest physical address shifted right by 2.
            unsafe { asm!(".insn r 0x73, 0, 0x31, x0, {0}, x0", in(reg) at >> 2, options(nostack)) }
        }),
        GUEST_OF_VMID => addresses.for_each(|at| {
            // SAFETY: see above.
            unsafe { asm!(".insn r 0x73, 0, 0x31, x0, {0}, {1}", in(reg) at >> 2, in(reg) space, options(nostack)) }
        }),
        _ => virtual_fence(slot, is_all || kind == VIRTUAL_OF_SPACE, addresses),
    }
}

fn hfence_gvma_all() {
    // SAFETY: forgets translations, no more.
    unsafe { asm!(".insn r 0x73, 0, 0x31, x0, x0, x0", options(nostack)) };
}

/// hfence.vvma is about the VMID in `hgatp`: the caller's takes its place for a moment. A fence for one address space is
/// done for all.
fn virtual_fence(slot: &Slot, is_all: bool, addresses: impl Iterator<Item = u64>) {
    let own = csr::read::<HGATP>();
    csr::write::<HGATP>(slot.hgatp.load(Ordering::Relaxed));
    if is_all {
        // SAFETY: forgets translations, no more.
        unsafe { asm!(".insn r 0x73, 0, 0x11, x0, x0, x0", options(nostack)) };
    } else {
        addresses.for_each(|at| {
            // SAFETY: forgets translations, no more.
            unsafe { asm!(".insn r 0x73, 0, 0x11, x0, {0}, x0", in(reg) at, options(nostack)) }
        });
    }
    csr::write::<HGATP>(own);
}
