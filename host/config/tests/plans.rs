//! Good descriptions and what becomes of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use config::{
    Backing, BackingImage, ConfigError, Firmware, Forward, ImageFormat, Loader, MachineInterrupts, MachinePlan,
    OnPanic, Reach, Uplink,
};
use control::{Boot, DiskMode, Name, OnFailure, Segment, VmSpec};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("it is writable");
        fs::write(&path, content).expect("it is writable");
        path
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn loader(&self) -> Loader {
        Loader { cache: Some(self.path().join("cache")), check_files: true, is_restricted: false }
    }

    fn load(&self, text: &str) -> Result<MachinePlan, ConfigError> {
        self.loader().load(&self.write("m.toml", text))
    }

    /// A file that looks like a kernel.
    fn kernel(&self, name: &str) -> PathBuf {
        let mut image = [0; 64];
        image[56..60].copy_from_slice(b"RSC\x05");
        self.write(name, image)
    }
}

fn cmdline(vm: &VmSpec) -> &str {
    match &vm.boot {
        Boot::Kernel { cmdline, .. } | Boot::Program { cmdline, .. } => cmdline,
        Boot::Firmware { .. } => panic!("there is a kernel"),
    }
}

const NODE: &str = "[[node]]\nharts = 2\nmemory_mib = 1024\n";

#[test]
fn defaults_are_inherited_and_overridden() {
    let place = Place::new();
    place.kernel("cache/kernel/Image");
    place.write("debian.img", [0; 512]);
    let plan = place
        .load(&format!(
            r#"{NODE}
            [[disk]]
            name = "debian"
            file = "debian.img"
            [vm_defaults]
            vcpus = 2
            memory_mib = 128
            kernel = "cache:kernel/Image"
            cmdline = "console=ttyS0 host={{name}} index={{n}}"
            disk = [{{ name = "root", source = "debian", partition = "root" }}]
            [[vm]]
            name = "build-{{n}}"
            count = 2
            [[vm]]
            name = "big"
            vcpus = 8
            disk = []
            "#
        ))
        .unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(plan.name.as_str(), "m");
    let names: Vec<_> = plan.boot.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["build-1", "build-2", "big"]);
    assert_eq!(cmdline(&plan.boot.vms[1]), "console=ttyS0 host=build-2 index=2");
    assert_eq!(plan.boot.vms.iter().map(|vm| vm.vcpus).collect::<Vec<_>>(), [2, 2, 8]);
    assert_eq!(plan.boot.vms[0].disks[0].mode, DiskMode::CopyOnWrite);
    assert_eq!(plan.boot.vms[0].disks[0].partition.as_deref(), Some("root"));
    assert!(plan.boot.vms[2].disks.is_empty());
    assert_eq!(plan.modules.len(), 1, "three VMs share one kernel");
    assert_eq!(plan.modules[0].path, place.path().join("cache/kernel/Image"));
    assert!(plan.modules[0].label.as_str().starts_with("Image."));
    assert!(plan.hardware.disks[0].read_only, "nobody writes it");
    plan.boot.to_bytes().expect("the monitor takes it");
}

#[test]
fn a_vm_may_have_a_file_of_its_own() {
    let place = Place::new();
    place.kernel("vms/Image");
    place.write("vms/router.toml", "name = \"router\"\nmemory_mib = 64\nkernel = \"Image\"\nvcpus = 4\n");
    let text = format!("{NODE}[vm_defaults]\nweight = 7\n[[vm]]\nfile = \"vms/router.toml\"\nvcpus = 1\n");
    let plan = place.load(&text).unwrap_or_else(|error| panic!("{error:#}"));
    let vm = &plan.boot.vms[0];
    assert_eq!((vm.name.as_str(), vm.vcpus, vm.memory_mib, vm.weight), ("router", 1, 64, 7));
    // Paths in it count from it.
    assert_eq!(plan.modules[0].path, place.path().join("vms/Image"));
    // The same file makes a VM while the machine runs.
    let lone = place.loader().load_vm(&place.path().join("vms/router.toml"), None).expect("it is good");
    assert_eq!((lone.spec.name.as_str(), lone.spec.vcpus), ("router", 4));
    assert_eq!(lone.modules, plan.modules);
    let other = Name::new("other").expect("a good name");
    let named = place.loader().load_vm(&place.path().join("vms/router.toml"), Some(&other)).expect("it is good");
    assert_eq!(named.spec.name, other);
}

