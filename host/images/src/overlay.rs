//! The disk of one VM: a qcow2 image of our own making over an image of the store.

use std::io;
use std::path::Path;

use imago::file::File as ImageFile;
use imago::qcow2::Qcow2;
use imago::{FormatCreateBuilder, Storage, StorageCreateOptions};

use crate::error::ImageError;

/// Makes the new file `path`: a disk of `bytes` that begins as the raw image `base`, and keeps what is written.
///
/// # Errors
/// The file cannot be made, as when the disk is full or something is there.
pub fn overlay(path: &Path, base: &Path, bytes: u64) -> Result<(), ImageError> {
    create(path, base, bytes).map_err(|source| match source.kind() {
        io::ErrorKind::StorageFull => ImageError::NoRoom { path: path.to_owned(), need_mib: 1 },
        _ => ImageError::Io { path: path.to_owned(), source },
    })
}

fn create(path: &Path, base: &Path, bytes: u64) -> io::Result<()> {
    let base = base.to_str().ok_or_else(|| io::Error::other("the base image's path is no UTF-8"))?;
    let file = ImageFile::create_open(StorageCreateOptions::new().filename(path))?;
    Qcow2::<ImageFile>::create_builder(file).size(bytes).backing(base.to_owned(), "raw".to_owned()).create()
}

/// An image without a base, with this content.
#[cfg(test)]
pub fn write_for_test(path: &Path, disk: &[u8]) {
    use imago::{DenyImplicitOpenGate, FormatAccess};
    let file = ImageFile::create_open(StorageCreateOptions::new().filename(path)).expect("it can be made");
    let builder = Qcow2::<ImageFile>::create_builder(file).size(disk.len() as u64);
    let open = |image| Ok(Qcow2::<ImageFile>::builder(image).backing(None));
    let image = builder.create_open(DenyImplicitOpenGate::default(), open).expect("it can be made");
    let access = FormatAccess::new(image);
    for (piece, data) in disk.chunks(4096).enumerate() {
        if data.iter().any(|byte| *byte != 0) {
            access.write(data, piece as u64 * 4096).expect("it can be written");
        }
    }
    access.flush().expect("it can be written");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use config::Qcow2Header;

    use super::*;

    #[test]
    fn an_overlay_names_its_base_and_may_be_larger() {
        let dir = tempfile::tempdir().expect("a directory");
        let (base, over) = (dir.path().join("base.img"), dir.path().join("disk.qcow2"));
        fs::write(&base, vec![1; 1 << 20]).expect("it can be written");
        overlay(&over, &base, 3 << 20).expect("it can be made");
        let head = fs::read(&over).expect("it is there");
        let header = Qcow2Header::read(&head).expect("a header");
        assert!(header.has_backing && !header.is_encrypted);
        assert_eq!(header.virtual_bytes, 3 << 20);
        assert_eq!(header.check_tables(head.len() as u64), Ok(()));
        let name = base.to_str().expect("UTF-8").as_bytes();
        assert!(head.windows(name.len()).any(|window| window == name));
        assert!(overlay(&over, &base, 3 << 20).is_err(), "something is there");
    }
}
