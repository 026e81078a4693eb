//! SPLASHOS: programs with the known results, however many vCPUs there are, and ends with a reason.

use config::Loader;
use control::{StopReason, VmSpec};
use lab::artifacts;
use lab::rig::{Rig, label, probe_vm};
use system_tests::{assert_all_returned, ok};

const MODULE: &str = "splash";

fn splash(name: &str, vcpus: u16, cmdline: &str) -> VmSpec {
    let spec = ok(probe_vm(name, vcpus, 128, cmdline));
    let boot = control::Boot::Kernel { kernel: ok(label(MODULE)), initrd: None, cmdline: cmdline.to_owned() };
    VmSpec { boot, ..spec }
}

/// The programs compare their results themselves: with the ones that they have on Linux and on the host.
#[test]
fn programs_have_their_results_on_one_and_on_four_vcpus() {
    let rig = ok(Rig::new("splash", 2, 512));
    let machine = ok(ok(rig.module(MODULE, ok(artifacts::splash()))).boot());
    let before = ok(machine.free_bytes());
    for vcpus in [1, 4] {
        let ended = ok(machine.run(&splash(&format!("vcpus-{vcpus}"), vcpus, "program=fft,water size=small")));
        assert_eq!(ended.summary.reason, Some(StopReason::PowerOff), "{}", ended.console);
        let done = format!("WORKLOAD done name=fft,water threads={vcpus} ");
        assert!(ended.console.contains(&done), "{}", ended.console);
        assert!(ended.console.contains("SPLASH name=fft result=06306a69f2860977 "), "{}", ended.console);
    }
    let ended = ok(machine.run(&splash("nonsense", 2, "program=chess")));
    assert!(ended.console.contains("the program failed: there is no such program"), "{}", ended.console);
    assert!(!matches!(ended.summary.reason, None | Some(StopReason::PowerOff)), "{:?}", ended.summary.reason);
    assert_all_returned(&machine, before);
}

/// The example of a program of one's own, as the linker made it, described as a user would.
#[test]
fn a_program_of_ones_own_boots() {
    let machine = ok(ok(Rig::new("own", 2, 512)).boot());
    let dir = ok(tempfile::tempdir());
    let program = ok(artifacts::splash()).with_file_name("examples").join("own");
    let file = dir.path().join("own.toml");
    let text = format!("memory_mib = 32\nvcpus = 3\nports = []\nkernel = \"{}\"\n", program.display());
    ok(std::fs::write(&file, text));
    let plan = ok(Loader { cache: None, check_files: true, is_restricted: false }.load_vm(&file, None));
    for module in &plan.modules {
        let content = ok(std::fs::File::open(&module.path));
        ok(machine.client().put_module(&module.label, module.bytes, content, |_| {}));
    }
    let ended = ok(machine.run(&plan.spec));
    assert!(ended.console.contains("3 threads found 9592 primes"), "{}", ended.console);
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff));
}