#[test]
fn a_vm_file_has_no_count_and_its_errors_have_lines() {
    let place = Place::new();
    place.kernel("Image");
    let file = place.write("a.toml", "memory_mib = 64\nkernel = \"Image\"\nvcpus = 99\ncount = 2\n");
    let error = place.loader().load_vm(&file, None).expect_err("it is wrong");
    assert!(error.to_string().contains("a.toml:4:1: error: count: unknown key"), "{error}");
    let file = place.write("a.toml", "memory_mib = 64\nkernel = \"Image\"\nvcpus = 99\n");
    let error = place.loader().load_vm(&file, None).expect_err("it is wrong");
    assert!(error.to_string().contains("a.toml:3:9: error: vcpus: 99 is not in 1 to 32"), "{error}");
}

#[test]
fn the_machine_section() {
    let place = Place::new();
    let plan = place
        .load(&format!(
            "name = \"x\"\n[machine]\ncpu = \"max\"\ninterrupts = \"plic\"\nicount = true\nfirmware = \"faults\"\non_panic = \"restart\"\nqemu_args = [\"-s\"]\n\
             [network]\n[options]\ntime_slice_us = 2000\ntrace = true\nallow_panic = true\nplacement_by = \"samples\"\n{NODE}[[disk]]\nname = \"t\"\nsize_mib = 64\n"
        ))
        .unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(plan.hardware.cpu, "max");
    assert_eq!(plan.hardware.interrupts, MachineInterrupts::Plic);
    assert!(plan.hardware.icount);
    assert_eq!(plan.hardware.uplink, Some(Uplink::default()), "closed unless the file says otherwise");
    assert_eq!(plan.hardware.firmware, Firmware::Faults);
    assert_eq!((plan.on_panic, plan.boot.options.allow_panic), (OnPanic::Restart, true));
    assert_eq!(plan.hardware.qemu_args, ["-s"]);
    assert_eq!(plan.hardware.disks[0].backing, Backing::Scratch { size_mib: 64 });
    assert!(!plan.hardware.disks[0].read_only);
    assert_eq!((plan.boot.options.time_slice_us, plan.boot.options.trace), (2000, true));
    assert_eq!(plan.boot.options.placement_by, control::PlacementBy::Samples);
}

#[test]
fn files_are_what_they_should_be() {
    let place = Place::new();
    let vm = |kernel: &str| format!("{NODE}[[vm]]\nname = \"a\"\nmemory_mib = 64\nkernel = \"{kernel}\"\n");
    let text = |text: &str| place.load(text).expect_err("it is wrong").to_string();
    assert!(text(&vm("no")).contains("/no: no such file or directory"));
    assert!(text(&vm("cache:no")).contains("help: files in the cache are made by `./x image`"));
    place.write("gz", b"\x1f\x8b\x08");
    let gz = text(&vm("gz"));
    assert!(
        gz.contains("this is neither a RISC-V Linux kernel image nor an ELF file\n  help: it is compressed"),
        "{gz}"
    );
    place.write("empty", b"");
    assert!(text(&vm("empty")).contains("the file is empty"));
    fs::create_dir(place.path().join("dir")).expect("it is writable");
    assert!(text(&vm("dir")).contains("/dir: is a directory"));
    let disk = |file: &str, more: &str| format!("{NODE}[[disk]]\nname = \"d\"\nfile = \"{file}\"\n{more}");
    place.write("q", b"QFI\xfb and more");
    place.write("odd", [0; 513]);
    assert!(text(&disk("odd", "")).contains("513 bytes are no whole number of sectors"));
    assert!(text(&disk("q", "format = \"qcow2\"\n")).contains("of a version that QEMU does not know"));
    assert!(text(&disk("odd", "format = \"qcow2\"\n")).contains("this is no qcow2 image"));
    // Nobody writes into these; who opened them would wait.
    for (kind, make) in [("pipe", "mkfifo"), ("socket", "")] {
        let path = place.path().join(kind);
        match make {
            "" => drop(UnixListener::bind(&path).expect("it is writable")),
            make => assert!(Command::new(make).arg(&path).status().expect("it is installed").success()),
        }
        for text in [vm(kind), disk(kind, ""), disk("cow", &format!("format = \"qcow2\"\nbacking = \"{kind}\"\n"))] {
            place.write("cow", qcow2(64, 0));
            let error = place.load(&text).expect_err("it is wrong").to_string();
            assert!(error.contains(&format!("{kind}, not a file")), "{error}");
        }
        let error = place.load(&format!("{NODE}[[vm]]\nfile = \"{kind}\"\n")).expect_err("it is wrong").to_string();
        assert!(error.contains("is no file"), "{error}");
    }
    // A file of a TiB that takes no room: as a disk it is what it says, as a kernel it is too much.
    let sparse = place.kernel("sparse");
    let file = fs::File::options().write(true).open(&sparse).expect("it was just made");
    file.set_len(1 << 40).expect("holes take no room");
    assert!(text(&vm("sparse")).contains("1048576 MiB are more than a boot bundle holds"));
    assert!(place.load(&disk("sparse", "")).is_ok());
    assert!(text(&vm("/dev/zero")).contains("is a device, not a file"));
    place.write("long.toml", "#".repeat((1 << 20) + 1));
    let long = text(&format!("{NODE}[[vm]]\nfile = \"long.toml\"\n"));
    assert!(long.contains("is too long for a description"), "{long}");
}

