extern crate std;

use super::*;
use core::ops::Range;
use dtoolkit::{Node as _, Property as _, fdt::Fdt};
use proptest::prelude::*;
use std::{
    io::Write as _,
    process::{Command, Stdio},
    string::String,
};

const INITRD: Range<u64> = 0x8800_0000..0x8900_0000;

fn spec() -> PlatformSpec<'static> {
    PlatformSpec {
        vcpus: 3,
        extensions: &["i", "m", "a", "f", "d", "c", "zicsr", "zicboz", "sstc"],
        mmu: MmuType::Sv39,
        cache_blocks: CacheBlocks { management: Some(64), prefetch: None, zero: Some(64) },
        timebase_hz: 10_000_000,
        ram_bytes: 512 << 20,
        interrupts: Interrupts::Aia { num_ids: 255 },
        virtio_slots: &[0, 1, 7],
        bootargs: "console=ttyS0 root=/dev/vda1",
        initrd: Some(&INITRD),
        rng_seed: &[7; 48],
        numa: None,
    }
}

const NUMA: Numa<'_> = Numa {
    vcpu_nodes: &[0, 2, 2],
    memory_bytes: &[128 << 20, 0, 384 << 20],
    distances: &[10, 20, 30, 20, 10, 20, 30, 20, 10],
};

fn value(spec: &PlatformSpec<'_>, path: &str, property: &str) -> Option<Vec<u8>> {
    let tree = GuestTree::build(spec).unwrap();
    let fdt = Fdt::new(tree.blob()).unwrap();
    let node = fdt.find_node(path)?;
    node.property(property).map(|property| property.value().to_vec())
}

fn cells(spec: &PlatformSpec<'_>, path: &str, property: &str) -> Vec<u32> {
    let bytes = value(spec, path, property).unwrap_or_else(|| panic!("{path} {property}"));
    bytes.chunks(4).map(|cell| u32::from_be_bytes(cell.try_into().unwrap())).collect()
}

fn text(spec: &PlatformSpec<'_>, path: &str, property: &str) -> String {
    String::from_utf8(value(spec, path, property).unwrap_or_else(|| panic!("{path} {property}"))).unwrap()
}

