//! FAT volumes: the EFI system partition of an image that is built, and the seed of a VM.

use std::io::{self, Cursor, Write};

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};

/// The seed's size, and the least that FAT16 fits on with room to spare.
pub const SMALL_BYTES: usize = 8 << 20;

/// Makes a volume of `bytes`, with a `label` of eleven characters at most, and these files in it. Folders are made as paths name them.
///
/// # Errors
/// The files do not fit, or a name is none for FAT.
pub fn volume(bytes: usize, label: &str, files: &[(&str, &[u8])]) -> io::Result<Vec<u8>> {
    let mut disk = Cursor::new(vec![0; bytes]);
    fatfs::format_volume(&mut disk, FormatVolumeOptions::new().volume_label(padded(label)))?;
    {
        let volume = FileSystem::new(&mut disk, FsOptions::new())?;
        for (path, content) in files {
            let mut folder = volume.root_dir();
            let mut parts = path.split('/').peekable();
            while let Some(part) = parts.next() {
                if parts.peek().is_some() {
                    folder = folder.create_dir(part)?;
                } else {
                    let mut file = folder.create_file(part)?;
                    file.write_all(content)?;
                    file.flush()?;
                }
            }
        }
        volume.unmount()?;
    }
    Ok(disk.into_inner())
}

fn padded(label: &str) -> [u8; 11] {
    let mut name = [b' '; 11];
    for (to, from) in name.iter_mut().zip(label.bytes()) {
        *to = from;
    }
    name
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn files_and_the_label_are_there() {
        let files: [(&str, &[u8]); 3] =
            [("meta-data", b"one"), ("EFI/BOOT/BOOTRISCV64.EFI", b"two"), ("EFI/debian/grub.cfg", b"three")];
        let bytes = volume(SMALL_BYTES, "CIDATA", &files).expect("they fit");
        assert_eq!(bytes.len(), SMALL_BYTES);
        let volume = FileSystem::new(Cursor::new(bytes), FsOptions::new()).expect("a volume");
        assert_eq!(volume.volume_label(), "CIDATA");
        assert_eq!(volume.read_volume_label_from_root_dir().expect("readable").as_deref(), Some("CIDATA"));
        for (path, content) in files {
            let mut found = Vec::new();
            volume.root_dir().open_file(path).expect("it is there").read_to_end(&mut found).expect("readable");
            assert_eq!(found, content, "{path}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(volume(SMALL_BYTES, "X", &[("big", &vec![1; SMALL_BYTES])]).is_err());
    }
}
