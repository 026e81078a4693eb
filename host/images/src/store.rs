//! Images by name.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::error::{ImageError, ImageFault};
use crate::import::import;

const DISK: &str = "disk.img";
const FACTS: &str = "image.json";
/// Longest name of an image.
const MOST_NAME: usize = 48;

/// The folder of images.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// An image of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// The file that it was made of.
    pub source: PathBuf,
    /// That file's size and time, by which it is known again.
    pub source_bytes: u64,
    /// Seconds since 1970.
    pub source_modified: u64,
    /// The format that it had: `raw` or `qcow2`.
    pub format: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Its partitions.
    pub partitions: Vec<String>,
}

impl Store {
    /// The store in a cache folder.
    #[must_use]
    pub fn in_cache(cache: &Path) -> Self {
        Self { folder: cache.join("images") }
    }

    /// The raw disk of an image.
    #[must_use]
    pub fn disk(&self, image: &Image) -> PathBuf {
        self.folder.join(&image.name).join(DISK)
    }

    /// Bytes that an image takes on the host's disk.
    #[must_use]
    pub fn taken_bytes(&self, image: &Image) -> u64 {
        fs::metadata(self.disk(image)).map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// All images, by name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<Image>, ImageError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(ImageError::Io { path: self.folder.clone(), source }),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut images: Vec<Image> = names.filter_map(|name| self.get(&name).ok()).collect();
        images.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(images)
    }

    /// The image of this name.
    ///
    /// # Errors
    /// There is none, or what is there is damaged.
    pub fn get(&self, name: &str) -> Result<Image, ImageError> {
        let unknown = || ImageError::Unknown(name.to_owned());
        check_name(name)?;
        let text = fs::read_to_string(self.folder.join(name).join(FACTS)).map_err(|_| unknown())?;
        let image: Image = serde_json::from_str(&text).map_err(|_| unknown())?;
        if image.name == name && self.disk(&image).is_file() { Ok(image) } else { Err(unknown()) }
    }

    /// Takes an image in, unless it is there; its name is the file's if none is given. `tell` hears how far it is, in bytes.
    ///
    /// # Errors
    /// It cannot be used, there is another of that name, or there is no room.
    pub fn add(&self, source: &Path, name: Option<&str>, tell: &mut dyn FnMut(u64, u64)) -> Result<Image, ImageError> {
        let name = name.map_or_else(|| name_of(source), |name| Ok(name.to_owned()))?;
        check_name(&name)?;
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| ImageError::Io { path, source }
        };
        let unreadable = |error| ImageError::Unusable { path: source.to_owned(), fault: ImageFault::Io(error) };
        let (place, metadata) = (source.canonicalize().map_err(unreadable)?, fs::metadata(source).map_err(unreadable)?);
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.unwrap_or_default().as_secs();
        if let Ok(known) = self.get(&name) {
            let is_same = (known.source_bytes, known.source_modified) == (metadata.len(), modified);
            return if is_same && known.source == place { Ok(known) } else { Err(ImageError::Exists(name)) };
        }
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        let unfinished = tempfile::Builder::new().prefix(".unfinished-").tempdir_in(&self.folder);
        let unfinished = unfinished.map_err(io_error(&self.folder))?;
        let disk = unfinished.path().join(DISK);
        let taken = import(source, &disk, tell)?;
        let file = File::open(&disk).map_err(io_error(&disk))?;
        let found = efi_disk::inspect(file, taken.bytes)
            .map_err(|why| ImageError::Unusable { path: source.to_owned(), fault: ImageFault::Unbootable(why) })?;
        let image = Image {
            name: name.clone(),
            source: place,
            source_bytes: metadata.len(),
            source_modified: modified,
            format: taken.format.to_owned(),
            disk_bytes: taken.bytes,
            partitions: found.partitions,
        };
        let facts = serde_json::to_vec_pretty(&image).unwrap_or_default();
        fs::write(unfinished.path().join(FACTS), facts).map_err(io_error(&disk))?;
        let target = self.folder.join(&name);
        // What is there is no image: `get` did not find one.
        let _ = fs::remove_dir_all(&target);
        fs::rename(unfinished.path(), &target).map_err(io_error(&target))?;
        Ok(image)
    }

    /// Forgets an image. The disks of VMs that lie over it are lost with it: whoever calls this has seen that there are none.
    ///
    /// # Errors
    /// There is none, or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        let image = self.get(name)?;
        let folder = self.folder.join(image.name);
        fs::remove_dir_all(&folder).map_err(|source| ImageError::Io { path: folder, source })
    }
}

