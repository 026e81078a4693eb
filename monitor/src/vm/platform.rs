//! The devices of a VM on their bus, and how their interrupts reach vCPUs.
//!
//! Each device has a lock of its own and the interrupt controller has one; a device's lock is taken first. Nothing
//! else is locked under them but the VM's memory.

mod backends;
mod disk;
mod net;
mod slots;

pub use backends::HostPorts;
pub use slots::{Slot, Traffic, make_devices};

use super::{
    Vm, file,
    shared::{SharedVcpu, kick, request},
};

use addr::GuestPhysAddr;
use alloc::vec::Vec;
use control::{ControlError, Label, StopReason};
use core::sync::atomic::{AtomicU32, Ordering};
use device::{Device as _, Env, GuestFault, GuestMemory, IrqLine, Width};
use platform::{
    Delivery, InterruptController, Msi, PowerEvent, Rtc, Syscon, Uart,
    map::{self, Region},
};
use rv::csr;
use spin::{Mutex, MutexGuard};

/// Bytes of UART output that wait before they are moved to the console.
const OUTPUT_BATCH: usize = 256;

/// What an access of the guest to its bus came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached<T> {
    /// There is nothing at that address.
    Nothing,
    /// Others keep the device busy. Nothing has been done, and the guest tries again.
    Busy,
    /// It is done.
    Done(T),
}

/// A VM's devices.
pub struct Platform {
    controller: Mutex<InterruptController>,
    uart: Mutex<Uart>,
    rtc: Mutex<Rtc>,
    syscon: Mutex<Syscon>,
    slots: [Option<Slot>; map::VIRTIO_SLOTS as usize],
    /// Slots whose guest has asked for more than was done at once, by bit.
    backlog: AtomicU32,
    ports: HostPorts,
}

/// The world as a device of `vm` sees it.
pub struct VmEnv<'a> {
    vm: &'a Vm,
}

impl<'a> VmEnv<'a> {
    /// For devices of `vm`.
    #[must_use]
    pub const fn new(vm: &'a Vm) -> Self {
        Self { vm }
    }
}

impl Env for VmEnv<'_> {
    fn memory(&self) -> &dyn GuestMemory {
        self.vm.memory()
    }

    fn set_irq(&self, line: IrqLine, asserted: bool) {
        let mut controller = self.vm.platform().controller.lock();
        let delivery = controller.set_line(line, asserted);
        self.deliver(delivery, controller);
    }

    fn pulse_irq(&self, line: IrqLine) {
        let mut controller = self.vm.platform().controller.lock();
        let delivery = controller.pulse(line);
        self.deliver(delivery, controller);
    }

    fn now_ticks(&self) -> u64 {
        csr::time::read()
    }
}

impl VmEnv<'_> {
    /// Levels are delivered with the controller's lock held: two harts must not apply them in another order than the
    /// controller gave them. Messages need no order.
    #[inline]
    fn deliver(&self, delivery: Option<Delivery>, controller: MutexGuard<'_, InterruptController>) {
        match delivery {
            None => {}
            Some(Delivery::Msi(msi)) => {
                drop(controller);
                self.send(msi);
            }
            Some(Delivery::Levels(levels)) => deliver_levels(self.vm.vcpus(), levels.changed, levels.asserted),
        }
    }
}

impl VmEnv<'_> {
    /// Delivers everything that a register access has caused.
    fn drain(&self, mut controller: MutexGuard<'_, InterruptController>) {
        while let Some(delivery) = controller.next_delivery() {
            match delivery {
                Delivery::Msi(msi) => self.send(msi),
                Delivery::Levels(levels) => deliver_levels(self.vm.vcpus(), levels.changed, levels.asserted),
            }
        }
    }

    fn send(&self, msi: Msi) {
        if let Some(vcpu) = self.vm.vcpus().get(msi.vcpu.index()) {
            file::send(vcpu, msi.eiid);
        }
    }
}

