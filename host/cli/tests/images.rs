//! What the binary says of images and ports that cannot be used, and what it ends with.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cache and a state folder of their own.
struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The exit status, and what was said.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mirrorball"));
        command.args(arguments).current_dir(self.dir.path()).env_remove("MIRRORBALL_MACHINE");
        command.env("MIRRORBALL_CACHE", self.path("cache")).env("XDG_STATE_HOME", self.path("state"));
        let output = command.env("MIRRORBALL_RUNTIME_DIR", self.path("run")).output().expect("the binary is built");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().expect("it was not killed"), String::from_utf8_lossy(&said).into_owned())
    }
}

/// A disk with a boot loader for the machine of this number in the PE format.
fn disk(file: &Path, machine: u16) {
    const ROOT_BYTES: u64 = 2 << 20;
    let mut program = vec![0; 128];
    program[..2].copy_from_slice(b"MZ");
    program[60] = 64;
    program[64..68].copy_from_slice(b"PE\0\0");
    program[68..70].copy_from_slice(&machine.to_le_bytes());
    let name = if machine == 0x5064 { "EFI/BOOT/BOOTRISCV64.EFI" } else { "EFI/BOOT/BOOTX64.EFI" };
    let esp = efi_disk::fat::volume(efi_disk::fat::SMALL_BYTES, "ESP", &[(name, &program)]).expect("it fits");
    let device = File::options().read(true).write(true).create_new(true).open(file).expect("it can be made");
    device.set_len(efi_disk::disk::image_bytes(esp.len() as u64, ROOT_BYTES)).expect("there is room");
    efi_disk::disk::write(device, &esp, ROOT_BYTES).expect("it can be written");
}

#[test]
fn each_bad_image_has_its_status() {
    let fixture = Fixture::new();
    let file = |name: &str, content: &[u8]| fs::write(fixture.path(name), content).expect("it can be written");
    file("packed.img", b"\x1f\x8b\x08 and so on");
    file("empty.img", &[0; 1 << 20]);
    file("cut.qcow2", b"QFI\xfb\0\0\0\x03");
    let mut locked = vec![0; 512];
    locked[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    locked[35] = 2;
    file("locked.qcow2", &locked);
    disk(&fixture.path("foreign.img"), 0x8664);
    disk(&fixture.path("short.img"), 0x5064);
    File::options().write(true).open(fixture.path("short.img")).and_then(|file| file.set_len(10 << 20)).expect("cut");
    for (name, status, said) in [
        ("packed.img", 3, "gzip"),
        ("empty.img", 3, "GPT"),
        ("none.img", 3, "No such file"),
        ("cut.qcow2", 4, "ends within its header"),
        ("short.img", 4, "cut off"),
        ("foreign.img", 5, "x86-64"),
        ("locked.qcow2", 6, "encrypted"),
    ] {
        let path = fixture.path(name);
        let path = path.to_str().expect("UTF-8");
        for arguments in [&["image", "add", path][..], &["launch", path]] {
            let (found, text) = fixture.run(arguments);
            assert_eq!(found, status, "{arguments:?}: {text}");
            assert!(text.contains(said), "{arguments:?}: {text}");
        }
    }
    // Nothing is left of any of them.
    let (status, text) = fixture.run(&["ls", "--all"]);
    assert!(status == 0 && !text.contains("DEFINED"), "{text}");
    let (status, text) = fixture.run(&["image", "ls", "--json"]);
    assert!(status == 0 && text.contains("\"images\": []"), "{text}");
}

#[test]
fn what_can_be_refused_is_refused_first() {
    let fixture = Fixture::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let (status, text) = fixture.run(&["launch", "none.img", "--port", &format!("{port}:80")]);
    assert!(status == 7 && text.contains(&port), "{text}");
    for (arguments, said) in [
        (&["launch", "x.img", "--port", "80"][..], "two ports"),
        (&["launch", "--memory", "64M"], "needs 256M"),
        (&["launch", "--memory", "1"], "unit"),
        (&["launch", "--user", "root"], "not root"),
        (&["launch", "--package", "git"], "--network"),
        (&["launch", "--port", "8080:80", "--port", "8080:81"], "already"),
        (&["cp", "a", "b"], "no path names"),
    ] {
        let (status, text) = fixture.run(arguments);
        assert!(status == 2 && text.contains(said), "{arguments:?}: {status}: {text}");
    }
    let (status, text) = fixture.run(&["launch"]);
    assert!(status == 1 && text.contains("./x image --cloud"), "{text}");
    for arguments in [&["ssh", "web"][..], &["inspect", "web"], &["rm", "web"], &["port", "web"]] {
        let (status, text) = fixture.run(arguments);
        assert!(status == 1 && text.contains("no launched VM"), "{arguments:?}: {text}");
    }
}

/// An image that VMs lie over stays.
#[test]
fn images_are_listed_and_removed() {
    let fixture = Fixture::new();
    disk(&fixture.path("small.img"), 0x5064);
    let (status, text) = fixture.run(&["image", "add", "small.img", "--name", "mine"]);
    assert!(status == 0, "{text}");
    let home = fixture.path("state/mirrorball/vms/web");
    fs::create_dir_all(&home).expect("it can be made");
    let definition = r#"{"image": "mine", "base": "/x", "seed": {"instance": "i", "hostname": "web", "user": "me",
        "authorized_keys": [], "host_key": null, "packages": []}}"#;
    fs::write(home.join("vm.json"), definition).expect("it can be written");
    let (status, text) = fixture.run(&["image", "rm", "mine"]);
    assert!(status == 1 && text.contains("web"), "{text}");
    assert!(fixture.run(&["image", "ls"]).1.contains("mine"));
    assert_eq!(fixture.run(&["rm", "web"]).0, 0);
    assert_eq!(fixture.run(&["image", "rm", "mine"]).0, 0);
    assert_eq!(fixture.run(&["image", "rm", "mine"]).0, 1);
}
