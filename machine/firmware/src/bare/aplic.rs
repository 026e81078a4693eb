//! Machine-level APLIC domains: all sources go to the child, and messages of both levels know their way.

use containment::{Aplic, Hardware, MsiTarget};

use super::memory::write_register32;

const DOMAIN_CONFIG: u64 = 0;
const SOURCE_CONFIG: u64 = 4;
const SOURCE_DELEGATED: u32 = 1 << 10;
const MACHINE_ADDRESS: u64 = 0x1bc0;
const SUPERVISOR_ADDRESS: u64 = 0x1bc8;

/// Hands everything to the supervisor's domains.
pub fn delegate(hardware: &Hardware) {
    hardware.aplics.iter().for_each(|aplic| delegate_one(aplic, hardware.msi));
}

fn delegate_one(aplic: &Aplic, msi: Option<[MsiTarget; 2]>) {
    write_register32(aplic.base + DOMAIN_CONFIG, 0);
    for source in 0..u64::from(aplic.sources.min(1023)) {
        write_register32(aplic.base + SOURCE_CONFIG + 4 * source, SOURCE_DELEGATED);
    }
    if let Some([machine, supervisor]) = msi {
        write_address(aplic.base + MACHINE_ADDRESS, &machine, true);
        write_address(aplic.base + SUPERVISOR_ADDRESS, &supervisor, false);
    }
}

/// `mmsiaddrcfg` holds the widths for both levels (AIA specification, "MSI address configuration").
fn write_address(register: u64, target: &MsiTarget, with_widths: bool) {
    let page = target.base >> 12;
    let high = (page >> 32) as u32 & 0xfff | target.guest_bits << 20;
    let widths = target.hart_bits << 12 | target.group_bits << 16 | target.group_shift.saturating_sub(24) << 24;
    write_register32(register, page as u32);
    write_register32(register + 4, if with_widths { high | widths } else { high });
}
