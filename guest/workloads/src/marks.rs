//! The numbers of the marks: `slti x0, x0, N`, which does nothing in any mode on any RISC-V hart, but can be seen by an
//! emulator. Work k lies between marks 2k and 2k + 1. `load measure` switches a machine model on before the first mark and
//! off after the last one (`model_file::hint`); `load together` leaves it on, for the other guests of the machine that began at the
//! same moment.

/// The region of interest begins: the whole workload, after its preparation.
pub const BEGIN: u16 = 2;
/// The region of interest has ended.
pub const END: u16 = 3;
/// Part `index` of a workload of several parts, within the region of interest: its first mark.
pub const fn part_begins(index: u16) -> u16 {
    4 + 2 * index
}
/// The second mark of part `index`.
pub const fn part_ends(index: u16) -> u16 {
    part_begins(index) + 1
}