/// The header of a qcow2 image of version 3, with the place of its backing file's name and its incompatible features.
fn qcow2(backing: u64, features: u64) -> Vec<u8> {
    let mut head = vec![0; 512];
    head[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    head[8..16].copy_from_slice(&backing.to_be_bytes());
    head[72..80].copy_from_slice(&features.to_be_bytes());
    head
}

/// The emulator would open whatever an image names.
#[test]
fn an_image_lies_over_another_one_only_if_the_machine_file_says_so() {
    let place = Place::new();
    let disk =
        |file: &str, more: &str| format!("{NODE}[[disk]]\nname = \"d\"\nfile = \"{file}\"\nformat = \"qcow2\"\n{more}");
    let wrong = |text: &str| place.load(text).expect_err("it is wrong").to_string();
    place.write("alone", qcow2(0, 0));
    place.write("over", qcow2(512, 0));
    place.write("outside", qcow2(0, 4));
    place.write("below.img", [0; 512]);
    let plan = place.load(&disk("alone", "")).unwrap_or_else(|error| panic!("{error:#}"));
    let format = ImageFormat::Qcow2 { backing: None };
    assert_eq!(plan.hardware.disks[0].backing, Backing::File { path: place.path().join("alone"), format });
    let plan = place.load(&disk("over", "backing = \"below.img\"\n")).unwrap_or_else(|error| panic!("{error:#}"));
    let below = BackingImage { path: place.path().join("below.img"), is_qcow2: false };
    let format = ImageFormat::Qcow2 { backing: Some(below) };
    assert_eq!(plan.hardware.disks[0].backing, Backing::File { path: place.path().join("over"), format });
    let unnamed = wrong(&disk("over", ""));
    assert!(unnamed.contains("disk.file: lies over another image, which QEMU would open"), "{unnamed}");
    assert!(wrong(&disk("outside", "")).contains("disk.file: keeps its data in another file"));
    assert!(wrong(&disk("alone", "backing = \"below.img\"\n")).contains("disk.file: lies over no other image"));
    let twice = wrong(&disk("over", "backing = \"over\"\nbacking_format = \"qcow2\"\n"));
    assert!(twice.contains("disk.backing: lies over another image in turn"), "{twice}");
    let raw = disk("below.img", "backing = \"below.img\"\n").replace("\"qcow2\"", "\"raw\"");
    assert!(wrong(&raw).contains("disk.backing: only a qcow2 image lies over another"));
}

/// A guest writes every byte of its disk; what it writes must not decide whether the machine starts, or how.
#[test]
fn what_a_guest_writes_to_a_raw_disk_does_not_change_its_format() {
    let place = Place::new();
    let path = place.write("disk.img", qcow2(512, 4));
    let disk = format!("{NODE}[[disk]]\nname = \"d\"\nfile = \"disk.img\"\n");
    let backing = Backing::File { path, format: ImageFormat::Raw };
    let plan = place.load(&disk).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(plan.hardware.disks[0].backing, backing);
    assert_eq!(plan.warnings.len(), 1, "somebody may have forgotten its format");
    let plan = place.load(&format!("{disk}format = \"raw\"\n")).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!((&plan.hardware.disks[0].backing, plan.warnings.len()), (&backing, 0));
}

#[test]
fn the_network_leads_where_the_file_says() {
    let place = Place::new();
    let uplink = |text: &str| {
        let plan = place.load(&format!("[network]\n{text}\n{NODE}")).unwrap_or_else(|error| panic!("{error:#}"));
        (plan.hardware.uplink, plan.grants.iter().map(|grant| grant.key.clone()).collect::<Vec<_>>())
    };
    assert_eq!(uplink("uplink = false"), (None, vec![]));
    assert_eq!(uplink("reach = \"nothing\""), (Some(Uplink::default()), vec![]));
    let open = Uplink { reach: Reach::Host, forwards: vec![] };
    assert_eq!(uplink("reach = \"host\""), (Some(open), vec!["network.reach".to_owned()]));
    let guest = "10.0.2.15:22".parse().expect("an address");
    let one = Uplink { reach: Reach::Nothing, forwards: vec![Forward { host_port: 2222, guest }] };
    let forward = "{ host = 2222, guest = \"10.0.2.15:22\" }";
    let wanted = (Some(one), vec!["network.forward.host".to_owned()]);
    assert_eq!(uplink(&format!("forward = [{forward}]")), wanted);
    let wrong = |text: &str| place.load(&format!("[network]\n{text}\n{NODE}")).expect_err("it is wrong").to_string();
    assert!(wrong(&format!("forward = [{forward}, {forward}]")).contains("port 2222 leads somewhere already"));
    assert!(wrong("forward = [{ host = 2222, guest = \"debian:22\" }]").contains("network.forward.guest"));
    assert!(wrong("uplink = false\nreach = \"host\"").contains("without it nothing leads anywhere"));
}

/// What a machine file asks of the host is told; of a file that is not trusted it is refused.
#[test]
fn a_restricted_file_uses_its_own_folder_and_reads_the_cache() {
    let place = Place::new();
    let inside = |path: &str| format!("home/{path}");
    for kernel in ["home/Image", "cache/Image", "other/Image"] {
        place.kernel(kernel);
    }
    for image in ["home/disk.img", "cache/disk.img", "other/disk.img"] {
        place.write(image, [0; 512]);
    }
    place.write("home/qemu", "");
    place.write("other/vm.toml", "name = \"far\"\nmemory_mib = 64\nkernel = \"../home/Image\"\n");
    for link in ["Image", "disk.img"] {
        symlink(place.path().join("other").join(link), place.path().join(inside(&format!("link-{link}"))))
            .expect("free");
    }
    let load = |text: &str, is_restricted| {
        let file = place.write("home/m.toml", format!("{text}\n{NODE}"));
        Loader { is_restricted, ..place.loader() }.load(&file)
    };
    let vm = |kernel: &str| format!("[[vm]]\nname = \"a\"\nmemory_mib = 64\nkernel = \"{kernel}\"");
    let disk = |file: &str, more: &str| format!("[[disk]]\nname = \"d\"\nfile = \"{file}\"\n{more}");
    let other = place.path().join("other").display().to_string();
    let good = [
        vm("Image"),
        vm("../home/Image"),
        vm("cache:Image"),
        disk("disk.img", "read_only = false"),
        disk("cache:disk.img", "read_only = true"),
        disk("cache:disk.img", ""),
        "[network]\nuplink = true".to_owned(),
    ];
    for text in good {
        let plan = load(&text, true).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        assert!(plan.grants.is_empty(), "{text}: {:?}", plan.grants);
    }
    let bad = [
        ("vm.kernel", vm("../other/Image")),
        ("vm.kernel", vm(&format!("{other}/Image"))),
        ("vm.kernel", vm("cache:../other/Image")),
        ("vm.kernel", vm(&format!("cache:{other}/Image"))),
        ("vm.kernel", vm("link-Image")),
        ("vm.file", "[[vm]]\nfile = \"../other/vm.toml\"".to_owned()),
        ("disk.file", disk("../other/disk.img", "read_only = true")),
        ("disk.file", disk("link-disk.img", "")),
        ("disk.file", disk("cache:disk.img", "read_only = false")),
        ("machine.qemu", "[machine]\nqemu = \"qemu\"".to_owned()),
        ("machine.monitor", "[machine]\nmonitor = \"qemu\"".to_owned()),
        ("machine.qemu_args", "[machine]\nqemu_args = [\"-s\"]".to_owned()),
        ("network.reach", "[network]\nreach = \"host\"".to_owned()),
        ("network.forward.host", "[network]\nforward = [{ host = 22, guest = \"10.0.2.15:22\" }]".to_owned()),
    ];
    for (key, text) in bad {
        let plan = load(&text, false).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        assert_eq!(plan.grants.iter().map(|grant| grant.key.as_str()).collect::<Vec<_>>(), [key], "{text}");
        let error = load(&text, true).expect_err(&text);
        assert_eq!(error.problems.iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(), [key], "{text}");
    }
}

/// A static ELF file for RISC-V with 16 bytes at 0x80400000, entered four bytes behind that.
fn elf() -> Vec<u8> {
    let mut elf = vec![0; 136];
    let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    // Executable, RISC-V; where the program headers are, how long and how many.
    for (at, value) in [(16, 2u16), (18, 243), (20, 1), (32, 64), (52, 64), (54, 56), (56, 1), (64, 1)] {
        put(at, &value.to_le_bytes());
    }
    for (at, value) in [(24, 0x8040_0004u64), (72, 120), (80, 0x8040_0000), (88, 0x8040_0000), (96, 16), (104, 64)] {
        put(at, &value.to_le_bytes());
    }
    elf
}

#[test]
fn elf_files_and_flat_binaries_say_where_they_go() {
    let place = Place::new();
    place.write("kernel.elf", elf());
    place.write("payload.bin", [0x13; 100]);
    let vm = |kernel: &str, more: &str| {
        format!("{NODE}[[vm]]\nname = \"a\"\nmemory_mib = 64\nkernel = \"{kernel}\"\ncmdline = \"x\"\n{more}")
    };
    let boot = |kernel: &str, more: &str| {
        let plan = place.load(&vm(kernel, more)).unwrap_or_else(|error| panic!("{error:#}"));
        match &plan.boot.vms[0].boot {
            Boot::Program { entry, segments, cmdline, .. } if cmdline == "x" => (*entry, segments.clone()),
            other => panic!("{other:?}"),
        }
    };
    let piece = |offset, file_bytes, address, memory_bytes| Segment { offset, file_bytes, address, memory_bytes };
    assert_eq!(boot("kernel.elf", ""), (0x8040_0004, vec![piece(120, 16, 0x8040_0000, 64)]));
    let flat = boot("payload.bin", "load_address = 0x8020_0000\n");
    assert_eq!(flat, (0x8020_0000, vec![piece(0, 100, 0x8020_0000, 100)]));

    let wrong = |kernel: &str, more: &str| place.load(&vm(kernel, more)).expect_err("it is wrong").to_string();
    let unknown = wrong("payload.bin", "");
    assert!(unknown.contains("a flat binary needs load_address = 0x8020_0000"), "{unknown}");
    assert!(wrong("kernel.elf", "load_address = 0x8020_0000\n").contains("help: leave load_address out"));
    let outside = wrong("payload.bin", "load_address = 0x1000\n");
    let expected = "m.toml:9:16: error: vm.load_address: 0x1000 to 0x1064 is not in the memory for programs";
    assert!(outside.contains(expected), "{outside}");
    let odd = wrong("payload.bin", "load_address = 0x8020_0001\n");
    let expected = "m.toml:9:16: error: vm.load_address: a program cannot be entered at 0x80200001";
    assert!(odd.contains(expected), "{odd}");
    place.write("x86.elf", {
        let mut elf = elf();
        elf[18] = 62;
        elf
    });
    let other = wrong("x86.elf", "");
    assert!(other.contains("vm.kernel: the ELF file is for another machine (x86-64), not for RISC-V"), "{other}");
    let firmware =
        format!("{NODE}[[vm]]\nname = \"a\"\nmemory_mib = 64\nfirmware = \"payload.bin\"\nload_address = 1\n");
    assert!(place.load(&firmware).expect_err("it is wrong").to_string().contains("load_address: goes with a kernel"));
}

#[test]
fn no_more_memory_than_there_is_can_be_promised() {
    let place = Place::new();
    place.kernel("Image");
    let vms = |keys: &str| {
        let disk = "[[disk]]\nname = \"d\"\nsize_mib = 8\n";
        let vm = "[[vm]]\nname = \"a-{n}\"\ncount = 3\nmemory_mib = 256\nkernel = \"Image\"\n";
        place.load(&format!("{NODE}{disk}{vm}{keys}"))
    };
    assert_eq!(vms("").expect("it fits").boot.vms[0].kept_mib(), 256);
    let error = vms("disk = [{ source = \"d\" }]\n").expect_err("disks have half as much again").to_string();
    assert!(error.contains("the VMs up to \"a-3\" are promised 1152 MiB, the machine has 1024"), "{error}");
    let plan = vms("disk = [{ source = \"d\", limit_mib = 64 }]\n").expect("it fits");
    assert_eq!(plan.warnings.len(), 1, "there is little left");
    assert!(vms("disk = [{ source = \"d\", limit_mib = 32 }]\n").expect("it fits").warnings.is_empty());
    vms("disk = [{ source = \"d\" }]\npromised_mib = 0\n").expect("nothing is promised");
    let error = vms("promised_mib = 257\n").expect_err("it may not take so much").to_string();
    assert!(error.contains("promised_mib: 257 is not in 0 to 256"), "{error}");
    let error = vms("disk = [{ source = \"d\", mode = \"read-only\", limit_mib = 1 }]\n").expect_err("it has none");
    assert!(error.to_string().contains("limit_mib: a limit of modified blocks is for a disk"), "{error}");
}

#[test]
fn the_reference_says_what_is_so_anyway() {
    let text = include_str!("../../../docs/machine-files.md");
    let (_, rest) = text.split_once("```toml\n").expect("it has an example");
    let (example, _) = rest.split_once("```").expect("the example ends");
    let place = Place::new();
    let file = place.write("reference.toml", example);
    let plan = Loader { cache: Some(place.path().into()), check_files: false, is_restricted: false }.load(&file);
    let plan = plan.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    assert_eq!(plan.boot.options, control::MonitorOptions::default());
    assert_eq!(
        plan.boot.vms.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(),
        ["build-1", "build-2", "payload", "rom"]
    );
    let [build, _, payload, rom] = &plan.boot.vms[..] else { panic!("four VMs") };
    let usual = VmSpec::new(build.name.clone(), build.vcpus, build.memory_mib, build.boot.clone());
    assert_eq!(*build, VmSpec { disks: build.disks.clone(), nets: build.nets.clone(), ..usual });
    assert!(matches!(payload.boot, Boot::Program { entry: 0x8020_0000, .. }));
    assert!(matches!(rom.boot, Boot::Firmware { .. }));
    let model = plan.hardware.model.as_ref().expect("it has a model");
    let usual = config::ModelPlan::new(config::Preset::Flash);
    let describe = |model: &config::ModelPlan| model.describe(&plan.hardware).expect("it is possible");
    assert_eq!(describe(model), describe(&usual));
}

#[test]
fn nodes_are_divided_into_cells() {
    let place = Place::new();
    place.kernel("Image");
    let vm =
        |name: &str, rest: &str| format!("[[vm]]\nname = \"{name}\"\nmemory_mib = 64\nkernel = \"Image\"\n{rest}\n");
    let shape = |first: &str, vms: &str| {
        let plan = place.load(&format!("{first}\n{}{vms}", NODE.repeat(3))).unwrap_or_else(|error| panic!("{error:#}"));
        let cells = plan.boot.cells.iter();
        let cells: Vec<_> =
            cells.map(|cell| (cell.name.to_string(), cell.nodes.iter().map(|node| node.0).collect())).collect();
        (cells, plan.boot.vms.iter().map(|vm| vm.cell).collect::<Vec<_>>())
    };
    let even: Vec<(String, Vec<u8>)> = vec![("0".into(), vec![0, 1]), ("1".into(), vec![2])];
    let vms = vm("a", "") + &vm("b", "cell = 1") + &vm("c", "cell = \"1\"");
    assert_eq!(shape("[machine]\ncells = 2", &vms), (even, vec![0, 1, 1]));
    let named: Vec<(String, Vec<u8>)> = vec![("near".into(), vec![0, 2]), ("1".into(), vec![1])];
    let cells = "[[cell]]\nname = \"near\"\nnodes = [0, 2]\n[[cell]]\nnodes = [1]";
    let vms = vm("a", "cell = \"near\"") + &vm("b", "cell = 1\non_failure = \"restart\"");
    assert_eq!(shape(cells, &vms), (named, vec![0, 1]));
    let failures = place.load(&format!("{cells}\n{}{vms}", NODE.repeat(3))).expect("it is good").boot.vms;
    let failures: Vec<_> = failures.iter().map(|vm| vm.on_failure).collect();
    assert_eq!(failures, [OnFailure::Stop, OnFailure::Restart]);
    assert_eq!(shape("[machine]\ncells = 1", &vm("a", "cell = 0")), (vec![], vec![0]));
    assert_eq!(shape("", &vm("a", "")), (vec![], vec![0]));
    // The port that a VM has if it says nothing is the same in all cells.
    let plan =
        place.load(&format!("[machine]\ncells = 3\n{}{}", NODE.repeat(3), vm("a", "cell = 2"))).expect("it is good");
    assert_eq!(plan.boot.vms[0].ports.len(), 1);
    assert_eq!(plan.boot.validate(), Ok(()));
}
