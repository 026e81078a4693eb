//! Miss counters as a device: found, reported, refused when they are nonsense. The file is written here, as the machine
//! model's plugin writes it; nothing counts.

use std::fs;

use control::DeviceKind;
use lab::rig::{Rig, Running};
use model_file::{Header, Node};
use system_tests::{assert_passed, ok, probe};

/// A machine with shared memory of this content behind its PCI bridge.
fn boot(content: &[u8]) -> (Running, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("model.bin");
    fs::write(&path, content).expect("it is writable");
    let file = format!("memory-backend-file,id=model,share=on,size={},mem-path={}", content.len(), path.display());
    let arguments = ["-object", &file, "-device", "ivshmem-plain,memdev=model"].map(str::to_owned);
    let rig = ok(ok(Rig::new("counters", 1, 512)).with_probe());
    (ok(rig.hardware(|hardware| hardware.qemu_args.extend(arguments)).boot()), dir)
}

fn counters(machine: &Running) -> Option<DeviceKind> {
    let devices = ok(machine.client().machine_info()).devices;
    devices.iter().map(|device| device.kind).find(|kind| matches!(kind, DeviceKind::MissCounters { .. }))
}

fn good() -> Vec<u8> {
    let node = Node { base: 0x8000_0000, bytes: 512 << 20, harts: 1 };
    let header = Header::new(&[node], 256, 5000, |_, _| 300_000).expect("it is good");
    let mut content = vec![0; usize::try_from(header.file_bytes()).expect("it is small")];
    content[..model_file::HEADER_BYTES].copy_from_slice(&header.encode());
    content
}

#[test]
fn miss_counters_are_found_and_reported() {
    let (machine, _dir) = boot(&good());
    let want = DeviceKind::MissCounters { layout: model_file::VERSION as u32, pages: 131_072 };
    assert_eq!(counters(&machine), Some(want), "{}", machine.log());
    assert_passed(&ok(machine.run(&probe("vm", 1, "probe=memory"))));
}

/// A log line, no device, and all else as ever.
#[test]
fn nonsense_is_no_device() {
    let (mut version, mut huge) = (good(), good());
    version[8] = 99;
    huge[8 * 8 + 8..][..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    for (content, why) in [
        (vec![0; 1 << 20], "not a file of the machine model: it starts with 0x0"),
        (vec![0; 4096], "shared memory of 4096 bytes has no room for miss counters"),
        (version, "layout version 99, this build knows version"),
        (huge, "no miss counters: "),
    ] {
        let (machine, _dir) = boot(&content);
        assert_eq!(counters(&machine), None);
        let log = machine.log();
        assert!(log.lines().any(|line| line.contains("device at pci-00:") && line.contains(why)), "{why}: {log}");
        assert_passed(&ok(machine.run(&probe("vm", 1, "probe=memory"))));
    }
}
