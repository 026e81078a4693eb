//! Cells of a machine: `[machine] cells = N`, or a `[[cell]]` for each.

use addr::NodeId;
use control::{CellSpec, MAX_CELLS, Name};

use crate::check::Places;
use crate::reader::{At, Section};
use crate::suggest::hint;

/// Reads the cells of a machine with so many nodes, or with an unknown number of them; none if all nodes are one cell, `None` if they
/// cannot be told. `count` is what `[machine]` says.
pub fn read(
    top: &Section<'_>,
    count: Option<&At<usize>>,
    nodes: Option<usize>,
    places: &mut Places,
) -> Option<Vec<CellSpec>> {
    let sections = top.tables("cell");
    let Some(count) = count else {
        let has_all = !top.has("cell") || !sections.is_empty();
        let cells = sections.iter().enumerate().map(|(index, section)| read_cell(section, index, places));
        // Each is read, also behind one that is wrong.
        let cells: Vec<Option<CellSpec>> = cells.collect();
        return cells.into_iter().collect::<Option<Vec<_>>>().filter(|_| has_all);
    };
    let is_said_twice = !sections.is_empty();
    if let Some(section) = sections.first() {
        let help = Some("say either how many there are, or which".to_owned());
        top.error(section.place(), "cell", "[machine] has said `cells` already", help);
    }
    let (count, nodes) = (count.value, nodes?);
    let most = MAX_CELLS.min(nodes);
    if count > most {
        let message = format!("{count} cells are too many for {nodes} nodes, at most {most} are possible");
        let help = Some("a cell has one node or more".to_owned());
        if let Some(machine) = top.table("machine") {
            machine.error(&machine.place_of("cells"), "cells", message, help);
        }
        return None;
    }
    let cells = if count == 1 { Vec::new() } else { even(count, nodes) };
    (!is_said_twice).then_some(cells)
}

fn read_cell(section: &Section<'_>, index: usize, places: &mut Places) -> Option<CellSpec> {
    for (field, key) in [("", None), (".name", Some("name")), (".nodes", Some("nodes"))] {
        places.note(&format!("cells[{index}]{field}"), section, key);
    }
    let given = section.parsed::<Name>("name").map(|at| at.value);
    let nodes = section.numbers::<u8>("nodes");
    let nodes = section.require("nodes", nodes, "the cell's nodes by number, for example nodes = [0, 1]");
    section.finish();
    let nodes = nodes?.into_iter().map(|at| NodeId(at.value)).collect();
    if given.is_none() && section.has("name") {
        return None;
    }
    Some(CellSpec { name: given.or_else(|| numbered(index))?, nodes })
}

/// All nodes, in order, as evenly as they go.
fn even(count: usize, nodes: usize) -> Vec<CellSpec> {
    let mut rest = (0..=u8::MAX).take(nodes).map(NodeId);
    let cell = |index| {
        let own = nodes / count + usize::from(index < nodes % count);
        numbered(index).map(|name| CellSpec { name, nodes: rest.by_ref().take(own).collect() })
    };
    (0..count).filter_map(cell).collect()
}

/// A cell without a name is called by its number.
fn numbered(index: usize) -> Option<Name> {
    Name::new(index.to_string()).ok()
}

/// The position of the cell that a VM names, by name or by number.
pub fn position(section: &Section<'_>, cells: &[CellSpec]) -> Option<u8> {
    let At { value: text, place } = section.word_or_number("cell")?;
    let by_name = cells.iter().position(|cell| cell.name.as_str() == text);
    let found = by_name.map(|at| at.to_string()).unwrap_or_else(|| text.clone()).parse().ok();
    if found.is_none() {
        let help = hint(&text, cells.iter().map(|cell| cell.name.as_str()))
            .or_else(|| Some("describe it with [[cell]], or say its number".to_owned()));
        section.error(&place, "cell", format!("the machine has no cell {text:?}"), help);
    }
    found
}
