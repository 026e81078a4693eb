//! `cells`: the parts of a machine that fail alone.

use control::{CellInfo, CellState};
use serde::Serialize;

use super::Context;
use crate::failure::Failure;
use crate::model::loss_label;
use crate::output::{Cell, Table, Tone, units};

/// `cells --json`.
#[derive(Debug, Serialize)]
struct CellsView {
    cells: Vec<CellView>,
}

/// A cell.
#[derive(Debug, Serialize)]
struct CellView {
    /// Its number.
    index: u8,
    name: String,
    /// `in`, `booting`, `lost` or `absent`.
    state: &'static str,
    /// How it was lost.
    cause: Option<&'static str>,
    /// Which set of cells it goes on with; of a lost one, the first without it.
    epoch: u16,
    /// Its nodes, by the machine's numbers.
    nodes: Vec<u8>,
    harts: u16,
    memory_bytes: u64,
    /// The rest is not known of cells that cannot be asked.
    free_bytes: Option<u64>,
    vms: Option<u16>,
    running_vms: Option<u16>,
}

pub fn run(context: &Context, json: bool) -> Result<(), Failure> {
    let view = CellsView { cells: context.connect()?.cells()?.iter().map(CellView::from).collect() };
    if json { context.output.json(&view) } else { context.output.table(&table(&view.cells)) }
}

impl From<&CellInfo> for CellView {
    fn from(cell: &CellInfo) -> Self {
        let (state, cause) = match cell.state {
            CellState::In => ("in", None),
            CellState::Booting => ("booting", None),
            CellState::Lost(cause) => ("lost", Some(loss_label(cause))),
            CellState::Absent => ("absent", None),
        };
        Self {
            index: cell.index,
            name: cell.name.to_string(),
            state,
            cause,
            epoch: cell.epoch,
            nodes: cell.nodes.iter().map(|node| node.0).collect(),
            harts: cell.harts,
            memory_bytes: cell.total_bytes,
            free_bytes: cell.load.map(|load| load.free_bytes),
            vms: cell.load.map(|load| load.vms),
            running_vms: cell.load.map(|load| load.running_vms),
        }
    }
}

fn table(cells: &[CellView]) -> Table {
    let mut table =
        Table::new(&["CELL", "STATE", ">EPOCH", "NODES", ">HARTS", ">MEMORY", ">FREE", ">VMS", ">RUNNING", "LOST"]);
    let known = |value: Option<String>| Cell::from(value.unwrap_or_else(|| "-".to_owned()));
    for cell in cells {
        let tone = match cell.state {
            "in" => Tone::Good,
            "lost" => Tone::Bad,
            _ => Tone::Notice,
        };
        let nodes = cell.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        table.row([
            cell.name.clone().into(),
            Cell::toned(cell.state, tone),
            cell.epoch.to_string().into(),
            nodes.into(),
            cell.harts.to_string().into(),
            units::bytes(cell.memory_bytes).into(),
            known(cell.free_bytes.map(units::bytes)),
            known(cell.vms.map(|count| count.to_string())),
            known(cell.running_vms.map(|count| count.to_string())),
            Cell::toned(cell.cause.unwrap_or_default(), tone),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{DEMO, cells};

    fn views() -> Vec<CellView> {
        cells(DEMO).iter().map(CellView::from).collect()
    }

    #[test]
    fn the_table_reads_well() {
        insta::assert_snapshot!(table(&views()).render(false));
    }

    #[test]
    fn json_is_stable() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&CellsView { cells: views() }).expect("plain data"));
    }
}
