//! The section `[model]`: what becomes of it, and the whole messages for what is wrong.

use std::fs;

use config::{ConfigError, DiskModel, Loader, MachinePlan, ModelPlan, Preset};
use machine_model::{CacheShape, Description, Fidelity, TlbShape};

/// A machine of two nodes with this model; `[model]` is in line 9.
fn load(model: &str) -> Result<MachinePlan, ConfigError> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("m.toml");
    let node = "[[node]]\nharts = 2\nmemory_mib = 64\n";
    fs::write(&file, format!("name = \"m\"\n{node}{node}\n[model]\n{model}")).expect("the directory is writable");
    Loader { cache: None, check_files: false, is_restricted: false }.load(&file).map_err(|mut error| {
        error.problems.iter_mut().for_each(|problem| problem.file = "m.toml".into());
        error
    })
}

#[track_caller]
fn described(model: &str) -> Description {
    let plan = load(model).unwrap_or_else(|error| panic!("{error:#}"));
    plan.hardware.model.as_ref().expect("there is a model").describe(&plan.hardware).expect("it is good")
}

#[track_caller]
fn message(model: &str) -> String {
    load(model).expect_err("it is wrong").to_string()
}

#[test]
fn an_empty_section_is_flash_in_reference_mode() {
    let plan = load("").unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(plan.hardware.model, Some(ModelPlan::new(Preset::Flash)));
    let Description { machine, mode, seed, starts_on } = described("");
    assert_eq!((mode, seed, starts_on), (Fidelity::Reference, 0, true));
    assert_eq!((machine.harts, machine.nodes, machine.node_bytes, machine.ram_base), (4, 2, 64 << 20, 0x8000_0000));
    assert_eq!(machine.latency_ps, [300_000, 900_000, 900_000, 300_000]);
}

#[test]
fn every_key_reaches_the_description() {
    let Description { machine, mode, seed, starts_on } = described(
        r#"preset = "two-die"
        mode = "fast"
        seed = 7
        start = "off"
        window_ns = 250
        cycle_ps = 500
        l2_hit_ns = 6
        owned_extra_ns = 50
        local_ns = 90
        remote_ns = 180
        line_bytes = 64
        l1i = { kib = 64, ways = 4 }
        l1d = { kib = 16, ways = 2 }
        l2 = { kib = 512, ways = 8 }
        tlb = { entries = 48, walk_entries = 8, guest_entries = 4 }
        hot_misses = 64"#,
    );
    assert_eq!((mode, seed, starts_on), (Fidelity::Fast, 7, false));
    assert_eq!((machine.window_ps, machine.cycle_ps, machine.l2_hit_ps), (250_000, 500, 6000));
    assert_eq!((machine.owned_extra_ps, machine.line_bytes, machine.hot_misses), (50_000, 64, 64));
    assert_eq!(machine.latency_ps, [90_000, 180_000, 180_000, 90_000]);
    assert_eq!(machine.l1i, CacheShape { bytes: 64 << 10, ways: 4 });
    assert_eq!(machine.l1d, CacheShape { bytes: 16 << 10, ways: 2 });
    assert_eq!(machine.l2, CacheShape { bytes: 512 << 10, ways: 8 });
    assert_eq!(machine.tlb, TlbShape { entries: 48, walk_entries: 8, guest_entries: 4 });
    let machine = described("latency_ns = [[100, 300], [200, 100]]").machine;
    assert_eq!(machine.latency_ps, [100_000, 300_000, 200_000, 100_000]);
}

#[test]
fn wrong_keys_and_values() {
    assert_eq!(
        message("preset = \"flesh\""),
        "m.toml:10:10: error: model.preset: \"flesh\" is not known here\n  help: did you mean `flash`?"
    );
    assert_eq!(
        message("windows_ns = 5"),
        "m.toml:10:1: error: model.windows_ns: unknown key\n  help: did you mean `window_ns`?"
    );
    assert_eq!(
        message("l2 = { kib = 64 }"),
        "m.toml:10:6: error: model.l2.ways: is missing\n  help: for example ways = 8"
    );
    assert_eq!(
        message("local_ns = 1\nlatency_ns = [[1]]"),
        "m.toml:11:14: error: model.latency_ns: says all latencies already\n  help: leave local_ns and remote_ns out"
    );
    assert_eq!(
        message("latency_ns = [[0]]"),
        "m.toml:10:14: error: model.latency_ns: must be an array of arrays of numbers from 1 to 1000000000, \
         this is an array"
    );
}

