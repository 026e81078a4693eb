//! The machine is shared out among its cells.
//!
//! Each cell boots as if it were alone, with a description cut to its nodes, from a copy of the image, the tree and the bundle
//! in its own memory. The first cell makes these copies before it uses the machine, and starts one hart of each other cell
//! when its own harts run. It waits for none of them. A machine of one cell goes the same way, with nothing to copy.

use super::{
    bundle::{self, Bundle},
    entry,
    handover::{self, Handover},
};
use crate::machine::{
    boards, cell, clock, direct, failures, image,
    layout::{DIRECT_SIZE, IMAGE_BASE},
};
use addr::{BASE_PAGE, HartId, MachineAddr, NodeId};
use alloc::vec::Vec;
use control::BootConfig;
use machine_tree::{AddressRange, Devices, MachineDescription, find_room, is_inside};
use rv::sbi;

/// The boot tables map the image by pages of this size.
const IMAGE_ALIGN: u64 = 2 << 20;

/// How this cell begins.
pub struct Arrival {
    /// Its position.
    pub cell: usize,
    /// The device tree.
    pub tree: AddressRange,
    /// Nanoseconds since 1970 at `time` = 0, as another cell told.
    pub epoch_ns: Option<u64>,
    /// The boot bundle, where it is known already; the tree names it otherwise.
    pub bundle: Option<AddressRange>,
    /// What is in use beside the image and the reservations of the tree.
    pub kept: Vec<AddressRange>,
    /// Where all cells' boards are, where another cell told.
    pub boards: Option<boards::Places>,
}

/// What belongs to this cell.
pub struct Share {
    /// The machine, cut to the cell's nodes.
    pub description: MachineDescription,
    /// The same with the machine's devices, where another cell has these.
    pub with_devices: Option<MachineDescription>,
    /// Its bundle.
    pub bundle: Bundle,
    /// What is in use of its memory, beside reservations.
    pub taken: Vec<AddressRange>,
    /// Nanoseconds since 1970 at `time` = 0; `None` if nobody knows.
    pub epoch_ns: Option<u64>,
    /// The cells that it has to start.
    pub others: Vec<Prepared>,
}

/// A cell that waits for its first hart.
pub struct Prepared {
    cell: usize,
    hart: HartId,
    start: MachineAddr,
    handover: MachineAddr,
}

/// Takes this cell's share of `whole`. `hart` is the one that executes this.
///
/// # Panics
/// When this cell's nodes make no machine.
pub fn take(whole: &MachineDescription, arrival: &Arrival, hart: HartId) -> Share {
    let mut archive = arrival.bundle.or(whole.chosen.initrd);
    let mut bundle = archive.map_or_else(Bundle::default, |range| Bundle::parse(bytes(range)));
    let mut parts = parts(whole, bundle.config.as_ref());
    let node = whole.hart(hart).map(|hart| hart.node).unwrap_or_default();
    if arrival.cell == 0 && !parts.iter().take(1).any(|first| first.contains(&node)) {
        log::error!("the machine boots on hart {hart} of node {node}, not in the first cell: all of it is one cell");
        parts = Vec::from([whole.nodes.ids().collect()]);
    }
    cell::set(arrival.cell, &parts, whole, bundle.config.as_ref());
    if !cell::is_alone() {
        failures::init();
    }
    if let Some(boards) = arrival.boards {
        boards::install(boards);
    }
    let own = parts.get(arrival.cell).map_or(&[][..], Vec::as_slice);
    let cut = |devices| whole.cut_to(own, devices).unwrap_or_else(|why| panic!("cell {}: {why}", arrival.cell));
    let (description, with_devices) = match arrival.cell {
        0 => (cut(Devices::Ours), None),
        _ => (cut(Devices::Theirs), Some(cut(Devices::Ours))),
    };
    let mut taken: Vec<_> = arrival.kept.iter().copied().chain([own_image()]).chain(archive).collect();
    let epoch_ns = arrival.epoch_ns.or_else(|| clock::epoch_of(&description));
    let mut others = Vec::new();
    if arrival.cell == 0 && parts.len() > 1 {
        if let Some(moved) = archive.and_then(|archive| bring_home(&description, archive, &taken)) {
            bundle = Bundle::parse(bytes(moved));
            archive = Some(moved);
            taken.push(moved);
        }
        let board = room_in(&description, &taken, boards::BYTES + boards::NOTICE_BYTES, BASE_PAGE);
        if let Some(board) = board {
            taken.push(board);
            clear(board);
        } else {
            log::error!("no room for this cell's board: the cells will not know of each other");
        }
        let given = Given {
            tree: arrival.tree,
            bundle: archive.zip(bundle.config.as_ref()),
            epoch_ns,
            taken: &taken,
            board: board.map(|board| board.start()),
        };
        others = prepare_others(whole, &parts, &given);
    }
    cell::close();
    Share { description, with_devices, bundle, taken, epoch_ns, others }
}

