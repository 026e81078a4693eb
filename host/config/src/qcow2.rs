//! The header of a qcow2 image: what it says of other files, of keys, and of its own size.
//!
//! Numbers in it are big-endian: version at 4, place of the backing file's name at 8, cluster bits at 20, size at 24, encryption at 32,
//! entries and place of the first table at 36 and 40, place and clusters of the reference counts at 48 and 56, features at 72.

/// What a qcow2 image begins with.
pub const MAGIC: &[u8] = b"QFI\xfb";
/// Length of the header of version 2, and of what version 3 has at least.
const HEADERS: [(u64, usize); 2] = [(2, 72), (3, 104)];
/// The incompatible feature of an image whose data is in another file.
const EXTERNAL_DATA: u64 = 1 << 2;
/// Incompatible features that are known: dirty, corrupt, external data, compression type, extended L2 entries.
const KNOWN_FEATURES: u64 = 0x1f;
const CORRUPT: u64 = 1 << 1;
/// Most bytes of both tables that are read whole; QEMU's limits.
const MOST_L1_BYTES: u64 = 32 << 20;
const MOST_COUNTS_BYTES: u64 = 8 << 20;

/// What a qcow2 image's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qcow2Header {
    /// It lies over another image.
    pub has_backing: bool,
    /// Its data is in another file.
    pub has_external_data: bool,
    /// Its data needs a key.
    pub is_encrypted: bool,
    /// Bytes of the disk that it shows.
    pub virtual_bytes: u64,
    cluster_bits: u64,
    l1: (u64, u64),
    counts: (u64, u64),
    features: u64,
}

/// Whether a file that begins so is, or pretends to be, a qcow2 image.
#[must_use]
pub fn is_qcow2(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

impl Qcow2Header {
    /// Reads a header: the first bytes of a file, 104 at least if there are so many.
    ///
    /// # Errors
    /// It is none, or ends too early.
    pub fn read(head: &[u8]) -> Result<Self, &'static str> {
        if !is_qcow2(head) {
            return Err("this is no qcow2 image");
        }
        let version = number(head, 4, 4);
        let known = HEADERS.iter().find(|(number, _)| *number == version);
        let (_, length) =
            known.ok_or("this qcow2 image is of a version that QEMU does not know, 2 or 3 is possible")?;
        if head.len() < *length {
            return Err("this qcow2 image ends within its header");
        }
        // Version 2 has no features: what stands there is something else.
        let features = if version >= 3 { number(head, 72, 8) } else { 0 };
        let cluster_bits = number(head, 20, 4);
        Ok(Self {
            has_backing: number(head, 8, 8) != 0,
            has_external_data: features & EXTERNAL_DATA != 0,
            is_encrypted: number(head, 32, 4) != 0,
            virtual_bytes: number(head, 24, 8),
            cluster_bits,
            l1: (number(head, 40, 8), number(head, 36, 4).saturating_mul(8)),
            counts: (number(head, 48, 8), number(head, 56, 4) << cluster_bits.min(21)),
            features,
        })
    }

    /// Bytes of a cluster, by which data is placed.
    #[must_use]
    pub const fn cluster_bytes(&self) -> u64 {
        1 << if self.cluster_bits < 21 { self.cluster_bits } else { 21 }
    }

    /// Whether a reader may believe the header's numbers of an image that is a file of so many bytes: no table is larger than one needs,
    /// or lies outside of the file.
    ///
    /// # Errors
    /// Why not.
    pub fn check_tables(&self, file_bytes: u64) -> Result<(), &'static str> {
        if !(9..=21).contains(&self.cluster_bits) {
            return Err("its clusters have an impossible size");
        }
        if self.features & !KNOWN_FEATURES != 0 {
            return Err("it has features that are not known here");
        }
        if self.features & CORRUPT != 0 {
            return Err("it says itself that it is damaged");
        }
        for ((start, bytes), most) in [(self.l1, MOST_L1_BYTES), (self.counts, MOST_COUNTS_BYTES)] {
            if bytes > most {
                return Err("its tables are larger than any that QEMU opens");
            }
            if start.checked_add(bytes).is_none_or(|end| end > file_bytes) {
                return Err("it is cut off: its tables lie behind its end");
            }
        }
        let covered = u128::from(self.l1.1 / 8) << (2 * self.cluster_bits - 3);
        if covered < u128::from(self.virtual_bytes) {
            return Err("its first table is too short for its size");
        }
        Ok(())
    }
}

