//! Instruction-set extensions that the monitor uses or may show to guests.

use core::fmt;

macro_rules! extensions {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// An extension that this monitor knows by name. What a tree lists beyond these is not an error: an
        /// extension nobody here knows is one nobody here may offer to a guest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Extension { $(
            #[doc = concat!("`", $text, "`")]
            $name,
        )* }

        impl Extension {
            /// Every known extension, in the canonical order of an ISA string.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name as a device tree spells it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

extensions! {
    I = "i", M = "m", A = "a", F = "f", D = "d", Q = "q", C = "c", B = "b", V = "v", H = "h",
    Zic64b = "zic64b", Zicbom = "zicbom", Zicbop = "zicbop", Zicboz = "zicboz", Ziccamoa = "ziccamoa",
    Ziccif = "ziccif", Zicclsm = "zicclsm", Ziccrse = "ziccrse", Zicfilp = "zicfilp", Zicfiss = "zicfiss",
    Zicntr = "zicntr", Zicond = "zicond", Zicsr = "zicsr", Zifencei = "zifencei", Zihintntl = "zihintntl",
    Zihintpause = "zihintpause", Zihpm = "zihpm", Zimop = "zimop", Zmmul = "zmmul", Za64rs = "za64rs",
    Zaamo = "zaamo", Zabha = "zabha", Zacas = "zacas", Zalrsc = "zalrsc", Zawrs = "zawrs", Zfa = "zfa",
    Zfbfmin = "zfbfmin", Zfh = "zfh", Zfhmin = "zfhmin", Zca = "zca", Zcb = "zcb", Zcd = "zcd", Zcmop = "zcmop",
    Zba = "zba", Zbb = "zbb", Zbc = "zbc", Zbkb = "zbkb", Zbkc = "zbkc", Zbkx = "zbkx", Zbs = "zbs",
    Zknd = "zknd", Zkne = "zkne", Zknh = "zknh", Zkr = "zkr", Zksed = "zksed", Zksh = "zksh", Zkt = "zkt",
    Ztso = "ztso", Zvbb = "zvbb", Zvbc = "zvbc", Zve32f = "zve32f", Zve32x = "zve32x", Zve64d = "zve64d",
    Zve64f = "zve64f", Zve64x = "zve64x", Zvfbfmin = "zvfbfmin", Zvfbfwma = "zvfbfwma", Zvfh = "zvfh",
    Zvfhmin = "zvfhmin", Zvkb = "zvkb", Zvkg = "zvkg", Zvkned = "zvkned", Zvknha = "zvknha", Zvknhb = "zvknhb",
    Zvksed = "zvksed", Zvksh = "zvksh", Zvkt = "zvkt", Sha = "sha", Shcounterenw = "shcounterenw",
    Shgatpa = "shgatpa", Shtvala = "shtvala", Shvsatpa = "shvsatpa", Shvstvala = "shvstvala",
    Shvstvecd = "shvstvecd", Smaia = "smaia", Smcdeleg = "smcdeleg", Smcntrpmf = "smcntrpmf", Smcsrind = "smcsrind",
    Smmpm = "smmpm", Smnpm = "smnpm", Smrnmi = "smrnmi", Smstateen = "smstateen", Ssaia = "ssaia",
    Ssccfg = "ssccfg", Ssccptr = "ssccptr", Sscofpmf = "sscofpmf", Sscounterenw = "sscounterenw",
    Sscsrind = "sscsrind", Ssdbltrp = "ssdbltrp", Ssnpm = "ssnpm", Sspm = "sspm", Ssstateen = "ssstateen",
    Sstc = "sstc", Sstvala = "sstvala", Sstvecd = "sstvecd", Ssu64xl = "ssu64xl", Supm = "supm", Svade = "svade",
    Svadu = "svadu", Svinval = "svinval", Svnapot = "svnapot", Svpbmt = "svpbmt", Svvptc = "svvptc",
}

const _: () = assert!(Extension::ALL.len() <= 128, "ExtensionSet has 128 bits");

impl Extension {
    /// The known extension with this name, letter case ignored.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|extension| extension.name().eq_ignore_ascii_case(name))
    }
}

/// A set of known extensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ExtensionSet(u128);

impl ExtensionSet {
    /// No extension.
    pub const EMPTY: Self = Self(0);

    /// Whether `extension` is in the set.
    #[must_use]
    pub const fn has(self, extension: Extension) -> bool {
        self.0 & 1 << extension as u8 != 0
    }

