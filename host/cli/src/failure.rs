//! Why a command failed: one line for people, and the exit status.

use std::io;
use std::path::PathBuf;

use config::ConfigError;
use control::{ControlError, VmState};
use images::ImageError;
use machine::ClientError;
use thiserror::Error;

/// `exec` itself failed: as with docker, whose 126 and 127 mean a command that cannot be run or is not there.
pub const EXEC_FAILED: u8 = 125;
/// The command of `exec` has not ended in time: as with `timeout`.
const EXEC_TIMED_OUT: u8 = 124;

/// What `launch` and `image add` end with, for scripts (docs/cli.md).
const IMAGE_UNUSABLE: u8 = 3;
const IMAGE_DAMAGED: u8 = 4;
const IMAGE_FOREIGN: u8 = 5;
const IMAGE_ENCRYPTED: u8 = 6;
const PORT_IN_USE: u8 = 7;
const NO_ROOM: u8 = 8;
const NOT_UP: u8 = 9;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// A description is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The machine refused, or could not be reached.
    #[error("{error}{}", hint(error))]
    Client {
        /// Why.
        #[from]
        error: ClientError,
    },
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    /// A file cannot be used.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else of the operating system.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// `exec` failed, and not the command that it ran.
    #[error(transparent)]
    Exec {
        /// Why.
        cause: Box<Failure>,
    },
    /// A command in a VM has not ended in time.
    #[error("{error}; --timeout gives it more time")]
    TimedOut {
        /// What was waited for.
        error: machine::AgentError,
    },
    /// An image cannot be used.
    #[error("{error}")]
    Image {
        /// Why.
        error: ImageError,
    },
    /// A port of this host cannot be had.
    #[error("port {port} of this host cannot be had: {source}; something else listens on it, or it is below 1024")]
    Port {
        /// Which.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// Nobody could log in to a VM in time.
    #[error("{0}")]
    NotUp(String),
    /// The command line asks for something impossible.
    #[error("{0}")]
    Usage(String),
    /// Anything else; the text says what to do.
    #[error("{0}")]
    Other(String),
}

impl From<inspect::InspectError> for Failure {
    fn from(error: inspect::InspectError) -> Self {
        match error {
            inspect::InspectError::Client(error) => Self::Client { error },
            other => Self::Other(other.to_string()),
        }
    }
}

impl Failure {
    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Exec { cause } => cause.exec_status(),
            Self::TimedOut { .. } => EXEC_TIMED_OUT,
            Self::Image { error } => image_status(error),
            Self::Port { .. } => PORT_IN_USE,
            Self::NotUp(_) => NOT_UP,
            Self::Config(_) | Self::Usage(_) | Self::Client { error: ClientError::SeveralMachines { .. } } => 2,
            _ => 1,
        }
    }

    /// The exit status of an `exec` that failed for this.
    fn exec_status(&self) -> u8 {
        if matches!(self, Self::TimedOut { .. }) { EXEC_TIMED_OUT } else { EXEC_FAILED }
    }

    /// Whether the reader of the output has gone, which is no fault (`mirrorball events | head`).
    pub fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Exec { cause } => cause.is_closed_pipe(),
            _ => false,
        }
    }

    /// A failure of the operating system.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

fn image_status(error: &ImageError) -> u8 {
    match error {
        ImageError::Unusable { fault, .. } if fault.is_damage() => IMAGE_DAMAGED,
        ImageError::Unusable { fault, .. } if fault.is_other_architecture() => IMAGE_FOREIGN,
        ImageError::Unusable { fault, .. } if fault.is_encrypted() => IMAGE_ENCRYPTED,
        ImageError::Unusable { .. } => IMAGE_UNUSABLE,
        ImageError::NoRoom { .. } => NO_ROOM,
        _ => 1,
    }
}

/// What to do about it, where that is known.
fn hint(error: &ClientError) -> String {
    let Some(refusal) = error.refusal() else { return String::new() };
    let advice = match refusal {
        ControlError::UnknownVm { .. } => "`mirrorball ls` shows those that exist".to_owned(),
        ControlError::VmExists { name } => format!("choose another with --name, or `mirrorball destroy {name}` first"),
        ControlError::BadState { vm, state, wanted } => match change_state(*state, *wanted) {
            Some(verb) => format!("try `mirrorball {verb} {vm}` first"),
            None => return String::new(),
        },
        ControlError::NoSuchModule { .. } => {
            "upload it with `mirrorball put`; `mirrorball info` shows what is there".to_owned()
        }
        ControlError::ModuleExists { .. } => "--replace puts another in its place".to_owned(),
        ControlError::NoSuchDisk { .. } | ControlError::NoSuchPartition { .. } => {
            "`mirrorball info` shows the machine's disks".to_owned()
        }
        ControlError::PortBusy { .. } => "another `mirrorball exec` or `stop` uses it; try again".to_owned(),
        ControlError::OutOfMemory { .. } => "kill a VM, or give the machine's nodes more `memory_mib`".to_owned(),
        ControlError::Promised { .. } => {
            "stop a VM, give the machine's nodes more `memory_mib`, lower the disks' `limit_mib`, or \
             say with `promised_mib` that it runs with less kept for it, and ends if others need the rest"
                .to_owned()
        }
        ControlError::VersionMismatch { .. } => "use the `mirrorball` that started the machine".to_owned(),
        ControlError::Busy { .. } => "try again".to_owned(),
        _ => return String::new(),
    };
    format!("; {advice}")
}

/// The command that leads from one state to the other.
const fn change_state(from: VmState, to: VmState) -> Option<&'static str> {
    match (from, to) {
        (VmState::Stopped, VmState::Running | VmState::Paused) => Some("start"),
        (VmState::Paused, VmState::Running) => Some("resume"),
        (VmState::Running, VmState::Stopped) => Some("stop"),
        (VmState::Paused, VmState::Stopped) => Some("kill"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use control::Name;

    use super::*;

    fn refused(error: ControlError) -> String {
        Failure::from(ClientError::Refused(error)).to_string()
    }

    #[test]
    fn refusals_say_what_to_do() {
        let web = || Name::new("web").expect("a name");
        let unknown = refused(ControlError::UnknownVm { name: web() });
        assert_eq!(unknown, "there is no VM \"web\"; `mirrorball ls` shows those that exist");
        let running = ControlError::BadState { vm: web(), state: VmState::Running, wanted: VmState::Stopped };
        assert!(refused(running).ends_with("; try `mirrorball stop web` first"));
        let stopping = ControlError::BadState { vm: web(), state: VmState::Stopping, wanted: VmState::Running };
        assert!(!refused(stopping).contains(';'));
    }

    #[test]
    fn wrong_usage_has_its_own_status() {
        assert_eq!(Failure::Usage(String::new()).status(), 2);
        assert_eq!(Failure::from(ClientError::SeveralMachines { names: Vec::new() }).status(), 2);
        assert_eq!(Failure::from(ClientError::NoMachine).status(), 1);
        let exec = |cause: Failure| Failure::Exec { cause: Box::new(cause) };
        assert_eq!(exec(ClientError::NoMachine.into()).status(), 125);
        assert!(exec(Failure::Output(io::ErrorKind::BrokenPipe.into())).is_closed_pipe());
        assert!(Failure::Output(io::ErrorKind::BrokenPipe.into()).is_closed_pipe());
    }
}
