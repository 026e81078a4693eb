//! Taking an image in: whatever its format, what is written is a raw disk with holes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use config::{Qcow2Header, is_qcow2};
use imago::file::File as ImageFile;
use imago::qcow2::Qcow2;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder, Mapping, Storage, StorageOpenOptions};

use crate::error::{ImageError, ImageFault};

/// Largest disk that an image may show.
const MOST_BYTES: u64 = 1 << 40;
const MOST_GIB: u64 = MOST_BYTES >> 30;
/// Bytes moved at a time. A multiple of every cluster size, so that no compressed cluster is unpacked twice.
const PIECE: u64 = 2 << 20;
/// A hole begins where so many bytes are zero.
const BLOCK: usize = 4096;
/// What common files that are no images begin with.
const OTHERS: [(&[u8], &str); 9] = [
    (b"\x1f\x8b", "a gzip file: unpack it first"),
    (b"\xfd7zXZ\0", "an xz file: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first"),
    (b"BZh", "a bzip2 file: unpack it first"),
    (b"PK\x03\x04", "a zip file: unpack it first"),
    (b"KDMV", "a VMDK image: convert it with qemu-img"),
    (b"vhdxfile", "a VHDX image: convert it with qemu-img"),
    (b"conectix", "a VHD image: convert it with qemu-img"),
    (b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
];

/// What was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the disk.
    pub bytes: u64,
    /// `raw` or `qcow2`.
    pub format: &'static str,
}

