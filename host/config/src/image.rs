//! Disk images: what a machine file says of one, against what the file is.
//!
//! The format is what the machine file says, and never what the content looks like: a guest writes all bytes of a raw image, its
//! first ones included. Of a qcow2 image a guest writes data only, so its header is believed where it names other files, to refuse
//! them: QEMU would open whatever is named there.

use crate::paths::Loader;
use crate::plan::{Backing, BackingImage, ImageFormat};
use crate::problem::Place;
use crate::reader::{At, Section};

/// What a qcow2 image begins with.
const MAGIC: &[u8] = b"QFI\xfb";
/// Length of the header of version 2, and of what version 3 has at least.
const HEADERS: [(u32, usize); 2] = [(2, 72), (3, 104)];
/// The incompatible feature of an image whose data is in another file.
const EXTERNAL_DATA: u64 = 1 << 2;

/// The backing of a disk.
pub fn read(loader: &Loader, section: &Section<'_>) -> Option<Backing> {
    let file = section.string("file");
    let size = section.number("size_mib", 1..=16 * 1024 * 1024_u32);
    let is_qcow2 = section.choice("format", &[("raw", false), ("qcow2", true)]);
    let below = section.string("backing");
    let is_below_qcow2 = section.choice("backing_format", &[("raw", false), ("qcow2", true)]);
    match (file, size) {
        (Some(file), None) => {
            let path = loader.resolve(section, "file", &file.value, &file.place)?;
            let errors = section.report().errors();
            let backing = below.as_ref().and_then(|text| read_below(loader, section, text, is_below_qcow2.as_ref()));
            let image = Image { section, key: "file", place: &file.place, has_backing: below.is_some() };
            let format = match is_qcow2.as_ref().is_some_and(|at| at.value) {
                true => ImageFormat::Qcow2 { backing },
                false => ImageFormat::Raw,
            };
            if let (ImageFormat::Raw, Some(below)) = (&format, &below) {
                let help = Some("say format = \"qcow2\", or leave it out".to_owned());
                section.error(&below.place, "backing", "only a qcow2 image lies over another", help);
            }
            if loader.check_files {
                let (bytes, head) = loader.inspect(section, "file", &path, &file.place)?;
                image.check(&format, is_qcow2.is_some(), bytes, &head);
            }
            (section.report().errors() == errors).then_some(Backing::File { path, format })
        }
        (None, Some(size)) => Some(Backing::Scratch { size_mib: size.value }),
        (Some(_), Some(size)) => {
            let help = Some("an image file has its own size: leave size_mib out".to_owned());
            section.error(&size.place, "size_mib", "there is a file already", help);
            None
        }
        // A size that is none was complained about.
        (None, None) if section.has("size_mib") => None,
        (None, None) => section.require("file", None, "say `file = ...`, or `size_mib = ...` for an empty disk"),
    }
}

/// The image below another one.
fn read_below(
    loader: &Loader,
    section: &Section<'_>,
    text: &At<String>,
    is_qcow2: Option<&At<bool>>,
) -> Option<BackingImage> {
    let path = loader.resolve(section, "backing", &text.value, &text.place)?;
    let below = BackingImage { path, is_qcow2: is_qcow2.is_some_and(|at| at.value) };
    if loader.check_files {
        let (bytes, head) = loader.inspect(section, "backing", &below.path, &text.place)?;
        let format = if below.is_qcow2 { ImageFormat::Qcow2 { backing: None } } else { ImageFormat::Raw };
        let image = Image { section, key: "backing", place: &text.place, has_backing: false };
        image.check(&format, is_qcow2.is_some(), bytes, &head);
    }
    Some(below)
}

/// An image that is looked at.
struct Image<'r, 's> {
    section: &'r Section<'s>,
    key: &'static str,
    place: &'r Place,
    /// Whether the machine file says that it lies over another one.
    has_backing: bool,
}

