//! The classic shapes, each with the ways to order its accesses.

use std::fmt::Write;

/// How two accesses of a thread are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// By nothing but program order.
    Po,
    /// `fence rw,rw`.
    Fence,
    /// The weakest fence that fits.
    Light,
    /// `fence.tso`.
    Tso,
    /// The second one's address depends on the first.
    Address,
    /// What the second one stores depends on the first.
    Data,
    /// A branch depends on the first.
    Control,
    /// The first is an AMO with `.aq`.
    Acquire,
    /// The second is an AMO with `.rl`.
    Release,
    /// Both are AMOs with `.aq` and `.rl`.
    Both,
}

impl Link {
    const fn name(self) -> &'static str {
        match self {
            Self::Po => "po",
            Self::Fence => "fence",
            Self::Light => "light",
            Self::Tso => "tso",
            Self::Address => "addr",
            Self::Data => "data",
            Self::Control => "ctrl",
            Self::Acquire => "aq",
            Self::Release => "rl",
            Self::Both => "aqrl",
        }
    }

    /// Those between two accesses of these kinds.
    const fn between(first: Access, second: Access) -> &'static [Self] {
        match (first, second) {
            (Access::Read(..), Access::Read(..)) => {
                &[Self::Po, Self::Fence, Self::Light, Self::Address, Self::Control, Self::Acquire]
            }
            (Access::Read(..), Access::Write(..)) => {
                &[Self::Po, Self::Fence, Self::Light, Self::Address, Self::Data, Self::Control, Self::Release]
            }
            (Access::Write(..), Access::Read(..)) => &[Self::Po, Self::Fence, Self::Tso, Self::Acquire, Self::Both],
            (Access::Write(..), Access::Write(..)) => &[Self::Po, Self::Fence, Self::Light, Self::Release, Self::Both],
        }
    }
}

/// An access to a location, with what it writes or what the condition wants it to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read(char, u64),
    Write(char, u64),
}

use Access::{Read as R, Write as W};

/// A shape: threads of one or two accesses, and what locations have at the end, if the condition says so.
struct Shape {
    name: &'static str,
    threads: &'static [&'static [Access]],
    last: &'static [(char, u64)],
    /// Only tests whose threads are all ordered alike, or by nothing.
    is_wide: bool,
}

