//! What a Linux guest's machine memory is for: the monitor says of each page whether it is the guest's own, the guest says what
//! it uses it for.

use control::PageKind;

use super::MIB;
use crate::compare::ratio;
use crate::store::Value;

const PAGE: u64 = 4096;
const MIB_BYTES: u64 = 1 << 20;

/// Says in a guest, with a letter for each page of its RAM, what the page is used for; its RAM begins at `/proc/iomem`'s first line
/// of *System RAM*. Then what lies where. The bits are those of Linux' `kernel-page-flags.h`.
pub const SCRIPT: &str = r#"
perl -e '
    open(my $map, "<", "/proc/iomem") or die; my ($first, $last);
    while (<$map>) { ($first, $last) = (hex $1, hex $2) if !defined $first && /^([0-9a-f]+)-([0-9a-f]+) : System RAM/ }
    open(my $flags, "<", "/proc/kpageflags") or die; binmode $flags;
    my ($at, $end) = ($first >> 12, ($last + 1) >> 12);
    sysseek $flags, 8 * $at, 0;
    while ($at < $end) {
        my $got = sysread $flags, my $bytes, 8 * ($end - $at < 4096 ? $end - $at : 4096) or die;
        for (unpack "Q<*", $bytes) {
            print $_ >> 10 & 1 ? "f" : $_ >> 7 & 1 ? "s" : $_ >> 26 & 1 ? "t" : $_ >> 12 & 1 || $_ >> 14 & 1 ? "p"
                : $_ >> 5 & 1 ? "c" : $_ >> 32 & 1 ? "r" : "k";
        }
        $at += $got / 8;
    }
    print "\n"
' && cat /proc/iomem"#;

/// A guest's own machine memory by part, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Code and constants of the kernel's image.
    pub text: u64,
    /// Its variables.
    data: u64,
    slab: u64,
    page_tables: u64,
    /// What was set aside at boot and has no other name: the array of pages, tables of sections, hash tables.
    boot: u64,
    /// Pages that the kernel has taken one by one: modules, stacks, buffers, per-hart data.
    other: u64,
    programs: u64,
    /// Pages of files.
    pub page_cache: u64,
    free: u64,
}

impl Parts {
    /// Puts together what [`SCRIPT`] said in a guest and what the monitor says of its pages. `None` if that is not what it
    /// should be.
    pub fn of(said: &str, kinds: &[PageKind]) -> Option<Self> {
        let mut lines = said.lines();
        let uses = lines.next()?.as_bytes();
        if uses.len() != kinds.len() {
            return None;
        }
        let ranges: Vec<_> = lines.filter_map(|line| line.trim().split_once(" : ")).collect();
        let named = |wanted: &[&str]| -> Vec<(u64, u64)> {
            ranges.iter().filter(|(_, name)| wanted.contains(name)).filter_map(|(range, _)| bounds(range)).collect()
        };
        let base = named(&["System RAM"]).first()?.0;
        let (text, data) = (named(&["Kernel code", "Kernel rodata"]), named(&["Kernel data", "Kernel bss"]));
        let mut parts = Self::default();
        for ((use_, kind), at) in uses.iter().zip(kinds).zip((base..).step_by(4096)) {
            if *kind == PageKind::Private {
                let is_in = |ranges: &[(u64, u64)]| ranges.iter().any(|(first, last)| (*first..=*last).contains(&at));
                *parts.part(*use_, is_in(&text), is_in(&data))? += 1;
            }
        }
        Some(parts)
    }

    fn part(&mut self, use_: u8, is_text: bool, is_data: bool) -> Option<&mut u64> {
        Some(match use_ {
            b'f' => &mut self.free,
            b's' => &mut self.slab,
            b't' => &mut self.page_tables,
            b'p' => &mut self.programs,
            b'c' => &mut self.page_cache,
            b'r' | b'k' if is_text => &mut self.text,
            b'r' | b'k' if is_data => &mut self.data,
            b'r' => &mut self.boot,
            b'k' => &mut self.other,
            _ => return None,
        })
    }

    /// Pages of the kernel's own, `private_mib_per_vm`.
    pub fn kernel_pages(&self) -> u64 {
        self.kernel().iter().map(|(_, pages)| pages).sum()
    }

    fn kernel(&self) -> [(&'static str, u64); 6] {
        [
            ("kernel_text_mib", self.text),
            ("kernel_data_mib", self.data),
            ("slab_mib", self.slab),
            ("page_tables_mib", self.page_tables),
            ("page_array_mib", self.boot),
            ("modules_and_stacks_mib", self.other),
        ]
    }

    /// All parts with the sum of the kernel's.
    pub fn values(&self) -> Vec<Value> {
        let others = [
            ("private_mib_per_vm", self.kernel_pages()),
            ("programs_mib", self.programs),
            ("own_page_cache_mib", self.page_cache),
            ("free_in_guest_mib", self.free),
        ];
        let value = |(name, pages): (&str, u64)| Value::new(name, ratio(pages * PAGE, MIB_BYTES), MIB, 1);
        others.into_iter().chain(self.kernel()).map(value).collect()
    }
}

/// The ends of `first-last` in hexadecimal.
fn bounds(range: &str) -> Option<(u64, u64)> {
    let (first, last) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(first)?, number(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: &str = "00101000-00101fff : rtc\n80000000-80009fff : System RAM\n  80002000-80005fff : Kernel image\n    \
                          80002000-80002fff : Kernel code\n    80003000-80003fff : Kernel rodata\n    80004000-800047ff : Kernel data\n    \
                          80004800-80005fff : Kernel bss\n";

    #[test]
    fn what_is_a_guests_own_is_told_by_part() {
        let kinds = [PageKind::Private; 10];
        let said = format!("sfrkrrtcpk\n{PLACES}");
        let parts = Parts::of(&said, &kinds).unwrap();
        let wanted =
            Parts { text: 2, data: 2, slab: 1, page_tables: 1, boot: 0, other: 1, programs: 1, page_cache: 1, free: 1 };
        assert_eq!(parts, wanted);
        let find = |name: &str| parts.values().iter().find(|value| value.name == name).and_then(|value| value.number);
        assert_eq!(find("private_mib_per_vm"), Some(7.0 / 256.0));
        assert_eq!(find("free_in_guest_mib"), Some(1.0 / 256.0));
    }

    #[test]
    fn only_what_is_its_own_counts() {
        let mut kinds = [PageKind::Absent; 10];
        kinds[1] = PageKind::Private;
        kinds[2] = PageKind::Shared;
        kinds[9] = PageKind::Private;
        let said = format!("srrkrrtcpk\n{PLACES}");
        assert_eq!(Parts::of(&said, &kinds), Some(Parts { boot: 1, other: 1, ..Parts::default() }));
    }

    #[test]
    fn nonsense_is_refused() {
        let kinds = [PageKind::Private; 2];
        for said in
            ["", "ss", "sss\n80000000-80001fff : System RAM", "s?\n80000000-80001fff : System RAM", "ss\n-: System RAM"]
        {
            assert_eq!(Parts::of(said, &kinds), None, "{said}");
        }
    }
}
