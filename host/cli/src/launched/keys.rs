//! Keys of SSH, made by OpenSSH's own `ssh-keygen`: whoever has `ssh` has it, too.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, str};

use crate::failure::Failure;

/// A key pair as text.
#[derive(Debug)]
pub struct KeyPair {
    pub private: String,
    pub public: String,
}

/// Makes an Ed25519 key pair without a passphrase in the files `path` and `path.pub`.
///
/// # Errors
/// There is no OpenSSH, or the files cannot be written.
pub fn make(path: &Path, comment: &str) -> Result<KeyPair, Failure> {
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"]).arg(path);
    let output = keygen.stdin(Stdio::null()).output().map_err(missing)?;
    if !output.status.success() {
        let said = str::from_utf8(&output.stderr).unwrap_or_default().trim().to_owned();
        return Err(Failure::Other(format!("ssh-keygen made no key: {said}")));
    }
    let read = |path: &Path| {
        let text = fs::read_to_string(path);
        text.map_err(|source| Failure::File { path: path.to_owned(), source })
    };
    let public = read(&path.with_extension("pub"))?.trim().to_owned();
    Ok(KeyPair { private: read(path)?, public })
}

/// OpenSSH's program cannot be started.
pub fn missing(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::Other("OpenSSH is not installed: install your system's openssh-client".into())
        }
        _ => Failure::System { what: "cannot start OpenSSH's program", source: error },
    }
}
