//! The guest's physical memory map and its wired interrupts, as on QEMU's `virt`.

use addr::{BASE_PAGE, GuestPhysAddr};
use device::IrqLine;

/// An area of the guest's physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

impl Area {
    /// Offset of `addr` from the base, if the area holds it.
    #[must_use]
    pub const fn offset_of(self, addr: GuestPhysAddr) -> Option<u64> {
        match addr.raw().checked_sub(self.base) {
            Some(offset) if offset < self.size => Some(offset),
            _ => None,
        }
    }
}

/// Power-off and reset device (`sifive,test1`).
pub const SYSCON: Area = Area { base: 0x10_0000, size: 0x1000 };
/// Goldfish real-time clock.
pub const RTC: Area = Area { base: 0x10_1000, size: 0x1000 };
/// PLIC; absent with AIA.
pub const PLIC: Area = Area { base: 0x0c00_0000, size: 0x60_0000 };
/// S-level APLIC; absent without AIA.
pub const APLIC: Area = Area { base: 0x0d00_0000, size: 0x8000 };
/// 16550A UART.
pub const UART: Area = Area { base: 0x1000_0000, size: 0x100 };
/// All virtio-mmio slots.
pub const VIRTIO: Area = Area { base: 0x1000_1000, size: VIRTIO_SLOTS as u64 * VIRTIO_STRIDE };
/// S-level interrupt files, one page per vCPU; absent without AIA.
pub const IMSIC: Area = Area { base: 0x2800_0000, size: crate::MAX_VCPUS as u64 * BASE_PAGE };
/// Where RAM begins. Nothing else lies above.
pub const RAM_BASE: u64 = 0x8000_0000;

/// Number of virtio-mmio slots.
pub const VIRTIO_SLOTS: u8 = 8;
/// Bytes per virtio-mmio slot.
pub const VIRTIO_STRIDE: u64 = 0x1000;
/// A kernel image goes here, counted from [`RAM_BASE`], and so does S-mode firmware: U-Boot for `virt` is linked to
/// 0x8020_0000, where OpenSBI starts the next stage. Both are entered at their first byte.
pub const KERNEL_OFFSET: u64 = 0x20_0000;

/// Bytes that the UART takes in one burst when its transmitter is empty, which the device tree announces (`fifo-size`).
/// Linux asks for the line status, and is interrupted, once per burst; a real 16550A takes 16.
pub const UART_FIFO_BYTES: usize = 256;

/// The UART's interrupt.
pub const UART_IRQ: IrqLine = IrqLine(10);
/// The clock's interrupt.
pub const RTC_IRQ: IrqLine = IrqLine(11);

/// Base of virtio-mmio slot `slot`; `None` beyond the last.
#[must_use]
pub const fn virtio_base(slot: u8) -> Option<u64> {
    if slot < VIRTIO_SLOTS { Some(VIRTIO.base + slot as u64 * VIRTIO_STRIDE) } else { None }
}

/// Interrupt of virtio-mmio slot `slot`; `None` beyond the last.
#[must_use]
pub const fn virtio_irq(slot: u8) -> Option<IrqLine> {
    if slot < VIRTIO_SLOTS { Some(IrqLine(1 + slot as u16)) } else { None }
}

/// What a guest-physical address outside RAM means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// A virtio-mmio slot.
    Virtio(u8),
    /// The UART.
    Uart,
    /// The PLIC, if the VM has one.
    Plic,
    /// The APLIC, if the VM has one.
    Aplic,
    /// The interrupt file of the vCPU with this index, if the VM has AIA and that vCPU.
    Imsic(u16),
    /// The real-time clock.
    Rtc,
    /// The power-off and reset device.
    Syscon,
}

impl Region {
    /// Which region holds `addr`, and the offset in it. Ordered by how often guests come here.
    #[inline]
    #[must_use]
    pub const fn decode(addr: GuestPhysAddr) -> Option<(Self, u64)> {
        // Two halves, so that nobody has to be asked about seven areas.
        if addr.raw() < UART.base { Self::decode_low(addr) } else { Self::decode_high(addr) }
    }

    const fn decode_high(addr: GuestPhysAddr) -> Option<(Self, u64)> {
        if let Some(offset) = VIRTIO.offset_of(addr) {
            return Some((Self::Virtio((offset / VIRTIO_STRIDE) as u8), offset % VIRTIO_STRIDE));
        }
        if let Some(offset) = UART.offset_of(addr) {
            return Some((Self::Uart, offset));
        }
        match IMSIC.offset_of(addr) {
            Some(offset) => Some((Self::Imsic((offset / BASE_PAGE) as u16), offset % BASE_PAGE)),
            None => None,
        }
    }

    const fn decode_low(addr: GuestPhysAddr) -> Option<(Self, u64)> {
        if let Some(offset) = RTC.offset_of(addr) {
            return Some((Self::Rtc, offset));
        }
        if let Some(offset) = PLIC.offset_of(addr) {
            return Some((Self::Plic, offset));
        }
        if let Some(offset) = APLIC.offset_of(addr) {
            return Some((Self::Aplic, offset));
        }
        match SYSCON.offset_of(addr) {
            Some(offset) => Some((Self::Syscon, offset)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_decode_to_their_region() {
        let decode = |raw| Region::decode(GuestPhysAddr::new(raw));
        assert_eq!(decode(0x1000_0005), Some((Region::Uart, 5)));
        assert_eq!(decode(0x1000_0100), None);
        assert_eq!(decode(0x1000_1000), Some((Region::Virtio(0), 0)));
        assert_eq!(decode(0x1000_8fff), Some((Region::Virtio(7), 0xfff)));
        assert_eq!(decode(0x1000_9000), None);
        assert_eq!(decode(0x0c20_1004), Some((Region::Plic, 0x20_1004)));
        assert_eq!(decode(0x0d00_2000), Some((Region::Aplic, 0x2000)));
        assert_eq!(decode(0x2801_f000), Some((Region::Imsic(31), 0)));
        assert_eq!(decode(0x2802_0000), None);
        assert_eq!(decode(0x10_0000), Some((Region::Syscon, 0)));
        assert_eq!(decode(0x10_1004), Some((Region::Rtc, 4)));
        assert_eq!(decode(0), None);
        assert_eq!(decode(u64::MAX), None);
        assert_eq!(decode(RAM_BASE), None);
    }

    #[test]
    fn slots_end_at_the_last() {
        assert_eq!(virtio_base(7), Some(0x1000_8000));
        assert_eq!(virtio_irq(7), Some(IrqLine(8)));
        assert_eq!(virtio_base(8), None);
        assert_eq!(virtio_irq(8), None);
    }
}
