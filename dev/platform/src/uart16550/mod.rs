//! 16550A UART.
//!
//! Bytes leave the moment they are written, into a bounded buffer that the monitor drains ([`Uart::take_output`]). The
//! transmitter says that it is empty (THRE) as long as the buffer has room for a whole burst of [`UART_FIFO_BYTES`]:
//! Linux asks for the line status once per burst and takes one interrupt per burst. A slow drain holds THRE back,
//! so the guest waits and nothing is lost, unless its driver gives up waiting.
//!
//! Received bytes pass a bounded queue, then the FIFO of 16. Without timers, data below the trigger level counts as timed
//! out at once: the driver gets its character-timeout interrupt early.

mod metrics;
mod spec;
#[cfg(test)]
mod tests;

use crate::{byte_ring::ByteRing, map::UART_FIFO_BYTES};
use device::{Device, Env, GuestFault, IrqLine, Width};
pub use metrics::UartMetrics;
use spec::{FIFO_BYTES, fcr, ier, iir, lcr, lsr, mcr, msr};

/// Bytes of output that wait for the monitor.
const OUTPUT_BYTES: usize = 8192;
/// Bytes of input that wait for the guest.
const INPUT_BYTES: usize = 1024;
/// Divisor for 115,200 baud at the tree's clock; nothing depends on it.
const RESET_DIVISOR: u16 = 2;

/// A 16550A.
#[derive(Debug)]
pub struct Uart {
    line: IrqLine,
    output: ByteRing,
    input: ByteRing,
    fifo: ByteRing,
    registers: Registers,
    /// The transmitter-empty interrupt is pending (data sheet: set by THRE rising or by enabling it while THRE is set;
    /// cleared by reading IIR while it is the one shown, or by writing THR).
    is_thri_pending: bool,
    /// THRE as the guest saw it last.
    was_ready: bool,
    /// The level that the line is driven to.
    is_asserted: bool,
    metrics: UartMetrics,
}

/// Registers that only hold what was written, and sticky status.
#[derive(Clone, Copy, Debug)]
struct Registers {
    ier: u8,
    lcr: u8,
    mcr: u8,
    scr: u8,
    divisor: u16,
    trigger: usize,
    has_fifos: bool,
    has_overrun: bool,
}

impl Registers {
    const RESET: Self = Self {
        ier: 0,
        lcr: 0,
        mcr: mcr::OUT2,
        scr: 0,
        divisor: RESET_DIVISOR,
        trigger: fcr::TRIGGERS[0],
        has_fifos: false,
        has_overrun: false,
    };

    const fn is_dlab(&self) -> bool {
        self.lcr & lcr::DLAB != 0
    }

    const fn is_loopback(&self) -> bool {
        self.mcr & mcr::LOOP != 0
    }

    /// Modem status: a modem that is always there, or, in loopback, our own outputs.
    fn modem_status(&self) -> u8 {
        if !self.is_loopback() {
            return msr::DCD | msr::DSR | msr::CTS;
        }
        let wire = |output, input| if self.mcr & output != 0 { input } else { 0 };
        wire(mcr::RTS, msr::CTS) | wire(mcr::DTR, msr::DSR) | wire(mcr::OUT1, msr::RI) | wire(mcr::OUT2, msr::DCD)
    }
}

impl Uart {
    /// A UART at power-on whose interrupt is `line`.
    #[must_use]
    pub fn new(line: IrqLine) -> Self {
        Self {
            line,
            output: ByteRing::new(OUTPUT_BYTES),
            input: ByteRing::new(INPUT_BYTES),
            fifo: ByteRing::new(FIFO_BYTES),
            registers: Registers::RESET,
            is_thri_pending: false,
            was_ready: true,
            is_asserted: false,
            metrics: UartMetrics::default(),
        }
    }

    /// Bytes that wait in the output buffer.
    #[must_use]
    pub const fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Moves output into `buf`; how much. Call it soon after output appears: the guest waits when the buffer is full.
    pub fn take_output(&mut self, buf: &mut [u8], env: &dyn Env) -> usize {
        let count = self.output.drain(buf);
        self.update_transmitter();
        self.update_line(env);
        count
    }

    /// How many bytes [`Uart::push_input`] would take now.
    #[must_use]
    pub fn input_room(&self) -> usize {
        self.input.room()
    }

    /// Queues received bytes; how many were taken. The rest is the caller's to keep until there is room again.
    pub fn push_input(&mut self, data: &[u8], env: &dyn Env) -> usize {
        let count = self.input.extend(data);
        self.refill();
        self.update_line(env);
        count
    }

    /// Counters.
    #[must_use]
    pub const fn metrics(&self) -> UartMetrics {
        self.metrics
    }

    fn transmit(&mut self, byte: u8) {
        self.is_thri_pending = false;
        if self.registers.is_loopback() {
            self.registers.has_overrun |= !self.fifo.push(byte);
            self.is_thri_pending = self.is_ready();
        } else if self.output.push(byte) {
            self.metrics.bytes_out += 1;
            // The byte has left at once, so the register is empty again: a new interrupt condition.
            self.was_ready = self.is_ready();
            self.is_thri_pending = self.was_ready;
        } else {
            self.metrics.dropped += 1;
        }
    }

    /// Whether there is room for a whole burst: [`UART_FIFO_BYTES`].
    fn is_ready(&self) -> bool {
        self.output.room() >= UART_FIFO_BYTES
    }

    /// Room came back: THRE rises, which is an interrupt condition.
    fn update_transmitter(&mut self) {
        let is_ready = self.is_ready();
        self.is_thri_pending |= is_ready && !self.was_ready;
        self.was_ready = is_ready;
    }