impl Image<'_, '_> {
    fn check(&self, format: &ImageFormat, is_said: bool, bytes: u64, head: &[u8]) {
        match format {
            ImageFormat::Raw => {
                if bytes == 0 || !bytes.is_multiple_of(512) {
                    self.error(&format!("{bytes} bytes are no whole number of sectors (512 bytes)"), None);
                } else if head.starts_with(MAGIC) && !is_said {
                    // No error: a guest that wrote this would keep the machine from starting.
                    let help = "say format = \"qcow2\" if it is one, or \"raw\" if a guest wrote this";
                    let message = "begins like a qcow2 image, and its bytes are taken as they are";
                    let key = self.section.path(self.key);
                    self.section.report().warning(self.place, key, message, Some(help.to_owned()));
                }
            }
            ImageFormat::Qcow2 { .. } => match qcow2(head) {
                Err(message) => self.error(message, Some("leave its format out if it is raw")),
                Ok(header) if header.has_external_data => {
                    self.error("keeps its data in another file", Some("convert it: qemu-img convert -O qcow2"));
                }
                Ok(header) => self.check_backing(header.has_backing),
            },
        }
    }

    fn check_backing(&self, has_backing: bool) {
        match (has_backing, self.has_backing) {
            (true, false) if self.key == "backing" => {
                self.error("lies over another image in turn", Some("make one of the two: qemu-img rebase, or convert"));
            }
            (true, false) => {
                let help = "name that with `backing = ...`, or make one of the two: qemu-img convert -O qcow2";
                self.error("lies over another image, which QEMU would open", Some(help));
            }
            (false, true) => self.error("lies over no other image", Some("leave `backing` out")),
            _ => {}
        }
    }

    fn error(&self, message: &str, help: Option<&str>) {
        self.section.error(self.place, self.key, message, help.map(str::to_owned));
    }
}

/// What a qcow2 image's header says of other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Qcow2 {
    has_backing: bool,
    has_external_data: bool,
}

/// Reads a header. Numbers in it are big-endian: version at 4, place of the backing file's name at 8, features at 72.
fn qcow2(head: &[u8]) -> Result<Qcow2, &'static str> {
    if !head.starts_with(MAGIC) {
        return Err("this is no qcow2 image");
    }
    let version = number(head, 4, 4).unwrap_or_default();
    let known = HEADERS.iter().find(|(number, _)| u64::from(*number) == version);
    let (_, length) = known.ok_or("this qcow2 image is of a version that QEMU does not know, 2 or 3 is possible")?;
    if head.len() < *length {
        return Err("this qcow2 image ends within its header");
    }
    let features = if version >= 3 { number(head, 72, 8).unwrap_or_default() } else { 0 };
    Ok(Qcow2 { has_backing: number(head, 8, 8) != Some(0), has_external_data: features & EXTERNAL_DATA != 0 })
}

fn number(head: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let field = head.get(at..at.checked_add(bytes)?)?;
    Some(field.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u8, backing: u64, features: u64) -> Vec<u8> {
        let mut head = vec![0; 104];
        head[..4].copy_from_slice(MAGIC);
        head[7] = version;
        head[8..16].copy_from_slice(&backing.to_be_bytes());
        head[72..80].copy_from_slice(&features.to_be_bytes());
        head
    }

    #[test]
    fn headers_name_other_files() {
        let plain = Qcow2 { has_backing: false, has_external_data: false };
        assert_eq!(qcow2(&header(3, 0, 1)), Ok(plain));
        assert_eq!(qcow2(&header(3, 0x1a8, 0)), Ok(Qcow2 { has_backing: true, ..plain }));
        assert_eq!(qcow2(&header(3, 0, 4)), Ok(Qcow2 { has_external_data: true, ..plain }));
        // Version 2 has no features: what stands there is something else.
        assert_eq!(qcow2(&header(2, 0, 4)), Ok(plain));
        assert_eq!(qcow2(&header(2, 0, 4)[..72]), Ok(plain));
    }

    #[test]
    fn damaged_headers_are_refused() {
        assert_eq!(
            qcow2(b"QFI\xfb and more"),
            Err("this qcow2 image is of a version that QEMU does not know, 2 or 3 is possible")
        );
        for version in [2, 3] {
            for length in 0..HEADERS[usize::from(version) - 2].1 {
                assert!(qcow2(&header(version, 0, 0)[..length]).is_err(), "{length} bytes of version {version}");
            }
        }
        assert!(qcow2(&header(4, 0, 0)).is_err());
        assert_eq!(qcow2(b""), Err("this is no qcow2 image"));
    }
}
