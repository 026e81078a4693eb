//! The sequences of Linux's 8250 and U-Boot's ns16550 drivers, and hostile ones.

extern crate std;

use super::*;
use crate::{
    map::UART_IRQ,
    testing::{TestEnv, accesses},
};
use proptest::prelude::*;
use std::{vec, vec::Vec};

struct Bench {
    uart: Uart,
    env: TestEnv,
}

impl Bench {
    fn new() -> Self {
        Self { uart: Uart::new(UART_IRQ), env: TestEnv::default() }
    }

    fn get(&mut self, register: u64) -> u8 {
        self.uart.read(register, Width::Byte, &self.env).unwrap() as u8
    }

    fn put(&mut self, register: u64, value: u8) {
        self.uart.write(register, Width::Byte, u64::from(value), &self.env).unwrap();
    }

    fn output(&mut self) -> Vec<u8> {
        let mut buf = vec![0; 100_000];
        let count = self.uart.take_output(&mut buf, &self.env);
        buf.truncate(count);
        buf
    }

    fn is_asserted(&self) -> bool {
        self.env.level(UART_IRQ)
    }
}

#[test]
fn linux_probe_finds_a_16550a() {
    let mut bench = Bench::new();
    // Interrupt enable register keeps four bits.
    bench.put(spec::IER, 0);
    assert_eq!(bench.get(spec::IER) & 0x0f, 0);
    bench.put(spec::IER, 0x4f);
    assert_eq!(bench.get(spec::IER), 0x0f);
    bench.put(spec::IER, 0);
    // Loopback test of the modem lines.
    bench.put(spec::MCR, mcr::LOOP | mcr::OUT2 | mcr::RTS);
    assert_eq!(bench.get(spec::MSR) & 0xf0, 0x90);
    bench.put(spec::MCR, mcr::OUT2);
    // FIFOs: both bits say that they work; the divisor latch does not change the answer (no 16750).
    bench.put(spec::IIR_FCR, fcr::ENABLE);
    assert_eq!(bench.get(spec::IIR_FCR) >> 6, 3);
    bench.put(spec::IIR_FCR, fcr::ENABLE | 0x20);
    assert_eq!(bench.get(spec::IIR_FCR) >> 5, 6);
    bench.put(spec::LCR, lcr::DLAB);
    bench.put(spec::IIR_FCR, fcr::ENABLE | 0x20);
    assert_eq!(bench.get(spec::IIR_FCR) >> 5, 6);
    bench.put(spec::LCR, 0x03);
    // Scratch.
    bench.put(spec::SCR, 0xa5);
    assert_eq!(bench.get(spec::SCR), 0xa5);
}

#[test]
fn enabling_the_transmitter_interrupt_raises_it_again_and_again() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.put(spec::IER, ier::THRI);
        assert!(bench.is_asserted());
        assert_eq!(bench.get(spec::IIR_FCR), iir::THRI);
        assert!(!bench.is_asserted(), "reading IIR acknowledges");
        assert_eq!(bench.get(spec::IIR_FCR), iir::NO_INT);
        bench.put(spec::IER, 0);
    }
}

#[test]
fn divisor_latch_hides_data_and_interrupt_enable() {
    let mut bench = Bench::new();
    bench.put(spec::LCR, lcr::DLAB | 3);
    bench.put(spec::DATA, 0x34);
    bench.put(spec::IER, 0x12);
    assert_eq!((bench.get(spec::DATA), bench.get(spec::IER)), (0x34, 0x12));
    bench.put(spec::LCR, 3);
    assert_eq!(bench.get(spec::IER), 0);
    assert!(bench.output().is_empty());
}

#[test]
fn a_burst_of_output_costs_one_change_of_the_line() {
    let mut bench = Bench::new();
    bench.put(spec::IIR_FCR, fcr::ENABLE);
    bench.put(spec::IER, ier::THRI);
    bench.get(spec::IIR_FCR);
    bench.env.take_changes();
    for byte in b"0123456789abcdef" {
        bench.put(spec::DATA, *byte);
    }
    assert_eq!(bench.env.take_changes(), [true]);
    assert_eq!(bench.output(), b"0123456789abcdef");
    assert_eq!(bench.uart.metrics().bytes_out, 16);
}

#[test]
fn a_full_buffer_holds_the_transmitter_back_until_it_is_drained() {
    let mut bench = Bench::new();
    bench.put(spec::IER, ier::THRI);
    let mut sent = 0;
    while bench.get(spec::LSR) & lsr::THRE != 0 {
        for _ in 0..UART_FIFO_BYTES {
            bench.put(spec::DATA, b'x');
            sent += 1;
        }
    }
    assert!(!bench.is_asserted());
    assert_eq!(bench.uart.metrics().dropped, 0, "a driver that honours THRE loses nothing");
    assert_eq!(bench.output().len(), sent);
    assert!(bench.is_asserted(), "THRE rises again with an interrupt");
    assert_eq!(bench.get(spec::LSR) & (lsr::THRE | lsr::TEMT), lsr::THRE | lsr::TEMT);
}

