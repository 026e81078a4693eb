//! Whether a disk boots on the virtual machine: a GPT, an EFI system partition, a boot loader for 64-bit RISC-V.

use std::io::{self, Read, Seek, SeekFrom, Write};

use fatfs::{Dir, FileSystem, FsOptions};
use gpt::disk::LogicalBlockSize;
use gpt::partition_types::EFI;
use gpt::{DiskDevice, GptConfig};
use thiserror::Error;

use crate::part::Part;

const SECTOR: u64 = 512;
/// Most entries of a partition table that is looked at; tools make 128.
const MOST_ENTRIES: u32 = 1024;
const ENTRY_BYTES: u32 = 128;
/// Most bytes read of a system partition: directories and the beginning of a program.
const BUDGET: u64 = 16 << 20;
/// Where firmware looks on a disk that it has not seen before.
const FOLDER: &str = "EFI/BOOT";
const LOADER: &str = "BOOTRISCV64.EFI";
/// The same file of other architectures.
const OTHERS: [(&str, &str); 7] = [
    ("BOOTX64.EFI", "x86-64"),
    ("BOOTAA64.EFI", "Arm (64-bit)"),
    ("BOOTIA32.EFI", "x86"),
    ("BOOTARM.EFI", "Arm (32-bit)"),
    ("BOOTLOONGARCH64.EFI", "LoongArch"),
    ("BOOTRISCV32.EFI", "RISC-V (32-bit)"),
    ("BOOTRISCV128.EFI", "RISC-V (128-bit)"),
];
/// `IMAGE_FILE_MACHINE_RISCV64` of the PE format.
const PE_RISCV64: u16 = 0x5064;
const LUKS: &[u8] = b"LUKS\xba\xbe";

/// A disk that boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootDisk {
    /// Its partitions' names in the table, in the order of their numbers.
    pub partitions: Vec<String>,
}

/// Why a disk does not boot here.
#[derive(Debug, Error)]
pub enum Unbootable {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No table, or a damaged one.
    #[error("it has no whole GPT partition table ({0})")]
    NoTable(String),
    /// The table says that the disk is larger.
    #[error("it is cut off: partition {name:?} ends at byte {end}, and the disk at {bytes}")]
    Truncated {
        /// The partition.
        name: String,
        /// Where it should end.
        end: u64,
        /// Where the disk ends.
        bytes: u64,
    },
    /// No partition of that type.
    #[error("it has no EFI system partition, so nothing on it can be booted here")]
    NoSystemPartition,
    /// The partition is no FAT volume, or a damaged one.
    #[error("its EFI system partition is damaged ({0})")]
    BadSystemPartition(io::Error),
    /// A boot loader for something else.
    #[error("it is for {0}, and these machines are 64-bit RISC-V")]
    OtherArchitecture(&'static str),
    /// No boot loader in the usual place.
    #[error("its EFI system partition has no {FOLDER}/{LOADER}")]
    NoLoader,
    /// The file in the usual place is no program for this architecture.
    #[error("its {FOLDER}/{LOADER} is no EFI program for 64-bit RISC-V")]
    BadLoader,
    /// A partition that needs a key.
    #[error("partition {0:?} is encrypted (LUKS), and nobody would be there to type its key")]
    Encrypted(String),
}

/// Looks at a disk of so many bytes.
///
/// # Errors
/// Why it does not boot.
pub fn inspect<D: DiskDevice>(mut device: D, bytes: u64) -> Result<BootDisk, Unbootable> {
    check_header(&mut device)?;
    let config = GptConfig::new().writable(false).logical_block_size(LogicalBlockSize::Lb512);
    let mut disk = config.open_from_device(device).map_err(|error| Unbootable::NoTable(error.to_string()))?;
    let partitions: Vec<_> = disk.partitions().values().filter(|partition| partition.is_used()).cloned().collect();
    for partition in &partitions {
        let end = partition.last_lba.saturating_add(1).saturating_mul(SECTOR);
        if end > bytes || partition.last_lba < partition.first_lba {
            return Err(Unbootable::Truncated { name: partition.name.clone(), end, bytes });
        }
        let device = disk.device_mut();
        let mut begin = [0; 6];
        device.seek(SeekFrom::Start(partition.first_lba * SECTOR))?;
        if device.read_exact(&mut begin).is_ok() && begin == LUKS {
            return Err(Unbootable::Encrypted(partition.name.clone()));
        }
    }
    let system = partitions.iter().find(|partition| partition.part_type_guid == EFI);
    let system = system.ok_or(Unbootable::NoSystemPartition)?;
    let (start, last) = (system.first_lba * SECTOR, system.last_lba * SECTOR);
    check_loader(Part::new(disk.device_mut(), start, last + SECTOR - start, BUDGET))?;
    Ok(BootDisk { partitions: partitions.into_iter().map(|partition| partition.name).collect() })
}

/// The library believes the numbers in the table's header; here is what it may believe.
fn check_header<D: DiskDevice>(device: &mut D) -> Result<(), Unbootable> {
    let none = |why: &str| Unbootable::NoTable(why.to_owned());
    let mut header = [0; 92];
    device.seek(SeekFrom::Start(SECTOR))?;
    device.read_exact(&mut header).map_err(|_| none("it is too short for one"))?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if !header.starts_with(b"EFI PART") {
        return Err(none("its header is missing"));
    }
    if word(80) > MOST_ENTRIES || word(84) != ENTRY_BYTES {
        return Err(none("its header makes no sense"));
    }
    Ok(())
}

fn check_loader<D: Read + Seek>(part: Part<D>) -> Result<(), Unbootable> {
    let volume = FileSystem::new(part, FsOptions::new()).map_err(Unbootable::BadSystemPartition)?;
    let folder = match volume.root_dir().open_dir(FOLDER) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unbootable::NoLoader),
        Err(error) => return Err(Unbootable::BadSystemPartition(error)),
    };
    match program_machine(&folder, LOADER).map_err(Unbootable::BadSystemPartition)? {
        Some(Some(PE_RISCV64)) => Ok(()),
        Some(_) => Err(Unbootable::BadLoader),
        None => {
            let is_there = |name: &str| folder.open_file(name).is_ok();
            let other = OTHERS.iter().find(|(name, _)| is_there(name));
            Err(other.map_or(Unbootable::NoLoader, |(_, name)| Unbootable::OtherArchitecture(name)))
        }
    }
}