/// The tree as `dtc` reads it, or `None` where `dtc` is not installed. Any warning fails.
fn dts(spec: &PlatformSpec<'_>) -> Option<String> {
    let tree = GuestTree::build(spec).unwrap();
    let mut dtc = Command::new("dtc")
        .args(["-I", "dtb", "-O", "dts"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    dtc.stdin.take().unwrap().write_all(tree.blob()).unwrap();
    let output = dtc.wait_with_output().unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The control hart writes it in two steps, each of which takes time by allocations and by bytes.
#[test]
fn a_tree_takes_few_bytes() {
    let tree = GuestTree::build(&spec()).unwrap();
    let draft = TreeDraft::new(&spec()).unwrap();
    assert!(draft.0.len() <= 8192 && draft.0.capacity() <= 8192, "{} bytes: the list has grown", draft.0.len());
    assert!(tree.blob().len() <= draft.0.len() + SLACK_BYTES + 1024, "{} bytes", tree.blob().len());
}

#[test]
fn dtc_reads_every_kind_of_tree_without_a_warning() {
    let small = PlatformSpec {
        vcpus: 1,
        cache_blocks: CacheBlocks::default(),
        virtio_slots: &[],
        bootargs: "",
        initrd: None,
        rng_seed: &[],
        interrupts: Interrupts::Plic,
        ..spec()
    };
    let large = PlatformSpec { vcpus: 32, virtio_slots: &[0, 1, 2, 3, 4, 5, 6, 7], ..spec() };
    for spec in [spec(), small, large, PlatformSpec { numa: Some(NUMA), ..spec() }] {
        if let Some(dts) = dts(&spec) {
            assert!(dts.contains("riscv-virtio,mirrorball"));
        }
    }
}

#[test]
fn linux_finds_its_aia() {
    let spec = spec();
    let imsics = "/soc/interrupt-controller@28000000";
    assert_eq!(text(&spec, imsics, "compatible"), "qemu,imsics\0riscv,imsics\0");
    assert_eq!(cells(&spec, imsics, "interrupts-extended"), [0x200, 9, 0x201, 9, 0x202, 9]);
    assert_eq!(cells(&spec, imsics, "reg"), [0, 0x2800_0000, 0, 0x3000]);
    assert_eq!(cells(&spec, imsics, "riscv,num-ids"), [255]);
    let aplic = "/soc/interrupt-controller@d000000";
    assert_eq!(text(&spec, aplic, "compatible"), "qemu,aplic\0riscv,aplic\0");
    assert_eq!(cells(&spec, aplic, "msi-parent"), cells(&spec, imsics, "phandle"));
    assert_eq!(cells(&spec, aplic, "riscv,num-sources"), [96]);
    assert_eq!(cells(&spec, "/soc/virtio_mmio@10008000", "interrupts"), [8, 1]);
    assert_eq!(cells(&spec, "/soc/serial@10000000", "interrupts"), [10, 1]);
    assert_eq!(cells(&spec, "/soc/rtc@101000", "interrupts"), [11, 4]);
    assert_eq!(cells(&spec, "/soc", "interrupt-parent"), cells(&spec, aplic, "phandle"));
    assert_eq!(value(&spec, "/soc/plic@c000000", "reg"), None);
}

#[test]
fn linux_finds_its_plic() {
    let spec = PlatformSpec { interrupts: Interrupts::Plic, ..spec() };
    let plic = "/soc/plic@c000000";
    assert_eq!(text(&spec, plic, "compatible"), "sifive,plic-1.0.0\0riscv,plic0\0");
    let absent = u32::MAX;
    let contexts = [0x200, absent, 0x200, 9, 0x201, absent, 0x201, 9, 0x202, absent, 0x202, 9];
    assert_eq!(cells(&spec, plic, "interrupts-extended"), contexts);
    assert_eq!(cells(&spec, plic, "riscv,ndev"), [95]);
    assert_eq!(cells(&spec, "/soc/virtio_mmio@10001000", "interrupts"), [1]);
    assert_eq!(value(&spec, "/soc/interrupt-controller@d000000", "reg"), None);
}

#[test]
fn processors_say_what_they_can() {
    let spec = spec();
    assert_eq!(text(&spec, "/cpus/cpu@2", "riscv,isa"), "rv64imafdc_zicsr_zicboz_sstc\0");
    assert_eq!(text(&spec, "/cpus/cpu@2", "riscv,isa-base"), "rv64i\0");
    let list = "i\0m\0a\0f\0d\0c\0zicsr\0zicboz\0sstc\0";
    assert_eq!(text(&spec, "/cpus/cpu@2", "riscv,isa-extensions"), list);
    assert_eq!(text(&spec, "/cpus/cpu@2", "mmu-type"), "riscv,sv39\0");
    assert_eq!(cells(&spec, "/cpus/cpu@2", "reg"), [2]);
    assert_eq!(cells(&spec, "/cpus/cpu@2", "riscv,cboz-block-size"), [64]);
    assert_eq!(value(&spec, "/cpus/cpu@2", "riscv,cbop-block-size"), None);
    assert_eq!(cells(&spec, "/cpus", "timebase-frequency"), [10_000_000]);
    assert_eq!(cells(&spec, "/cpus/cpu-map/cluster0/core2", "cpu"), cells(&spec, "/cpus/cpu@2", "phandle"));
    assert_eq!(value(&spec, "/cpus/cpu@3", "reg"), None);
}

#[test]
fn the_rest_is_as_on_qemu() {
    let spec = spec();
    assert_eq!(text(&spec, "/chosen", "stdout-path"), "/soc/serial@10000000\0");
    assert_eq!(text(&spec, "/aliases", "serial0"), "/soc/serial@10000000\0");
    assert_eq!(text(&spec, "/chosen", "bootargs"), "console=ttyS0 root=/dev/vda1\0");
    assert_eq!(cells(&spec, "/chosen", "linux,initrd-start"), [0, 0x8800_0000]);
    assert_eq!(cells(&spec, "/chosen", "linux,initrd-end"), [0, 0x8900_0000]);
    assert_eq!(value(&spec, "/chosen", "rng-seed").unwrap(), [7; 48]);
    assert_eq!(cells(&spec, "/memory@80000000", "reg"), [0, 0x8000_0000, 0, 512 << 20]);
    assert_eq!(cells(&spec, "/poweroff", "regmap"), cells(&spec, "/soc/test@100000", "phandle"));
    assert_eq!(cells(&spec, "/reboot", "value"), [0x7777]);
    assert_eq!(text(&spec, "/soc/serial@10000000", "compatible"), "ns16550a\0");
    assert_eq!(cells(&spec, "/soc/serial@10000000", "clock-frequency"), [3_686_400]);
    assert_eq!(value(&spec, "/soc/virtio_mmio@10003000", "reg"), None, "no device in this slot");
}

#[test]
fn nodes_are_shown_when_asked_for() {
    let spec = PlatformSpec { numa: Some(NUMA), ..spec() };
    assert_eq!(cells(&spec, "/memory@80000000", "numa-node-id"), [0]);
    assert_eq!(cells(&spec, "/memory@88000000", "numa-node-id"), [2]);
    assert_eq!(cells(&spec, "/memory@88000000", "reg"), [0, 0x8800_0000, 0, 384 << 20]);
    assert_eq!(cells(&spec, "/cpus/cpu@1", "numa-node-id"), [2]);
    assert_eq!(cells(&spec, "/cpus/cpu-map/cluster1/core1", "cpu"), [0x102]);
    let matrix = cells(&spec, "/distance-map", "distance-matrix");
    assert_eq!((&matrix[..6], matrix.len()), (&[0, 0, 10, 0, 1, 20][..], 27));
}

#[test]
fn contradictions_are_refused() {
    let refused = |spec: PlatformSpec<'_>| GuestTree::build(&spec).unwrap_err();
    assert_eq!(refused(PlatformSpec { vcpus: 0, ..spec() }), TreeError::VcpuCount(0));
    assert_eq!(refused(PlatformSpec { vcpus: 33, ..spec() }), TreeError::VcpuCount(33));
    for ram_bytes in [0, 4095, !0xfff] {
        assert_eq!(refused(PlatformSpec { ram_bytes, ..spec() }), TreeError::RamSize(ram_bytes));
    }
    assert_eq!(refused(PlatformSpec { extensions: &["m"], ..spec() }), TreeError::NoBaseIsa);
    assert_eq!(refused(PlatformSpec { timebase_hz: 0, ..spec() }), TreeError::ZeroTimebase);
    assert_eq!(refused(PlatformSpec { interrupts: Interrupts::Aia { num_ids: 64 }, ..spec() }), TreeError::NumIds(64));
    for (virtio_slots, bad) in [(&[8][..], 8), (&[1, 1], 1), (&[2, 0], 0), (&[255], 255)] {
        assert_eq!(refused(PlatformSpec { virtio_slots, ..spec() }), TreeError::VirtioSlot(bad));
    }
    assert_eq!(refused(PlatformSpec { bootargs: "a\0b", ..spec() }), TreeError::BootArgs);
    for initrd in [0..0x8000_1000, 0x9fff_f000..0xa000_1000, 0x8800_0000..0x8800_0000] {
        let Range { start, end } = initrd;
        let error = refused(PlatformSpec { initrd: Some(&initrd), ..spec() });
        assert_eq!(error, TreeError::Initrd { start, end });
    }
    assert_eq!(refused(PlatformSpec { rng_seed: &[1; 31], ..spec() }), TreeError::RngSeed(31));
}

#[test]
fn contradictory_nodes_are_refused() {
    for (numa, part) in [
        (Numa { vcpu_nodes: &[0, 0], ..NUMA }, NumaPart::VcpuNodes),
        (Numa { vcpu_nodes: &[0, 0, 3], ..NUMA }, NumaPart::VcpuNodes),
        (Numa { memory_bytes: &[1 << 20, 0, 0], ..NUMA }, NumaPart::MemoryBytes),
        (Numa { memory_bytes: &[u64::MAX, 1, 512 << 20], ..NUMA }, NumaPart::MemoryBytes),
        (Numa { distances: &[10; 9], ..NUMA }, NumaPart::Distances),
        (Numa { distances: &[10], ..NUMA }, NumaPart::Distances),
        (Numa { vcpu_nodes: &[], memory_bytes: &[], distances: &[] }, NumaPart::VcpuNodes),
    ] {
        let error = GuestTree::build(&PlatformSpec { numa: Some(numa), ..spec() }).unwrap_err();
        assert_eq!(error, TreeError::Numa(part));
    }
}

proptest! {
    #[test]
    fn any_accepted_description_becomes_a_tree(
        vcpus in 0_u16..40, pages in any::<u64>(), num_ids in any::<u16>(), slots in prop::collection::vec(any::<u8>(), 0..4),
        bootargs in ".{0,80}", start in any::<u64>(), end in any::<u64>()
    ) {
        let initrd = start..end;
        let spec = PlatformSpec {
            vcpus, ram_bytes: pages.wrapping_mul(4096), interrupts: Interrupts::Aia { num_ids }, virtio_slots: &slots,
            bootargs: &bootargs, initrd: Some(&initrd), ..spec()
        };
        if let Ok(tree) = GuestTree::build(&spec) {
            Fdt::new(tree.blob()).unwrap();
        }
        let small = PlatformSpec {
            vcpus: vcpus.clamp(1, 32), bootargs: &bootargs, initrd: None, numa: None, ..self::spec()
        };
        if !bootargs.contains('\0') {
            Fdt::new(GuestTree::build(&small).unwrap().blob()).unwrap();
        }
    }
}

/// Header words 1, 3 and 8: all of the tree, where the strings begin, how long they are. The strings are its last block.
#[test]
fn a_boot_loader_can_add_to_the_tree_in_place() {
    let tree = GuestTree::build(&spec()).unwrap();
    let word = |index: usize| u32::from_be_bytes(tree.blob()[4 * index..4 * index + 4].try_into().unwrap()) as usize;
    assert_eq!(word(1), tree.blob().len());
    assert!(word(3) + word(8) + 2048 <= word(1), "no room behind the strings");
}
