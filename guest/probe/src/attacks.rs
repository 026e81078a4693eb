//! What only a hostile or broken guest does. Each attack is expected to stop the guest: if it goes on, it says so.

use crate::{
    canary,
    console::println,
    cpu, hostile, layout,
    probes::double_traps,
    sbi, storms,
    tree::Machine,
    virtio,
    virtio::{Device, NEXT, Queue, TABLE, WRITE, register},
};

type OnQueue = fn(&Victim);
type Other = fn(&Machine);

/// Attacks on a virtqueue: the same device, rings that no driver would build.
const ON_QUEUES: &[(&str, OnQueue)] = &[
    ("ring-outside", |v| v.place(16, v.beyond, layout::RINGS + 0x1000, layout::RINGS + 0x2000)),
    ("ring-across-end", |v| v.place(16, v.beyond - 16, layout::RINGS + 0x1000, layout::RINGS + 0x2000)),
    ("ring-wraps", |v| v.place(16, u64::MAX - 15, layout::RINGS + 0x1000, layout::RINGS + 0x2000)),
    ("avail-outside", |v| v.place(16, layout::RINGS, 0x1000_0000, layout::RINGS + 0x2000)),
    ("used-outside", |v| v.place(16, layout::RINGS, layout::RINGS + 0x1000, 1 << 50)),
    ("ring-misaligned", |v| v.place(16, layout::RINGS + 1, layout::RINGS + 0x1000, layout::RINGS + 0x2000)),
    ("size-odd", |v| v.place(3, layout::RINGS, layout::RINGS + 0x1000, layout::RINGS + 0x2000)),
    ("size-huge", |v| v.place(0x8000, layout::RINGS, layout::RINGS + 0x1000, layout::RINGS + 0x2000)),
    ("loop", |v| v.chain(&[(layout::BUFFERS, 16, WRITE | NEXT, 1), (layout::BUFFERS, 16, WRITE | NEXT, 0)])),
    ("loop-self", |v| v.chain(&[(layout::BUFFERS, 16, WRITE | NEXT, 0)])),
    ("next-outside", |v| v.chain(&[(layout::BUFFERS, 16, WRITE | NEXT, 0xfff0)])),
    ("buffer-outside", |v| v.chain(&[(v.beyond, 16, WRITE, 0)])),
    ("buffer-in-device", |v| v.chain(&[(0x1000_0000, 16, WRITE, 0)])),
    ("buffer-across-end", |v| v.chain(&[(v.beyond - 8, 16, WRITE, 0)])),
    ("buffer-wraps", |v| v.chain(&[(u64::MAX - 7, 16, WRITE, 0)])),
    ("length-huge", |v| v.chain(&[(layout::BUFFERS, u32::MAX, WRITE, 0)])),
    ("length-zero", |v| v.chain(&[(layout::BUFFERS, 0, WRITE, 0)])),
    ("order", |v| v.chain(&[(layout::BUFFERS, 16, WRITE | NEXT, 1), (layout::BUFFERS, 16, 0, 0)])),
    ("index-jump", Victim::index_jump),
    ("head-outside", |v| v.head(0xffff)),
    ("indirect-nested", |v| v.table(32, &[(layout::BUFFERS, 16, TABLE, 0)])),
    ("indirect-loop", |v| v.table(16, &[(layout::BUFFERS, 16, WRITE | NEXT, 0)])),
    ("indirect-empty", |v| v.table(0, &[(layout::BUFFERS, 16, WRITE, 0)])),
    ("indirect-odd", |v| v.table(17, &[(layout::BUFFERS, 16, WRITE, 0)])),
    ("indirect-huge", |v| v.table(0xffff_fff0, &[(layout::BUFFERS, 16, WRITE, 0)])),
    ("indirect-outside", |v| v.chain(&[(v.beyond, 32, TABLE, 0)])),
];