#[test]
fn machines_that_cannot_be_modelled() {
    assert_eq!(
        message("latency_ns = [[100]]"),
        "m.toml:10:14: error: model.latency_ns: the matrix must have 2 rows of 2 numbers, one per node"
    );
    assert_eq!(
        message("l2 = { kib = 3000, ways = 2 }"),
        "m.toml:9:1: error: model: L2 cache: 3072000 bytes are not a power of two of sets of 2 lines of 128 bytes"
    );
    assert_eq!(
        message("remote_ns = 10"),
        "m.toml:9:1: error: model: node 0 reaches node 1 in 10000 ps, sooner than its own memory in 300000 ps"
    );
    assert_eq!(
        message("[machine]\nicount = true"),
        "m.toml:9:1: error: model: icount and the model both keep the machine's time\n  help: leave icount out"
    );
    assert_eq!(
        message("[[node]]\nharts = 1\nmemory_mib = 64"),
        "m.toml:10:1: error: node: the model needs nodes of one size: node 2 has 1 harts and 64 MiB, \
         node 0 has 2 and 64"
    );
    assert_eq!(
        message("preset = \"two-die\"\n[[node]]\nharts = 2\nmemory_mib = 64"),
        "m.toml:10:10: error: model.preset: preset \"two-die\" is a machine of 2 nodes, this one has 3\n  \
         help: say preset = \"flash\", or give it 2 nodes"
    );
}

#[test]
fn disks_take_the_models_time() {
    let disk = "[[disk]]\nname = \"d\"\nsize_mib = 64\n";
    let plan = load(&format!("{disk}model = \"hp97560\"\nscale = 2")).unwrap_or_else(|error| panic!("{error:#}"));
    let model = DiskModel { preset: disk_model::Preset::Hp97560, scale: 2 };
    assert_eq!((plan.hardware.disks[0].model, plan.warnings), (Some(model), vec![]));
    let plan = load(&format!("{disk}model = \"ssd\"")).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(plan.hardware.disks[0].model.map(|model| model.scale), Some(1));
    assert_eq!(
        message(&format!("{disk}scale = 2")),
        "m.toml:13:9: error: disk.scale: is for a disk with a model\n  help: say model = \"hp97560\" or \"ssd\""
    );
    assert_eq!(
        message(&format!("{disk}model = \"ssd\"\nscale = 0")),
        "m.toml:14:9: error: disk.scale: 0 is not in 1 to 100"
    );
    assert_eq!(
        message("[[disk]]\nname = \"d\"\nfile = \"x\"\nformat = \"qcow2\"\nmodel = \"ssd\""),
        "m.toml:14:9: error: disk.model: a disk with a model needs a raw image\n  \
         help: convert it: qemu-img convert -O raw"
    );
    let large = load("[[disk]]\nname = \"d\"\nsize_mib = 2000\nmodel = \"hp97560\"").expect("it is possible");
    assert_eq!(large.warnings[0].message, "2000 MiB are more than this disk had (1310 MiB)");
}

#[test]
fn a_disk_with_a_model_needs_a_machine_with_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("m.toml");
    let node = "[[node]]\nharts = 2\nmemory_mib = 64\n";
    fs::write(&file, format!("{node}[[disk]]\nname = \"d\"\nsize_mib = 1\nmodel = \"ssd\"")).expect("it is writable");
    let error = Loader { cache: None, check_files: false, is_restricted: false }.load(&file).expect_err("it is wrong");
    assert_eq!(error.problems[0].message, "the machine has no model, whose time this disk could take");
}
