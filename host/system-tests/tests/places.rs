//! Pages that go where they are used, on machines of two nodes that the machine model makes slow to cross.

use std::thread;
use std::time::{Duration, Instant};

use config::{ModelPlan, Preset};
use control::{
    EventKind, Placement, PlacementAction, PlacementBy, PlacementReason, PlacementStats, SampleStats, StopReason,
    VmSpec,
};
use lab::rig::{Ended, Rig, Running, WATCHDOG};
use machine::SharedModel;
use model_file::{Mode, Stall};
use system_tests::{assert_all_returned, ok, pattern_disk, probe};

/// Turns of each part: some seconds of the machine's time, since pages that change users sooner are moved from a budget.
const TURNS: u64 = 120;
/// Turns that show whether pages move at all.
const FEW_TURNS: u64 = 30;

fn boot() -> Running {
    let rig = ok(ok(Rig::new("places", 1, 256)).node(1, 256).with_probe());
    ok(rig.hardware(|hardware| hardware.model = Some(ModelPlan::new(Preset::Flash))).boot())
}

fn spec(name: &str, placement: Placement, turns: u64) -> VmSpec {
    // The budget is a part of its memory.
    VmSpec { placement, memory_mib: 256, promised_mib: Some(0), ..probe(name, 2, &format!("figure=places n={turns}")) }
}