/// Other ways to fail.
const OTHERS: &[(&str, Other)] = &[
    ("panic", |_| sbi::shutdown(true)),
    ("fail-device", |_| cpu::store32(0x10_0000, 0x3333 | 7 << 16)),
    ("power-off-device", |_| cpu::store32(0x10_0000, 0x5555)),
    ("reset-loop", |_| {
        sbi::call(0x5352_5354, 0, [1, 0, 0, 0, 0]);
    }),
    ("trap-loop-outside", |machine| cpu::trap_at(machine.ram_start + machine.ram_bytes)),
    ("trap-loop-device", |_| cpu::trap_at(0x1000_0000)),
    ("double-trap-seen", |_| double_traps::unheard(false)),
    ("double-trap-unseen", |_| double_traps::unheard(true)),
    ("trap-loop-inside", |_| cpu::trap_on_itself()),
    ("fence-storm", storms::fences),
    ("remap-storm", storms::remaps),
];

/// Runs one attack.
pub fn run(name: &str, machine: &Machine) {
    println!("ATTACK {name}");
    if let Some((_, attack)) = ON_QUEUES.iter().find(|(known, _)| *known == name) {
        match Victim::new(machine) {
            Some(victim) => attack(&victim),
            None => println!("ATTACK {name} impossible: no device to attack"),
        }
    } else if let Some((_, attack)) = OTHERS.iter().find(|(known, _)| *known == name) {
        attack(machine);
    } else if let Some(role) = name.strip_prefix("canary-") {
        canary::run(role, machine);
    } else if let Some(storm) = name.strip_prefix("hostile-") {
        hostile::run(storm, machine);
    } else {
        println!("ATTACK {name} unknown");
    }
    // A fault in work that the monitor puts off still finds the guest alive.
    let begin = cpu::time();
    while cpu::time() - begin < 5_000_000 {
        core::hint::spin_loop();
    }
    println!("ATTACK {name} survived");
}

/// One descriptor: address, bytes, flags, next.
type Descriptor = (u64, u32, u16, u16);

struct Victim {
    device: Device,
    /// First address after RAM.
    beyond: u64,
}

impl Victim {
    fn new(machine: &Machine) -> Option<Self> {
        let device = Device::find(virtio::ENTROPY)?;
        device.negotiate(virtio::INDIRECT)?;
        device.write(register::QUEUE_SEL, 0);
        Some(Self { device, beyond: machine.ram_start + machine.ram_bytes })
    }

    fn place(&self, size: u64, descriptors: u64, available: u64, used: u64) {
        let mut queue = Queue::new(layout::RINGS);
        self.device.place(size, descriptors, available, used);
        self.device.go();
        queue.offer(0);
        self.device.notify(0);
    }

    fn queue(&self) -> Queue {
        let mut queue = Queue::new(layout::RINGS);
        self.device.enable(0, &mut queue);
        self.device.go();
        queue
    }

    fn chain(&self, descriptors: &[Descriptor]) {
        let mut queue = self.queue();
        describe(queue.descriptors(), descriptors);
        queue.offer(0);
        self.device.notify(0);
    }

    fn table(&self, bytes: u32, descriptors: &[Descriptor]) {
        describe(layout::BUFFERS + 0x8000, descriptors);
        self.chain(&[(layout::BUFFERS + 0x8000, bytes, TABLE, 0)]);
    }

    fn head(&self, head: u16) {
        let mut queue = self.queue();
        queue.offer(head);
        self.device.notify(0);
    }

    fn index_jump(&self) {
        let queue = self.queue();
        describe(queue.descriptors(), &[(layout::BUFFERS, 16, WRITE, 0)]);
        queue.set_index(queue.size + 1);
        self.device.notify(0);
    }
}

fn describe(table: u64, descriptors: &[Descriptor]) {
    for (index, (address, bytes, flags, next)) in descriptors.iter().enumerate() {
        Queue::describe(table, index as u16, *address, *bytes, *flags, *next);
    }
}