const fn shape(name: &'static str, threads: &'static [&'static [Access]], last: &'static [(char, u64)]) -> Shape {
    Shape { name, threads, last, is_wide: threads.len() > 3 }
}

const SHAPES: [Shape; 19] = [
    shape("MP", &[&[W('x', 1), W('y', 1)], &[R('y', 1), R('x', 0)]], &[]),
    shape("SB", &[&[W('x', 1), R('y', 0)], &[W('y', 1), R('x', 0)]], &[]),
    shape("LB", &[&[R('x', 1), W('y', 1)], &[R('y', 1), W('x', 1)]], &[]),
    shape("S", &[&[W('x', 2), W('y', 1)], &[R('y', 1), W('x', 1)]], &[('x', 2)]),
    shape("R", &[&[W('x', 1), W('y', 1)], &[W('y', 2), R('x', 0)]], &[('y', 2)]),
    shape("2+2W", &[&[W('x', 2), W('y', 1)], &[W('y', 2), W('x', 1)]], &[('x', 2), ('y', 2)]),
    shape("WRC", &[&[W('x', 1)], &[R('x', 1), W('y', 1)], &[R('y', 1), R('x', 0)]], &[]),
    shape("RWC", &[&[W('x', 1)], &[R('x', 1), R('y', 0)], &[W('y', 1), R('x', 0)]], &[]),
    shape("WWC", &[&[W('x', 2)], &[R('x', 2), W('y', 1)], &[R('y', 1), W('x', 1)]], &[('x', 2)]),
    shape("WRW+2W", &[&[W('x', 1)], &[R('x', 1), W('y', 1)], &[W('y', 2), W('x', 2)]], &[('x', 1), ('y', 2)]),
    shape("ISA2", &[&[W('x', 1), W('y', 1)], &[R('y', 1), W('z', 1)], &[R('z', 1), R('x', 0)]], &[]),
    shape("3.SB", &[&[W('x', 1), R('y', 0)], &[W('y', 1), R('z', 0)], &[W('z', 1), R('x', 0)]], &[]),
    shape("3.LB", &[&[R('x', 1), W('y', 1)], &[R('y', 1), W('z', 1)], &[R('z', 1), W('x', 1)]], &[]),
    shape("IRIW", &[&[W('x', 1)], &[R('x', 1), R('y', 0)], &[W('y', 1)], &[R('y', 1), R('x', 0)]], &[]),
    shape("CoRR", &[&[W('x', 1)], &[R('x', 1), R('x', 0)]], &[]),
    shape("CoRW", &[&[R('x', 1), W('x', 1)]], &[]),
    shape("CoWR", &[&[W('x', 1), R('x', 2)], &[W('x', 2)]], &[('x', 1)]),
    shape("CoWW", &[&[W('x', 1), W('x', 2)]], &[('x', 1)]),
    shape("CoRR2", &[&[W('x', 1)], &[W('x', 2)], &[R('x', 1), R('x', 2)], &[R('x', 2), R('x', 1)]], &[]),
];

/// All tests: names and texts.
#[must_use]
pub fn all() -> Vec<(String, String)> {
    let shapes = SHAPES.iter().flat_map(of_shape);
    shapes.chain(COUNTERS.map(|(name, text)| (name.to_owned(), text.to_owned()))).collect()
}

fn of_shape(shape: &Shape) -> Vec<(String, String)> {
    let mut tests = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(links) = open.pop() {
        let Some(thread) = shape.threads.get(links.len()) else {
            if is_wanted(shape, &links) {
                tests.push(test(shape, &links));
            }
            continue;
        };
        match thread {
            [first, second] => {
                let all = Link::between(*first, *second).iter().rev();
                open.extend(all.map(|link| [links.as_slice(), &[Some(*link)]].concat()));
            }
            _ => open.push([links.as_slice(), &[None]].concat()),
        }
    }
    tests
}

/// Two threads: each pair of links. More: the same everywhere, a full fence everywhere but once, or with two links one of them nothing.
fn is_wanted(shape: &Shape, links: &[Option<Link>]) -> bool {
    let links: Vec<Link> = links.iter().flatten().copied().collect();
    let others = links.iter().filter(|link| **link != Link::Fence).count();
    let is_same = links.windows(2).all(|pair| pair[0] == pair[1]);
    let is_small = links.len() <= 2 && !shape.is_wide;
    let is_simple = links.contains(&Link::Fence) || links.contains(&Link::Po);
    is_small && (shape.threads.len() == 2 || is_simple) || is_same || others <= 1
}

struct Text {
    initial: String,
    columns: Vec<Vec<String>>,
    condition: Vec<String>,
}

fn test(shape: &Shape, links: &[Option<Link>]) -> (String, String) {
    let names: Vec<&str> = links.iter().flatten().map(|link| link.name()).collect();
    let name = [&[shape.name], names.as_slice()].concat().join("+");
    let mut text = Text { initial: String::new(), columns: Vec::new(), condition: Vec::new() };
    for (thread, (accesses, link)) in shape.threads.iter().zip(links).enumerate() {
        text.thread(thread, accesses, *link);
    }
    text.condition.extend(shape.last.iter().map(|(location, value)| format!("{location}={value}")));
    let body = text.finish(&name);
    (name, body)
}

impl Text {
    /// Registers: x5 and x6 are read into, x10 and x11 have addresses, x12 and x13 values, x28 and x29 are in between.
    fn thread(&mut self, thread: usize, accesses: &[Access], link: Option<Link>) {
        let mut code = Vec::new();
        for (at, access) in accesses.iter().enumerate() {
            let (location, value) = match access {
                R(location, value) | W(location, value) => (*location, *value),
            };
            let _ = write!(self.initial, "{thread}:x{}={location}; ", 10 + at);
            if at == 1 {
                between(link, *access, &mut code);
            }
            let is_amo = match link {
                Some(Link::Acquire) => at == 0,
                Some(Link::Release) => at == 1,
                Some(Link::Both) => true,
                _ => false,
            };
            let order = match link {
                Some(Link::Acquire) => ".aq",
                Some(Link::Release) => ".rl",
                _ => ".aq.rl",
            };
            let base = if at == 1 && link == Some(Link::Address) { 29 } else { 10 + at };
            match access {
                R(..) => {
                    let to = 5 + at;
                    code.push(if is_amo {
                        format!("amoor.w{order} x{to},x0,(x{base})")
                    } else {
                        format!("lw x{to},0(x{base})")
                    });
                    self.condition.push(format!("{thread}:x{to}={value}"));
                }
                W(..) => {
                    let _ = write!(self.initial, "{thread}:x{}={value}; ", 12 + at);
                    let from = if at == 1 && link == Some(Link::Data) { 29 } else { 12 + at };
                    code.push(if is_amo {
                        format!("amoswap.w{order} x0,x{from},(x{base})")
                    } else {
                        format!("sw x{from},0(x{base})")
                    });
                }
            }
        }
        self.columns.push(code);
    }

    fn finish(self, name: &str) -> String {
        let mut text = format!("RISCV {name}\n{{\n{}\n}}\n", self.initial.trim_end());
        let width = self.columns.iter().flatten().map(String::len).max().unwrap_or(0).max(2);
        let mut row = |cell: &dyn Fn(usize) -> String| {
            let cells: Vec<String> = (0..self.columns.len()).map(|at| format!(" {:width$} ", cell(at))).collect();
            let _ = writeln!(text, "{};", cells.join("|"));
        };
        row(&|at| format!("P{at}"));
        let height = self.columns.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            row(&|at| self.columns[at].get(line).cloned().unwrap_or_default());
        }
        let _ = writeln!(text, "exists ({})", self.condition.join(" /\\ "));
        text
    }
}

