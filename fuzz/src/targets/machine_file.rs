//! Machine files. Files that they name are not looked at.

use std::path::Path;

use config::Loader;

/// The text of a machine file.
pub fn machine_file(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    // VM files would be read from the disk.
    if text.contains("file") && text.contains("[[vm") && text.contains(".toml") {
        return;
    }
    let file = Path::new("m.toml");
    for is_restricted in [false, true] {
        let loader = Loader { cache: None, check_files: false, is_restricted };
        match loader.load_text(file, text.to_owned()) {
            Ok(plan) => {
                assert_eq!(plan.boot.validate(), Ok(()), "the monitor would refuse what was taken");
                assert!(!is_restricted || plan.grants.is_empty(), "{:?}", plan.grants);
            }
            Err(error) => {
                assert!(!error.problems.is_empty());
                assert!(format!("{error:#}").contains("m.toml"));
                // What is wrong for all is wrong for strangers, too.
                break;
            }
        }
    }
}
