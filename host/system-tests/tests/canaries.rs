//! A guest that hides secrets in its memory, its registers, on its disk and its console, and one that seeks them, while the machine moves,
//! merges and shares pages and guests are paused, reset, ended and started again, and snapshots of their disks are made and removed. None is
//! ever found.

use control::{DiskSpec, OverlaySpec, VmSpec};
use lab::rig::{Rig, Running, WATCHDOG, name};
use system_tests::{assert_all_returned, ok, pattern_disk, probe};

/// Looks at a guest until it has said something; each is a question that the monitor answers.
const LOOKS: usize = 20_000;
/// Rounds of the seeker in each of its lives. It says every fourth.
const ROUNDS: u64 = 32;
/// Lives of both.
const LIVES: u64 = 4;
const VICTIM: &str = "victim";

/// The upper half of each secret, as a console shows it.
const MARK: &str = "5ec2e75e";
/// A disk of the machine that holds what guests write, where they write to volumes.
const STORE: &str = "store";

/// Where guests' blocks go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocks {
    Memory,
    Volumes,
}

fn guest(vm: &str, vcpus: u16, cmdline: &str, blocks: Blocks) -> VmSpec {
    let store = || OverlaySpec { disk: ok(name(STORE)), partition: None, snapshot: None };
    let overlay = (blocks == Blocks::Volumes).then(store);
    VmSpec { disks: vec![DiskSpec { overlay, ..pattern_disk() }], ..probe(vm, vcpus, cmdline) }
}

/// Types secrets to a guest; it says that it has heard some.
fn tell(machine: &Running, victim: &VmSpec) {
    let (_, keys) = ok(machine.client().console(&victim.name, 0));
    ok(keys.send_all(MARK.repeat(4).as_bytes(), WATCHDOG));
    wait_until(machine, victim, "has heard something", |said| {
        said.lines().any(|line| line.contains("heard ") && !line.trim_end().ends_with("heard 0"))
    });
}

/// What the victim wrote becomes a snapshot, and then free blocks for the next volume.
fn forget_volume(machine: &Running, victim: &VmSpec, snapshot: &str) {
    ok(machine.client().remove_volume(None, &format!("{}/data", victim.name)));
    ok(machine.client().remove_volume(None, snapshot));
}

/// Waits until a guest says `text`. What it says until then is clean.
#[track_caller]
fn wait_for(machine: &Running, spec: &VmSpec, text: &str) {
    wait_until(machine, spec, text, |said| said.contains(text));
}

#[track_caller]
fn wait_until(machine: &Running, spec: &VmSpec, what: &str, is_said: impl Fn(&str) -> bool) {
    let says = |_: &usize| {
        let said = ok(machine.console(&spec.name));
        assert!(!said.contains("FOUND"), "{} has found something:\n{said}", spec.name);
        assert!(!said.contains("FAILED"), "{} has failed:\n{said}", spec.name);
        assert!(spec.name.as_str() == VICTIM || !said.contains(MARK), "{} says a secret:\n{said}", spec.name);
        is_said(&said)
    };
    assert!(
        (0..LOOKS).any(|look| says(&look)),
        "{} never says {what:?}:\n{}",
        spec.name,
        ok(machine.console(&spec.name))
    );
}

/// Words that the victim has found of its own, in the last round that it told: memory, a block, and registers.
fn own_secrets(machine: &Running, victim: &VmSpec) -> u64 {
    let said = ok(machine.console(&victim.name));
    let mut lines = said.lines().filter_map(|line| line.trim().strip_prefix("HIDES ")?.split(' ').next()?.parse().ok());
    lines.next_back().unwrap_or_default()
}

fn hide_and_seek(machine: &str, harts: [u16; 2], blocks: Blocks) {
    let dir = ok(tempfile::tempdir());
    let path = dir.path().join("pattern.img");
    ok(std::fs::write(&path, vec![0x5a; 1 << 20]));
    let rig = ok(ok(Rig::new(machine, harts[0], 512)).node(harts[1], 512).with_probe());
    let machine = ok(ok(ok(rig.image("pattern", path)).scratch(STORE, 64)).boot());
    let before = ok(machine.free_bytes());
    let victim = guest(VICTIM, 2, "attack=canary-hide", blocks);
    let seeker = guest("seeker", 2, "attack=canary-seek", blocks);
    for life in 0..LIVES {
        ok(machine.start(&victim));
        wait_for(&machine, &victim, "round 8");
        // Half a MiB of memory and a block, each word; the registers may be those of a machine without vectors.
        let own = own_secrets(&machine, &victim);
        assert!(own >= (512 << 10) / 8 + 4096 / 8 + 32, "the search finds {own} words only where all are secret");
        tell(&machine, &victim);
        let snapshot = format!("golden-{life}");
        if blocks == Blocks::Volumes {
            ok(machine.client().snapshot(&victim.name, &ok(name("data")), &ok(name(&snapshot))));
        }
        if life % 2 == 1 {
            // Its pages are the next one's, and so are its blocks.
            ok(machine.client().kill_vm(&victim.name));
            ok(machine.end_of(&victim.name));
            if blocks == Blocks::Volumes {
                forget_volume(&machine, &victim, &snapshot);
            }
        }
        ok(machine.start(&seeker));
        wait_for(&machine, &seeker, "of new memory");
        wait_for(&machine, &seeker, &format!("round {}", ROUNDS / 2));
        if life % 2 == 0 {
            ok(machine.client().pause_vm(&victim.name));
            ok(machine.client().resume_vm(&victim.name));
            ok(machine.client().reset_vm(&victim.name));
        } else {
            // All of its memory is new again.
            ok(machine.client().reset_vm(&seeker.name));
            wait_until(&machine, &seeker, "it begins again", |said| said.matches("of new memory").count() == 2);
        }
        wait_for(&machine, &seeker, &format!("round {ROUNDS}"));
        for spec in [&victim, &seeker] {
            // The victim may have ended above.
            let _ = machine.client().kill_vm(&spec.name);
            let _ = machine.wait_stopped(&spec.name);
            let _ = machine.client().destroy_vm(&spec.name);
        }
        if blocks == Blocks::Volumes {
            ok(machine.client().remove_volume(None, "seeker/data"));
            if life % 2 == 0 {
                forget_volume(&machine, &victim, &snapshot);
            }
        }
    }
    assert_all_returned(&machine, before);
    let log = machine.log();
    assert!(!log.contains("ERROR"), "the monitor found a fault of its own:\n{log}");
}

/// Every hart is shared by both guests.
#[test]
fn no_secret_is_found_where_guests_share_harts() {
    hide_and_seek("canary-shared", [1, 1], Blocks::Memory);
}

/// The guests have harts of their own, and pages move between nodes.
#[test]
fn no_secret_is_found_where_guests_have_harts() {
    hide_and_seek("canary-apart", [2, 2], Blocks::Memory);
}

/// What guests write lies on one disk of the machine, and what one has given up is the next one's.
#[test]
fn no_secret_is_found_on_volumes() {
    hide_and_seek("canary-volumes", [1, 1], Blocks::Volumes);
}
