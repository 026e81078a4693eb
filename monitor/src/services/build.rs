//! Building a VM's life: memory, devices, device tree, and a plan of what it boots from; then its vCPUs on their harts.
//!
//! Between the two the plan is carried out: see [`Loading`].

mod loading;
mod program;

pub use loading::{Loading, Step};

use super::{
    mail::{self, Message},
    modules,
};
use crate::{
    hart, io,
    machine::{self, node_box::NodeBox},
    vcpu::Vcpu,
    vm::{
        Parts, Vm,
        console::Console,
        file,
        memory::{self, RAM_START},
        platform::{self, HostPorts, Platform, Slot},
        shared::{SharedVcpu, VcpuShared},
        topology::Topology,
    },
};
use ::platform::{
    Aplic, InterruptController, PlatformSpec, Plic,
    guest_tree::{CacheBlocks, Interrupts as TreeInterrupts, MmuType, TreeDraft, TreeError},
    map,
};
use ::vcpu::sbi::Entry;
use addr::{BASE_PAGE, CpuIndex, GuestPhysAddr, NodeId, VcpuIndex, VmId};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use control::{Boot, ControlError, Interrupts, TREE_ROOM, VmSpec};
use loading::{Home, Plan};
use merging::Image;
use modules::Content;
use spin::Mutex;
use virtio::rng::EntropySource as _;

/// Where an initrd goes: far enough behind the largest kernel's bss, as boot loaders do.
const INITRD_ALIGN: u64 = 2 << 20;

/// Refuses a description that names something that does not exist, or asks for what the machine cannot do.
///
/// # Errors
/// What does not.
pub fn check(spec: &VmSpec) -> Result<(), ControlError> {
    let (first, initrd) = program::modules_of(spec);
    modules::find(first)?;
    initrd.map(modules::find).transpose()?;
    if let Boot::Program { program, segments, .. } = &spec.boot {
        program::check(program, segments)?;
    }
    if spec.interrupts == Interrupts::Aia && machine::capabilities().guest_files == 0 {
        return Err(ControlError::Unsupported {
            what: "AIA for guests: the machine has no guest interrupt files".into(),
        });
    }
    io::network::check(spec)?;
    io::disks::check(spec)
}

/// What a VM starts from, as others may: by it, pages are found that stay the same in all of them.
#[must_use]
pub fn image(spec: &VmSpec) -> Option<Image> {
    let content = modules::find(program::modules_of(spec).0).ok()?;
    if let Boot::Program { segments, .. } = &spec.boot {
        return program::image(&content, segments);
    }
    let first = GuestPhysAddr::new(RAM_START + map::KERNEL_OFFSET).gfn();
    Some(Image { origin: content.origin(), first, pages: content.len() / BASE_PAGE })
}

/// Builds a VM for these harts, with nothing in its memory, and what is to be loaded before it is launched.
///
/// # Errors
/// What the machine lacks.
pub fn build(
    id: VmId,
    spec: Arc<VmSpec>,
    console: Arc<Mutex<Console>>,
    harts: &[CpuIndex],
) -> Result<(Arc<Vm>, Loading), ControlError> {
    check(&spec)?;
    let topology = Topology::new(&spec, harts);
    let bytes = u64::from(spec.memory_mib) << 20;
    if machine::heap_reserve::is_short() {
        return Err(no_memory(bytes));
    }
    let ram = memory::new(id, bytes, &spec).ok_or_else(|| no_memory(bytes))?;
    let has_imsic = match spec.interrupts {
        Interrupts::Auto | Interrupts::Aia => machine::capabilities().guest_files != 0,
        Interrupts::Plic => false,
    };
    let vcpus: Vec<SharedVcpu> = (0..spec.vcpus).map(|index| Arc::new(VcpuShared::new(VcpuIndex(index)))).collect();
    let ports = HostPorts::new(&spec.ports);
    let mut slots_or_error = Ok(());
    let vm = Arc::new_cyclic(|weak| {
        let slots = make_slots(id, &spec, &ports, has_imsic, weak).unwrap_or_else(|why| {
            slots_or_error = Err(why);
            platform::no_slots()
        });
        Vm::new(Parts {
            id,
            spec: spec.clone(),
            ram,
            platform: Platform::new(controller(has_imsic, spec.vcpus), slots, ports, machine::clock::epoch_ns()),
            vcpus: vcpus.into_boxed_slice(),
            console,
            has_imsic,
        })
    });
    if let Some(topology) = &topology {
        vm.vcpus().iter().zip(topology.homes()).for_each(|(vcpu, home)| vcpu.set_home(home));
    }
    // Who places other VMs meanwhile counts with it.
    vm.vcpus().iter().zip(harts).for_each(|(vcpu, cpu)| vcpu.set_cpu(*cpu));
    slots_or_error?;
    let loading = plan(&vm, Home { first: node_of(harts), topology })?;
    Ok((vm, loading))
}