/// The nodes of each cell. Cells that do not fit the machine are none.
fn parts(whole: &MachineDescription, config: Option<&BootConfig>) -> Vec<Vec<NodeId>> {
    let count = whole.nodes.count();
    let parts = config.map(|config| config.nodes_by_cell(count)).transpose().unwrap_or_else(|why| {
        log::error!("the cells do not fit this machine, all of it is one: {why}");
        None
    });
    parts.unwrap_or_else(|| Vec::from([whole.nodes.ids().collect()]))
}

/// Room in a part of the machine that the direct map shows.
fn room_in(part: &MachineDescription, taken: &[AddressRange], bytes: u64, align: u64) -> Option<AddressRange> {
    find_room(&part.free_memory(taken), bytes, align).filter(|room| room.end().raw() <= DIRECT_SIZE)
}

fn own_image() -> AddressRange {
    let parts = image::parts();
    AddressRange::new(image::loaded_at(), parts.end - parts.start).expect("the image lies in memory")
}

/// A copy of the first cell's bundle in its own memory, unless it lies there already.
fn bring_home(own: &MachineDescription, archive: AddressRange, taken: &[AddressRange]) -> Option<AddressRange> {
    if is_inside(&own.memory, archive) {
        return None;
    }
    let room = room_in(own, taken, archive.bytes(), BASE_PAGE);
    if let Some(room) = room {
        direct::copy(room.start(), archive.start(), archive.bytes());
    } else {
        log::error!("no room for the boot bundle in this cell: its VMs depend on another cell's memory");
    }
    room
}

/// What the first cell gives to the others.
struct Given<'a> {
    tree: AddressRange,
    bundle: Option<(AddressRange, &'a BootConfig)>,
    epoch_ns: Option<u64>,
    /// Where nothing may be put.
    taken: &'a [AddressRange],
    /// Its own board; without one no cell has one.
    board: Option<MachineAddr>,
}

/// Where all that a cell begins with goes in its memory.
struct Room {
    cell: usize,
    hart: HartId,
    image: MachineAddr,
    handover: MachineAddr,
    board: AddressRange,
    tree: AddressRange,
    files: Vec<&'static [u8]>,
    bundle: AddressRange,
}

/// Finds room for all, then writes: each cell is told where the boards of all are.
fn prepare_others(whole: &MachineDescription, parts: &[Vec<NodeId>], given: &Given<'_>) -> Vec<Prepared> {
    let mut rooms = Vec::new();
    for (cell, nodes) in parts.iter().enumerate().skip(1) {
        match find_rooms(whole, cell, nodes, given) {
            Ok(room) => rooms.push(room),
            Err(why) => log::error!("cell {} does not start: {why}", cell::name_of(cell)),
        }
    }
    let mut boards = boards::Places::default();
    if let Some(own) = given.board {
        let others = rooms.iter().map(|room| (room.cell, room.board.start()));
        for (cell, board) in others.chain([(0, own)]) {
            boards[cell] = Some(board);
        }
    }
    boards::install(boards);
    rooms.iter().map(|room| prepare(room, given, boards)).collect()
}

