//! `/chosen`: what the boot loader wants us to know.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use addr::MachineAddr;

use crate::{
    address::AddressRange,
    devices::Uart,
    error::{Problem, TreeError},
    tree::Tree,
};

/// The boot loader's choices.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Chosen {
    /// The command line.
    pub bootargs: Option<String>,
    /// The boot bundle.
    pub initrd: Option<AddressRange>,
    /// Which of the description's UARTs is the console; the first one if nothing is said.
    pub stdout_uart: Option<usize>,
    /// Random bytes, if the boot loader had some to give.
    pub rng_seed: Vec<u8>,
}

impl Chosen {
    pub(crate) fn read(tree: &Tree<'_>, uarts: &[Uart]) -> Result<Self, TreeError> {
        let default_uart = (!uarts.is_empty()).then_some(0);
        let Some(chosen) = tree.at("/chosen") else {
            return Ok(Self { stdout_uart: default_uart, ..Self::default() });
        };
        let start = chosen.u64("linux,initrd-start")?;
        let end = chosen.u64("linux,initrd-end")?;
        Ok(Self {
            bootargs: chosen.text("bootargs")?.map(ToOwned::to_owned),
            initrd: match start.zip(end) {
                Some((start, end)) => {
                    let bytes = end.checked_sub(start);
                    let range = bytes.and_then(|bytes| AddressRange::new(MachineAddr::new(start), bytes));
                    let wrong = || chosen.error("linux,initrd-end", Problem::OutOfRange { value: end });
                    Some(range.ok_or_else(wrong)?)
                }
                None => None,
            },
            stdout_uart: match chosen.text("stdout-path")? {
                Some(path) => find_uart(tree, uarts, path)?.or(default_uart),
                None => default_uart,
            },
            rng_seed: chosen.bytes("rng-seed").unwrap_or_default().to_vec(),
        })
    }
}

/// The UART that a path (or alias) with optional `:options` names, if it is one of ours.
fn find_uart(tree: &Tree<'_>, uarts: &[Uart], path: &str) -> Result<Option<usize>, TreeError> {
    let path = path.split(':').next().unwrap_or_default();
    let aliased = match tree.at("/aliases") {
        Some(aliases) if !path.starts_with('/') => aliases.text(path)?,
        _ => None,
    };
    let Some(node) = tree.at(aliased.unwrap_or(path)) else { return Ok(None) };
    let registers = node.reg()?.first().copied();
    Ok(uarts.iter().position(|uart| Some(uart.registers) == registers))
}
