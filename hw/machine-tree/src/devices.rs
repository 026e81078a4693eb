//! Devices that the monitor has drivers for.

use alloc::vec::Vec;

use crate::{
    address::AddressRange,
    controllers::InterruptControllers,
    error::{Problem, TreeError},
    interrupts::InterruptSource,
    tree::{Tree, TreeNode},
};

/// A 16550-compatible UART.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uart {
    /// Registers.
    pub registers: AddressRange,
    /// Interrupt.
    pub interrupt: Option<InterruptSource>,
    /// Input clock.
    pub clock_hz: Option<u32>,
    /// Register `n` is at `n << reg_shift`.
    pub reg_shift: u32,
    /// Bytes per register access: 1 or 4.
    pub access_bytes: u32,
}

/// A virtio-mmio slot. Whether a device sits in it is told by its registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioMmio {
    /// Registers.
    pub registers: AddressRange,
    /// Interrupt.
    pub interrupt: Option<InterruptSource>,
}

/// A goldfish real-time clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rtc {
    /// Registers.
    pub registers: AddressRange,
    /// Interrupt.
    pub interrupt: Option<InterruptSource>,
}

pub(crate) fn read_uarts(tree: &Tree<'_>, controllers: &InterruptControllers) -> Result<Vec<Uart>, TreeError> {
    tree.compatible(&["ns16550a", "ns16550", "snps,dw-apb-uart"]).map(|node| read_uart(&node, controllers)).collect()
}

fn read_uart(node: &TreeNode<'_, '_>, controllers: &InterruptControllers) -> Result<Uart, TreeError> {
    Ok(Uart {
        registers: node.first_reg()?,
        interrupt: node.interrupt(controllers)?,
        clock_hz: node.u32("clock-frequency")?,
        reg_shift: legal(node, "reg-shift", 0, &[0, 1, 2, 3])?,
        access_bytes: legal(node, "reg-io-width", 1, &[1, 4])?,
    })
}

pub(crate) fn read_virtio(tree: &Tree<'_>, controllers: &InterruptControllers) -> Result<Vec<VirtioMmio>, TreeError> {
    let slots = tree
        .compatible(&["virtio,mmio"])
        .map(|node| Ok(VirtioMmio { registers: node.first_reg()?, interrupt: node.interrupt(controllers)? }));
    let mut slots: Vec<_> = slots.collect::<Result<_, TreeError>>()?;
    order::by_key(&mut slots, |slot| slot.registers);
    Ok(slots)
}

pub(crate) fn read_rtc(tree: &Tree<'_>, controllers: &InterruptControllers) -> Result<Option<Rtc>, TreeError> {
    let node = tree.compatible(&["google,goldfish-rtc"]).next();
    node.map(|node| Ok(Rtc { registers: node.first_reg()?, interrupt: node.interrupt(controllers)? })).transpose()
}

fn legal(node: &TreeNode<'_, '_>, name: &str, default: u32, values: &[u32]) -> Result<u32, TreeError> {
    let value = node.u32(name)?.unwrap_or(default);
    match values.contains(&value) {
        true => Ok(value),
        false => Err(node.error(name, Problem::OutOfRange { value: u64::from(value) })),
    }
}
