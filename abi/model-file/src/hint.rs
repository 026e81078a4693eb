//! How a program in any mode speaks to the model: `slti x0, x0, N`, which does nothing on any RISC-V hart.

/// Switches the model on.
pub const ON: u16 = 0x7fe;
/// Switches it off.
pub const OFF: u16 = 0x7ff;
/// Tells the model that a kernel takes and waits for its locks in the code from the address in register `a0` up to the one in
/// `a1`, both virtual: it counts that apart.
pub const LOCKS: u16 = 0x7fd;
/// Mask and value of the instruction, but for N.
const SHAPE: (u32, u32) = (0x000f_ffff, 0x0000_2013);

/// N of this instruction: [`ON`], [`OFF`], [`LOCKS`], or the number of a mark (1 to 0x7fc). `None`: another instruction.
#[must_use]
pub const fn number(instruction: u32) -> Option<u16> {
    let number = (instruction >> 20) as u16;
    if instruction & SHAPE.0 == SHAPE.1 && number != 0 && number <= OFF { Some(number) } else { None }
}