/// The machine that a PE program is for: nothing if there is no such file, `Some(None)` if it is no program.
fn program_machine<D: Read + Write + Seek>(folder: &Dir<'_, D>, name: &str) -> io::Result<Option<Option<u16>>> {
    let mut file = match folder.open_file(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut head = Vec::new();
    (&mut file).take(4096).read_to_end(&mut head)?;
    let place = head.get(60..64).map(|at| u32::from_le_bytes([at[0], at[1], at[2], at[3]]) as usize);
    let header = place.and_then(|at| head.get(at..at.checked_add(6)?));
    let is_program = head.starts_with(b"MZ") && header.is_some_and(|header| header.starts_with(b"PE\0\0"));
    Ok(Some(header.filter(|_| is_program).map(|header| u16::from_le_bytes([header[4], header[5]]))))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::{disk, fat};

    const ROOT_BYTES: u64 = 4 << 20;

    /// The beginning of an EFI program for this machine.
    fn program(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[60] = 64;
        bytes[64..68].copy_from_slice(b"PE\0\0");
        bytes[68..70].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    fn image(loader: &str, program: &[u8]) -> Vec<u8> {
        let esp = fat::volume(fat::SMALL_BYTES, "ESP", &[(loader, program)]).expect("it fits");
        let bytes = disk::image_bytes(esp.len() as u64, ROOT_BYTES);
        let device = Cursor::new(vec![0; usize::try_from(bytes).expect("it is small")]);
        disk::write(device, &esp, ROOT_BYTES).expect("it can be written").into_inner()
    }

    fn inspected(image: &[u8]) -> Result<BootDisk, String> {
        let length = image.len() as u64;
        inspect(Cursor::new(image.to_vec()), length).map_err(|error| error.to_string())
    }

    fn good() -> Vec<u8> {
        image("EFI/BOOT/BOOTRISCV64.EFI", &program(PE_RISCV64))
    }

    #[test]
    fn a_disk_that_boots() {
        let found = inspected(&good()).expect("it boots");
        assert_eq!(found.partitions, ["root", "esp"]);
    }

    #[test]
    fn other_machines_are_named() {
        let other = inspected(&image("EFI/BOOT/BOOTX64.EFI", &program(0x8664))).unwrap_err();
        assert!(other.contains("x86-64"), "{other}");
        let lying = inspected(&image("EFI/BOOT/BOOTRISCV64.EFI", &program(0x8664))).unwrap_err();
        assert!(lying.contains("no EFI program for 64-bit RISC-V"), "{lying}");
        let text = inspected(&image("EFI/BOOT/BOOTRISCV64.EFI", b"MZ")).unwrap_err();
        assert!(text.contains("no EFI program"), "{text}");
        let none = inspected(&image("vmlinuz", b"x")).unwrap_err();
        assert!(none.contains("has no EFI/BOOT/BOOTRISCV64.EFI"), "{none}");
    }

    #[test]
    fn damage_is_named() {
        assert!(inspected(&[]).unwrap_err().contains("too short"));
        assert!(inspected(&vec![0; 1 << 20]).unwrap_err().contains("header is missing"));
        let cut = inspected(&good()[..10 << 20]).unwrap_err();
        assert!(cut.contains("cut off"), "{cut}");
        let mut locked = good();
        let root = usize::try_from(disk::root_range(fat::SMALL_BYTES as u64, ROOT_BYTES).start).expect("small");
        locked[root..root + 6].copy_from_slice(LUKS);
        assert!(inspected(&locked).unwrap_err().contains("encrypted"));
        let mut many = good();
        many[512 + 80..512 + 84].fill(0xff);
        assert!(inspected(&many).unwrap_err().contains("makes no sense"));
        let mut wiped = good();
        wiped[1 << 20..(1 << 20) + 512].fill(0xff);
        assert!(inspected(&wiped).unwrap_err().contains("damaged"));
    }

    /// A FAT chain that is a circle ends.
    #[test]
    fn circles_end() {
        let mut circle = good();
        // Both FATs begin behind one reserved sector or eight; a chain value that points back is written over all of them.
        let esp = 1 << 20;
        for entry in (esp + 512..esp + (40 << 10)).step_by(2) {
            circle[entry] = 2;
            circle[entry + 1] = 0;
        }
        assert!(inspected(&circle).is_err());
    }

    proptest::proptest! {
        /// Whatever a few bytes are changed to, there is an answer.
        #[test]
        fn any_damage_has_an_answer(changes in proptest::collection::vec((0_usize..(2 << 20), proptest::num::u8::ANY), 1..40)) {
            thread_local! { static GOOD: Vec<u8> = good(); }
            let mut damaged = GOOD.with(Clone::clone);
            for (at, value) in changes {
                damaged[at] = value;
            }
            let _ = inspected(&damaged);
        }
    }
}
