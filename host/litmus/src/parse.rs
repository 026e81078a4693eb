//! The litmus format.

use std::collections::BTreeMap;

use dsm::Operation;

use crate::test::{Arithmetic, Compare, Fence, Instruction, Observable, Order, REGISTERS, Test, address};

/// Why a text is no test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The first line does not say RISCV and a name.
    #[error("the first line must be RISCV and a name")]
    Head,
    /// There is no `{ ... }` with what registers and locations begin with.
    #[error("no initial state in braces")]
    Initial,
    /// An instruction that is not known here.
    #[error("{0:?} is not known here")]
    Instruction(String),
    /// A register, value or condition that cannot be read.
    #[error("cannot read {0:?}")]
    Word(String),
    /// A branch backwards, or to nowhere.
    #[error("no label {0:?} behind its branch")]
    Label(String),
    /// More than a search or a run can do.
    #[error("more than 8 threads, 16 instructions in one, or 8 locations")]
    Large,
}

/// Reads a test.
///
/// # Errors
/// [`Problem`].
pub fn parse(text: &str) -> Result<Test, Problem> {
    let mut lines = text.lines();
    let name = lines.next().and_then(|line| line.strip_prefix("RISCV ")).ok_or(Problem::Head)?.trim().to_owned();
    let (_, rest) = text.split_once('{').ok_or(Problem::Initial)?;
    let (initial, rest) = rest.split_once('}').ok_or(Problem::Initial)?;
    let at = ["exists", "forall", "~exists"].iter().filter_map(|word| rest.find(word)).min();
    let (code, condition) = rest.split_at(at.ok_or_else(|| Problem::Word("exists".into()))?);
    let mut reader = Reader::default();
    let columns = columns(code);
    if columns.len() > 8 {
        return Err(Problem::Large);
    }
    let mut registers = vec![[0; REGISTERS]; columns.len()];
    reader.initial(initial, &mut registers)?;
    let threads: Vec<_> = columns.iter().map(|lines| instructions(lines)).collect::<Result<_, _>>()?;
    let condition = reader.condition(condition)?;
    if reader.locations.len() > 8 || threads.iter().any(|thread| thread.len() > 16) {
        return Err(Problem::Large);
    }
    Ok(Test { name, locations: reader.locations, values: reader.values, registers, threads, condition })
}

/// The lines of each thread.
fn columns(code: &str) -> Vec<Vec<String>> {
    let rows = code.lines().map(|line| line.trim().trim_end_matches(';')).filter(|line| !line.is_empty());
    let mut columns: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if cells[0].starts_with('P') && columns.is_empty() {
            columns = cells.iter().map(|_| Vec::new()).collect();
            continue;
        }
        for (column, cell) in columns.iter_mut().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
            column.push(cell.to_owned());
        }
    }
    columns
}

#[derive(Default)]
struct Reader {
    locations: Vec<String>,
    values: Vec<u64>,
}

impl Reader {
    fn location(&mut self, name: &str) -> usize {
        if let Some(at) = self.locations.iter().position(|known| known == name) {
            return at;
        }
        self.locations.push(name.to_owned());
        self.values.push(0);
        self.locations.len() - 1
    }

    fn initial(&mut self, text: &str, registers: &mut [[u64; REGISTERS]]) -> Result<(), Problem> {
        for item in text.split([';', '\n']).map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = || Problem::Word(item.to_owned());
            let (to, value) = item.split_once('=').ok_or_else(wrong)?;
            let (to, value) = (to.trim(), value.trim());
            if let Some((thread, register)) = to.split_once(':') {
                let thread: usize = thread.trim().parse().map_err(|_| wrong())?;
                let value = match value.parse() {
                    Ok(value) => value,
                    Err(_) => address(self.location(value)),
                };
                registers.get_mut(thread).ok_or_else(wrong)?[number(register)?] = value;
            } else {
                let name = to.rsplit(' ').next().unwrap_or(to);
                let at = self.location(name);
                self.values[at] = value.parse().map_err(|_| wrong())?;
            }
        }
        Ok(())
    }

    fn condition(&mut self, text: &str) -> Result<Vec<(Observable, u64)>, Problem> {
        let wrong = || Problem::Word(text.trim().to_owned());
        let (_, inner) = text.split_once('(').ok_or_else(wrong)?;
        let (inner, _) = inner.rsplit_once(')').ok_or_else(wrong)?;
        let mut atoms = Vec::new();
        for atom in inner.split("/\\").map(|atom| atom.trim().trim_matches(['(', ')'])) {
            let (what, value) = atom.split_once('=').ok_or_else(wrong)?;
            let value = value.trim().parse().map_err(|_| wrong())?;
            let what = what.trim().trim_matches(['[', ']']);
            let observable = match what.split_once(':') {
                Some((thread, register)) => {
                    Observable::Register(thread.trim().parse().map_err(|_| wrong())?, number(register)?)
                }
                None => Observable::Location(self.location(what)),
            };
            atoms.push((observable, value));
        }
        Ok(atoms)
    }
}

fn number(register: &str) -> Result<usize, Problem> {
    let wrong = || Problem::Word(register.to_owned());
    let number: usize = register.trim().strip_prefix('x').ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    if number < REGISTERS { Ok(number) } else { Err(wrong()) }
}

