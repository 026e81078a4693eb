//! `snapshot`, `volumes`: stores of modified blocks.

use control::StoreInfo;
use serde::Serialize;

use super::Context;
use crate::args::{Snapshot, Volumes};
use crate::failure::Failure;
use crate::output::{Table, harmless, units};

/// What `volumes --json` prints.
#[derive(Serialize)]
struct StoreView {
    store: String,
    total_bytes: u64,
    free_bytes: u64,
    failed: bool,
    volumes: Vec<VolumeView>,
}

#[derive(Serialize)]
struct VolumeView {
    name: String,
    kind: &'static str,
    parent: Option<String>,
    base: String,
    bytes: u64,
    own_bytes: u64,
    vm: Option<String>,
}

pub fn snapshot(context: &Context, args: &Snapshot) -> Result<(), Failure> {
    context.connect()?.snapshot(&args.vm, &args.disk, &args.name)?;
    context.output.line(format!("snapshot {} of disk {} of VM {} made", args.name, args.disk, args.vm))
}

pub fn run(context: &Context, args: &Volumes) -> Result<(), Failure> {
    let client = context.connect()?;
    if let Some(name) = &args.remove {
        client.remove_volume(args.store.as_deref(), name)?;
        return context.output.line(format!("{} removed", harmless(name)));
    }
    let stores: Vec<_> = client.stores()?.into_iter().map(StoreView::from).collect();
    if args.json.json {
        return context.output.json(&stores);
    }
    if stores.is_empty() {
        return context.output.line("no store; a disk gets one with `overlay = ...`");
    }
    for store in &stores {
        let (free, total) = (units::bytes(store.free_bytes), units::bytes(store.total_bytes));
        let state = if store.failed { "; FAILED: it takes no more writes" } else { "" };
        context.output.title(&format!("{}  {free} of {total} free{state}", harmless(&store.store)))?;
        context.output.table(&table(store))?;
    }
    Ok(())
}

fn table(store: &StoreView) -> Table {
    let mut table = Table::new(&["NAME", "KIND", "CONTINUES", "BASE", ">SIZE", ">OWN", "VM"]);
    for volume in &store.volumes {
        let or_dash = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), |text| harmless(text).to_string());
        table.row([
            harmless(&volume.name).to_string().into(),
            volume.kind.into(),
            or_dash(&volume.parent).into(),
            harmless(&volume.base).to_string().into(),
            units::bytes(volume.bytes).into(),
            units::bytes(volume.own_bytes).into(),
            or_dash(&volume.vm).into(),
        ]);
    }
    table
}

impl From<StoreInfo> for StoreView {
    fn from(info: StoreInfo) -> Self {
        let volumes = info.volumes.into_iter().map(|volume| VolumeView {
            name: volume.name,
            kind: if volume.snapshot { "snapshot" } else { "volume" },
            parent: volume.parent,
            base: volume.base,
            bytes: volume.bytes,
            own_bytes: volume.own_bytes,
            vm: volume.holder.map(|holder| holder.to_string()),
        });
        Self {
            volumes: volumes.collect(),
            store: info.name,
            total_bytes: info.total_bytes,
            free_bytes: info.free_bytes,
            failed: info.failed,
        }
    }
}
