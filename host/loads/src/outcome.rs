//! Reading what a guest's console says.

use crate::{Load, LoadError};

/// How many lines of a console an error shows.
const TAIL: usize = 25;

/// What a workload did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result, which the guest has found to be the right one.
    pub result: String,
    /// Time between the marks by the guest's clock.
    pub nanoseconds: Option<u64>,
    /// The parts, if it has any.
    pub parts: Vec<Part>,
}

/// What one part of a workload did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// How many operations it consisted of.
    pub count: u64,
    /// Time between its marks by the guest's clock.
    pub nanoseconds: u64,
}

impl Outcome {
    /// Reads the console of a guest that ran `load`.
    ///
    /// # Errors
    /// [`LoadError::Failed`] or [`LoadError::Silent`].
    pub fn of(load: &Load, console: &str) -> Result<Self, LoadError> {
        let mut parts = Vec::new();
        for line in console.lines() {
            // Consoles of several guests are told apart by what stands before; kernels may write before it, too.
            if let Some(rest) = after(line, "part ")
                && let Some(part) = part_of(rest)
            {
                parts.push(part);
            }
            if let Some(rest) = after(line, "WORKLOAD failed ") {
                return Err(LoadError::Failed { reason: rest.to_owned(), tail: tail(console) });
            }
            if let Some(rest) = after(line, "WORKLOAD done ").filter(|rest| word(rest, "name") == Some(load.name))
                && let Some(result) = word(rest, "result")
            {
                let nanoseconds = word(rest, "ns").and_then(|word| word.parse().ok());
                return Ok(Self { result: result.to_owned(), nanoseconds, parts });
            }
        }
        Err(LoadError::Silent { name: load.name, tail: tail(console) })
    }
}

fn part_of(line: &str) -> Option<Part> {
    let number = |key| word(line, key)?.parse().ok();
    Some(Part { name: word(line, "name")?.to_owned(), count: number("count")?, nanoseconds: number("ns")? })
}

fn after<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.find(start).map(|place| &line[place + start.len()..])
}

fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find;

    #[test]
    fn a_good_end_is_read() {
        let console = "[    0.1] boot\r\nWORKLOAD begins name=faults size=small threads=1\r\n\
                       part name=file count=2048 ns=77\r\npart of something else\r\n\
                       WORKLOAD done name=faults size=small threads=1 result=00ff ns=1234\r\n";
        let outcome = Outcome::of(find("faults").unwrap(), console).unwrap();
        assert_eq!((outcome.result.as_str(), outcome.nanoseconds), ("00ff", Some(1234)));
        assert_eq!(outcome.parts, [Part { name: "file".into(), count: 2048, nanoseconds: 77 }]);
    }

    #[test]
    fn a_failure_and_silence_are_errors_with_the_last_lines() {
        let load = find("radix").unwrap();
        let error = Outcome::of(load, "wrong\nWORKLOAD failed name=radix reason=the result is 1").unwrap_err();
        assert!(error.to_string().contains("the result is 1") && error.to_string().contains("wrong"), "{error}");
        let error = Outcome::of(load, "Kernel panic").unwrap_err();
        assert!(error.to_string().contains("Kernel panic"), "{error}");
        let other = Outcome::of(load, "WORKLOAD done name=faults result=1");
        assert!(matches!(other, Err(LoadError::Silent { name: "radix", .. })), "{other:?}");
    }
}
