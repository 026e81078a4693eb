//! Boots VMs with Debian's kernel and shows what becomes of them:
//! `cargo run -p lab --example boot -- HARTS VMS VCPUS [SECONDS] [KERNEL WORDS...]`.

use std::time::Duration;

use lab::rig::{Rig, debian_vm};

fn main() -> Result<(), lab::LabError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, usual: u16| words.get(index).and_then(|word| word.parse().ok()).unwrap_or(usual);
    let (harts, vms, vcpus, seconds) = (number(0, 1), number(1, 1), number(2, 1), number(3, 30));
    let cmdline = words.get(4..).unwrap_or_default().join(" ");
    let machine = Rig::new("boot", harts, 1024)?.with_debian("initrd-tiny.cpio")?.boot()?;
    let mut specs = Vec::new();
    for vm in 0..vms {
        let spec = debian_vm(&format!("vm-{vm}"), vcpus, 192, "initrd-tiny.cpio", &cmdline)?;
        machine.start(&spec)?;
        specs.push(spec);
    }
    for spec in &specs {
        let stopped = |vm: &control::VmSummary| vm.state == control::VmState::Stopped;
        let waited = machine::wait_for_vm(machine.client(), &spec.name, Duration::from_secs(seconds.into()), stopped);
        println!("== {}: {:?}", spec.name, waited.map(|vm| vm.reason));
        println!("{}", machine.console(&spec.name)?);
        for vcpu in machine.client().vm_stats(&spec.name)?.vcpus {
            let exits: Vec<_> =
                vcpu.exits.iter().filter(|(_, n)| *n > 0).map(|(c, n)| format!("{}={n}", c.label())).collect();
            println!(
                "{:?} {:?} on {:?}, run {} wait {}: {}",
                vcpu.index,
                vcpu.state,
                vcpu.hart,
                vcpu.run_ticks,
                vcpu.wait_ticks,
                exits.join(" ")
            );
        }
    }
    println!(
        "{}",
        machine
            .log()
            .lines()
            .filter(|line| line.starts_with('[') || line.contains("PANIC"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    Ok(())
}
