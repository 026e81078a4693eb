//! Which pages of files a Linux guest has in its page cache, and where: its own tables tell.

use std::collections::BTreeMap;

use control::PageKind;

/// Says for each file below `$root`, by its path from there, the guest's page frame behind each page of it, in hexadecimal, `-`
/// where it is not in memory. Maps the file, asks `mincore`, and has no page read that is not there. The numbers are those of the
/// system calls of RISC-V, `MADV_RANDOM` and `MADV_POPULATE_READ`, and the bits those of `/proc/self/pagemap`.
pub const SCRIPT: &str = r#"
cd "$root" && find . -type f -size +0 | LC_ALL=C sort | perl -e '
    my ($munmap, $mmap, $mincore, $madvise, $random, $populate) = (215, 222, 232, 233, 1, 22);
    open(my $map, "<", "/proc/self/pagemap") or die "pagemap: $!"; binmode $map;
    while (my $path = <STDIN>) {
        chomp $path;
        open(my $file, "<", $path) or die "$path: $!";
        my $pages = ((-s $file) + 4095) >> 12;
        my $at = syscall($mmap, 0, $pages << 12, 1, 1, fileno($file), 0);
        die "mmap: $!" if $at == -1;
        syscall($madvise, $at, $pages << 12, $random) == 0 or die "madvise: $!";
        my $there = "\0" x $pages;
        syscall($mincore, $at, $pages << 12, $there) == 0 or die "mincore: $!";
        my @there = map { $_ & 1 } unpack "C*", $there;
        for (my $page = 0; $page < $pages; $page++) {
            my $first = $page;
            $page++ while $page < $pages && $there[$page];
            syscall($madvise, $at + ($first << 12), ($page - $first) << 12, $populate) if $page > $first;
        }
        sysseek $map, ($at >> 12) * 8, 0;
        sysread($map, my $entries, 8 * $pages) == 8 * $pages or die "pagemap is short";
        my @frames = map { $_ >> 63 & 1 ? sprintf "%x", $_ & (1 << 55) - 1 : "-" } unpack "Q<*", $entries;
        print "$path\t", join(" ", map { $there[$_] ? $frames[$_] : "-" } 0 .. $pages - 1), "\n";
        syscall($munmap, $at, $pages << 12);
        close $file;
    }'"#;

/// First page frame of a guest's RAM.
const BASE: u64 = 0x8_0000;

/// What is behind the pages of files that a guest has in its page cache, by path and page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resident(BTreeMap<(String, usize), PageKind>);

impl Resident {
    /// Puts together what [`SCRIPT`] said in a guest and what the monitor says of its pages. `None` if that is not what it
    /// should be.
    pub fn of(said: &str, kinds: &[PageKind]) -> Option<Self> {
        let mut pages = BTreeMap::new();
        for line in said.lines() {
            let (path, frames) = line.split_once('\t')?;
            for (page, frame) in frames.split(' ').enumerate().filter(|(_, frame)| *frame != "-") {
                let frame = u64::from_str_radix(frame, 16).ok()?.checked_sub(BASE)?;
                pages.insert((path.to_owned(), page), *kinds.get(usize::try_from(frame).ok()?)?);
            }
        }
        Some(Self(pages))
    }

    /// How many pages it has.
    pub fn pages(&self) -> u64 {
        self.0.len() as u64
    }

    /// How many of them are in memory twice, as this guest got them from `server`: they are its own, or the server has copied
    /// what it had sent, and has a page of its own, too.
    pub fn twice(&self, server: &Self) -> u64 {
        let is_own = |kind: Option<&PageKind>| kind.is_some_and(|kind| *kind != PageKind::Shared);
        let twice = self.0.iter().filter(|(page, kind)| is_own(Some(*kind)) || is_own(server.0.get(*page)));
        twice.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_of_two_has_for_itself_is_there_twice() {
        use PageKind::{Absent, Private, Shared};
        let kinds = [Shared, Private, Absent, Shared];
        let client = Resident::of("./a b\t80000 80001 -\n./c\t80003 80000\n", &kinds).unwrap();
        assert_eq!(client.pages(), 4);
        assert_eq!(client.twice(&Resident::default()), 1);
        // The server has the same pages, in another order; of one more than the client it does not matter what it is.
        let server = Resident::of("./a b\t80003 80000 80001\n./c\t80001\n", &kinds).unwrap();
        assert_eq!(client.twice(&server), 2);
        assert_eq!(client.twice(&client), 1);
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        for said in ["./a", "./a\tx", "./a\t7ffff", "./a\t80001"] {
            assert_eq!(Resident::of(said, &[PageKind::Shared]), None, "{said}");
        }
        assert_eq!(Resident::of("", &[]).unwrap().pages(), 0);
    }
}
