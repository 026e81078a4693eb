//! Reading fixtures.

use std::{fs::File, io::Read as _, path::Path};

use flate2::read::GzDecoder;

/// The blob of a fixture.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.dtb.gz"));
    let mut blob = Vec::new();
    let file = File::open(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    GzDecoder::new(file).read_to_end(&mut blob).expect("fixture is gzip");
    blob
}