fn instructions(lines: &[String]) -> Result<Vec<Instruction>, Problem> {
    let mut labels = BTreeMap::new();
    let mut count = 0;
    for line in lines {
        match line.strip_suffix(':') {
            Some(label) => drop(labels.insert(label.to_owned(), count)),
            None => count += 1,
        }
    }
    let code = lines.iter().filter(|line| !line.ends_with(':')).enumerate();
    code.map(|(at, line)| instruction(at, line, &labels)).collect()
}

fn instruction(at: usize, line: &str, labels: &BTreeMap<String, usize>) -> Result<Instruction, Problem> {
    let unknown = || Problem::Instruction(line.to_owned());
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words: Vec<&str> = rest.split(',').map(str::trim).collect();
    let word = |at: usize| words.get(at).copied().ok_or_else(unknown);
    let value = |at: usize| word(at)?.parse::<i64>().map(|value| value as u64).map_err(|_| unknown());
    let register = |at: usize| number(word(at)?);
    let base = |at: usize| {
        let (offset, base) = word(at)?.trim_end_matches(')').split_once('(').ok_or_else(unknown)?;
        let offset = if offset.is_empty() { 0 } else { offset.parse::<u64>().map_err(|_| unknown())? };
        Ok::<_, Problem>((offset, number(base)?))
    };
    let (stem, order) = annotations(name);
    Ok(match stem {
        "li" => Instruction::Immediate { what: Arithmetic::Or, to: register(0)?, left: 0, value: value(1)? },
        "ori" | "addi" | "xori" | "andi" => {
            let what = arithmetic(stem.trim_end_matches('i')).ok_or_else(unknown)?;
            Instruction::Immediate { what, to: register(0)?, left: register(1)?, value: value(2)? }
        }
        "add" | "xor" | "or" | "and" => {
            let what = arithmetic(stem).ok_or_else(unknown)?;
            Instruction::Register { what, to: register(0)?, left: register(1)?, right: register(2)? }
        }
        "lw" | "ld" => {
            let (offset, base) = base(1)?;
            Instruction::Load { to: register(0)?, base, offset, bytes: bytes(stem, 1) }
        }
        "sw" | "sd" => {
            let (offset, base) = base(1)?;
            Instruction::Store { from: register(0)?, base, offset, bytes: bytes(stem, 1) }
        }
        "lr.w" | "lr.d" => Instruction::Reserved { to: register(0)?, base: base(1)?.1, bytes: bytes(stem, 3), order },
        "sc.w" | "sc.d" => Instruction::Conditional {
            to: register(0)?,
            from: register(1)?,
            base: base(2)?.1,
            bytes: bytes(stem, 3),
            order,
        },
        "beq" | "bne" => {
            let when = if stem == "beq" { Compare::Equal } else { Compare::NotEqual };
            let target = labels.get(word(2)?).copied().filter(|target| *target > at);
            let target = target.ok_or_else(|| Problem::Label(line.to_owned()))?;
            Instruction::Branch { when, left: register(0)?, right: register(1)?, target }
        }
        "fence.tso" => Instruction::Fence(Fence {
            before_reads: true,
            before_writes: true,
            after_reads: true,
            after_writes: true,
            is_tso: true,
        }),
        "fence" => {
            let (before, after) = (word(0)?, words.get(1).copied().unwrap_or("rw"));
            let before = if before.is_empty() { "rw" } else { before };
            Instruction::Fence(Fence {
                before_reads: before.contains('r'),
                before_writes: before.contains('w'),
                after_reads: after.contains('r'),
                after_writes: after.contains('w'),
                is_tso: false,
            })
        }
        _ => {
            let (what, width) = stem.strip_prefix("amo").and_then(|rest| rest.split_once('.')).ok_or_else(unknown)?;
            let what = operation(what).ok_or_else(unknown)?;
            let bytes = if width == "w" { 4 } else { 8 };
            Instruction::Atomic { what, to: register(0)?, from: register(1)?, base: base(2)?.1, bytes, order }
        }
    })
}

fn annotations(name: &str) -> (&str, Order) {
    let (acquire, release) = (name.contains(".aq"), name.contains(".rl") || name.ends_with("aqrl"));
    let stem = name.trim_end_matches(".rl").trim_end_matches(".aqrl").trim_end_matches(".aq");
    (stem, Order { acquire, release })
}

fn bytes(stem: &str, at: usize) -> u8 {
    if stem.as_bytes().get(at) == Some(&b'w') { 4 } else { 8 }
}

fn arithmetic(name: &str) -> Option<Arithmetic> {
    Some(match name {
        "add" => Arithmetic::Add,
        "xor" => Arithmetic::Xor,
        "or" => Arithmetic::Or,
        "and" => Arithmetic::And,
        _ => return None,
    })
}

fn operation(name: &str) -> Option<Operation> {
    Some(match name {
        "swap" => Operation::Swap,
        "add" => Operation::Add,
        "or" => Operation::Or,
        "and" => Operation::And,
        "xor" => Operation::Xor,
        _ => return None,
    })
}
