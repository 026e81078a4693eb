//! Values on the command line that are no plain text or number.

use std::time::Duration;

use clap::ValueEnum;
use control::{Gang, Label, MAX_WEIGHT, Name, Setting};

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