/// What stands between the accesses.
fn between(link: Option<Link>, second: Access, code: &mut Vec<String>) {
    match link {
        Some(Link::Fence) => code.push("fence rw,rw".into()),
        Some(Link::Tso) => code.push("fence.tso".into()),
        Some(Link::Light) => {
            let before = if code.iter().any(|line| line.starts_with('l')) { 'r' } else { 'w' };
            let after = if matches!(second, R(..)) { 'r' } else { 'w' };
            code.push(format!("fence {before},{after}"));
        }
        Some(Link::Address) => code.extend(["xor x28,x5,x5".into(), "add x29,x11,x28".into()]),
        Some(Link::Data) => code.extend(["xor x28,x5,x5".into(), "add x29,x13,x28".into()]),
        Some(Link::Control) => code.extend(["bne x5,x0,LC00".into(), "LC00:".into()]),
        _ => {}
    }
}

/// What no shape has: pairs of LR and SC, and AMOs that count.
const COUNTERS: [(&str, &str); 4] = [
    (
        "LRSC+amo",
        "RISCV LRSC+amo\n{\n0:x10=x; 1:x10=x; 1:x12=1;\n}\n P0                 | P1                   ;\n lr.w x5,(x10)      | amoadd.w x5,x12,(x10) ;\n addi x6,x5,1       |                      ;\n sc.w x7,x6,(x10)   |                      ;\nexists (0:x7=0 /\\ x=1)\n",
    ),
    (
        "LRSC+store",
        "RISCV LRSC+store\n{\n0:x10=x; 0:x12=2; 1:x10=x; 1:x12=1;\n}\n P0                | P1            ;\n lr.w x5,(x10)     | sw x12,0(x10) ;\n sc.w x7,x12,(x10) | lw x6,0(x10)  ;\nexists (0:x5=0 /\\ 0:x7=0 /\\ 1:x6=2 /\\ x=1)\n",
    ),
    (
        "LRSC+LRSC",
        "RISCV LRSC+LRSC\n{\n0:x10=x; 1:x10=x;\n}\n P0               | P1               ;\n lr.w x5,(x10)    | lr.w x5,(x10)    ;\n addi x6,x5,1     | addi x6,x5,1     ;\n sc.w x7,x6,(x10) | sc.w x7,x6,(x10) ;\nexists (0:x7=0 /\\ 1:x7=0 /\\ x=1)\n",
    ),
    (
        "AMO+AMO+AMO",
        "RISCV AMO+AMO+AMO\n{\n0:x10=x; 1:x10=x; 2:x10=x; 0:x12=1; 1:x12=1; 2:x12=1;\n}\n P0                    | P1                    | P2                    ;\n amoadd.w x5,x12,(x10) | amoadd.w x5,x12,(x10) | amoadd.w x5,x12,(x10) ;\nexists (0:x5=0 /\\ 1:x5=0 /\\ 2:x5=0)\n",
    ),
];
