//! Memory as the guest finds it, and gives it back.

use super::{Outcome, check, skip};
use crate::{cpu, layout, tree::Machine, virtio};

/// Memory is zero at first, and keeps what is written, all over RAM.
pub fn zeroed_and_kept(machine: &Machine, _: u64) -> Outcome {
    const STEP: u64 = 64 << 10;
    let places = || {
        let end = machine.ram_start + machine.ram_bytes;
        (layout::FREE..end).step_by(STEP as usize).filter(|at| !machine.is_tree(*at, STEP))
    };
    for at in places() {
        check(cpu::load(at) == 0, "memory is not zero at first touch")?;
        cpu::store(at, at ^ 0x5a5a);
    }
    for at in places() {
        check(cpu::load(at) == at ^ 0x5a5a, "memory lost what was written")?;
        cpu::store(at, 0);
    }
    Ok(())
}

const BLOCK: u64 = 2 << 20;

/// Free page reporting: a reported block is zero afterwards, its neighbours are not touched.
pub fn page_reporting(machine: &Machine, _: u64) -> Outcome {
    const REPORTING: u64 = 1 << 5;
    const STATISTICS: u64 = 1 << 1;
    let Some(device) = virtio::Device::find(virtio::BALLOON) else { return skip("no balloon") };
    let Some(features) = device.negotiate(REPORTING | STATISTICS) else {
        return skip("the balloon refuses the driver");
    };
    if features & REPORTING == 0 {
        return skip("the balloon has no free page reporting");
    }
    // As Linux and QEMU number queues: those that exist, after inflation and deflation.
    let index = if features & STATISTICS == 0 { 2 } else { 3 };
    let mut queue = virtio::Queue::new(layout::RINGS);
    check(device.enable(index, &mut queue), "the reporting queue cannot be enabled")?;
    device.go();
    let start = (layout::FREE + BLOCK - 1) & !(BLOCK - 1);
    let blocks = 4.min((machine.ram_start + machine.ram_bytes - start) / BLOCK).saturating_sub(2);
    check(blocks > 0, "too little memory to report any")?;
    for at in (start - 4096..start + blocks * BLOCK + 4096).step_by(4096) {
        if !machine.is_tree(at, 4096) {
            cpu::store(at, at | 1);
        }
    }
    queue.push(0, &[virtio::Buffer { address: start, bytes: (blocks * BLOCK) as u32, writable: true }]);
    device.notify(index);
    check(queue.wait(1), "the report is not answered")?;
    for at in (start..start + blocks * BLOCK).step_by(4096) {
        check(cpu::load(at) == 0, "a reported page keeps its content")?;
    }
    check(cpu::load(start - 4096) == (start - 4096) | 1, "the page before was taken too")?;
    let after = start + blocks * BLOCK;
    check(cpu::load(after) == after | 1, "the page after was taken too")?;
    device.reset();
    Ok(())
}
