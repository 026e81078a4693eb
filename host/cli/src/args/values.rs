//! Values on the command line that are no plain text or number.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use control::{Gang, Label, MAX_WEIGHT, Name, Setting};

use super::launch::PortMap;
use crate::output::ColorChoice;

pub fn parse_name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

pub fn parse_label(text: &str) -> Result<Label, String> {
    Label::new(text).map_err(|error| error.to_string())
}

/// `KEY=VALUE`, as in a VM file.
pub fn parse_setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("a setting is KEY=VALUE, as weight=200")?;
    match key {
        "weight" => {
            let weight = value.parse().ok().filter(|weight| (1..=MAX_WEIGHT).contains(weight));
            weight.map(Setting::Weight).ok_or_else(|| format!("a weight is a number from 1 to {MAX_WEIGHT}"))
        }
        "gang" => {
            let named = Gang::LABELS.iter().find(|(label, _)| *label == value);
            named.map(|(_, gang)| Setting::Gang(*gang)).ok_or_else(|| "gang is auto, yes or no".to_owned())
        }
        _ => Err(format!("no key `{key}` can be set; there are {}", Setting::KEYS.join(", "))),
    }
}

/// `500ms`, `2s`, `1.5m`, `1h`; a bare number means seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is no unit of time; use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "a time is a number with a unit, as 500ms, 2s, 1.5m".to_owned())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| "this time is too long".to_owned())
}

pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    let possible = Duration::from_millis(100)..=Duration::from_secs(60);
    if possible.contains(&interval) { Ok(interval) } else { Err("it must lie between 100ms and 60s".to_owned()) }
}

/// `512M`, `20G`, `1T`, or a number of bytes with no unit: bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B').to_ascii_uppercase().as_str() {
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("a size is a whole number with a unit, as 512M, 20G, 1T".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "a size is a whole number with a unit, as 512M, 20G".to_owned())?;
    number.checked_mul(1 << shift).filter(|bytes| (1..=1 << 44).contains(bytes)).ok_or("16T at most, not 0".to_owned())
}

/// `8080:80`.
pub fn parse_port(text: &str) -> Result<PortMap, String> {
    let parsed = text.split_once(':').and_then(|(host, guest)| Some((host.parse().ok()?, guest.parse().ok()?)));
    match parsed {
        Some((host, guest)) if host != 0 && guest != 0 => Ok(PortMap { host, guest }),
        _ => Err("two ports, 1 to 65535, as 8080:80: this host's, and the VM's".to_owned()),
    }
}

/// The name of a user, as every system takes it.
pub fn parse_user(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if begins && text.len() <= 32 && text.chars().all(is_good) && text != "root" {
        Ok(text.to_owned())
    } else {
        Err("a user is named with a-z, 0-9, `-` and `_`, 32 at most, a letter first; not root".to_owned())
    }
}

/// An address of this host that no other host reaches.
pub fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "an address has a port, as 127.0.0.1:1234".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("other hosts could reach it; use 127.0.0.1, and a tunnel (ssh -L) from elsewhere".to_owned())
}

impl ValueEnum for ColorChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Always, Self::Never]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }))
    }
}
