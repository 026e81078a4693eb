//! Cloud images: disks that boot by EFI as they are, and the project's own, launched as its user does it.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use control::{Boot, DiskMode, VmSpec};
use efi_disk::BootDisk;
use lab::artifacts;
use lab::rig::{Rig, label, name};
use system_tests::debian::disk;
use system_tests::{ok, probe};

const ROOT_BYTES: u64 = 1 << 20;
const ESP_BYTES: usize = 64 << 20;

/// U-Boot finds the EFI system partition of a disk that it knows nothing of, and the program on it uses the firmware's services: Debian's
/// kernel is an EFI program, too. It then runs on what the firmware left it, until it finds no root.
#[test]
fn a_disk_boots_by_efi() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("efi.img");
    let kernel = ok(fs::read(ok(artifacts::cached("kernel/Image"))));
    let esp = ok(efi_disk::fat::volume(ESP_BYTES, "ESP", &[("EFI/BOOT/BOOTRISCV64.EFI", &kernel)]));
    let bytes = efi_disk::disk::image_bytes(esp.len() as u64, ROOT_BYTES);
    let file = ok(File::options().read(true).write(true).create_new(true).open(&image));
    ok(file.set_len(bytes));
    ok(efi_disk::disk::write(file, &esp, ROOT_BYTES));
    let found = ok(efi_disk::inspect(ok(File::open(&image)), bytes));
    assert_eq!(found, BootDisk { partitions: vec!["root".into(), "esp".into()] });

    let rig = ok(ok(Rig::new("cloud-efi", 2, 768)).sparing_fences().image("disk", image));
    let machine = ok(ok(rig.module("u-boot", ok(artifacts::cached("u-boot/u-boot.bin")))).boot());
    let spec = VmSpec {
        boot: Boot::Firmware { module: ok(label("u-boot")) },
        disks: vec![disk("disk", "disk", DiskMode::ReadOnly)],
        memory_mib: 512,
        ..probe("efi", 1, "")
    };
    ok(machine.start(&spec));
    let vm = ok(name("efi"));
    for text in ["EFI stub: Exiting boot services", "efi: EFI v2", "Unable to mount root fs"] {
        ok(machine.wait_text(&vm, text));
    }
}

/// The command, with folders of its own.
struct User {
    dir: tempfile::TempDir,
}

impl User {
    fn command(&self, arguments: &[&str]) -> Command {
        let program: PathBuf =
            ok(std::env::current_exe()).ancestors().skip(2).map(|dir| dir.join("mirrorball")).next().expect("a path");
        assert!(program.is_file(), "{} is not built: `cargo build -p cli`", program.display());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).env_remove("MIRRORBALL_MACHINE");
        command.env("MIRRORBALL_CACHE", self.dir.path().join("cache")).env("XDG_STATE_HOME", self.dir.path());
        command.env("MIRRORBALL_RUNTIME_DIR", self.dir.path().join("run"));
        command
    }

    /// What the command printed. It must succeed.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = ok(self.command(arguments).output());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

impl Drop for User {
    /// The machine outlives its commands.
    fn drop(&mut self) {
        let _ = self.command(&["-m", "cloud-test", "shutdown"]).output();
    }
}

/// The whole way of a user, where `./x image --cloud` has made the image: it takes minutes, so nobody makes it for this test.
#[test]
fn the_cloud_image_is_launched() {
    let (Ok(image), Ok(firmware)) = (artifacts::cached("cloud/cloud.img"), artifacts::cached("u-boot/u-boot.bin"))
    else {
        eprintln!("skipped: `./x image --cloud` makes the cloud image");
        return;
    };
    let user = User { dir: ok(tempfile::tempdir()) };
    let cache = user.dir.path().join("cache");
    ok(fs::create_dir(&cache));
    for file in [&image, &firmware] {
        let folder = file.parent().expect("it is in a folder");
        ok(symlink(folder, cache.join(folder.file_name().expect("it has a name"))));
    }
    user.run(&["launch", "--name", "cloud-test", "--user", "tester", "--disk", "3G"]);
    let said = user.run(&[
        "ssh",
        "cloud-test",
        "hostname; id -un; sudo id -u; cat /sys/firmware/efi/fw_platform_size; df -BG --output=size /",
    ]);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["cloud-test", "tester", "0", "64", "1G-blocks", "3G"], "{said}");
    copy_there_and_back(&user, user.dir.path());
    user.run(&["stop", "cloud-test"]);
    assert!(user.run(&["ls", "--all"]).contains("cloud-test"));
    user.run(&["rm", "cloud-test"]);
    user.run(&["image", "rm", "debian"]);
}

fn copy_there_and_back(user: &User, dir: &Path) {
    let (there, back) = (dir.join("there"), dir.join("back"));
    ok(fs::write(&there, "over and over"));
    user.run(&["cp", &there.display().to_string(), "cloud-test:there"]);
    user.run(&["cp", "cloud-test:there", &back.display().to_string()]);
    assert_eq!(ok(fs::read_to_string(back)), "over and over");
}