const fn no_memory(needed: u64) -> ControlError {
    ControlError::OutOfMemory { needed, free: 0 }
}

fn controller(has_imsic: bool, vcpus: u16) -> InterruptController {
    if has_imsic { InterruptController::Aplic(Aplic::new(vcpus)) } else { InterruptController::Plic(Plic::new(vcpus)) }
}

/// Devices in the order of the guest's slots: disks, networks, console, entropy, balloon.
fn make_slots(
    id: VmId,
    spec: &VmSpec,
    ports: &HostPorts,
    has_imsic: bool,
    vm: &Weak<Vm>,
) -> Result<[Option<Slot>; map::VIRTIO_SLOTS as usize], ControlError> {
    let mut slots = platform::no_slots();
    let mut devices = platform::make_devices(id, spec, ports, has_imsic, vm)?.into_iter();
    for slot in &mut slots {
        *slot = devices.next();
    }
    Ok(slots)
}

/// The node of the hart that vCPU 0 begins on.
fn node_of(harts: &[CpuIndex]) -> NodeId {
    let first = harts.first().and_then(|cpu| hart::all().get(cpu.index()));
    first.map_or(NodeId(0), |hart| hart.node)
}

/// Where kernel, initrd and device tree go.
fn plan(vm: &Vm, home: Home) -> Result<Loading, ControlError> {
    let ram_end = RAM_START + vm.memory().bytes();
    let mut plan = Plan::new(ram_end);
    let (pc, initrd) = match &vm.spec().boot {
        Boot::Kernel { kernel, initrd, .. } => {
            let kernel = modules::find(kernel)?;
            let entry = RAM_START + map::KERNEL_OFFSET;
            // Not its room for variables: who clears that touches it first.
            plan.add(&kernel, 0, entry, kernel.len())?;
            let kernel_end = entry + memory_footprint(&kernel);
            let initrd = initrd.as_ref().map(modules::find).transpose()?;
            let range = initrd.map(|initrd| place_initrd(&mut plan, &initrd, kernel_end)).transpose()?;
            (entry, range)
        }
        Boot::Firmware { module } => {
            let firmware = modules::find(module)?;
            // Where S-mode firmware for this board is linked, as on QEMU.
            let entry = RAM_START + map::KERNEL_OFFSET;
            plan.add(&firmware, 0, entry, firmware.len())?;
            (entry, None)
        }
        Boot::Program { program, entry, segments, initrd, .. } => {
            (*entry, program::plan(&mut plan, (program, segments), initrd.as_ref())?)
        }
    };
    // It is written in steps of its own, which fail for want of memory alone.
    with_platform(vm, initrd, home.topology.as_ref(), &[], |spec| spec.check())
        .map_err(|why| too_small(alloc::format!("device tree: {why}")))?;
    let at = (ram_end - TREE_ROOM) & !(BASE_PAGE - 1);
    plan.set_tree(at, initrd);
    Ok(Loading::new(plan, home, Entry { pc, opaque: at }))
}

fn too_small(what: alloc::string::String) -> ControlError {
    ControlError::Unsupported { what: what.into() }
}

/// Bytes that a kernel takes in memory: its Image header says (`image_size`), else its own size.
fn memory_footprint(kernel: &Content) -> u64 {
    let mut first = kernel.pieces();
    let header = first.next().unwrap_or(&[]);
    let field = |at: usize| header.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let is_image = header.get(0x38..0x3c) == Some(b"RSC\x05");
    field(0x10).filter(|_| is_image).unwrap_or(0).max(kernel.len())
}

