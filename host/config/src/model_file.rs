//! Reading `[model]`.

use machine_model::{CacheShape, Fidelity, TlbShape};

use crate::check::Places;
use crate::model::{Latency, ModelPlan, Preset};
use crate::reader::Section;

/// Longest time that a key takes: a second. The model's own limits are tighter.
const MAX_NS: u64 = 1_000_000_000;

/// Reads the section; what is wrong is reported, and then the plan does not matter.
pub fn read(section: &Section<'_>, places: &mut Places) -> ModelPlan {
    places.note("model", section, None);
    places.note("model.preset", section, Some("preset"));
    places.note("model.latency_ns", section, Some("latency_ns"));
    let preset = section.choice("preset", &[("flash", Preset::Flash), ("two-die", Preset::TwoDie)]);
    let mut plan = ModelPlan::new(preset.map_or(Preset::Flash, |at| at.value));
    let modes = [("reference", Fidelity::Reference), ("fast", Fidelity::Fast)];
    plan.fidelity = section.choice("mode", &modes).map_or(plan.fidelity, |at| at.value);
    plan.seed = section.number("seed", 0..=u64::from(u32::MAX)).map_or(plan.seed, |at| at.value);
    plan.starts_on = section.choice("start", &[("on", true), ("off", false)]).is_none_or(|at| at.value);
    let time = |key| section.number(key, 0..=MAX_NS).map(|at| at.value);
    plan.window_ns = time("window_ns");
    plan.cycle_ps = time("cycle_ps");
    plan.l2_hit_ns = time("l2_hit_ns");
    plan.owned_extra_ns = time("owned_extra_ns");
    plan.latency = latency(section);
    plan.line_bytes = section.number("line_bytes", 16..=4096).map(|at| at.value);
    plan.l1i = cache(section, "l1i");
    plan.l1d = cache(section, "l1d");
    plan.l2 = cache(section, "l2");
    plan.tlb = tlb(section);
    plan.hot_misses = section.number("hot_misses", 1..=u32::MAX).map(|at| at.value);
    section.finish();
    plan
}

fn latency(section: &Section<'_>) -> Latency {
    let local = section.number("local_ns", 1..=MAX_NS);
    let remote = section.number("remote_ns", 1..=MAX_NS);
    let Some(matrix) = section.matrix("latency_ns", 1..=MAX_NS) else {
        return Latency::Flat { local_ns: local.map(|at| at.value), remote_ns: remote.map(|at| at.value) };
    };
    if local.is_some() || remote.is_some() {
        let help = Some("leave local_ns and remote_ns out".to_owned());
        section.error(&matrix.place, "latency_ns", "says all latencies already", help);
    }
    Latency::Matrix(matrix.value)
}

/// `{ kib = 32, ways = 2 }`
fn cache(section: &Section<'_>, key: &'static str) -> Option<CacheShape> {
    let table = section.table(key)?;
    let kib = table.number("kib", 1..=1 << 20_u64).map(|at| at.value);
    let kib = table.require("kib", kib, "for example kib = 32");
    let ways = table.number("ways", 1..=64_u64).map(|at| at.value);
    let ways = table.require("ways", ways, "for example ways = 8");
    table.finish();
    Some(CacheShape { bytes: kib? << 10, ways: ways? })
}

/// `{ entries = 64, walk_entries = 16, guest_entries = 16 }`
fn tlb(section: &Section<'_>) -> Option<TlbShape> {
    let table = section.table("tlb")?;
    let number = |key, help| table.require(key, table.number(key, 1..=1 << 14_usize).map(|at| at.value), help);
    let entries = number("entries", "for example entries = 64");
    let walk_entries = number("walk_entries", "for example walk_entries = 16");
    let guest_entries = number("guest_entries", "for example guest_entries = 16");
    table.finish();
    Some(TlbShape { entries: entries?, walk_entries: walk_entries?, guest_entries: guest_entries? })
}
