//! Programs that are no Linux images: ELF files and flat binaries at an address, described in VM files, as users do, and uploaded to
//! a running machine.

use std::fs::{self, File};
use std::path::Path;

use config::Loader;
use control::{Boot, Segment, StopReason, VmSpec};
use lab::artifacts;
use lab::rig::{Rig, Running, label};
use system_tests::{assert_all_returned, assert_passed, ok, probe};

/// The VM of a file with these keys; its modules are on the machine then.
#[track_caller]
fn described(machine: &Running, dir: &Path, text: &str) -> VmSpec {
    let file = dir.join("guest.toml");
    ok(fs::write(&file, format!("memory_mib = 64\nvcpus = 2\nports = []\n{text}")));
    let plan = ok(Loader { cache: None, check_files: true, is_restricted: false }.load_vm(&file, None));
    for module in &plan.modules {
        let content = ok(File::open(&module.path));
        ok(machine.client().put_module(&module.label, module.bytes, content, |_| {}));
    }
    plan.spec
}

/// The probe guest as the linker made it, and without its headers at the address that it was linked for.
#[test]
fn an_elf_file_and_a_flat_binary_boot() {
    let machine = ok(ok(Rig::new("programs", 2, 512)).boot());
    let dir = ok(tempfile::tempdir());
    let before = ok(machine.free_bytes());
    let elf = ok(artifacts::probe_program()).display().to_string();
    let flat = ok(artifacts::probe()).display().to_string();
    let checks = "cmdline = \"probe=hsm,memory,sbi-errors,all-harts\"";
    for kernel in [format!("kernel = \"{elf}\""), format!("kernel = \"{flat}\"\nload_address = 0x8020_0000")] {
        let spec = described(&machine, dir.path(), &format!("{kernel}\n{checks}\n"));
        assert!(matches!(spec.boot, Boot::Program { entry: 0x8020_0000, .. }), "{:?}", spec.boot);
        assert_passed(&ok(machine.run(&spec)));
    }
    for module in ok(machine.client().machine_info()).modules {
        ok(machine.client().drop_module(&module.name));
    }
    assert_all_returned(&machine, before);
}

/// Prints the hart's number in `a0`, and `T` if `a1` points to a device tree; powers off.
const PAYLOAD: [u32; 17] = [
    0x0005_c483, // lbu s1, 0(a1)
    0x0305_0513, // addi a0, a0, '0'
    0x4442_48b7, // lui a7, 0x44424
    0x34e8_8893, // addi a7, a7, 0x34e: the debug console
    0x0020_0813, // li a6, 2: write a byte
    0x0000_0073, // ecall
    0xf844_8513, // addi a0, s1, 'T' - 0xd0
    0x0000_0073, // ecall
    0x00a0_0513, // li a0, '\n'
    0x0000_0073, // ecall
    0x5352_58b7, // lui a7, 0x53525
    0x3548_8893, // addi a7, a7, 0x354: system reset
    0x0000_0813, // li a6, 0
    0x0000_0513, // li a0, 0: shutdown
    0x0000_0593, // li a1, 0: no reason
    0x0000_0073, // ecall
    0x0000_006f, // j .
];

#[test]
fn a_flat_binary_may_lie_anywhere() {
    let machine = ok(ok(Rig::new("anywhere", 1, 512)).boot());
    let dir = ok(tempfile::tempdir());
    let code: Vec<u8> = PAYLOAD.iter().flat_map(|word| word.to_le_bytes()).collect();
    ok(fs::write(dir.path().join("payload.bin"), &code));
    // The beginning of memory, the last bytes before the device tree, and no page's beginning.
    let last = 0x8000_0000 + (62 << 20) - code.len();
    for (name, address) in [("first", 0x8000_0000), ("last", last), ("odd", 0x8123_4564)] {
        let text = format!("name = \"{name}\"\nkernel = \"payload.bin\"\nload_address = {address:#x}\n");
        let spec = described(&machine, dir.path(), &text);
        let ended = ok(machine.run(&spec));
        assert_eq!((ended.console.trim_end(), &ended.summary.reason), ("0T", &Some(StopReason::PowerOff)), "{name}");
        let Boot::Program { program, .. } = &spec.boot else { panic!("{:?}", spec.boot) };
        ok(machine.client().drop_module(program));
    }
}

/// Whoever speaks the protocol is not bound to what the host's command checks.
#[test]
fn the_monitor_refuses_programs_that_do_not_fit() {
    let machine = ok(ok(ok(Rig::new("refused", 1, 512)).with_probe()).boot());
    let bytes = ok(fs::metadata(ok(artifacts::probe()))).len();
    let good = Segment { offset: 0, file_bytes: bytes, address: 0x8020_0000, memory_bytes: 1 << 20 };
    let refusal = |entry, segments: &[Segment]| {
        let boot = Boot::Program {
            program: ok(label("probe")),
            entry,
            segments: segments.to_vec(),
            initrd: None,
            cmdline: String::new(),
        };
        let spec = VmSpec { boot, ..probe("vm", 1, "") };
        machine.client().create_vm(spec).expect_err("it does not fit").to_string()
    };
    let entry = good.address;
    let wrong = [
        (Segment { offset: 1, ..good }, "a piece of the program lies behind them"),
        (Segment { offset: u64::MAX, ..good }, "a piece of the program lies behind them"),
        (Segment { address: 0x1000, ..good }, "is not in the memory for programs"),
        (Segment { memory_bytes: u64::MAX, ..good }, "is not in the memory for programs"),
        (Segment { memory_bytes: 62 << 20, ..good }, "is not in the memory for programs"),
        (Segment { memory_bytes: 16, ..good }, "has room for 16"),
    ];
    for (segment, why) in wrong {
        let refusal = refusal(entry, &[segment]);
        assert!(refusal.contains(why), "{segment:?}: {refusal}");
    }
    assert!(refusal(entry, &[good, good]).contains("overlap"));
    assert!(refusal(entry, &[good; 17]).contains("at most 16"));
    assert!(refusal(entry, &[]).contains("empty"));
    assert!(refusal(entry - 2, &[good]).contains("in no piece of the program"));
    assert!(refusal(entry + 1, &[good]).contains("instructions begin at multiples of 2"));
    // Nothing is left of them, and the right one boots.
    let boot = Boot::Program {
        program: ok(label("probe")),
        entry,
        segments: vec![good],
        initrd: None,
        cmdline: "probe=memory".into(),
    };
    assert_passed(&ok(machine.run(&VmSpec { boot, ..probe("vm", 1, "") })));
}