fn deliver_levels(vcpus: &[SharedVcpu], changed: u32, asserted: u32) {
    let mut rest = changed;
    while rest != 0 {
        let index = rest.trailing_zeros();
        rest &= rest - 1;
        if let Some(vcpu) = vcpus.get(index as usize) {
            vcpu.set_external_level(asserted >> index & 1 != 0);
            vcpu.request(request::EXTERNAL);
            kick(vcpu);
        }
    }
}

impl Platform {
    /// Devices at power-on.
    #[must_use]
    pub fn new(
        controller: InterruptController,
        slots: [Option<Slot>; map::VIRTIO_SLOTS as usize],
        ports: HostPorts,
        epoch_ns: u64,
    ) -> Self {
        let timebase = crate::machine::capabilities().timebase_hz;
        Self {
            controller: Mutex::new(controller),
            uart: Mutex::new(Uart::new(map::UART_IRQ)),
            rtc: Mutex::new(Rtc::new(map::RTC_IRQ, timebase, epoch_ns)),
            syscon: Mutex::new(Syscon::new()),
            slots,
            backlog: AtomicU32::new(0),
            ports,
        }
    }

    /// The virtio devices, by slot.
    pub fn slots(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| slot.as_ref().map(|slot| (index, slot)))
    }

    /// The device in `slot`.
    #[must_use]
    pub fn slot(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)?.as_ref()
    }

    /// Waits until nobody writes to guest memory for a device.
    pub fn settle(&self) {
        self.slots().for_each(|(_, slot)| slot.settle());
    }

    /// Unplugs the network: the addresses are free for a next life.
    pub fn disconnect(&self) {
        self.slots().for_each(|(_, slot)| slot.disconnect());
    }

    /// Machine pages of modified disk blocks.
    #[must_use]
    pub fn disk_pages(&self) -> u64 {
        self.slots().map(|(_, slot)| slot.disk_pages()).sum()
    }

    /// What went through disks and network.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.slots().fold(Traffic::default(), |sum, (_, slot)| sum.and(slot.traffic()))
    }

    /// Gives typed bytes to the UART as far as it takes them.
    pub fn feed_console(&self, vm: &Vm) {
        let mut uart = self.uart.lock();
        let mut console = vm.console().lock();
        while uart.input_room() > 0
            && let Some(byte) = console.next_input()
        {
            uart.push_input(&[byte], &VmEnv::new(vm));
        }
    }

    /// Lets the clock's alarm ring if it is due; when the next one is.
    pub fn poll_clock(&self, vm: &Vm) -> Option<u64> {
        let mut rtc = self.rtc.lock();
        let env = VmEnv::new(vm);
        rtc.poll(&env);
        rtc.alarm_ticks(&env)
    }

    #[inline]
    fn after_uart(&self, uart: &mut Uart, vm: &Vm) {
        if uart.output_len() > 0 {
            Self::flush_uart(uart, vm);
        }
    }

    #[inline(never)]
    fn flush_uart(uart: &mut Uart, vm: &Vm) {
        let mut bytes = [0; OUTPUT_BATCH];
        while uart.output_len() > 0 {
            let len = uart.take_output(&mut bytes, &VmEnv::new(vm));
            vm.console_output(&bytes[..len]);
        }
    }

    fn console_slot(&self) -> Option<&slots::ConsoleSlot> {
        self.slots().find_map(|(_, slot)| match slot {
            Slot::Console(console) => Some(console),
            _ => None,
        })
    }

    /// A client opened or closed its end of a named port.
    ///
    /// # Errors
    /// [`ControlError::NoSuchPort`].
    pub fn set_port_connected(&self, vm: &Vm, port: &Label, connected: bool) -> Result<(), ControlError> {
        let number = self.ports.number(port);
        let (Some(number), Some(slot)) = (number, self.console_slot()) else {
            return Err(ControlError::NoSuchPort { vm: vm.spec().name.clone(), port: port.clone() });
        };
        let outcome = slot.lock().set_host_open(number, connected, &VmEnv::new(vm));
        vm.note_fault(outcome);
        Ok(())
    }

    /// Whether something in the guest listens on a named port; `false` if there is no such port.
    #[must_use]
    pub fn is_port_open(&self, port: &Label) -> bool {
        let number = self.ports.number(port);
        number.zip(self.console_slot()).is_some_and(|(number, slot)| slot.lock().model().is_guest_open(number))
    }

    /// Bytes for the guest on a named port; how many it took.
    pub fn port_input(&self, vm: &Vm, port: &Label, bytes: &[u8]) -> usize {
        let Some((number, slot)) = self.ports.number(port).zip(self.console_slot()) else { return 0 };
        let outcome = slot.lock().input(number, bytes, &VmEnv::new(vm));
        vm.note_fault(outcome).unwrap_or(0)
    }

    /// Bytes that the guest sent on a named port.
    pub fn port_output(&self, vm: &Vm, port: &Label, max: usize) -> Vec<u8> {
        let Some((number, slot)) = self.ports.number(port).zip(self.console_slot()) else { return Vec::new() };
        let (bytes, has_more) = self.ports.take(number, max);
        if !has_more {
            return bytes;
        }
        let (outcome, has_backlog) = {
            let mut device = slot.lock();
            (device.kick(virtio::console::output_queue(number), &VmEnv::new(vm)), device.has_backlog())
        };
        vm.note_fault(outcome);
        if has_backlog {
            self.ports.note_more(number);
        }
        // The stream sleeps when it is given nothing.
        if bytes.is_empty() { self.ports.take_bytes(number, max) } else { bytes }
    }
}

