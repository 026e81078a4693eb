//! `cpu` of `[machine]`: a CPU model of QEMU with its properties, as `rva23s64,svvptc=on`.
//!
//! QEMU alone knows all properties. Here is checked what can be told without it: the form, the model, and that the harts have what
//! the monitor needs.

use crate::suggest::hint;

/// What the monitor needs of every hart: without one of these it refuses to boot.
const NEEDED: [&str; 5] = ["h", "sstc", "zba", "zbb", "zbs"];

/// The 64-bit models of QEMU 10, and what of [`NEEDED`] they have unless properties say otherwise.
const MODELS: [(&str, &[&str]); 16] = [
    ("max", &NEEDED),
    ("rv64", &NEEDED),
    ("rv64e", &[]),
    ("rv64i", &[]),
    ("rva22s64", &BITS),
    ("rva22u64", &BITS),
    ("rva23s64", &NEEDED),
    ("rva23u64", &BITS),
    ("shakti-c", &[]),
    ("sifive-e51", &[]),
    ("sifive-u54", &[]),
    ("thead-c906", &[]),
    ("tt-ascalon", &NEEDED),
    ("veyron-v1", &NEEDED),
    ("xiangshan-nanhu", &BITS),
    ("xiangshan-kunminghu", &NEEDED),
];
const BITS: [&str; 3] = ["zba", "zbb", "zbs"];

/// Properties that stand for all that the model of this name has.
const PROFILE: &str = "rva23s64";

/// What is wrong with a CPU, and what would be right.
pub type Complaint = (String, Option<String>);

/// Checks a CPU. Of an emulator of the user's own, nobody here knows the models.
pub fn check(text: &str, is_own_emulator: bool) -> Result<(), Complaint> {
    let (model, properties) = text.split_once(',').map_or((text, None), |(model, rest)| (model, Some(rest)));
    let properties: Vec<&str> = properties.map(|rest| rest.split(',').collect()).unwrap_or_default();
    if model.is_empty() || text.contains(char::is_whitespace) {
        let help = Some("for example \"rva23s64\", \"max\" or \"rv64,h=true\"".to_owned());
        return Err(("must be the name of a CPU model".to_owned(), help));
    }
    let settings: Vec<(&str, &str)> = properties.into_iter().map(setting).collect::<Result<_, _>>()?;
    let Some((_, own)) = MODELS.iter().find(|(name, _)| *name == model) else {
        if is_own_emulator {
            return Ok(());
        }
        let usable = MODELS.iter().filter(|(_, own)| own.len() == NEEDED.len()).map(|(name, _)| *name);
        return Err((format!("{model:?} is no 64-bit CPU model of QEMU that is known here"), hint(model, usable)));
    };
    has_what_the_monitor_needs(model, own, &settings)
}

/// `NAME=VALUE`
fn setting(text: &str) -> Result<(&str, &str), Complaint> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name, value)),
        _ => {
            let name = text.trim_start_matches(['+', '-']).split('=').next().unwrap_or_default();
            let name = if name.is_empty() { "svvptc" } else { name };
            let value = if text.starts_with('-') { "off" } else { "on" };
            Err((format!("{text:?} is no property"), Some(format!("a property has a value, as {name}={value}"))))
        }
    }
}

fn has_what_the_monitor_needs(model: &str, own: &[&str], settings: &[(&str, &str)]) -> Result<(), Complaint> {
    let mut has: Vec<&str> = own.to_vec();
    // QEMU takes the last setting of a property, and those of a profile before all others.
    if settings.iter().any(|(name, value)| *name == PROFILE && switch(value) == Some(true)) {
        has = NEEDED.to_vec();
    }
    for (name, value) in settings.iter().filter(|(name, _)| NEEDED.contains(name)) {
        let Some(is_on) = switch(value) else {
            return Err((format!("{name} is either on or off, not {value:?}"), None));
        };
        has.retain(|known| known != name);
        has.extend(is_on.then_some(*name));
    }
    let lacks: Vec<&str> = NEEDED.into_iter().filter(|name| !has.contains(name)).collect();
    if lacks.is_empty() {
        return Ok(());
    }
    let help = format!(
        "say {}, or take \"{PROFILE}\"",
        lacks.iter().map(|name| format!("{name}=on")).collect::<Vec<_>>().join(",")
    );
    Err((format!("{model:?} comes without {}, which the monitor needs", lacks.join(", ")), Some(help)))
}

/// What QEMU takes for on and off.
fn switch(value: &str) -> Option<bool> {
    match value {
        "on" | "true" | "yes" | "y" => Some(true),
        "off" | "false" | "no" | "n" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(cpu: &str) -> String {
        let (message, help) = check(cpu, false).expect_err(cpu);
        format!("{message}; {}", help.unwrap_or_default())
    }

    #[test]
    fn models_and_properties_are_known() {
        let good = [
            "rva23s64",
            "rva23s64,svvptc=on",
            "max,vlen=256",
            "rv64,h=true",
            "rva22s64,h=on,sstc=on",
            "rv64i,rva23s64=on",
        ];
        for cpu in good {
            assert_eq!(check(cpu, false), Ok(()), "{cpu}");
        }
        assert_eq!(
            complaint("rva23s65"),
            "\"rva23s65\" is no 64-bit CPU model of QEMU that is known here; did you mean `rva23s64`?"
        );
        assert!(complaint("rv64imac").contains("possible are `max`"));
        assert_eq!(complaint("max,svvptc"), "\"svvptc\" is no property; a property has a value, as svvptc=on");
        assert_eq!(complaint("max,-zfa"), "\"-zfa\" is no property; a property has a value, as zfa=off");
        assert!(complaint("max,").contains("is no property"));
        for cpu in ["", ",h=on", "max, h=on", "a b"] {
            assert!(complaint(cpu).starts_with("must be the name of a CPU model"), "{cpu}");
        }
    }

    #[test]
    fn the_monitor_gets_what_it_needs() {
        assert_eq!(
            complaint("rva22s64"),
            "\"rva22s64\" comes without h, sstc, which the monitor needs; say h=on,sstc=on, or take \"rva23s64\""
        );
        assert!(complaint("max,h=off").contains("without h,"));
        assert!(complaint("sifive-u54").contains("without h, sstc, zba, zbb, zbs"));
        assert!(complaint("max,zbb=maybe").contains("zbb is either on or off"));
    }

    #[test]
    fn an_emulator_of_the_users_own_may_have_other_models() {
        assert_eq!(check("rva30s64", true), Ok(()));
        assert!(check("rva22s64", true).is_err());
        assert!(check("rva30s64,x", true).is_err());
    }
}
