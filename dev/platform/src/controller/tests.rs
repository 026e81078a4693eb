extern crate std;

use super::*;
use crate::testing::accesses;
use proptest::prelude::*;
use std::vec::Vec;

#[test]
fn sets_of_sources_are_words_of_registers() {
    assert_eq!(source_bit(0, 95), None);
    assert_eq!(source_bit(96, 95), None);
    assert_eq!(source_bit(u64::MAX, 95), None);
    assert_eq!(source_bit(95, 95), Some(1 << 95));
    assert_eq!(word_of(1 << 95, 2), 1 << 31);
    assert_eq!(word_of(u128::MAX, 4), 0);
    assert_eq!(set_of(1, 2), 1 << 33);
    assert_eq!(sources(1 << 3 | 1 << 95).collect::<Vec<_>>(), [3, 95]);
}

#[derive(Clone, Debug)]
enum Step {
    Access((bool, u64, Width, u64)),
    Line(u16, bool),
    Pulse(u16),
}

fn steps(size: u64) -> impl Strategy<Value = Vec<Step>> {
    let line = prop_oneof![4 => 0_u16..100, 1 => any::<u16>()];
    let wires = prop::collection::vec((line, any::<bool>(), any::<bool>()), 0..100);
    (accesses(size), wires).prop_map(|(accesses, wires)| {
        let mut steps: Vec<_> = accesses.into_iter().map(Step::Access).collect();
        for (index, (line, level, is_pulse)) in wires.into_iter().enumerate() {
            let at = (index * 2).min(steps.len());
            steps.insert(at, if is_pulse { Step::Pulse(line) } else { Step::Line(line, level) });
        }
        steps
    })
}

/// Whatever happens: no panic, deliveries only to vCPUs that exist, an end to them.
fn exercise(mut controller: InterruptController, vcpus: u16, steps: Vec<Step>) {
    let mut levels = 0;
    for step in steps {
        let mut deliveries = Vec::new();
        match step {
            Step::Access((true, offset, width, value)) => controller.write(offset, width, value),
            Step::Access((false, offset, width, _)) => assert!(controller.read(offset, width) <= 0xffff_ffff),
            Step::Line(line, level) => deliveries.extend(controller.set_line(IrqLine(line), level)),
            Step::Pulse(line) => deliveries.extend(controller.pulse(IrqLine(line))),
        }
        while let Some(delivery) = controller.next_delivery() {
            assert!(!matches!(step, Step::Line(..) | Step::Pulse(_)), "lines deliver at once");
            deliveries.push(delivery);
            assert!(deliveries.len() <= 128);
        }
        for delivery in deliveries {
            match delivery {
                Delivery::Msi(msi) => assert!(msi.vcpu.0 < vcpus && (1..2048).contains(&msi.eiid)),
                Delivery::Levels(new) => {
                    assert_eq!(new.asserted ^ levels, new.changed);
                    assert_ne!(new.changed, 0);
                    assert_eq!(u64::from(new.asserted) >> vcpus, 0);
                    levels = new.asserted;
                }
            }
        }
    }
    controller.reset();
    assert_eq!(controller.next_delivery(), None);
}

proptest! {
    #[test]
    fn any_use_of_a_plic_is_harmless(vcpus in 1_u16..=32, steps in steps(0x60_0000)) {
        exercise(InterruptController::Plic(Plic::new(vcpus)), vcpus, steps);
    }

    #[test]
    fn dense_use_of_a_plic_is_harmless(steps in steps(0x3000)) {
        let mut plic = Plic::new(2);
        for source in 1..=95 {
            plic.write(4 * source, Width::Word, source % 8);
        }
        exercise(InterruptController::Plic(plic), 2, steps);
    }

    #[test]
    fn any_use_of_an_aplic_is_harmless(vcpus in 1_u16..=32, steps in steps(0x4000)) {
        exercise(InterruptController::Aplic(Aplic::new(vcpus)), vcpus, steps);
    }
}