impl Platform {
    #[cold]
    fn note_backlog(&self, slot: usize) {
        self.backlog.fetch_or(1 << slot, Ordering::Relaxed);
        // A vCPU that asks for something and stops does not go on with it.
        crate::machine::agenda::defer();
    }

    /// Whether the guest has asked its devices for more than was done at once.
    #[inline]
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) != 0
    }
}

impl Vm {
    /// Does some more of what the guest has asked its devices for, as much as of one access; `true` if there is still more.
    pub fn serve_backlog(&self) -> bool {
        let slots = self.platform.backlog.swap(0, Ordering::Relaxed);
        for (number, slot) in self.platform.slots().filter(|(number, _)| slots >> number & 1 != 0) {
            let outcome = slot.go_on(self, &VmEnv::new(self));
            if self.note_fault(outcome) == Some(true) {
                self.platform.note_backlog(number);
            }
        }
        self.platform.has_backlog()
    }

    /// The guest reads a device register.
    ///
    /// # Errors
    /// The guest has put a device into a state with no way on.
    #[inline]
    pub fn bus_read(&self, addr: GuestPhysAddr, width: Width) -> Result<Reached<u64>, GuestFault> {
        let Some((region, offset)) = Region::decode(addr) else { return Ok(Reached::Nothing) };
        let env = VmEnv::new(self);
        let bus = &self.platform;
        let value = match region {
            Region::Virtio(slot) => match bus.slot(usize::from(slot)) {
                Some(slot) => match slot.read(offset, width, &env)? {
                    Some(value) => value,
                    None => return Ok(Reached::Busy),
                },
                // An empty slot: magic and version as on QEMU, device id 0.
                None => empty_slot(offset),
            },
            Region::Uart => {
                let mut uart = bus.uart.lock();
                let value = uart.read(offset, width, &env)?;
                bus.after_uart(&mut uart, self);
                drop(uart);
                bus.feed_console(self);
                value
            }
            Region::Plic | Region::Aplic => {
                if !self.has_controller_at(region) {
                    return Ok(Reached::Nothing);
                }
                let mut controller = bus.controller.lock();
                let value = controller.read(offset, width);
                env.drain(controller);
                value
            }
            // Only the message register is there; it reads as zero.
            Region::Imsic(vcpu) if self.has_imsic() && usize::from(vcpu) < self.vcpus.len() => 0,
            Region::Imsic(_) => return Ok(Reached::Nothing),
            Region::Rtc => bus.rtc.lock().read(offset, width, &env)?,
            Region::Syscon => bus.syscon.lock().read(offset, width, &env)?,
        };
        Ok(Reached::Done(value))
    }

