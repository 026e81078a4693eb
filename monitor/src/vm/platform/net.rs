//! A VM's network interface: the adapter from virtio-net to a port of a subnet.

use super::{Traffic, VmEnv, slots::lock_briefly};
use crate::{
    io::{
        network::{self, SharedPort},
        sent,
    },
    machine,
    vm::Vm,
};
use addr::BASE_PAGE;
use alloc::sync::{Arc, Weak};
use control::{ControlError, NetSpec, VmSpec};
use core::sync::atomic::{AtomicBool, Ordering};
use device::IrqLine;
use spin::mutex::{TicketMutex as Mutex, TicketMutexGuard as MutexGuard};
use virtio::{
    Budget, GuestSegment, Trigger, VirtioMmio,
    net::{Net, NetBackend, NetConfig, NetHeader, Received, Transmit, TransmitFrame},
};

/// Frames given to a guest in one go, and their buffers and bytes: then others may have the device, and the hart takes interrupts.
const BATCH: usize = 16;
const BATCH_BUDGET: Budget = Budget::new(16, 4 << 10);

/// Bytes sent with one access that are delivered with another one.
const LONG: u64 = 16 << 10;

type Device = VirtioMmio<Net<NetPort>>;

/// The host's side of a virtio-net device.
///
/// `receive_ready` is not used: a guest that was out of buffers is tried again at its next access ([`NetSlot`]), which
/// also covers a driver that resets the device and never says so.
pub struct NetPort {
    port: SharedPort,
    /// Whose pages are sent; none of one that has no memory in common with others.
    sender: Option<Weak<Vm>>,
}

impl NetPort {
    /// Others may have the pages among these soon: all but headers. A page may be sent in two parts, each in its frame.
    fn note_pages(&self, segments: &[GuestSegment]) {
        const LONGEST_HEADER: u32 = 128;
        /// Segments of a frame whose pages are noted: those of 64 KiB that lie anyhow in pages. Each costs locks.
        const MOST_NOTED: usize = 18;
        if !sent::is_looking() || segments.iter().all(|segment| segment.len <= LONGEST_HEADER) {
            return;
        }
        let Some(vm) = self.sender.as_ref().and_then(Weak::upgrade) else { return };
        for segment in segments.iter().filter(|segment| segment.len > LONGEST_HEADER).take(MOST_NOTED) {
            let pages = (segment.addr.page_offset() + u64::from(segment.len)).div_ceil(BASE_PAGE);
            sent::note(&*vm, segment.addr.gfn(), pages);
        }
    }
}

impl NetBackend for NetPort {
    /// Queues the frame; it is delivered when the device is unlocked. Without memory for it, it is lost, as on a wire.
    fn transmit(&mut self, header: &NetHeader, frame: &TransmitFrame<'_>) -> Transmit {
        if let Ok(mut copy) = self.port.network().frame(frame.len())
            && frame.copy_to(copy.bytes_mut()) == Ok(frame.len())
        {
            self.port.send(*header, copy);
            self.note_pages(frame.segments());
        }
        Transmit::Taken
    }
}

/// What receiving came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Drained,
    Full,
    More,
}

/// A network device with its port.
pub struct NetSlot {
    device: Mutex<Device>,
    port: SharedPort,
    /// Frames wait in the switch because the guest had no buffers.
    is_stalled: AtomicBool,
    /// Long frames have been sent and are not delivered yet: copying and delivering them is a stretch each.
    owes_delivery: AtomicBool,
}

impl NetSlot {
    /// Interface `position` of a VM, in `slot`.
    ///
    /// # Errors
    /// The subnet does not exist or does not take it.
    pub fn new(
        (position, net): (usize, &NetSpec),
        spec: &VmSpec,
        vm: &Weak<Vm>,
        slot: usize,
        (line, trigger): (IrqLine, Trigger),
    ) -> Result<Self, ControlError> {
        let derive = || subnet::derive_mac(machine::name().as_str(), spec.name.as_str(), position);
        let mac = net.mac.unwrap_or_else(derive);
        let port = Arc::new(network::find(&net.subnet)?.attach(mac, vm.clone(), slot)?);
        let model = Net::new(
            NetPort { port: port.clone(), sender: spec.sharing.then(|| vm.clone()) },
            NetConfig { mac: mac.0, mtu: net.mtu },
        );
        let device = Mutex::new(VirtioMmio::new(model, line, trigger));
        Ok(Self { device, port, is_stalled: AtomicBool::new(false), owes_delivery: AtomicBool::new(false) })
    }

    /// The device.
    pub const fn device(&self) -> &Mutex<Device> {
        &self.device
    }

    /// After each access of the guest, which had sent so many bytes before: unlocks the device, and delivers what it has sent, and what
    /// waits for it. `true` if there is more that it could not send at once, or what it has sent is delivered later.
    pub fn after_access(&self, device: MutexGuard<'_, Device>, sent_before: u64) -> bool {
        let sent = device.model().metrics().bytes_transmitted.wrapping_sub(sent_before);
        let has_more = device.has_backlog();
        drop(device);
        if sent >= LONG {
            self.owes_delivery.store(true, Ordering::SeqCst);
            return true;
        }
        self.deliver();
        has_more
    }

    /// Delivers what was sent at length before; `false` if there is nothing like that.
    pub fn deliver_owed(&self) -> bool {
        let owes = self.owes_delivery.swap(false, Ordering::SeqCst);
        if owes {
            self.deliver();
        }
        owes
    }

    fn deliver(&self) {
        if self.is_stalled.load(Ordering::SeqCst) && self.is_stalled.swap(false, Ordering::SeqCst) {
            self.port.set_ready();
        }
        self.port.network().deliver();
    }

    /// Gives waiting frames to the guest; `true` if there may be more that it could take.
    pub fn receive_waiting(&self, vm: &Vm) -> bool {
        // Its vCPUs keep it busy: whoever calls comes again.
        let Some(mut device) = lock_briefly(&self.device) else { return !vm.is_ending() };
        if vm.is_ending() {
            // Its memory may be going. Whoever looks after this sees the same.
            self.port.clear();
            return false;
        }
        let port = &self.port;
        let outcome = device.with_model(&VmEnv::new(vm), |net, io| {
            let mut budget = BATCH_BUDGET;
            for _ in 0..BATCH {
                let Some(frame) = port.peek() else { return Ok(Progress::Drained) };
                match net.deliver(frame.header(), frame.bytes(), io, &mut budget)? {
                    Received::Full => return Ok(Progress::Full),
                    Received::Partly => break,
                    Received::Delivered | Received::Dropped => port.advance(),
                }
                if budget.is_spent() {
                    break;
                }
            }
            Ok(Progress::More)
        });
        let progress = vm.note_fault(outcome).flatten();
        match progress {
            // No driver, or a broken one.
            None => {
                device.model_mut().forget_begun();
                port.clear();
            }
            Some(Progress::Full) => self.is_stalled.store(true, Ordering::SeqCst),
            Some(Progress::Drained | Progress::More) => {}
        }
        progress == Some(Progress::More)
    }

    /// Waits until nobody writes to the guest's memory for this device. Once the VM is ending nobody begins again.
    pub fn settle(&self) {
        drop(self.device.lock());
    }

    /// Unplugs it.
    pub fn disconnect(&self) {
        self.port.disconnect();
    }

    /// What went through.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let metrics = *self.device.lock().model().metrics();
        Traffic {
            net_sent_bytes: metrics.bytes_transmitted,
            net_received_bytes: metrics.bytes_received,
            ..Traffic::default()
        }
    }
}
