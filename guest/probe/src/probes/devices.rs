//! Devices, and addresses where nothing is.

use super::{Outcome, check, exception_of, skip, wait_for};
use crate::{cpu, fpu, layout, tree::Machine, virtio, virtio::register};

const ILLEGAL_INSTRUCTION: u64 = 2;
const LOAD_ACCESS_FAULT: u64 = 5;
const STORE_ACCESS_FAULT: u64 = 7;

/// Where nothing is a Mirrorball VM sees an access fault, of any width; QEMU's own machine reads zero in some places.
pub fn wild(machine: &Machine, hart: u64) -> Outcome {
    if !machine.is_mirrorball {
        return skip("what an access to nowhere does is up to the machine");
    }
    let beyond = machine.ram_start + machine.ram_bytes;
    for address in [0, 0x3000, 0x0fff_fff8, 0x1000_9000, 0x7fff_fff8, beyond, beyond + (1 << 30), 1 << 40] {
        for access in [cpu::load8, cpu::load16, cpu::load32, cpu::load] {
            let cause = exception_of(hart, || {
                access(address);
            });
            check(cause == Some(LOAD_ACCESS_FAULT), "a load from nowhere is no access fault")?;
        }
        for access in [cpu::store8, cpu::store16, cpu::store32, cpu::store] {
            let cause = exception_of(hart, || access(address, 1));
            check(cause == Some(STORE_ACCESS_FAULT), "a store to nowhere is no access fault")?;
        }
        wild_atomics(hart, address)?;
        if machine.isa.has_double {
            wild_fp(hart, address)?;
        }
    }
    Ok(())
}

fn wild_atomics(hart: u64, address: u64) -> Outcome {
    let of = |act: fn(u64)| exception_of(hart, || act(address));
    check(of(cpu::add_atomically) == Some(STORE_ACCESS_FAULT), "an AMO on nothing is no access fault of a store")?;
    check(of(cpu::load_reserved) == Some(LOAD_ACCESS_FAULT), "a reservation of nothing is no access fault of a load")?;
    // Without a reservation it may fail without an access.
    let conditional = of(cpu::store_conditional);
    check(matches!(conditional, None | Some(STORE_ACCESS_FAULT)), "a conditional store to nowhere is another fault")
}

fn wild_fp(hart: u64, address: u64) -> Outcome {
    let of = |act: fn(u64)| exception_of(hart, || act(address));
    fpu::enable_fp();
    let (load, store) = (of(fpu::load_one), of(fpu::store_one));
    fpu::disable_fp();
    check(load == Some(LOAD_ACCESS_FAULT), "a load of an FP register from nowhere is no access fault")?;
    check(store == Some(STORE_ACCESS_FAULT), "a store of an FP register to nowhere is no access fault of a store")
}

/// CSRs that do not exist, and those of the hypervisor and machine modes.
pub fn illegal_csr(_: &Machine, hart: u64) -> Outcome {
    for access in [cpu::read_unknown_csr, cpu::read_machine_csr] {
        check(exception_of(hart, access) == Some(ILLEGAL_INSTRUCTION), "a forbidden CSR is no illegal instruction")?;
    }
    Ok(())
}

/// CSRs that a machine may have, and that the monitor does not switch from guest to guest: none may reach them.
pub fn unswitched_csr(machine: &Machine, hart: u64) -> Outcome {
    if !machine.is_mirrorball {
        return skip("a machine may have them");
    }
    for access in [cpu::read_jump_table_base, cpu::read_debug_context] {
        check(exception_of(hart, access) == Some(ILLEGAL_INSTRUCTION), "a guest reaches state that is not its own")?;
    }
    Ok(())
}

/// Every slot is a version 2 transport, with or without a device.
pub fn virtio_slots(_: &Machine, _: u64) -> Outcome {
    let mut found = 0;
    for device in virtio::Device::all() {
        check(device.read(register::VERSION) == 2, "virtio-mmio version is not 2")?;
        found += u64::from(device.read(register::DEVICE_ID) != 0);
    }
    crate::console::println!("PROBE devices: {found} virtio devices");
    Ok(())
}