    /// Moves queued input into the FIFO. In loopback the receiver is not connected to the outside.
    fn refill(&mut self) {
        if self.registers.is_loopback() {
            return;
        }
        while self.fifo.room() > 0 {
            let Some(byte) = self.input.pop() else { break };
            self.fifo.push(byte);
        }
    }

    fn receive(&mut self) -> u8 {
        let Some(byte) = self.fifo.pop() else { return 0 };
        self.metrics.bytes_in += 1;
        self.refill();
        byte
    }

    /// Line status; reading it clears the error bits.
    fn read_line_status(&mut self) -> u8 {
        let mut status = 0;
        if !self.fifo.is_empty() {
            status |= lsr::DR;
        }
        if core::mem::take(&mut self.registers.has_overrun) {
            status |= lsr::OE;
        }
        if self.is_ready() {
            status |= lsr::THRE | lsr::TEMT;
        }
        status
    }

    /// The pending interrupt of highest priority.
    fn interrupt(&self) -> u8 {
        let Registers { ier, has_fifos, has_overrun, trigger, .. } = self.registers;
        if ier & ier::RLSI != 0 && has_overrun {
            iir::RLSI
        } else if ier & ier::RDI != 0 && !self.fifo.is_empty() {
            if has_fifos && self.fifo.len() < trigger { iir::CTI } else { iir::RDI }
        } else if ier & ier::THRI != 0 && self.is_thri_pending {
            iir::THRI
        } else {
            iir::NO_INT
        }
    }

    /// Interrupt identification; reading it acknowledges the transmitter's interrupt if that is the one shown.
    fn read_interrupt(&mut self) -> u8 {
        let interrupt = self.interrupt();
        if interrupt == iir::THRI {
            self.is_thri_pending = false;
        }
        if self.registers.has_fifos { interrupt | iir::FIFOS } else { interrupt }
    }

    fn write_interrupt_enable(&mut self, value: u8) {
        let enabled = value & !self.registers.ier;
        self.registers.ier = value & ier::MASK;
        // Linux tests for this (its "THRE test") and falls back to a timer where it is missing.
        if enabled & ier::THRI != 0 {
            self.is_thri_pending = self.is_ready();
        }
    }

    fn write_fifo_control(&mut self, value: u8) {
        let has_fifos = value & fcr::ENABLE != 0;
        if value & fcr::CLEAR_RECEIVER != 0 || has_fifos != self.registers.has_fifos {
            // What waits in the queue has not been received yet, so it survives.
            self.fifo.clear();
            self.refill();
        }
        self.registers.has_fifos = has_fifos;
        self.registers.trigger = fcr::TRIGGERS[usize::from(value >> fcr::TRIGGER_SHIFT)];
    }

    fn write_modem_control(&mut self, value: u8) {
        self.registers.mcr = value & mcr::MASK;
        self.refill();
    }

    /// Drives the line if its level changed: one call into the interrupt controller per change, none per byte.
    #[inline]
    fn update_line(&mut self, env: &dyn Env) {
        let is_asserted = self.interrupt() != iir::NO_INT;
        if is_asserted != self.is_asserted {
            self.is_asserted = is_asserted;
            env.set_irq(self.line, is_asserted);
        }
    }
}

impl Device for Uart {
    fn name(&self) -> &'static str {
        "uart"
    }

    fn read(&mut self, offset: u64, _: Width, env: &dyn Env) -> Result<u64, GuestFault> {
        let [divisor_low, divisor_high] = self.registers.divisor.to_le_bytes();
        let value = match offset {
            spec::DATA if self.registers.is_dlab() => divisor_low,
            spec::DATA => self.receive(),
            spec::IER if self.registers.is_dlab() => divisor_high,
            spec::IER => self.registers.ier,
            spec::IIR_FCR => self.read_interrupt(),
            spec::LCR => self.registers.lcr,
            spec::MCR => self.registers.mcr,
            spec::LSR => self.read_line_status(),
            spec::MSR => self.registers.modem_status(),
            spec::SCR => self.registers.scr,
            _ => 0,
        };
        self.update_line(env);
        Ok(u64::from(value))
    }

    fn write(&mut self, offset: u64, _: Width, value: u64, env: &dyn Env) -> Result<(), GuestFault> {
        // Registers are bytes; a wider store reaches the one it names.
        let value = value as u8;
        let [divisor_low, divisor_high] = self.registers.divisor.to_le_bytes();
        match offset {
            spec::DATA if self.registers.is_dlab() => {
                self.registers.divisor = u16::from_le_bytes([value, divisor_high]);
            }
            spec::DATA => self.transmit(value),
            spec::IER if self.registers.is_dlab() => {
                self.registers.divisor = u16::from_le_bytes([divisor_low, value]);
            }
            spec::IER => self.write_interrupt_enable(value),
            spec::IIR_FCR => self.write_fifo_control(value),
            spec::LCR => self.registers.lcr = value,
            spec::MCR => self.write_modem_control(value),
            spec::SCR => self.registers.scr = value,
            // Status registers are read-only.
            _ => {}
        }
        self.update_line(env);
        Ok(())
    }

    /// Output that the monitor has not drained yet is kept: it is the guest's last words.
    fn reset(&mut self) {
        self.registers = Registers::RESET;
        self.fifo.clear();
        self.input.clear();
        self.is_thri_pending = false;
        self.was_ready = self.is_ready();
        self.is_asserted = false;
    }
}