/// Room for all that a cell begins with, in its own memory.
fn find_rooms(
    whole: &MachineDescription,
    cell: usize,
    nodes: &[NodeId],
    given: &Given<'_>,
) -> Result<Room, &'static str> {
    let machine = whole.cut_to(nodes, Devices::Theirs).map_err(|_| "its nodes have no hart or no memory")?;
    let hart = machine.harts.first().ok_or("it has no hart")?.id;
    let image_bytes = own_image().bytes().next_multiple_of(BASE_PAGE);
    // Bounded: ranges that the machine's device tree names, while it boots.
    let mut taken = given.taken.to_vec();
    taken.extend(whole.chosen.initrd);
    // Behind the image: the handover, the board, the tree.
    let room = image_bytes + BASE_PAGE + boards::BYTES + given.tree.bytes();
    let image = room_in(&machine, &taken, room, IMAGE_ALIGN).ok_or("no room for its image")?;
    taken.push(image);
    let part = |offset, bytes| AddressRange::new(MachineAddr::new(image.start().raw() + offset), bytes);
    let handover = image_bytes;
    let board = part(handover + BASE_PAGE, boards::BYTES).ok_or("no room")?;
    let tree = part(handover + BASE_PAGE + boards::BYTES, given.tree.bytes()).ok_or("no room")?;
    let files = given.bundle.map_or_else(Vec::new, |(archive, config)| bundle::files_of(bytes(archive), config, cell));
    let needed = files.iter().map(|file| file.len() as u64).sum();
    let bundle = room_in(&machine, &taken, needed, BASE_PAGE).ok_or("no room for its bundle")?;
    let (image, handover) = (image.start(), MachineAddr::new(image.start().raw() + handover));
    Ok(Room { cell, hart, image, handover, board, tree, files, bundle })
}

/// Puts all that a cell begins with into its room.
fn prepare(room: &Room, given: &Given<'_>, boards: boards::Places) -> Prepared {
    write_all(room.bundle.start(), &room.files);
    image::copy_to(room.image);
    direct::copy(room.tree.start(), given.tree.start(), given.tree.bytes());
    clear(room.board);
    let first_bundle = given.bundle.map_or(room.bundle, |(archive, _)| archive);
    let (cell, kept) = (room.cell, [given.tree, own_image(), first_bundle]);
    const { assert!(handover::BYTES <= BASE_PAGE) };
    Handover { cell, epoch_ns: given.epoch_ns, tree: room.tree, bundle: room.bundle, kept, boards }
        .write(room.handover);
    let start = MachineAddr::new(room.image.raw() + (entry::cell_start_address() - IMAGE_BASE));
    Prepared { cell, hart: room.hart, start, handover: room.handover }
}

/// Empties a board.
fn clear(board: AddressRange) {
    for offset in (0..board.bytes()).step_by(8) {
        direct::write_u64(MachineAddr::new(board.start().raw() + offset), 0);
    }
}

fn write_all(to: MachineAddr, files: &[&[u8]]) {
    let mut at = to.raw();
    for file in files {
        direct::write_bytes(MachineAddr::new(at), file);
        at += file.len() as u64;
    }
}

/// Starts the cells that were prepared; each goes its own way from there.
#[expect(unsafe_code)]
pub fn start(others: &[Prepared]) {
    boards::note_others_begin();
    for other in others {
        // UNSAFETY and SAFETY: `cell_start` in the copy is written for the HSM entry state and takes a handover's machine
        // address; all was written before this call, which is a fence for the hart that it starts.
        let answer = unsafe { sbi::hart_start(other.hart.0, other.start.raw(), other.handover.raw()) };
        let name = cell::name_of(other.cell);
        if answer.is_ok() {
            log::info!("cell {name} begins on hart {}, at {:?}", other.hart, other.start);
        } else {
            log::error!("cell {name} does not start: hart {}: SBI error {}", other.hart, answer.error);
        }
    }
}

/// Bytes that the firmware's hand-over or another cell's has left for this one.
#[expect(unsafe_code)]
pub fn bytes(range: AddressRange) -> &'static [u8] {
    // UNSAFETY and SAFETY: tree and bundle lie in RAM; both are reserved before any frame is handed out, and nobody writes
    // them.
    unsafe { direct::as_bytes(range.start(), range.bytes() as usize) }
}

impl Arrival {
    /// What the firmware hands over: the device tree.
    #[must_use]
    pub fn from_firmware(tree: AddressRange) -> Self {
        Self { cell: 0, tree, epoch_ns: None, bundle: None, kept: Vec::from([tree]), boards: None }
    }

    /// What another cell hands over.
    #[must_use]
    pub fn from_cell(at: MachineAddr) -> Self {
        let Handover { cell, epoch_ns, tree, bundle, kept, boards } = Handover::read(at);
        // The board lies behind the handover.
        let block = AddressRange::new(at, BASE_PAGE + boards::BYTES);
        let in_use = kept.into_iter().chain([tree]).chain(block);
        let bundle = Some(bundle).filter(|range| range.bytes() > 0);
        Self { cell, tree, epoch_ns, bundle, kept: in_use.collect(), boards: Some(boards) }
    }
}
