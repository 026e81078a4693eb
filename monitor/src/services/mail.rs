//! What harts tell each other: a mailbox for each hart, in its node's memory.

use super::locality::Job;
use crate::{
    hart::{self, Hart},
    machine::node_box::NodeBox,
    vcpu::Vcpu,
    vm::shared::SharedVcpu,
};
use addr::{CpuIndex, VmId};
use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering};
use sched::{Entity, balance::Reason};
use spin::{Mutex, Once};

/// A message to a hart.
#[derive(Debug)]
pub enum Message {
    /// Here is a vCPU: it is yours from now on.
    Adopt(NodeBox<Vcpu>),
    /// Give this vCPU to another hart, if it is still yours.
    HandOver {
        /// The vCPU.
        entity: Entity,
        /// Its new hart.
        to: CpuIndex,
        /// Why.
        reason: Reason,
    },
    /// The weight of this VM has changed.
    Weigh(VmId),
    /// Drop the vCPUs of this VM: it is being torn down.
    Release(VmId),
    /// Move or copy pages.
    Place(Job),
    /// See to what a debugger has asked of this vCPU.
    Look(SharedVcpu),
    /// Panic: a client that may has asked for it.
    Panic(control::PanicBy),
}

#[derive(Debug, Default)]
struct Mailbox {
    messages: Mutex<Vec<Message>>,
    has_some: AtomicBool,
}

static MAILBOXES: Once<Box<[&'static Mailbox]>> = Once::new();

/// Boot: a mailbox for each hart.
///
/// # Panics
/// The machine has no memory for them.
pub fn init() {
    let new = |hart: &&Hart| NodeBox::new(hart.node, Mailbox::default()).expect("memory for a hart's mailbox").leak();
    MAILBOXES.call_once(|| hart::all().iter().map(|hart| -> &Mailbox { new(hart) }).collect());
}

fn of(hart: &Hart) -> Option<&'static Mailbox> {
    MAILBOXES.get()?.get(hart.cpu.index()).copied()
}

/// Leaves `message` for `hart` and rings.
pub fn send(hart: &Hart, message: Message) {
    if let Some(mailbox) = of(hart) {
        mailbox.messages.lock().push(message);
        mailbox.has_some.store(true, Ordering::SeqCst);
        hart.kick();
    }
}

/// Takes what was left for the calling hart.
#[must_use]
pub fn take(hart: &Hart) -> Vec<Message> {
    let Some(mailbox) = of(hart).filter(|mailbox| mailbox.has_some.load(Ordering::SeqCst)) else { return Vec::new() };
    mailbox.has_some.store(false, Ordering::SeqCst);
    core::mem::take(&mut *mailbox.messages.lock())
}