/// What an image is called if nobody says it: its file's name without extensions of images.
fn name_of(file: &Path) -> Result<String, ImageError> {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let stem = [".qcow2", ".img", ".raw"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    check_name(stem)?;
    Ok(stem.to_owned())
}

fn check_name(name: &str) -> Result<(), ImageError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= MOST_NAME && name.bytes().all(is_good);
    if is_name && !name.starts_with('.') { Ok(()) } else { Err(ImageError::BadName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT_BYTES: u64 = 2 << 20;

    /// A disk that boots.
    fn disk(file: &Path, machine: u16) {
        let mut program = vec![0; 128];
        program[..2].copy_from_slice(b"MZ");
        program[60] = 64;
        program[64..68].copy_from_slice(b"PE\0\0");
        program[68..70].copy_from_slice(&machine.to_le_bytes());
        let files: [(&str, &[u8]); 1] = [("EFI/BOOT/BOOTRISCV64.EFI", &program)];
        let esp = efi_disk::fat::volume(efi_disk::fat::SMALL_BYTES, "ESP", &files).expect("it fits");
        let options = File::options().read(true).write(true).create_new(true).open(file).expect("it can be made");
        options.set_len(efi_disk::disk::image_bytes(esp.len() as u64, ROOT_BYTES)).expect("there is room");
        efi_disk::disk::write(options, &esp, ROOT_BYTES).expect("it can be written");
    }

    #[test]
    fn images_come_and_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::in_cache(dir.path());
        assert_eq!(store.list().expect("none"), []);
        let file = dir.path().join("debian-13.img");
        disk(&file, 0x5064);
        let image = store.add(&file, None, &mut |_, _| {}).expect("it is good");
        assert_eq!((image.name.as_str(), image.format.as_str()), ("debian-13", "raw"));
        assert_eq!(image.partitions, ["root", "esp"]);
        assert_eq!(store.list().expect("one"), std::slice::from_ref(&image));
        assert!(store.taken_bytes(&image) < image.disk_bytes, "holes are kept");
        // The same file is known again, another one is refused.
        assert_eq!(store.add(&file, None, &mut |_, _| {}).expect("it is there"), image);
        let other = dir.path().join("other.img");
        disk(&other, 0x5064);
        let refused = store.add(&other, Some("debian-13"), &mut |_, _| {}).unwrap_err();
        assert!(matches!(refused, ImageError::Exists(_)), "{refused}");
        store.remove("debian-13").expect("it is there");
        assert!(matches!(store.get("debian-13"), Err(ImageError::Unknown(_))));
    }

    #[test]
    fn nothing_is_left_of_what_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::in_cache(dir.path());
        let file = dir.path().join("bad.img");
        disk(&file, 0x8664);
        let error = store.add(&file, None, &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, ImageError::Unusable { fault: ImageFault::Unbootable(_), .. }), "{error}");
        assert_eq!(fs::read_dir(dir.path().join("images")).expect("it was made").count(), 0);
    }

    #[test]
    fn names_are_no_paths() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::in_cache(dir.path());
        for name in ["", "../x", "a/b", ".hidden", &"x".repeat(49)] {
            assert!(matches!(store.get(name), Err(ImageError::BadName(_))), "{name:?}");
        }
        assert_eq!(name_of(Path::new("/x/noble-riscv64.qcow2")).expect("a name"), "noble-riscv64");
    }
}