/// A figure that the guest has printed.
fn figure(ended: &Ended, name: &str) -> u64 {
    let lines = ended.console.lines().filter_map(|line| line.strip_prefix("FIGURE "));
    let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = values.next().and_then(|rest| rest.split(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no figure {name}:\n{}", ended.console))
}

/// The slower of two vCPUs.
fn slower(ended: &Ended, name: &str) -> u64 {
    figure(ended, &format!("{name}_last")).max(figure(ended, &format!("{name}_other_last")))
}

/// Misses of guests that were served by their own node and by others, since the machine began.
fn misses(machine: &Running) -> [u64; 2] {
    let state = ok(ok(SharedModel::of(machine.machine().dir())).state());
    let of_guests = state.harts.iter().map(|hart| &hart.modes[Mode::VS as usize]);
    of_guests.fold([0; 2], |[local, remote], mode| {
        [local + mode.stalls[Stall::Local as usize], remote + mode.stalls[Stall::Remote as usize]]
    })
}

/// Runs the guest; also the share of its misses that its own nodes served, in percent.
fn run(machine: &Running, name: &str, placement: Placement, turns: u64) -> (Ended, u64) {
    let before = misses(machine);
    let ended = ok(machine.run(&spec(name, placement, turns)));
    let after = misses(machine);
    let [local, remote] = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(figure(&ended, "places_wrong"), 0, "{}", ended.console);
    assert!(local + remote > 1_000_000, "{local} and {remote} misses: the caches have held it all");
    (ended, local * 100 / (local + remote))
}

/// What placement did to a VM's pages, as the events tell it: pages by action and reason.
fn told(machine: &Running, id: addr::VmId) -> Vec<(PlacementAction, PlacementReason, u64)> {
    let own = ok(machine.events()).into_iter().filter(|event| event.vm.as_ref().is_some_and(|vm| vm.id == id));
    let placed = own.filter_map(|event| match event.kind {
        EventKind::PagesPlaced { action, pages, reason, .. } => Some((action, reason, pages)),
        _ => None,
    });
    placed.collect()
}

#[test]
fn pages_go_where_they_are_used() {
    let machine = boot();
    let (still, still_local) = run(&machine, "still", Placement::FirstTouch, TURNS);
    let (moved, moved_local) = run(&machine, "moved", Placement::Dynamic, TURNS);

    // Without: one of the nodes has all pages, and a vCPU of the other one waits for them to the end.
    assert_eq!(still.stats.placement, PlacementStats::default());
    assert!(told(&machine, still.summary.id).is_empty());
    // With: accesses become local, of a page's only user as of its readers.
    let figures = format!("without:\n{}\nwith:\n{}", still.console, moved.console);
    assert!(figure(&moved, "own_last") * 10 < figure(&still, "own_last") * 7, "{figures}");
    assert!(slower(&moved, "both") * 10 < slower(&still, "both") * 6, "{figures}");
    assert!(slower(&moved, "mixed") * 10 < slower(&still, "mixed") * 7, "{figures}");
    assert!(moved_local >= 80 && still_local < 60, "{moved_local}% and {still_local}% were local");

    let placed = moved.stats.placement;
    // Both blocks moved whole for their only user, their readers got copies, which ended when they were written.
    assert!(placed.migrated_blocks >= 2 && placed.replicated_pages >= 900, "{placed:?}");
    assert!(placed.migrated_pages >= 200 && placed.split_blocks >= 1, "{placed:?}");
    assert!(placed.collapsed_pages >= 500, "{placed:?}");
    let told = told(&machine, moved.summary.id);
    let count = |action, reason| -> u64 {
        told.iter().filter(|(a, r, _)| (*a, *r) == (action, reason)).map(|(.., pages)| pages).sum()
    };
    assert_eq!(count(PlacementAction::Migrated, PlacementReason::OneUser), placed.migrated_pages);
    assert_eq!(count(PlacementAction::MigratedBlock, PlacementReason::OneUser), placed.migrated_blocks * 512);
    assert_eq!(count(PlacementAction::Replicated, PlacementReason::Readers), placed.replicated_pages);
    assert!(count(PlacementAction::Collapsed, PlacementReason::Written) > 0);
    assert_eq!(count(PlacementAction::Split, PlacementReason::SeveralUsers), placed.split_blocks * 512);
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// Of much memory no page is hot within a tenth of a second, and all of it together is.
#[test]
fn pages_that_are_used_a_little_each_move_as_well() {
    let machine = boot();
    let guest = VmSpec { memory_mib: 256, ..probe("much", 2, "figure=places_of_much n=5") };
    let ended = ok(machine.run(&guest));
    assert_eq!(figure(&ended, "places_wrong"), 0, "{}", ended.console);
    let placed = ended.stats.placement;
    // In the end the first vCPU reads all of it, and some blocks have two users.
    assert!(placed.migrated_blocks >= 24, "{placed:?}");
    assert!(figure(&ended, "much_last") * 10 < figure(&ended, "much_first") * 7, "{}", ended.console);
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// A VM has what it asks for, and no more.
#[test]
fn migration_and_replication_go_apart() {
    let machine = boot();
    let (ended, _) = run(&machine, "migrate", Placement::Migrate, FEW_TURNS);
    let placed = ended.stats.placement;
    assert!(placed.migrated_pages + placed.migrated_blocks > 0, "{placed:?}");
    assert_eq!((placed.replicated_pages, placed.watched_pages), (0, 0), "{placed:?}");
    let (ended, _) = run(&machine, "replicate", Placement::Replicate, FEW_TURNS);
    let placed = ended.stats.placement;
    assert!(placed.replicated_pages > 0, "{placed:?}");
    assert_eq!((placed.migrated_pages, placed.migrated_blocks), (0, 0), "{placed:?}");
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// Samples in the place of the counters, on a machine that has counters to compare them with.
#[test]
fn samples_find_what_counters_find() {
    let rig = ok(ok(Rig::new("sampled", 1, 256)).node(1, 256).with_probe());
    let rig = rig.hardware(|hardware| hardware.model = Some(ModelPlan::new(Preset::Flash)));
    let machine = ok(rig.options(|options| options.placement_by = PlacementBy::Samples).boot());
    let (still, still_local) = run(&machine, "still", Placement::FirstTouch, TURNS / 2);
    let (moved, moved_local) = run(&machine, "moved", Placement::Dynamic, 2 * TURNS);
    assert_eq!(still.stats.placement, PlacementStats::default());
    let figures = format!("without:\n{}\nwith:\n{}", still.console, moved.console);
    assert!(figure(&moved, "own_last") * 10 < figure(&still, "own_last") * 7, "{figures}");
    assert!(moved_local > still_local, "{moved_local}% and {still_local}% were local");
    let placed = moved.stats.placement;
    assert!(placed.migrated_blocks >= 2 && placed.replicated_pages > 0, "{placed:?}");
    let samples = placed.samples;
    assert!(samples.agreed > samples.disagreed + samples.only_misses, "{samples:?}");
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// A machine that counts nothing at all. Its time is the host's, so guests run for as long as it takes.
#[test]
fn pages_move_where_nobody_counts_misses() {
    let machine = ok(ok(ok(Rig::new("uncounted", 1, 256)).node(1, 256).with_probe()).boot());
    let moves = |name: &str, figure: &str, is_so: fn(&PlacementStats) -> bool| {
        let guest = probe(name, 2, &format!("figure={figure} n=1000000000"));
        ok(machine.start(&guest));
        let placed = || ok(machine.client().vm_stats(&guest.name)).placement;
        wait_until(figure, || is_so(&placed()));
        assert_eq!(placed().samples, SampleStats::default(), "there is nothing to compare with");
        ok(machine.client().kill_vm(&guest.name));
        ok(machine.wait_stopped(&guest.name));
    };
    moves("one", "places_of_one", |placed| placed.migrated_blocks >= 2);
    moves("readers", "places_of_readers", |placed| placed.replicated_pages >= 512);
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// Asks until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < WATCHDOG, "{what}: never");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A VM that had to leave the node of its memory comes back when there is room, if its pages may not follow it.
#[test]
fn a_vcpu_goes_back_to_its_memory() {
    let machine = ok(ok(ok(Rig::new("home", 1, 256)).node(1, 256).with_probe()).boot());
    let busy = |name: &str| VmSpec { placement: Placement::FirstTouch, ..probe(name, 1, "figure=spin n=1000000000") };
    let owner = busy("owner");
    ok(machine.start(&owner));
    ok(machine.wait_text(&owner.name, "SPINNING"));
    let stats = || ok(machine.client().vm_stats(&owner.name));
    // Hart n is node n's.
    let node_of_vcpu = || stats().vcpus[0].hart.0;
    let pages = |node: u16| {
        let memory = stats().memory.into_iter().find(|memory| u16::from(memory.node.0) == node);
        memory.map_or(0, |memory| memory.private_pages + memory.large_pages)
    };
    let home = node_of_vcpu();
    assert!(pages(home) >= 1024 && pages(1 - home) == 0, "all its memory is where it began");
    for round in 0..3 {
        let guests = [busy(&format!("left-{round}")), busy(&format!("right-{round}"))];
        guests.iter().for_each(|guest| ok(machine.start(guest)));
        wait_until("three on two harts take turns", || node_of_vcpu() != home);
        guests.iter().for_each(|guest| ok(machine.client().kill_vm(&guest.name)));
        wait_until("alone it goes home", || node_of_vcpu() == home);
    }
    assert_eq!(pages(1 - home), 0, "its memory has stayed");
}

/// The boot hart loads all VMs; what it loads for one that begins on another node lies there all the same.
#[test]
fn what_is_loaded_lies_with_its_vm() {
    let machine = ok(ok(ok(Rig::new("loaded", 1, 256)).node(1, 256).with_probe()).boot());
    let vm = |name: &str| {
        let spec = probe(name, 1, "figure=spin n=1000000000");
        VmSpec { placement: Placement::FirstTouch, sharing: false, ..spec }
    };
    let vms = ["one", "other"].map(vm);
    vms.iter().for_each(|vm| ok(machine.start(vm)));
    let homes = vms.each_ref().map(|vm| {
        ok(machine.wait_text(&vm.name, "SPINNING"));
        let stats = ok(machine.client().vm_stats(&vm.name));
        // Hart n is node n's.
        let home = stats.vcpus[0].hart.0;
        for memory in stats.memory {
            let pages = memory.private_pages + memory.large_pages;
            assert_eq!(pages > 0, u16::from(memory.node.0) == home, "{}: {pages} pages on {:?}", vm.name, memory.node);
        }
        home
    });
    assert_ne!(homes[0], homes[1], "each on a node of its own");
}

/// Copies that are written end page by page; the blocks that are left are large pages again some time.
#[test]
fn blocks_grow_together_again() {
    let machine = boot();
    let guest = VmSpec { memory_mib: 256, ..probe("blocks", 2, "figure=places_of_readers_once n=60") };
    ok(machine.start(&guest));
    let stats = || ok(machine.client().vm_stats(&guest.name));
    ok(machine.wait_text(&guest.name, "FIGURE places_wrong 0 "));
    let placed = stats().placement;
    assert!(placed.replicated_pages >= 1024 && placed.collapsed_pages >= 1024, "{placed:?}");
    wait_until("blocks are whole again", || stats().placement.joined_blocks >= 2);
    ok(machine.client().kill_vm(&guest.name));
    ok(machine.wait_stopped(&guest.name));
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// A disk as the probe expects it: a word at the beginning of each line says which line it is.
fn pattern() -> Vec<u8> {
    let lines = (0..SHARED_BYTES as u64 / 128).flat_map(|line| {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&line.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        bytes
    });
    lines.collect()
}

const SHARED_BYTES: usize = 4 << 20;

#[test]
fn shared_pages_have_copies_on_each_node() {
    share_on_two_nodes(PlacementBy::Misses, TURNS);
}

#[test]
fn samples_find_shared_pages_too() {
    share_on_two_nodes(PlacementBy::Samples, 5 * TURNS);
}

/// A guest that reads a disk to its memory, and then that.
fn of_shared(name: &str, turns: u64) -> VmSpec {
    let spec = probe(name, 1, &format!("figure=places_of_shared n={turns}"));
    VmSpec { disks: vec![pattern_disk()], memory_mib: 256, promised_mib: Some(0), ..spec }
}

/// Pages of the disk cache that VMs of two nodes have get copies, for all VMs of the other node, which keep nobody's page.
fn share_on_two_nodes(by: PlacementBy, turns: u64) {
    let dir = ok(tempfile::tempdir());
    let path = dir.path().join("pattern.img");
    ok(std::fs::write(&path, pattern()));
    let rig = ok(ok(ok(Rig::new("spread", 1, 256)).node(1, 256).with_probe()).image("pattern", path));
    let rig = rig.options(|options| options.placement_by = by);
    let machine = ok(rig.hardware(|hardware| hardware.model = Some(ModelPlan::new(Preset::Flash))).boot());
    // Bytes that are shared, beside those of the cache.
    let copies = || -> u64 {
        let nodes = ok(machine.stats()).nodes;
        nodes.iter().map(|node| node.sharable_bytes - node.disk_cache_bytes).sum()
    };
    let first = of_shared("first", 1_000_000_000);
    ok(machine.start(&first));
    ok(machine.wait_text(&first.name, "FIGURE shared_first"));
    assert_eq!(copies(), 0, "it is alone");

    let second = ok(machine.run(&of_shared("second", turns)));
    assert_eq!(figure(&second, "places_wrong"), 0, "{}", second.console);
    assert!(figure(&second, "shared_last") * 10 < figure(&second, "shared_first") * 7, "{}", second.console);
    let placed = second.stats.placement;
    assert!(placed.replicated_pages >= 900, "{placed:?}");
    assert!(copies() >= 900 << 12, "{} KiB", copies() >> 10);
    // They are there for whoever comes next, and nothing that the last one wrote.
    let third = ok(machine.run(&of_shared("third", FEW_TURNS)));
    assert_eq!(figure(&third, "places_wrong"), 0, "{}", third.console);
    assert!(figure(&third, "shared_first") * 10 < figure(&second, "shared_first") * 8, "{}", third.console);
    assert!(third.stats.placement.replicated_pages < 200, "{:?}", third.stats.placement);

    ok(machine.client().kill_vm(&first.name));
    ok(machine.wait_stopped(&first.name));
    wait_until("copies that nobody needs go", || copies() == 0);
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// A guest has what the copies of others take before it ends: those of pages that are a VM's own, and of pages that several share. Who read them
/// reads the same afterwards, and has copies again when there is memory.
#[test]
fn copies_go_when_memory_is_short() {
    let dir = ok(tempfile::tempdir());
    let path = dir.path().join("pattern.img");
    ok(std::fs::write(&path, pattern()));
    let rig = ok(ok(ok(Rig::new("short", 1, 256)).node(1, 256).with_probe()).image("pattern", path));
    let machine = ok(rig.boot());
    let before = ok(machine.free_bytes());
    let readers = probe("readers", 2, "figure=places_of_readers n=1000000000");
    let vms = [of_shared("first", 1_000_000_000), of_shared("second", 1_000_000_000), readers];
    let copied = |vm: &VmSpec| ok(machine.client().vm_stats(&vm.name)).placement.replicated_pages;
    let pause = |vms: &[VmSpec]| vms.iter().for_each(|vm| ok(machine.client().pause_vm(&vm.name)));
    let resume = |vms: &[VmSpec]| vms.iter().for_each(|vm| ok(machine.client().resume_vm(&vm.name)));
    let [first, second, _] = &vms;
    let readers = &vms[2..];
    // By turns: of four vCPUs on two nodes those of one memory may come to lie on one, and then nobody needs a copy.
    ok(machine.start(&readers[0]));
    wait_until("pages have copies", || copied(&readers[0]) >= 900);
    pause(readers);
    [first, second].iter().for_each(|vm| ok(machine.start(vm)));
    wait_until("shared pages have copies", || copied(first) + copied(second) >= 900);
    resume(readers);

    // It wants more than there is, and has all copies before it ends: 4 MiB of the readers', and as much of shared pages.
    let hog = VmSpec { memory_mib: 1024, promised_mib: Some(0), ..probe("hog", 1, "figure=touch n=1000") };
    let ended = ok(machine.run(&hog));
    assert!(matches!(ended.summary.reason, Some(StopReason::OutOfMemory { .. })), "{:?}", ended.summary.reason);
    let given_up = |event: control::Event| match event.kind {
        EventKind::CopiesGivenUp { pages } => pages,
        _ => 0,
    };
    let pages: u64 = ok(machine.events()).into_iter().map(given_up).sum();
    assert!(pages > 1100, "{pages} pages: not of both kinds");

    let had = vms.each_ref().map(copied);
    pause(readers);
    wait_until("shared pages have copies again", || copied(first) + copied(second) >= had[0] + had[1] + 400);
    pause(&vms[..2]);
    resume(readers);
    wait_until("pages have copies again", || copied(&readers[0]) >= had[2] + 400);
    resume(&vms[..2]);
    for vm in &vms {
        ok(machine.client().kill_vm(&vm.name));
        let ended = ok(machine.end_of(&vm.name));
        assert!(!ended.console.contains("WRONG"), "{}", ended.console);
    }
    assert_all_returned(&machine, before);
}