/// Adds an initrd to what is loaded; where it lies.
fn place_initrd(plan: &mut Plan, initrd: &Content, kernel_end: u64) -> Result<(u64, u64), ControlError> {
    // As high as possible, below the device tree: out of the way of a kernel that unpacks itself.
    let start = (plan.ram_end() - TREE_ROOM).checked_sub(initrd.len()).map(|start| start & !(INITRD_ALIGN - 1));
    match start.filter(|start| *start >= kernel_end) {
        Some(start) => {
            plan.add(initrd, 0, start, initrd.len())?;
            Ok((start, start + initrd.len()))
        }
        None => Err(no_memory(kernel_end - RAM_START + initrd.len() + TREE_ROOM + INITRD_ALIGN)),
    }
}

/// The device tree of a VM, with random numbers of its own.
///
/// # Errors
/// What [`plan`] has refused before.
fn draft_tree(vm: &Vm, initrd: Option<(u64, u64)>, topology: Option<&Topology>) -> Result<TreeDraft, TreeError> {
    let mut seed = [0; 64];
    machine::entropy::stream().fill(&mut seed);
    with_platform(vm, initrd, topology, &seed, TreeDraft::new)
}

/// Hands on what a VM's guest is told of its machine.
fn with_platform<R>(
    vm: &Vm,
    initrd: Option<(u64, u64)>,
    topology: Option<&Topology>,
    rng_seed: &[u8],
    tell: impl FnOnce(&PlatformSpec<'_>) -> R,
) -> R {
    let description = machine::description();
    let hart = &description.harts[0];
    let names = guest_extensions(vm.has_imsic());
    let virtio_slots: Vec<u8> = vm.platform().slots().map(|(slot, _)| slot as u8).collect();
    tell(&PlatformSpec {
        vcpus: vm.spec().vcpus,
        extensions: &names,
        mmu: match hart.mmu {
            machine_tree::MmuType::Sv57 => MmuType::Sv57,
            machine_tree::MmuType::Sv48 => MmuType::Sv48,
            _ => MmuType::Sv39,
        },
        cache_blocks: CacheBlocks {
            management: hart.cbom_block_bytes,
            prefetch: hart.cbop_block_bytes,
            zero: hart.cboz_block_bytes,
        },
        timebase_hz: description.timebase_hz as u32,
        ram_bytes: vm.memory().bytes(),
        interrupts: if vm.has_imsic() {
            TreeInterrupts::Aia { num_ids: file::GUEST_IDS }
        } else {
            TreeInterrupts::Plic
        },
        virtio_slots: &virtio_slots,
        bootargs: match &vm.spec().boot {
            Boot::Kernel { cmdline, .. } | Boot::Program { cmdline, .. } => cmdline,
            Boot::Firmware { .. } => "",
        },
        initrd: initrd.map(|(start, end)| start..end).as_ref(),
        rng_seed,
        numa: topology.map(Topology::numa),
    })
}

/// The ISA that a guest is told: what all harts have, less what is the monitor's own (H, machine-level and hypervisor
/// extensions), what `henvcfg` keeps off (Svadu, Zicfi*, pointer masking) and what needs counters that are not lent.
fn guest_extensions(has_imsic: bool) -> Vec<&'static str> {
    use machine_tree::Extension as E;
    const WITHHELD: &[E] = &[
        E::H,
        E::Svadu,
        E::Zicfilp,
        E::Zicfiss,
        E::Zihpm,
        E::Zkr,
        E::Sscofpmf,
        E::Ssccfg,
        E::Sscsrind,
        E::Ssnpm,
        E::Sspm,
        E::Supm,
        E::Ssstateen,
    ];
    let is_lent = |extension: &E| {
        let name = extension.name();
        !WITHHELD.contains(extension)
            && !name.starts_with("sm")
            && !name.starts_with("sh")
            && (*extension != E::Ssaia || has_imsic)
            && (*extension != E::Ssdbltrp || machine::capabilities().guests.double_trap)
    };
    machine::description().common_extensions().iter().filter(is_lent).map(E::name).collect()
}

/// Gives the vCPUs of a VM that is loaded to their harts: from here on it lives.
pub fn launch(vm: &Arc<Vm>, harts: &[CpuIndex]) {
    vm.set_owned_vcpus(harts.len() as u32);
    for (shared, cpu) in vm.vcpus().iter().zip(harts) {
        let hart = &hart::all()[cpu.index()];
        match NodeBox::new(hart.node, Vcpu::new(vm.clone(), shared.clone())) {
            Some(vcpu) => mail::send(hart, Message::Adopt(vcpu)),
            None => {
                vm.vcpu_released();
                vm.request_stop(control::StopReason::OutOfMemory { needed: BASE_PAGE });
            }
        }
    }
}