/// The UART's scratch register, its divisor latch, and registers beyond the last.
pub fn uart(_: &Machine, _: u64) -> Outcome {
    const UART: u64 = 0x1000_0000;
    const LINE_CONTROL: u64 = UART + 3;
    const SCRATCH: u64 = UART + 7;
    for value in [0x5a, 0xff, 0] {
        cpu::store8(SCRATCH, value);
        check(cpu::load8(SCRATCH) == value, "the scratch register does not keep its value")?;
    }
    let control = cpu::load8(LINE_CONTROL);
    cpu::store8(LINE_CONTROL, control | 0x80);
    cpu::store8(UART, 3);
    check(cpu::load8(UART) == 3, "the divisor latch does not keep its value")?;
    cpu::store8(LINE_CONTROL, control & !0x80);
    check(cpu::load8(UART + 5) & 0x40 != 0, "the transmitter never empties")
}

/// The clock tells the time of day, goes forward, and its alarm rings.
pub fn rtc(machine: &Machine, _: u64) -> Outcome {
    const RTC: u64 = 0x10_1000;
    const ALARM_LOW: u64 = RTC + 8;
    const ALARM_HIGH: u64 = RTC + 12;
    const ALARM_STATUS: u64 = RTC + 24;
    /// The year 2024: emulated machines tell the host's time.
    const RECENT: u64 = 1_704_067_200_000_000_000;
    let read = || cpu::load32(RTC) | cpu::load32(RTC + 4) << 32;
    let (first, ticks) = (read(), cpu::time());
    while cpu::time() < ticks + 10_000 {
        core::hint::spin_loop();
    }
    let second = read();
    check(first > RECENT, "the clock is in the past")?;
    check(second > first && second - first >= 1_000_000 / 2, "the clock stands still")?;
    check(second - first < 100_000_000_000, "the clock runs wild")?;
    if !machine.is_mirrorball {
        return Ok(());
    }
    let alarm = read() + 20_000_000;
    cpu::store32(ALARM_HIGH, alarm >> 32);
    cpu::store32(ALARM_LOW, alarm & 0xffff_ffff);
    // On a busy machine it may be over already.
    check(cpu::load32(ALARM_STATUS) == 1 || read() >= alarm, "the alarm is not armed")?;
    check(wait_for(|| cpu::load32(ALARM_STATUS) == 0), "the alarm does not ring")?;
    check(read() >= alarm, "the alarm rings too early")
}

