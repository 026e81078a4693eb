//! Registers of the 16550A (National Semiconductor PC16550D data sheet, "Summary of Registers").

/// Receiver buffer (read), transmitter holding (write); divisor latch low with `lcr::DLAB`.
pub(super) const DATA: u64 = 0;
/// Interrupt enable; divisor latch high with `lcr::DLAB`.
pub(super) const IER: u64 = 1;
/// Interrupt identification (read), FIFO control (write).
pub(super) const IIR_FCR: u64 = 2;
/// Line control.
pub(super) const LCR: u64 = 3;
/// Modem control.
pub(super) const MCR: u64 = 4;
/// Line status.
pub(super) const LSR: u64 = 5;
/// Modem status.
pub(super) const MSR: u64 = 6;
/// Scratch.
pub(super) const SCR: u64 = 7;

/// Bytes in each hardware FIFO.
pub(super) const FIFO_BYTES: usize = 16;

/// Interrupt enable register.
pub(super) mod ier {
    /// Received data available, and character timeout.
    pub(crate) const RDI: u8 = 1 << 0;
    /// Transmitter holding register empty.
    pub(crate) const THRI: u8 = 1 << 1;
    /// Receiver line status.
    pub(crate) const RLSI: u8 = 1 << 2;
    /// Bits that exist.
    pub(crate) const MASK: u8 = 0x0f;
}

/// Interrupt identification register.
pub(super) mod iir {
    /// Nothing is pending.
    pub(crate) const NO_INT: u8 = 0x01;
    /// Transmitter holding register empty.
    pub(crate) const THRI: u8 = 0x02;
    /// Received data reached the trigger level.
    pub(crate) const RDI: u8 = 0x04;
    /// Receiver line status.
    pub(crate) const RLSI: u8 = 0x06;
    /// Character timeout: data below the trigger level has waited.
    pub(crate) const CTI: u8 = 0x0c;
    /// FIFOs are enabled and work.
    pub(crate) const FIFOS: u8 = 0xc0;
}

/// FIFO control register.
pub(super) mod fcr {
    /// FIFO enable.
    pub(crate) const ENABLE: u8 = 1 << 0;
    /// Clear the receiver FIFO.
    pub(crate) const CLEAR_RECEIVER: u8 = 1 << 1;
    /// Receiver trigger level.
    pub(crate) const TRIGGER_SHIFT: u32 = 6;
    /// Bytes per trigger level.
    pub(crate) const TRIGGERS: [usize; 4] = [1, 4, 8, 14];
}

/// Line control register.
pub(super) mod lcr {
    /// Divisor latch access.
    pub(crate) const DLAB: u8 = 1 << 7;
}

/// Modem control register.
pub(super) mod mcr {
    /// Data terminal ready.
    pub(crate) const DTR: u8 = 1 << 0;
    /// Request to send.
    pub(crate) const RTS: u8 = 1 << 1;
    /// Auxiliary output 1.
    pub(crate) const OUT1: u8 = 1 << 2;
    /// Auxiliary output 2.
    pub(crate) const OUT2: u8 = 1 << 3;
    /// Loopback.
    pub(crate) const LOOP: u8 = 1 << 4;
    /// Bits that exist.
    pub(crate) const MASK: u8 = 0x1f;
}

/// Line status register.
pub(super) mod lsr {
    /// Data ready.
    pub(crate) const DR: u8 = 1 << 0;
    /// Overrun error.
    pub(crate) const OE: u8 = 1 << 1;
    /// Transmitter holding register (with FIFOs: the whole FIFO) empty.
    pub(crate) const THRE: u8 = 1 << 5;
    /// Transmitter empty.
    pub(crate) const TEMT: u8 = 1 << 6;
}

/// Modem status register.
pub(super) mod msr {
    /// Clear to send.
    pub(crate) const CTS: u8 = 1 << 4;
    /// Data set ready.
    pub(crate) const DSR: u8 = 1 << 5;
    /// Ring indicator.
    pub(crate) const RI: u8 = 1 << 6;
    /// Data carrier detect.
    pub(crate) const DCD: u8 = 1 << 7;
}
