//! A guest that hides secrets in its memory, its registers and on its disk, and one that seeks them, while the machine moves, merges and
//! shares pages and guests are paused, reset, ended and started again. None is ever found.

use control::VmSpec;
use lab::rig::{Rig, Running};
use system_tests::{assert_all_returned, ok, pattern_disk, probe};

/// Looks at a guest until it has said something; each is a question that the monitor answers.
const LOOKS: usize = 20_000;
/// Rounds of the seeker in each of its lives. It says every fourth.
const ROUNDS: u64 = 32;
/// Lives of both.
const LIVES: u64 = 4;

fn guest(name: &str, vcpus: u16, cmdline: &str) -> VmSpec {
    VmSpec { disks: vec![pattern_disk()], ..probe(name, vcpus, cmdline) }
}

/// Waits until a guest says `text`. What it says until then is clean.
#[track_caller]
fn wait_for(machine: &Running, spec: &VmSpec, text: &str) {
    let says = |_: &usize| {
        let said = ok(machine.console(&spec.name));
        assert!(!said.contains("FOUND"), "{} has found something:\n{said}", spec.name);
        assert!(!said.contains("FAILED"), "{} has failed:\n{said}", spec.name);
        said.contains(text)
    };
    assert!(
        (0..LOOKS).any(|look| says(&look)),
        "{} never says {text:?}:\n{}",
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

fn hide_and_seek(machine: &str, harts: [u16; 2]) {
    let dir = ok(tempfile::tempdir());
    let path = dir.path().join("pattern.img");
    ok(std::fs::write(&path, vec![0x5a; 1 << 20]));
    let rig = ok(ok(Rig::new(machine, harts[0], 512)).node(harts[1], 512).with_probe());
    let machine = ok(ok(rig.image("pattern", path)).boot());
    let before = ok(machine.free_bytes());
    let victim = guest("victim", 2, "attack=canary-hide");
    let seeker = guest("seeker", 2, "attack=canary-seek");
    for life in 0..LIVES {
        ok(machine.start(&victim));
        wait_for(&machine, &victim, "round 8");
        // Half a MiB of memory and a block, each word; the registers may be those of a machine without vectors.
        let own = own_secrets(&machine, &victim);
        assert!(own >= (512 << 10) / 8 + 4096 / 8 + 32, "the search finds {own} words only where all are secret");
        if life % 2 == 1 {
            // Its pages are the next one's.
            ok(machine.client().kill_vm(&victim.name));
            ok(machine.end_of(&victim.name));
        }
        ok(machine.start(&seeker));
        wait_for(&machine, &seeker, "of new memory");
        wait_for(&machine, &seeker, &format!("round {}", ROUNDS / 2));
        if life % 2 == 0 {
            ok(machine.client().pause_vm(&victim.name));
            ok(machine.client().resume_vm(&victim.name));
            ok(machine.client().reset_vm(&victim.name));
        }
        wait_for(&machine, &seeker, &format!("round {ROUNDS}"));
        for spec in [&victim, &seeker] {
            // The victim may have ended above.
            let _ = machine.client().kill_vm(&spec.name);
            let _ = machine.wait_stopped(&spec.name);
            let _ = machine.client().destroy_vm(&spec.name);
        }
    }
    assert_all_returned(&machine, before);
    let log = machine.log();
    assert!(!log.contains("ERROR"), "the monitor found a fault of its own:\n{log}");
}

/// Every hart is shared by both guests.
#[test]
fn no_secret_is_found_where_guests_share_harts() {
    hide_and_seek("canary-shared", [1, 1]);
}

/// The guests have harts of their own, and pages move between nodes.
#[test]
fn no_secret_is_found_where_guests_have_harts() {
    hide_and_seek("canary-apart", [2, 2]);
}
