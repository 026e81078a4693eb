//! `/soc`: devices and interrupt controllers.

use super::{Interrupts, PlatformSpec, phandle, write::NodeWriter};
use crate::{Aplic, Plic, map};
use addr::BASE_PAGE;
use alloc::format;
use alloc::vec::Vec;
use device::IrqLine;

/// The cause number of a supervisor external interrupt: what the controllers drive at each hart.
const SUPERVISOR_EXTERNAL: u32 = 9;
/// A PLIC context that does not exist.
const NO_CONTEXT: u32 = u32::MAX;
/// What QEMU's UART is clocked with; Linux computes divisors from it.
const UART_CLOCK_HZ: u32 = 3_686_400;

/// How a device drives its line, in the numbers of an APLIC specifier.
#[derive(Clone, Copy)]
enum Trigger {
    EdgeRising = 1,
    LevelHigh = 4,
}

/// `/soc`.
pub(super) fn soc(spec: &PlatformSpec<'_>) -> NodeWriter {
    let uart = device(spec, "serial", map::UART, Some((map::UART_IRQ, Trigger::EdgeRising)))
        .with("compatible", "ns16550a")
        .cell("clock-frequency", UART_CLOCK_HZ)
        .cell("fifo-size", map::UART_FIFO_BYTES as u32);
    let rtc = device(spec, "rtc", map::RTC, Some((map::RTC_IRQ, Trigger::LevelHigh)))
        .with("compatible", "google,goldfish-rtc");
    let syscon = device(spec, "test", map::SYSCON, None)
        .with("compatible", &["sifive,test1", "sifive,test0", "syscon"][..])
        .cell("phandle", phandle::SYSCON);
    NodeWriter::new("soc")
        .cell("#address-cells", 2)
        .cell("#size-cells", 2)
        .with("compatible", "simple-bus")
        .cell("interrupt-parent", phandle::WIRED)
        .flag("ranges")
        .children(controllers(spec))
        .child(uart)
        .child(rtc)
        .child(syscon)
        .children(virtio(spec))
}

/// Linux names disks and networks in the order of these nodes: slot 0 first.
fn virtio(spec: &PlatformSpec<'_>) -> impl Iterator<Item = NodeWriter> {
    spec.virtio_slots.iter().filter_map(|&slot| {
        let area = map::Area { base: map::virtio_base(slot)?, size: map::VIRTIO_STRIDE };
        let interrupt = Some((map::virtio_irq(slot)?, Trigger::EdgeRising));
        let node = device(spec, "virtio_mmio", area, interrupt);
        Some(node.with("compatible", "virtio,mmio").flag("dma-coherent"))
    })
}

fn device(spec: &PlatformSpec<'_>, name: &str, area: map::Area, interrupt: Option<(IrqLine, Trigger)>) -> NodeWriter {
    let node = NodeWriter::new(format!("{name}@{:x}", area.base)).reg(area.base, area.size);
    match (interrupt, spec.interrupts) {
        (None, _) => node,
        (Some((line, _)), Interrupts::Plic) => node.cell("interrupts", u32::from(line.0)),
        (Some((line, trigger)), Interrupts::Aia { .. }) => node.with("interrupts", [u32::from(line.0), trigger as u32]),
    }
}

fn controllers(spec: &PlatformSpec<'_>) -> Vec<NodeWriter> {
    match spec.interrupts {
        Interrupts::Plic => Vec::from([plic(spec)]),
        Interrupts::Aia { num_ids } => Vec::from([imsics(spec, num_ids), aplic()]),
    }
}

/// Contexts in the order of the registers: per vCPU an M-mode one that is absent, and the S-mode one.
fn plic(spec: &PlatformSpec<'_>) -> NodeWriter {
    let contexts: Vec<u32> = (0..spec.vcpus)
        .flat_map(|vcpu| {
            let hart = phandle::cpu_interrupts(vcpu);
            [hart, NO_CONTEXT, hart, SUPERVISOR_EXTERNAL]
        })
        .collect();
    NodeWriter::new(format!("plic@{:x}", map::PLIC.base))
        .with("compatible", &["sifive,plic-1.0.0", "riscv,plic0"][..])
        .reg(map::PLIC.base, map::PLIC.size)
        .cell("#address-cells", 0)
        .cell("#interrupt-cells", 1)
        .flag("interrupt-controller")
        .with("interrupts-extended", contexts)
        .cell("riscv,ndev", u32::from(Plic::SOURCES))
        .cell("phandle", phandle::WIRED)
}

fn aplic() -> NodeWriter {
    NodeWriter::new(format!("interrupt-controller@{:x}", map::APLIC.base))
        .with("compatible", &["qemu,aplic", "riscv,aplic"][..])
        .reg(map::APLIC.base, map::APLIC.size)
        .cell("#address-cells", 0)
        .cell("#interrupt-cells", 2)
        .flag("interrupt-controller")
        .cell("msi-parent", phandle::IMSICS)
        .cell("riscv,num-sources", u32::from(Aplic::SOURCES))
        .cell("phandle", phandle::WIRED)
}

fn imsics(spec: &PlatformSpec<'_>, num_ids: u16) -> NodeWriter {
    let harts: Vec<u32> =
        (0..spec.vcpus).flat_map(|vcpu| [phandle::cpu_interrupts(vcpu), SUPERVISOR_EXTERNAL]).collect();
    NodeWriter::new(format!("interrupt-controller@{:x}", map::IMSIC.base))
        .with("compatible", &["qemu,imsics", "riscv,imsics"][..])
        .reg(map::IMSIC.base, u64::from(spec.vcpus) * BASE_PAGE)
        .cell("#address-cells", 0)
        .cell("#interrupt-cells", 0)
        .cell("#msi-cells", 0)
        .flag("interrupt-controller")
        .flag("msi-controller")
        .with("interrupts-extended", harts)
        .cell("riscv,num-ids", u32::from(num_ids))
        .cell("phandle", phandle::IMSICS)
}
