//! Disk images: what a machine file says of one, against what the file is.
//!
//! The format is what the machine file says, and never what the content looks like: a guest writes all bytes of a raw image, its
//! first ones included. Of a qcow2 image a guest writes data only, so its header is believed where it names other files, to refuse
//! them: QEMU would open whatever is named there.

use crate::paths::Loader;
use crate::plan::{Backing, BackingImage, ImageFormat};
use crate::problem::Place;
use crate::qcow2::{self, Qcow2Header};
use crate::reader::{At, Section};

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
                } else if head.starts_with(qcow2::MAGIC) && !is_said {
                    // No error: a guest that wrote this would keep the machine from starting.
                    let help = "say format = \"qcow2\" if it is one, or \"raw\" if a guest wrote this";
                    let message = "begins like a qcow2 image, and its bytes are taken as they are";
                    let key = self.section.path(self.key);
                    self.section.report().warning(self.place, key, message, Some(help.to_owned()));
                }
            }
            ImageFormat::Qcow2 { .. } => match Qcow2Header::read(head) {
                Err(message) => self.error(message, Some("leave its format out if it is raw")),
                Ok(header) if header.has_external_data => {
                    self.error("keeps its data in another file", Some("convert it: qemu-img convert -O qcow2"));
                }
                Ok(header) if header.is_encrypted => {
                    self.error(
                        "is encrypted, and nobody could give QEMU the key",
                        Some("decrypt it: qemu-img convert"),
                    );
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