/// A number of the header; bytes that are not there are zeroes.
fn number(head: &[u8], at: usize, bytes: usize) -> u64 {
    let field = head.iter().skip(at).chain(std::iter::repeat(&0)).take(bytes);
    field.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u8, backing: u64, features: u64) -> Vec<u8> {
        let mut head = vec![0; 104];
        head[..4].copy_from_slice(MAGIC);
        head[7] = version;
        head[8..16].copy_from_slice(&backing.to_be_bytes());
        head[23] = 16;
        head[24..32].copy_from_slice(&(1_u64 << 30).to_be_bytes());
        head[36..40].copy_from_slice(&2_u32.to_be_bytes());
        head[40..48].copy_from_slice(&(3_u64 << 16).to_be_bytes());
        head[48..56].copy_from_slice(&(1_u64 << 16).to_be_bytes());
        head[56..60].copy_from_slice(&1_u32.to_be_bytes());
        head[72..80].copy_from_slice(&features.to_be_bytes());
        head
    }

    #[test]
    fn headers_name_other_files() {
        let files = |head: &[u8]| {
            let header = Qcow2Header::read(head).expect("a header");
            (header.has_backing, header.has_external_data)
        };
        assert_eq!(files(&header(3, 0, 1)), (false, false));
        assert_eq!(files(&header(3, 0x1a8, 0)), (true, false));
        assert_eq!(files(&header(3, 0, 4)), (false, true));
        assert_eq!(files(&header(2, 0, 4)), (false, false));
        assert_eq!(files(&header(2, 0, 4)[..72]), (false, false));
    }

    #[test]
    fn keys_are_seen() {
        let mut locked = header(3, 0, 0);
        locked[35] = 2;
        assert!(Qcow2Header::read(&locked).expect("a header").is_encrypted);
    }

    #[test]
    fn damaged_headers_are_refused() {
        assert_eq!(
            Qcow2Header::read(b"QFI\xfb and more"),
            Err("this qcow2 image is of a version that QEMU does not know, 2 or 3 is possible")
        );
        for version in [2, 3] {
            for length in 0..HEADERS[usize::from(version) - 2].1 {
                let cut = &header(version, 0, 0)[..length];
                assert!(Qcow2Header::read(cut).is_err(), "{length} bytes of version {version}");
            }
        }
        assert!(Qcow2Header::read(&header(4, 0, 0)).is_err());
        assert_eq!(Qcow2Header::read(b""), Err("this is no qcow2 image"));
    }

    #[test]
    fn tables_that_nobody_should_read_are_refused() {
        let check = |change: &dyn Fn(&mut Vec<u8>), bytes| {
            let mut head = header(3, 0, 0);
            change(&mut head);
            Qcow2Header::read(&head).expect("a header").check_tables(bytes)
        };
        let whole = (3 << 16) + 16;
        assert_eq!(check(&|_| {}, whole), Ok(()));
        assert!(check(&|_| {}, whole - 1).unwrap_err().contains("cut off"));
        assert!(check(&|head| head[36] = 0xff, u64::MAX).unwrap_err().contains("larger than any"));
        assert!(check(&|head| head[56] = 0xff, u64::MAX).unwrap_err().contains("larger than any"));
        assert!(check(&|head| head[40] = 0xff, whole).unwrap_err().contains("cut off"));
        assert!(check(&|head| head[20] = 1, whole).unwrap_err().contains("impossible size"));
        assert!(check(&|head| head[23] = 8, whole).unwrap_err().contains("impossible size"));
        assert!(check(&|head| head[24] = 1, whole).unwrap_err().contains("too short"));
        assert!(check(&|head| head[72] = 1, whole).unwrap_err().contains("not known"));
        assert!(check(&|head| head[79] = 2, whole).unwrap_err().contains("damaged"));
    }
}
