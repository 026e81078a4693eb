//! `dump`: a VM as a core file.

use std::fs::OpenOptions;

use inspect::Session;

use super::Context;
use crate::args::Dump;
use crate::failure::Failure;
use crate::output::units;

pub fn run(context: &Context, args: &Dump) -> Result<(), Failure> {
    let client = context.connect_for(&args.vm)?;
    let session = Session::open(&client, &args.vm)?;
    let failed = |source| Failure::File { path: args.file.clone(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&args.file).map_err(failed)?;
    let written = session.stop().map_err(Failure::from).and_then(|()| {
        let pages = client.page_map(&args.vm)?;
        Ok(inspect::core::write(&session, &pages, &mut file, |_| {})?)
    });
    let written = written.inspect_err(|_| {
        // Half a core is worth nothing.
        let _ = std::fs::remove_file(&args.file);
    })?;
    context.say(&format!(
        "{} of {} in {}; gdb-multiarch -c {0} VMLINUX reads it",
        args.file.display(),
        units::bytes(written.data_bytes),
        units::bytes(written.file_bytes),
    ));
    Ok(())
}
