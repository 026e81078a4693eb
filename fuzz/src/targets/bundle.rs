//! The boot bundle.

use control::{ArchiveFile, BootConfig, TRAILER};

/// An archive; each of its files may be the configuration.
pub fn bundle(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(file) = ArchiveFile::first(rest) {
        assert_eq!(file.whole.len() + file.rest.len(), rest.len());
        assert!(file.rest.len() < rest.len(), "no end");
        assert!(file.content.len() + file.name.len() < file.whole.len());
        if file.name == TRAILER {
            break;
        }
        configuration(file.content);
        rest = file.rest;
    }
    configuration(bytes);
}

/// One that is taken is right, and is written as it was read.
fn configuration(bytes: &[u8]) {
    if let Ok(config) = BootConfig::from_bytes(bytes) {
        assert_eq!(config.validate(), Ok(()));
        let again = config.to_bytes().expect("it was just validated");
        assert_eq!(BootConfig::from_bytes(&again), Ok(config));
    }
}