    /// The set with `extension`.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Self {
        Self(self.0 | 1 << extension as u8)
    }

    /// The set without `extension`.
    #[must_use]
    pub const fn without(self, extension: Extension) -> Self {
        Self(self.0 & !(1 << extension as u8))
    }

    /// What both sets have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The members in canonical order.
    pub fn iter(self) -> impl Iterator<Item = Extension> {
        Extension::ALL.iter().copied().filter(move |&extension| self.has(extension))
    }

    /// From the names of a `riscv,isa-extensions` list.
    pub(crate) fn from_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        names.filter_map(Extension::from_name).fold(Self::EMPTY, Self::with)
    }

    /// From a `riscv,isa` string such as `rv64imafdch_zicsr_sstc`; `None` unless it starts with `rv64`.
    pub(crate) fn from_isa_string(isa: &str) -> Option<Self> {
        let rest = isa.get(..4).filter(|base| base.eq_ignore_ascii_case("rv64")).and_then(|_| isa.get(4..))?;
        let mut set = Self::EMPTY;
        let mut parts = rest.split('_');
        let mut letters = parts.next().unwrap_or_default();
        while let Some(letter) = letters.chars().next() {
            // A multi-letter name may follow the single letters without an underscore.
            if matches!(letter.to_ascii_lowercase(), 's' | 'x' | 'z') {
                set = set.with_name(letters);
                break;
            }
            let (head, tail) = letters.split_at(letter.len_utf8());
            set = if head.eq_ignore_ascii_case("g") { set.with_general() } else { set.with_name(head) };
            letters = skip_version(tail);
        }
        Some(parts.fold(set, Self::with_name))
    }

    /// Adds a name that may end in a version such as `2p0`.
    fn with_name(self, name: &str) -> Self {
        let unversioned = strip_version(name);
        Extension::from_name(name).or_else(|| Extension::from_name(unversioned)).map_or(self, |found| self.with(found))
    }

    /// `g` is an abbreviation.
    fn with_general(self) -> Self {
        use Extension::{A, D, F, I, M, Zicsr, Zifencei};
        [I, M, A, F, D, Zicsr, Zifencei].into_iter().fold(self, Self::with)
    }
}

impl fmt::Debug for ExtensionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Extension::name)).finish()
    }
}

/// What follows a version number `DpD` or `D` at the start of `text`.
fn skip_version(text: &str) -> &str {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let major = digits(text);
    if major == 0 {
        return text;
    }
    let rest = text.get(major..).unwrap_or_default();
    match rest.strip_prefix('p') {
        Some(minor) if digits(minor) > 0 => minor.get(digits(minor)..).unwrap_or_default(),
        _ => rest,
    }
}

/// `text` without a version number `DpD` at its end.
fn strip_version(text: &str) -> &str {
    let without_minor = text.trim_end_matches(|c: char| c.is_ascii_digit());
    match without_minor.strip_suffix('p') {
        Some(rest) if without_minor.len() < text.len() => rest.trim_end_matches(|c: char| c.is_ascii_digit()),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isa_strings_and_lists_agree() {
        let text = ExtensionSet::from_isa_string("rv64imafdch_zicsr_zicbom_sstc_svinval").expect("rv64");
        let list = ["i", "m", "a", "f", "d", "c", "h", "zicsr", "zicbom", "sstc", "svinval"];
        assert_eq!(text, ExtensionSet::from_names(list.into_iter()));
        assert!(text.has(Extension::H) && !text.has(Extension::V));
    }

    #[test]
    fn versions_and_abbreviations_are_understood() {
        let set = ExtensionSet::from_isa_string("RV64gc2p0h1p0_zba1p0_zve64d_xvendor").expect("rv64");
        for extension in
            [Extension::D, Extension::Zifencei, Extension::C, Extension::H, Extension::Zba, Extension::Zve64d]
        {
            assert!(set.has(extension), "{}", extension.name());
        }
        assert!(ExtensionSet::from_isa_string("rv64imasvnapot").expect("rv64").has(Extension::Svnapot));
    }

    #[test]
    fn other_bases_are_refused() {
        assert_eq!(ExtensionSet::from_isa_string("rv32imac"), None);
        assert_eq!(ExtensionSet::from_isa_string("rv"), None);
        assert_eq!(ExtensionSet::from_isa_string("é€64"), None);
    }
}