/// Copies the image at `source` to the new file `target`. `tell` hears how many bytes of how many are done.
///
/// # Errors
/// It is no image, or may not be believed, or does not fit.
pub fn import(source: &Path, target: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<Taken, ImageError> {
    let fault = |fault| ImageError::Unusable { path: source.to_owned(), fault };
    let (file, metadata) = open(source).map_err(fault)?;
    // What it has is a lower bound of what it needs.
    let need = metadata.blocks().saturating_mul(512).min(metadata.len());
    check_room(target, need)?;
    let mut head = Vec::new();
    (&file).take(4096).read_to_end(&mut head).map_err(|error| fault(ImageFault::Io(error)))?;
    let taken = copy(&file, source, &metadata, &head, target, tell);
    taken.map_err(|error| match error {
        Failed::Image(why) => fault(why),
        Failed::Target(why) if why.kind() == io::ErrorKind::StorageFull => no_room(target, need),
        Failed::Target(source) => ImageError::Io { path: target.to_owned(), source },
    })
}

/// Whose fault it is.
enum Failed {
    Image(ImageFault),
    Target(io::Error),
}

impl From<ImageFault> for Failed {
    fn from(fault: ImageFault) -> Self {
        Self::Image(fault)
    }
}

fn copy(
    file: &File,
    source: &Path,
    metadata: &fs::Metadata,
    head: &[u8],
    target: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Taken, Failed> {
    if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(ImageFault::Format(what).into());
    }
    let format = if is_qcow2(head) { "qcow2" } else { "raw" };
    let qcow2 = if is_qcow2(head) { Some(check_header(head, metadata.len())?) } else { None };
    let bytes = qcow2.map_or(metadata.len(), |header| header.virtual_bytes);
    if bytes > MOST_BYTES {
        return Err(ImageFault::TooLarge(bytes >> 30, MOST_GIB).into());
    }
    if bytes == 0 || !bytes.is_multiple_of(512) {
        return Err(ImageFault::Header("its disk is no whole number of sectors (512 bytes), or empty").into());
    }
    let mut out = Out::create(target, bytes).map_err(Failed::Target)?;
    match qcow2 {
        Some(header) => copy_qcow2(source, metadata.len(), header.cluster_bytes(), &mut out, tell)?,
        None => copy_raw(file, &mut out, tell)?,
    }
    out.file.sync_all().map_err(Failed::Target)?;
    Ok(Taken { bytes, format })
}

/// Opens a file that must be one: a pipe would keep its reader waiting.
fn open(path: &Path) -> Result<(File, fs::Metadata), ImageFault> {
    let kind = fs::metadata(path).map_err(ImageFault::Io)?.file_type();
    if kind.is_dir() {
        return Err(ImageFault::Format("a directory"));
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        return Err(ImageFault::Format("a device, pipe or socket"));
    }
    let file = File::open(path).map_err(ImageFault::Io)?;
    let metadata = file.metadata().map_err(ImageFault::Io)?;
    Ok((file, metadata))
}

fn check_header(head: &[u8], file_bytes: u64) -> Result<Qcow2Header, ImageFault> {
    let header = Qcow2Header::read(head).map_err(ImageFault::Header)?;
    if header.is_encrypted {
        return Err(ImageFault::Encrypted);
    }
    if header.has_external_data {
        return Err(ImageFault::Header("it keeps its data in another file: convert it with qemu-img"));
    }
    if header.has_backing {
        return Err(ImageFault::Header("it lies over another image: make one of the two with `qemu-img convert`"));
    }
    header.check_tables(file_bytes).map_err(ImageFault::Header)?;
    Ok(header)
}

fn copy_qcow2(
    source: &Path,
    file_bytes: u64,
    cluster: u64,
    out: &mut Out,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<(), Failed> {
    let damaged = |error| Failed::Image(ImageFault::Damaged(error));
    let image = ImageFile::open(StorageOpenOptions::new().filename(source)).map_err(damaged)?;
    // Whatever the header says, no other file is opened.
    let qcow2 = Qcow2::<ImageFile>::builder(image).open(DenyImplicitOpenGate::default()).map_err(damaged)?;
    let disk = FormatAccess::new(qcow2);
    let end = disk.size().min(out.bytes);
    let mut place = 0;
    let mut buffer = vec![0; PIECE as usize];
    while place < end {
        let (is_hole, length) = {
            let (mapping, length) = disk.get_mapping(place, end - place).map_err(damaged)?;
            // What lies behind a file's end reads as zeroes. That is right for the rest of its last cluster only.
            if let Mapping::Raw { offset, .. } = mapping
                && offset.saturating_add(length.saturating_sub(1)) / cluster * cluster >= file_bytes
            {
                let why = format!("data lies at byte {offset} of the file, which has {file_bytes}");
                return Err(damaged(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
            }
            (matches!(mapping, Mapping::Zero { .. } | Mapping::Eof { .. }), length)
        };
        if is_hole {
            place += length.clamp(1, end - place);
        } else {
            let piece = (PIECE - place % PIECE).min(end - place);
            let buffer = &mut buffer[..piece as usize];
            disk.read(&mut *buffer, place).map_err(damaged)?;
            out.write(buffer, place).map_err(Failed::Target)?;
            place += piece;
        }
        tell(place, end);
    }
    Ok(())
}

fn copy_raw(mut file: &File, out: &mut Out, tell: &mut dyn FnMut(u64, u64)) -> Result<(), Failed> {
    let unreadable = |error| Failed::Image(ImageFault::Io(error));
    let mut buffer = vec![0; PIECE as usize];
    let mut place = 0;
    while place < out.bytes {
        // Where the file system knows no holes, all is data.
        if let Ok(data) = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(place)) {
            place = data.min(out.bytes);
        } else if file.metadata().is_ok_and(|metadata| metadata.blocks() == 0) {
            break;
        }
        let piece = PIECE.min(out.bytes - place);
        let buffer = &mut buffer[..piece as usize];
        file.seek(SeekFrom::Start(place)).map_err(unreadable)?;
        file.read_exact(buffer).map_err(|error| Failed::Image(ImageFault::Damaged(error)))?;
        out.write(buffer, place).map_err(Failed::Target)?;
        place += piece;
        tell(place, out.bytes);
    }
    Ok(())
}

/// The raw disk that is written.
struct Out {
    file: File,
    bytes: u64,
}

impl Out {
    fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = File::create_new(path)?;
        file.set_len(bytes)?;
        Ok(Self { file, bytes })
    }

    /// Writes what is not zero.
    fn write(&mut self, data: &[u8], place: u64) -> io::Result<()> {
        let mut blocks = data.chunks(BLOCK).enumerate().peekable();
        while let Some((first, block)) = blocks.next() {
            if block.iter().all(|byte| *byte == 0) {
                continue;
            }
            // Neighbours that are not zero go together.
            let mut last = first;
            while let Some((next, _)) = blocks.next_if(|(_, block)| block.iter().any(|byte| *byte != 0)) {
                last = next;
            }
            let range = first * BLOCK..((last + 1) * BLOCK).min(data.len());
            self.file.write_all_at(&data[range.clone()], place + range.start as u64)?;
        }
        self.file.flush()
    }
}

/// Refuses before anything is written what cannot fit.
fn check_room(target: &Path, need: u64) -> Result<(), ImageError> {
    let folder = target.parent().unwrap_or(target);
    let Ok(space) = rustix::fs::statvfs(folder) else { return Ok(()) };
    if space.f_bavail.saturating_mul(space.f_frsize) < need { Err(no_room(target, need)) } else { Ok(()) }
}

fn no_room(target: &Path, need: u64) -> ImageError {
    ImageError::NoRoom { path: target.to_owned(), need_mib: need.div_ceil(1 << 20) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay;

    fn taken(dir: &Path, content: &[u8]) -> Result<(Taken, Vec<u8>), String> {
        let (source, target) = (dir.join("source"), dir.join("target"));
        fs::write(&source, content).expect("it can be written");
        let _ = fs::remove_file(&target);
        let taken = import(&source, &target, &mut |_, _| {}).map_err(|error| error.to_string())?;
        Ok((taken, fs::read(&target).expect("it is there")))
    }

    #[test]
    fn a_raw_image_is_copied_with_its_holes() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut disk = vec![0; 3 << 20];
        disk[5000] = 1;
        disk[(2 << 20) + 9] = 2;
        let (found, content) = taken(dir.path(), &disk).expect("it is an image");
        assert_eq!((found.format, found.bytes), ("raw", 3 << 20));
        assert!(content == disk);
        let blocks = fs::metadata(dir.path().join("target")).expect("it is there").blocks();
        assert!(blocks * 512 < 1 << 20, "{blocks} blocks");
        assert!(taken(dir.path(), &[0; 100]).unwrap_err().contains("whole number of sectors"));
        assert!(taken(dir.path(), b"").unwrap_err().contains("empty"));
    }

    /// A qcow2 image with data, made as an overlay that was written to.
    fn qcow2(dir: &Path, disk: &[u8]) -> Vec<u8> {
        let (base, over) = (dir.join("base"), dir.join("over"));
        fs::write(&base, vec![0; disk.len()]).expect("it can be written");
        let _ = fs::remove_file(&over);
        overlay::write_for_test(&over, disk);
        fs::read(&over).expect("it is there")
    }

    #[test]
    fn a_qcow2_image_becomes_raw() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut disk = vec![0; 5 << 20];
        disk[5000] = 1;
        disk[(4 << 20) + 9] = 2;
        let image = qcow2(dir.path(), &disk);
        let (found, content) = taken(dir.path(), &image).expect("it is an image");
        assert_eq!((found.format, found.bytes), ("qcow2", 5 << 20));
        assert!(content == disk);
        // Wherever it is cut off, that shows.
        for keep in [50, 200, 70_000, image.len() - 70_000] {
            let cut = taken(dir.path(), &image[..keep]).map(drop).unwrap_err();
            assert!(cut.contains("cut off") || cut.contains("ends within"), "{keep}: {cut}");
        }
        let mut locked = image.clone();
        locked[35] = 2;
        assert!(taken(dir.path(), &locked).unwrap_err().contains("encrypted"));
        let mut huge = image.clone();
        huge[24] = 0x10;
        assert!(taken(dir.path(), &huge).is_err());
    }

    #[test]
    fn other_files_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(taken(dir.path(), b"\x1f\x8b and so on").unwrap_err().contains("gzip"));
        let error = import(dir.path(), &dir.path().join("x"), &mut |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("a directory"), "{error}");
        assert!(import(&dir.path().join("none"), &dir.path().join("x"), &mut |_, _| {}).is_err());
    }
}
