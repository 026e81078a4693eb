//! Reads the list of symbols of a Linux kernel (`/proc/kallsyms`: address, kind and name on each line, the kernel's own by
//! address) as it comes, and finds where pieces of code begin and end.

/// Longest name that is told from others.
const NAME: usize = 64;

/// Looks for a section and some functions. Of a list whose addresses are hidden (all 0) it finds nothing.
#[derive(Debug)]
pub struct Ranges<'a> {
    section: [&'a [u8]; 2],
    functions: &'a [&'a [u8]],
    /// The word of the line that is being read: address, kind, name, and whatever follows.
    word: usize,
    address: u64,
    name: [u8; NAME],
    name_bytes: usize,
    section_from: Option<u64>,
    function_from: Option<u64>,
    is_done: bool,
}

impl<'a> Ranges<'a> {
    /// For the section between two symbols, and these functions, each of which ends where the next symbol stands.
    #[must_use]
    pub const fn new(section: [&'a [u8]; 2], functions: &'a [&'a [u8]]) -> Self {
        Self {
            section,
            functions,
            word: 0,
            address: 0,
            name: [0; NAME],
            name_bytes: 0,
            section_from: None,
            function_from: None,
            is_done: false,
        }
    }

    /// Whether the end of the section has been seen: functions behind it are not looked for.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes the next byte of the list; gives the first address and the one behind the last of what has ended with it.
    pub fn take(&mut self, byte: u8) -> Option<(u64, u64)> {
        match (byte, self.word) {
            (b'\n', _) => {
                let found = self.line();
                (self.word, self.address, self.name_bytes) = (0, 0, 0);
                return found;
            }
            (b' ' | b'\t', _) => self.word += 1,
            (digit, 0) => {
                let digit = (digit as char).to_digit(16).unwrap_or(0);
                self.address = self.address << 4 | u64::from(digit);
            }
            (letter, 2) => {
                if let Some(place) = self.name.get_mut(self.name_bytes) {
                    *place = letter;
                    self.name_bytes += 1;
                }
            }
            _ => {}
        }
        None
    }

    fn line(&mut self) -> Option<(u64, u64)> {
        let (name, at) = (&self.name[..self.name_bytes], self.address);
        if at == 0 || self.is_done {
            return None;
        }
        if name == self.section[0] {
            self.section_from = Some(at);
        }
        if name == self.section[1] {
            self.is_done = self.section_from.is_some();
            return self.section_from.take().map(|from| (from, at));
        }
        let is_wanted = self.functions.contains(&name);
        match self.function_from {
            // Several names for one address.
            Some(from) if from == at => None,
            before => {
                self.function_from = is_wanted.then_some(at);
                before.map(|from| (from, at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SECTION: [&[u8]; 2] = [b"lock_start", b"lock_end"];

    fn found(list: &str) -> (Vec<(u64, u64)>, bool) {
        let mut ranges = Ranges::new(SECTION, &[b"spin", b"queue"]);
        let found = list.bytes().filter_map(|byte| ranges.take(byte)).collect();
        (found, ranges.is_done())
    }

    #[test]
    fn sections_and_functions_are_found_with_their_ends() {
        let list = "ffffffff80000010 T spin\nffffffff80000010 t other_name\nffffffff80000030 t queue\nffffffff80000040 T \
                    spinner\nffffffff80000100 T lock_start\nffffffff80000104 T _raw_lock\nffffffff80000200 T \
                    lock_end\nffffffff80000300 T spin\nffffffff80000400 t module [m]\n";
        let base = 0xffff_ffff_8000_0000;
        let want = [(base + 0x10, base + 0x30), (base + 0x30, base + 0x40), (base + 0x100, base + 0x200)];
        assert_eq!(found(list), (want.to_vec(), true));
    }

    #[test]
    fn lists_without_addresses_and_other_texts_have_nothing() {
        let hidden = "0000000000000000 T spin\n0000000000000000 T lock_start\n0000000000000000 T lock_end\n";
        let long = ["ffffffff80000010 T ", &"spin".repeat(99), "\nffffffff80000020 T x\n"].concat();
        for list in ["", "\n\n", hidden, &long, "12 T lock_end\n", "no list at all\nspin spin spin"] {
            assert_eq!(found(list), (Vec::new(), false), "{list}");
        }
    }
}