#[test]
fn a_driver_that_ignores_the_status_loses_bytes_and_nothing_else() {
    let mut bench = Bench::new();
    for _ in 0..OUTPUT_BYTES + 10 {
        bench.put(spec::DATA, b'x');
    }
    assert_eq!(bench.uart.metrics().dropped, 10);
    assert_eq!(bench.output().len(), OUTPUT_BYTES);
}

#[test]
fn input_is_announced_by_trigger_level_or_timeout() {
    let mut bench = Bench::new();
    bench.put(spec::IIR_FCR, fcr::ENABLE | 0x80);
    bench.put(spec::IER, ier::RDI);
    assert_eq!(bench.uart.push_input(b"abc", &bench.env), 3);
    assert!(bench.is_asserted());
    assert_eq!(bench.get(spec::IIR_FCR), iir::CTI | iir::FIFOS);
    assert_eq!(bench.uart.push_input(b"defgh", &bench.env), 5);
    assert_eq!(bench.get(spec::IIR_FCR), iir::RDI | iir::FIFOS);
    let mut read = Vec::new();
    while bench.get(spec::LSR) & lsr::DR != 0 {
        read.push(bench.get(spec::DATA));
    }
    assert_eq!(read, b"abcdefgh");
    assert!(!bench.is_asserted());
    assert_eq!(bench.get(spec::DATA), 0);
}

#[test]
fn more_input_than_fits_is_left_to_the_host() {
    let mut bench = Bench::new();
    let data: Vec<u8> = (0..4000_u32).map(|n| n as u8).collect();
    let room = bench.uart.input_room();
    let mut taken = bench.uart.push_input(&data, &bench.env);
    assert_eq!(taken, room);
    assert_eq!(bench.uart.input_room(), FIFO_BYTES, "the FIFO took some of it");
    let mut read = Vec::new();
    while bench.get(spec::LSR) & lsr::DR != 0 {
        read.push(bench.get(spec::DATA));
        taken += bench.uart.push_input(&data[taken..], &bench.env);
    }
    assert_eq!(read, data);
}

#[test]
fn clearing_the_fifo_keeps_what_has_not_arrived() {
    let mut bench = Bench::new();
    bench.put(spec::IIR_FCR, fcr::ENABLE);
    bench.uart.push_input(&[1; 16], &bench.env);
    bench.uart.push_input(&[2; 4], &bench.env);
    bench.put(spec::IIR_FCR, fcr::ENABLE | fcr::CLEAR_RECEIVER);
    assert_eq!(bench.get(spec::DATA), 2);
}

#[test]
fn loopback_returns_what_is_sent_and_holds_the_outside() {
    let mut bench = Bench::new();
    bench.put(spec::IIR_FCR, fcr::ENABLE);
    bench.put(spec::MCR, mcr::LOOP);
    bench.put(spec::IER, ier::RLSI);
    bench.uart.push_input(b"outside", &bench.env);
    assert_eq!(bench.get(spec::LSR) & lsr::DR, 0);
    for byte in 0..17 {
        bench.put(spec::DATA, byte);
    }
    assert!(bench.is_asserted());
    assert_eq!(bench.get(spec::IIR_FCR), iir::RLSI | iir::FIFOS);
    assert_eq!(bench.get(spec::LSR) & lsr::OE, lsr::OE);
    assert_eq!(bench.get(spec::LSR) & lsr::OE, 0);
    assert_eq!((0..16).map(|_| bench.get(spec::DATA)).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
    assert!(bench.output().is_empty());
    bench.put(spec::MCR, 0);
    assert_eq!(bench.get(spec::DATA), b'o');
}

#[test]
fn uboot_polls_its_bytes_out() {
    let mut bench = Bench::new();
    bench.put(spec::IER, 0);
    bench.put(spec::MCR, mcr::DTR | mcr::RTS);
    bench.put(spec::IIR_FCR, fcr::ENABLE | 0x06);
    bench.put(spec::LCR, lcr::DLAB | 3);
    bench.put(spec::DATA, 2);
    bench.put(spec::IER, 0);
    bench.put(spec::LCR, 3);
    for byte in b"U-Boot\n" {
        while bench.get(spec::LSR) & lsr::THRE == 0 {}
        bench.put(spec::DATA, *byte);
    }
    assert_eq!(bench.output(), b"U-Boot\n");
}

#[test]
fn reset_keeps_the_last_words() {
    let mut bench = Bench::new();
    bench.put(spec::DATA, b'!');
    bench.uart.push_input(b"?", &bench.env);
    bench.uart.reset();
    assert_eq!(bench.get(spec::LSR), lsr::THRE | lsr::TEMT);
    assert_eq!(bench.output(), b"!");
}

proptest! {
    #[test]
    fn random_accesses_neither_panic_nor_leave_the_line_wrong(
        steps in accesses(16), input in prop::collection::vec(any::<u8>(), 0..64)
    ) {
        let mut bench = Bench::new();
        for (is_write, offset, width, value) in steps {
            if is_write {
                bench.uart.write(offset, width, value, &bench.env).unwrap();
            } else {
                prop_assert!(bench.uart.read(offset, width, &bench.env).unwrap() <= 0xff);
            }
            if value == 7 {
                bench.uart.push_input(&input, &bench.env);
            }
            prop_assert_eq!(bench.is_asserted(), bench.uart.interrupt() != iir::NO_INT);
        }
    }
}