/// Whatever controller there is: odd widths and registers that do not exist must not hurt.
pub fn interrupt_controller(machine: &Machine, hart: u64) -> Outcome {
    const PLIC: u64 = 0x0c00_0000;
    const APLIC: u64 = 0x0d00_0000;
    let base = if machine.has_imsic { APLIC } else { PLIC };
    if !machine.is_mirrorball {
        return skip("made for the devices of a Mirrorball VM");
    }
    // Some of these are registers and some are not; an access fault or zero are both right, a dead guest is not.
    for offset in [0, 1, 2, 4, 0x1000, 0x1fff, 0x2000, 0x2080, 0x3000, 0x3ffc, 0x7ff8] {
        for access in [cpu::load8, cpu::load16, cpu::load32, cpu::load] {
            exception_of(hart, || {
                access(base + offset);
            });
        }
    }
    if machine.has_imsic {
        const DOMAINCFG: u64 = 0;
        const SOURCECFG_10: u64 = 4 * 10;
        const TARGET_10: u64 = 0x3000 + 4 * 10;
        check(cpu::load32(base + DOMAINCFG) >> 24 == 0x80, "domaincfg lacks its constant byte")?;
        cpu::store32(base + SOURCECFG_10, 4);
        check(cpu::load32(base + SOURCECFG_10) == 4, "the UART's source cannot be made edge-sensitive")?;
        cpu::store32(base + TARGET_10, 0xffff_ffff);
        cpu::store32(base + SOURCECFG_10, 0);
        check(cpu::load32(base + TARGET_10) == 0, "an inactive source has a target")?;
        // A file takes aligned words. Hardware may answer the rest with a fault, which is the guest's own.
        for offset in [0, 1, 2, 4, 8, 0xff8] {
            for access in [cpu::load8, cpu::load16, cpu::load32, cpu::load] {
                exception_of(hart, || {
                    access(crate::imsic::BASE + offset);
                });
            }
            for access in [cpu::store8, cpu::store16, cpu::store] {
                exception_of(hart, || access(crate::imsic::BASE + offset, 0));
            }
        }
        // The file of a hart that does not exist is nothing.
        let beyond = crate::imsic::BASE + machine.harts * 0x1000;
        let cause = exception_of(hart, || cpu::store32(beyond, 1));
        check(cause == Some(STORE_ACCESS_FAULT), "there are more interrupt files than harts")?;
    } else {
        const PRIORITY_10: u64 = 4 * 10;
        cpu::store32(base + PRIORITY_10, 3);
        check(cpu::load32(base + PRIORITY_10) == 3, "a priority does not keep its value")?;
        cpu::store32(base + PRIORITY_10, 0);
        check(cpu::load32(base) == 0, "source 0 has a priority")?;
    }
    Ok(())
}

/// Registers of a transport in widths and at times that are not allowed.
pub fn virtio_registers(machine: &Machine, hart: u64) -> Outcome {
    let Some(device) = virtio::Device::find(virtio::ENTROPY) else { return skip("no entropy device") };
    device.reset();
    check(device.read(register::STATUS) == 0, "a device that was reset has a status")?;
    device.write(register::QUEUE_SEL, 0xffff);
    // QEMU's own devices ignore such a selection.
    let is_ignored = !machine.is_mirrorball;
    check(is_ignored || device.read(register::QUEUE_NUM_MAX) == 0, "a queue that is not there has a size")?;
    device.write(register::QUEUE_SEL, 0);
    check(device.read(register::QUEUE_NUM_MAX) != 0, "the first queue has no size")?;
    if machine.is_mirrorball {
        for access in [cpu::load8, cpu::load16, cpu::load] {
            exception_of(hart, || {
                access(device.address(register::STATUS));
            });
        }
        for access in [cpu::store8, cpu::store16, cpu::store] {
            exception_of(hart, || access(device.address(register::QUEUE_NOTIFY), 0xffff));
        }
    }
    // Before DRIVER_OK a notification means nothing.
    device.notify(0);
    device.notify(7);
    device.reset();
    check(device.read(register::INTERRUPT_STATUS) == 0, "a device that was reset wants an interrupt")
}

/// The entropy device answers a request, and answers another differently.
pub fn entropy(_: &Machine, _: u64) -> Outcome {
    const BYTES: u32 = 64;
    let Some(device) = virtio::Device::find(virtio::ENTROPY) else { return skip("no entropy device") };
    check(device.negotiate(0).is_some(), "the device refuses the driver")?;
    let mut queue = virtio::Queue::new(layout::RINGS);
    check(device.enable(0, &mut queue), "the queue cannot be enabled")?;
    device.go();
    for request in 0..2_u16 {
        let address = layout::BUFFERS + u64::from(request) * 0x1000;
        queue.push(request, &[virtio::Buffer { address, bytes: BYTES, writable: true }]);
        device.notify(0);
        check(queue.wait(u64::from(request) + 1), "a request is not answered")?;
    }
    let differs = |offset: u64| cpu::load(layout::BUFFERS + offset) != cpu::load(layout::BUFFERS + 0x1000 + offset);
    device.reset();
    check((0..u64::from(BYTES)).step_by(8).any(differs), "two requests got the same bytes")
}
