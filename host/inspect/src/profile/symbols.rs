//! Names of a guest's functions, from a `System.map` or `/proc/kallsyms`.

/// Functions by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolMap {
    functions: Vec<(u64, String)>,
}

/// How far behind the beginning of a function an address may be and still be in it: the last one has no end.
const LONGEST: u64 = 1 << 20;

impl SymbolMap {
    /// Lines of address, kind and name (and module). Lines that are no such thing are skipped; an unprivileged reader of
    /// `/proc/kallsyms` gets zeroes, which name nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut functions: Vec<(u64, String)> = text.lines().filter_map(function).collect();
        functions.sort();
        functions.dedup_by_key(|(address, _)| *address);
        Self { functions }
    }

    /// Whether it names anything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    fn name(&self, address: u64) -> Option<&str> {
        let behind = self.functions.partition_point(|(begin, _)| *begin <= address);
        let (begin, name) = self.functions.get(behind.checked_sub(1)?)?;
        (address - begin < LONGEST).then_some(name.as_str())
    }
}

fn function(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    let is_code = matches!(words.next()?, "T" | "t" | "W" | "w");
    let name = words.next().filter(|name| is_code && !name.starts_with('$') && !name.starts_with(".L"))?;
    // They go into files of which others take lines, fields and pictures apart.
    Some((address, name.chars().filter(|c| c.is_ascii_graphic() && *c != ';').collect()))
}

/// Several maps; the first that knows an address names it.
#[derive(Clone, Debug, Default)]
pub struct Symbols(Vec<SymbolMap>);

impl Symbols {
    /// These.
    #[must_use]
    pub fn new(maps: impl IntoIterator<Item = SymbolMap>) -> Self {
        Self(maps.into_iter().collect())
    }

    /// The function at an address, or the address.
    #[must_use]
    pub fn name(&self, address: u64) -> String {
        let found = self.0.iter().find_map(|map| map.name(address));
        found.map_or_else(|| format!("{address:#x}"), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_function_before_them() {
        let text = "ffffffff80000000 T _start\nffffffff80002000 t do_idle\nffffffff80001000 D jiffies\n\
                    0000000000000000 T hidden\nnonsense\nffffffff80003000 t $x\nffffffff80004000 t a;b\t[mod]\n";
        let symbols = Symbols::new([SymbolMap::parse(text)]);
        assert_eq!(symbols.name(0xffff_ffff_8000_0000), "_start");
        assert_eq!(symbols.name(0xffff_ffff_8000_1fff), "_start");
        assert_eq!(symbols.name(0xffff_ffff_8000_3004), "do_idle");
        assert_eq!(symbols.name(0xffff_ffff_8000_4000), "ab");
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), "0xffffffff81000000");
        assert_eq!(symbols.name(0x1000), "0x1000");
        assert!(SymbolMap::parse("0000000000000000 T hidden\n").is_empty());
    }
}
