//! Configurations and shared files that must be accepted or refused, and the counters' sums.

use machine_model::{CacheShape, Clocks, Config, ConfigError, Description, Fidelity, Machine, Shared};
use model_file::Header;

fn flash() -> Config {
    Config::flash(8, 4, 1 << 20)
}

#[test]
fn presets_are_accepted_with_the_papers_latencies() {
    assert_eq!(flash().check(), Ok(()));
    assert_eq!((flash().latency(1, 1), flash().latency(1, 2)), (300_000, 900_000));
    assert_eq!(Config::two_die_server(64, 1 << 20).check(), Ok(()));
    assert_eq!((flash().home_of(0x8010_0000), flash().home_of(0x8040_0000), flash().home_of(0)), (Some(1), None, None));
}

#[test]
fn impossible_machines_are_refused() {
    let cases: [fn(&mut Config); 16] = [
        |c| c.harts = 0,
        |c| c.harts = 65,
        |c| c.harts = 9,
        |c| c.nodes = 0,
        |c| c.nodes = usize::MAX,
        |c| c.ram_base = 1,
        |c| c.node_bytes = 0,
        |c| c.node_bytes = !0xfff,
        |c| c.ram_base = !0xfff,
        |c| c.line_bytes = 0,
        |c| c.line_bytes = 96,
        |c| c.l2 = CacheShape { bytes: 32 << 10, ways: 2 },
        |c| c.l1d.ways = u64::MAX,
        |c| c.latency_ps = vec![1],
        |c| c.latency_ps[1] = 1,
        |c| c.window_ps = 0,
    ];
    for (at, spoil) in cases.into_iter().enumerate() {
        let mut config = flash();
        spoil(&mut config);
        assert!(config.check().is_err(), "case {at}");
        let shared = Shared::private(&flash()).unwrap();
        assert!(Machine::new(&config, shared).is_err() && Clocks::new(&config, 0).is_err(), "case {at}");
        assert!(Shared::private(&config).is_err(), "case {at}");
    }
    assert!(Config::flash(1, usize::MAX, 4096).check().is_err());
    let uneven = Config { harts: 9, ..flash() }.check().unwrap_err();
    assert_eq!(uneven, ConfigError::UnevenHarts { harts: 9, nodes: 4 });
    assert_eq!(uneven.to_string(), "9 harts cannot be spread evenly over 4 nodes");
}

#[test]
fn every_accepted_machine_has_a_file() {
    for config in [flash(), Config::two_die_server(64, 1 << 20), Config::flash(1, 1, 4096)] {
        let header = config.header().unwrap();
        assert_eq!(Header::decode(&header.encode(), header.file_bytes()), Ok(header));
        assert_eq!((header.harts(), header.nodes().len()), (config.harts as u64, config.nodes));
        assert_eq!(header.pages() * 4096, config.node_bytes * config.nodes as u64);
    }
}

#[test]
fn a_description_survives_its_file_and_refuses_what_it_does_not_know() {
    let description = Description { machine: flash(), mode: Fidelity::Reference, seed: 7, starts_on: true };
    let text = serde_json::to_string(&description).expect("it can be written");
    assert_eq!(serde_json::from_str::<Description>(&text).expect("it can be read"), description);
    let error = serde_json::from_str::<Description>(&text.replacen("seed", "sead", 1)).expect_err("an unknown key");
    assert!(error.to_string().contains("unknown field `sead`"), "{error}");
    let error = serde_json::from_str::<Description>(&text.replacen("reference", "exact", 1)).expect_err("no such mode");
    assert!(error.to_string().contains("unknown variant `exact`"), "{error}");
}