    /// The guest writes a device register.
    ///
    /// # Errors
    /// As for [`Vm::bus_read`].
    #[inline]
    pub fn bus_write(&self, addr: GuestPhysAddr, width: Width, value: u64) -> Result<Reached<()>, GuestFault> {
        let Some((region, offset)) = Region::decode(addr) else { return Ok(Reached::Nothing) };
        let env = VmEnv::new(self);
        let bus = &self.platform;
        match region {
            Region::Virtio(slot) => {
                if let Some(device) = bus.slot(usize::from(slot)) {
                    match device.write(self, offset, width, value, &env)? {
                        Some(true) => bus.note_backlog(usize::from(slot)),
                        Some(false) => {}
                        None => return Ok(Reached::Busy),
                    }
                }
            }
            Region::Uart => {
                let mut uart = bus.uart.lock();
                uart.write(offset, width, value, &env)?;
                bus.after_uart(&mut uart, self);
            }
            Region::Plic | Region::Aplic => {
                if !self.has_controller_at(region) {
                    return Ok(Reached::Nothing);
                }
                let mut controller = bus.controller.lock();
                controller.write(offset, width, value);
                env.drain(controller);
            }
            Region::Imsic(vcpu) if self.has_imsic() => match self.vcpus.get(usize::from(vcpu)) {
                Some(vcpu) => file::store(vcpu, offset, width, value),
                None => return Ok(Reached::Nothing),
            },
            Region::Imsic(_) => return Ok(Reached::Nothing),
            Region::Rtc => {
                let mut rtc = bus.rtc.lock();
                rtc.write(offset, width, value, &env)?;
                let alarm = rtc.alarm_ticks(&env);
                drop(rtc);
                alarm.into_iter().for_each(crate::machine::clock::set_alarm);
            }
            Region::Syscon => {
                let mut syscon = bus.syscon.lock();
                syscon.write(offset, width, value, &env)?;
                let event = syscon.take_event();
                drop(syscon);
                self.power(event);
            }
        }
        Ok(Reached::Done(()))
    }

    fn power(&self, event: Option<PowerEvent>) {
        match event {
            None => {}
            Some(PowerEvent::PowerOff) => self.request_stop(StopReason::PowerOff),
            Some(PowerEvent::Reset) => self.request_reset(),
            Some(PowerEvent::Fail { code }) => self.request_stop(StopReason::GuestFailure { code: u32::from(code) }),
        }
    }

    fn has_controller_at(&self, region: Region) -> bool {
        (region == Region::Aplic) == self.has_imsic()
    }

    /// A device's answer outside an exit: a fault ends the guest as it would inside one.
    pub fn note_fault<T>(&self, outcome: Result<T, GuestFault>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(GuestFault { device, reason, value }) => {
                self.request_stop(StopReason::GuestFault {
                    vcpu: None,
                    device: device.into(),
                    reason: reason.into(),
                    value,
                });
                None
            }
        }
    }
}

/// What QEMU shows where no virtio device is plugged in.
const fn empty_slot(offset: u64) -> u64 {
    match offset {
        0 => 0x7472_6976,
        4 => 2,
        _ => 0,
    }
}

/// All slots empty.
#[must_use]
pub fn no_slots() -> [Option<Slot>; map::VIRTIO_SLOTS as usize] {
    [const { None }; map::VIRTIO_SLOTS as usize]
}
