//! What the harts can do, from the device tree and by asking the hardware.

use crate::machine::{self, Capabilities, ReadableCounters, VectorLength, direct};
use ::vcpu::fwft::Support;
use machine_tree::{Extension, MachineDescription};
use rv::{csr, fields::henvcfg, fp, guarded, sbi, world::HartFeatures};
use rv_pte::Mode;

/// Finds out what all harts have in common and publishes it.
///
/// # Panics
/// On a machine that the monitor cannot use: without H or Sstc.
pub fn adopt(description: &MachineDescription) {
    let common = description.common_extensions();
    let has = |extension| common.has(extension);
    assert!(has(Extension::H), "the harts lack the hypervisor extension (H)");
    assert!(has(Extension::Sstc), "the harts lack the Sstc extension (stimecmp)");
    let block = description.harts.iter().map(|hart| hart.cboz_block_bytes.unwrap_or(0)).min().unwrap_or(0);
    if has(Extension::Zicboz) && block != 0 {
        direct::set_zero_block(block);
    }
    let features = HartFeatures {
        sstc: true,
        // The ISA string may promise AIA where the machine has no interrupt files.
        aia: has(Extension::Ssaia) && description.controllers.imsic.is_some(),
        stateen: guarded::try_read_hstateen0().is_some(),
        svpbmt: has(Extension::Svpbmt),
        cache_blocks: has(Extension::Zicboz) || has(Extension::Zicbom),
        vector: has(Extension::V),
    };
    let vlenb = if features.vector { fp::vlenb() } else { 0 };
    direct::set_vector_bytes(vlenb);
    machine::set_capabilities(Capabilities {
        features,
        gstage_mode: best_gstage_mode(),
        vmid_bits: vmid_bits(),
        vector: VectorLength(vlenb),
        guest_files: if features.aia { guest_files() } else { 0 },
        timebase_hz: description.timebase_hz,
        counters: ReadableCounters {
            cycles: guarded::try_read_cycle().is_some(),
            instructions: guarded::try_read_instret().is_some(),
        },
        guests: Support {
            does_misaligned: has(Extension::Zicclsm),
            double_trap: has(Extension::Ssdbltrp) && has_double_traps(),
            masks_7: has(Extension::Ssnpm) && keeps_environment(henvcfg::PMM_7),
            masks_16: has(Extension::Ssnpm) && keeps_environment(henvcfg::PMM_16),
        },
    });
}

/// Whether the firmware lets guests have double traps, which it hands on to the monitor. Asks it to.
fn has_double_traps() -> bool {
    sbi::enable_double_traps().is_ok() && keeps_environment(henvcfg::DTE)
}

/// Whether `henvcfg` can hold these bits. They need the harts' ability, and the firmware's consent.
#[expect(unsafe_code)]
fn keeps_environment(bits: u64) -> bool {
    // UNSAFETY and SAFETY: no guest runs yet; bits that are not implemented read back as zero.
    let kept = unsafe {
        let before = csr::henvcfg::swap(bits);
        csr::henvcfg::swap(before)
    };
    kept & bits == bits
}

/// The smallest G-stage mode the hart has: three levels make the shortest walks, and 512 GiB of guest-physical space
/// are enough for any guest here.
#[expect(unsafe_code)]
fn best_gstage_mode() -> Mode {
    for mode in [Mode::Sv39x4, Mode::Sv48x4, Mode::Sv57x4] {
        // UNSAFETY and SAFETY: no guest runs yet; an unsupported mode leaves hgatp as it was.
        let kept = unsafe {
            csr::hgatp::write(mode.field() << 60);
            let kept = csr::hgatp::read();
            csr::hgatp::write(0);
            kept
        };
        if kept >> 60 == mode.field() {
            return mode;
        }
    }
    panic!("the harts have no G-stage translation mode that the monitor knows");
}

#[expect(unsafe_code)]
fn vmid_bits() -> u8 {
    // UNSAFETY and SAFETY: no guest runs yet; unimplemented VMID bits read back as zero.
    let kept = unsafe {
        csr::hgatp::write(Mode::Sv39x4.field() << 60 | 0x3fff << 44);
        let kept = csr::hgatp::read();
        csr::hgatp::write(0);
        kept
    };
    (kept >> 44 & 0x3fff).count_ones() as u8
}

/// GEILEN: how many guest interrupt files this hart has.
#[expect(unsafe_code)]
fn guest_files() -> u16 {
    // UNSAFETY and SAFETY: hgeie only says whose interrupts to report; none is in use yet.
    let kept = unsafe {
        csr::hgeie::write(u64::MAX);
        let kept = csr::hgeie::read();
        csr::hgeie::write(0);
        kept
    };
    kept.count_ones() as u16
}
