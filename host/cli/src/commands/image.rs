//! `image`: what `launch` starts.

use std::path::Path;

use config::cache_dir;
use images::{Image, Store};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{Context, launched};
use crate::args::{ImageAction, ImageArgs};
use crate::failure::Failure;
use crate::output::{Table, harmless, units};

/// The image that the project builds itself.
pub const DEFAULT_IMAGE: &str = "debian";

/// `image ls --json`.
#[derive(Debug, Serialize)]
struct ImagesView {
    images: Vec<ImageView>,
}

/// An image.
#[derive(Debug, Serialize)]
struct ImageView {
    #[serde(flatten)]
    image: Image,
    /// What it takes on the host's disk.
    taken_bytes: u64,
    /// The launched VMs whose disks lie over it.
    vms: Vec<String>,
}

pub fn run(context: &Context, args: &ImageArgs) -> Result<(), Failure> {
    match &args.action {
        ImageAction::Ls(json) => list(context, json.json),
        ImageAction::Add { file, name } => {
            let image = take_in(context, &store()?, file, name.as_deref())?;
            context.output.line(format!("image {} added; `mirrorball launch {0}` starts it", image.name))
        }
        ImageAction::Rm { name } => {
            launched::check_unused(name)?;
            store()?.remove(name)?;
            context.output.line(format!("image {name} removed"))
        }
    }
}

/// The store of this user.
///
/// # Errors
/// The environment names no place for it.
pub fn store() -> Result<Store, Failure> {
    let cache =
        cache_dir().ok_or_else(|| Failure::Other("set HOME or MIRRORBALL_CACHE: no place for images".into()))?;
    Ok(Store::in_cache(&cache))
}

/// Takes an image in, unless it is there, with a bar meanwhile.
///
/// # Errors
/// It cannot be used.
pub fn take_in(context: &Context, store: &Store, file: &Path, name: Option<&str>) -> Result<Image, Failure> {
    let bar = ProgressBar::hidden();
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {percent}%");
    let mut is_shown = false;
    let result = store.add(file, name, &mut |done, all| {
        if !is_shown {
            is_shown = true;
            context.say(&format!("taking in {}", file.display()));
            bar.set_length(all);
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            if let Ok(style) = &style {
                bar.set_style(style.clone());
            }
        }
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(result?)
}

fn list(context: &Context, json: bool) -> Result<(), Failure> {
    let store = store()?;
    let view = |image: Image| -> Result<ImageView, Failure> {
        let vms = launched::users_of(&image.name)?.iter().map(ToString::to_string).collect();
        Ok(ImageView { taken_bytes: store.taken_bytes(&image), vms, image })
    };
    let view = ImagesView { images: store.list()?.into_iter().map(view).collect::<Result<_, _>>()? };
    if json {
        return context.output.json(&view);
    }
    if view.images.is_empty() {
        context.say("no image yet; `mirrorball image add FILE` adds one, `mirrorball launch` the project's own");
    }
    let mut table = Table::new(&["IMAGE", ">DISK", ">TAKES", "FORMAT", "VMS", "MADE OF"]);
    for ImageView { image, taken_bytes, vms } in &view.images {
        table.row([
            image.name.clone().into(),
            units::bytes(image.disk_bytes).into(),
            units::bytes(*taken_bytes).into(),
            image.format.clone().into(),
            vms.join(", ").into(),
            harmless(&image.source.display().to_string()).into(),
        ]);
    }
    context.output.table(&table)
}
