//! Reading a TOML table key by key, every value with its place.
//!
//! A [`Section`] is one table, or several of which the first that has a key wins (a VM, its file, the defaults). It
//! knows which keys were asked for: what is left at the end is unknown.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Place, Report, Source};
use crate::suggest::{hint, nearest};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct At<T> {
    pub value: T,
    pub place: Place,
}

/// A table of one file.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    pub source: Rc<Source>,
    pub table: &'a DeTable<'a>,
}

/// A table to read, with the tables that it inherits from.
pub struct Section<'a> {
    report: &'a Report,
    /// Its name in messages, as `vm.disk`; empty for the top of a file.
    label: String,
    place: Place,
    layers: Vec<Layer<'a>>,
    asked: RefCell<BTreeSet<&'static str>>,
    /// Whether a table that it should inherit from could not be read: then nobody knows which keys are missing.
    is_partial: bool,
    /// Required keys that are not there, and what they are for.
    missing: RefCell<Vec<(&'static str, String)>>,
}

impl<'a> Section<'a> {
    pub fn new(report: &'a Report, label: impl Into<String>, place: Place, layers: Vec<Layer<'a>>) -> Self {
        let (asked, missing) = (RefCell::default(), RefCell::default());
        Self { report, label: label.into(), place, layers, asked, is_partial: false, missing }
    }

    pub const fn report(&self) -> &'a Report {
        self.report
    }

    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// The key with the names of the tables around it.
    pub fn path(&self, key: &str) -> String {
        if self.label.is_empty() { key.to_owned() } else { format!("{}.{key}", self.label) }
    }

    /// The table itself, to inherit from.
    pub fn into_layer(self) -> Option<Layer<'a>> {
        self.layers.into_iter().next()
    }

    /// Adds a table to inherit from, behind those that it has.
    pub fn inherit(&mut self, layer: Layer<'a>) {
        self.layers.push(layer);
    }

    /// A table to inherit from is missing; that was complained about.
    pub const fn set_partial(&mut self) {
        self.is_partial = true;
    }

    /// Whether `key` is there, with whatever value.
    pub fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// Whether a key that nobody has asked for is probably meant to be `key`.
    pub fn has_misspelled(&self, key: &'static str) -> bool {
        let asked = self.asked.borrow();
        let mut words = self.layers.iter().flat_map(|layer| layer.table.keys()).map(|word| word.get_ref().as_ref());
        words.any(|word: &str| word != key && !asked.contains(word) && nearest(word, [key]).is_some())
    }

    /// Something to go on with where a value could not be read, so that the rest is checked as well.
    ///
    /// # Panics
    /// If nobody has complained: then what stands in would be used.
    pub fn stand_in<T>(&self, value: Option<T>, other: impl FnOnce() -> T) -> T {
        value.unwrap_or_else(|| {
            let is_told = self.report.has_errors() || self.is_partial || !self.missing.borrow().is_empty();
            assert!(is_told, "{}: a value is missing without an error", self.label);
            other()
        })
    }

    pub fn error(&self, place: &Place, key: &str, message: impl Into<String>, help: Option<String>) {
        self.report.error(place, self.path(key), message, help);
    }

    /// Notes what this key asks of the host.
    pub fn grant(&self, place: &Place, key: &str, what: impl Into<String>) {
        self.report.grant(place, self.path(key), what);
    }

    /// Where `key` stands; the table itself if it does not.
    pub fn place_of(&self, key: &'static str) -> Place {
        self.value(key).map_or_else(|| self.place.clone(), |at| at.place)
    }

    pub fn string(&self, key: &'static str) -> Option<At<String>> {
        let found = self.value(key)?;
        match found.value.as_str() {
            Some(text) => Some(At { value: text.to_owned(), place: found.place }),
            None => self.wrong_type(key, &found, "a string"),
        }
    }

    pub fn boolean(&self, key: &'static str) -> Option<At<bool>> {
        let found = self.value(key)?;
        match found.value.as_bool() {
            Some(value) => Some(At { value, place: found.place }),
            None => self.wrong_type(key, &found, "`true` or `false`"),
        }
    }

    /// A whole number in a range.
    pub fn number<T>(&self, key: &'static str, range: RangeInclusive<T>) -> Option<At<T>>
    where
        T: TryFrom<i128> + PartialOrd + Copy + fmt::Display,
    {
        let found = self.value(key)?;
        let Some(value) = integer(found.value) else {
            return self.wrong_type(key, &found, "a whole number");
        };
        match T::try_from(value).ok().filter(|value| range.contains(value)) {
            Some(value) => Some(At { value, place: found.place }),
            None => {
                let (min, max) = (range.start(), range.end());
                self.error(&found.place, key, format!("{value} is not in {min} to {max}"), None);
                None
            }
        }
    }

    /// A number as the type can hold it; ranges are checked later.
    pub fn any_number<T: TryFrom<i128>>(&self, key: &'static str) -> Option<At<T>> {
        let found = self.value(key)?;
        let Some(value) = integer(found.value) else {
            return self.wrong_type(key, &found, "a whole number");
        };
        match T::try_from(value) {
            Ok(value) => Some(At { value, place: found.place }),
            Err(_) => {
                self.error(&found.place, key, format!("{value} is out of range"), None);
                None
            }
        }
    }

    /// A string of a type that checks itself.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&self, key: &'static str) -> Option<At<T>> {
        let text = self.string(key)?;
        match text.value.parse() {
            Ok(value) => Some(At { value, place: text.place }),
            Err(error) => {
                self.error(&text.place, key, format!("{:?}: {error}", text.value), None);
                None
            }
        }
    }

    /// One of several words.
    pub fn choice<T: Copy>(&self, key: &'static str, words: &[(&'static str, T)]) -> Option<At<T>> {
        let text = self.string(key)?;
        match words.iter().find(|(word, _)| *word == text.value) {
            Some((_, value)) => Some(At { value: *value, place: text.place }),
            None => {
                let help = hint(&text.value, words.iter().map(|(word, _)| *word));
                self.error(&text.place, key, format!("{:?} is not known here", text.value), help);
                None
            }
        }
    }

    /// A string, or a whole number as one.
    pub fn word_or_number(&self, key: &'static str) -> Option<At<String>> {
        let found = self.value(key)?;
        let text =
            found.value.as_str().map(str::to_owned).or_else(|| integer(found.value).map(|value| value.to_string()));
        match text {
            Some(value) => Some(At { value, place: found.place }),
            None => self.wrong_type(key, &found, "a string or a whole number"),
        }
    }

    /// An array of whole numbers.
    pub fn numbers<T: TryFrom<i128>>(&self, key: &'static str) -> Option<Vec<At<T>>> {
        let found = self.value(key)?;
        let Some(items) = found.value.as_array() else {
            return self.wrong_type(key, &found, "an array of whole numbers");
        };
        let mut numbers = Vec::new();
        for item in items.iter() {
            let place = Place { source: Rc::clone(&found.place.source), span: item.span() };
            match integer(item.get_ref()).and_then(|value| T::try_from(value).ok()) {
                Some(value) => numbers.push(At { value, place }),
                None => return self.wrong_type(key, &At { value: item.get_ref(), place }, "a whole number"),
            }
        }
        Some(numbers)
    }

    pub fn strings(&self, key: &'static str) -> Option<Vec<At<String>>> {
        let found = self.value(key)?;
        let Some(items) = found.value.as_array() else {
            return self.wrong_type(key, &found, "an array of strings");
        };
        let mut strings = Vec::new();
        for item in items.iter() {
            let place = Place { source: Rc::clone(&found.place.source), span: item.span() };
            match item.get_ref().as_str() {
                Some(text) => strings.push(At { value: text.to_owned(), place }),
                None => return self.wrong_type(key, &At { value: item.get_ref(), place }, "a string"),
            }
        }
        Some(strings)
    }

    /// A matrix of whole numbers in a range.
    pub fn matrix<T>(&self, key: &'static str, range: RangeInclusive<T>) -> Option<At<Vec<Vec<T>>>>
    where
        T: TryFrom<i128> + PartialOrd + fmt::Display,
    {
        let found = self.value(key)?;
        let small = |item: &Spanned<DeValue<'_>>| {
            T::try_from(integer(item.get_ref())?).ok().filter(|number| range.contains(number))
        };
        let row = |item: &Spanned<DeValue<'_>>| item.get_ref().as_array()?.iter().map(small).collect();
        match found.value.as_array().and_then(|rows| rows.iter().map(row).collect()) {
            Some(value) => Some(At { value, place: found.place }),
            None => {
                let wanted = format!("an array of arrays of numbers from {} to {}", range.start(), range.end());
                self.wrong_type(key, &found, &wanted)
            }
        }
    }

    /// A table inside this one.
    pub fn table(&self, key: &'static str) -> Option<Section<'a>> {
        let found = self.value(key)?;
        match found.value.as_table() {
            Some(table) => Some(self.child(key, table, found.place)),
            None => self.wrong_type(key, &found, "a table"),
        }
    }

    /// An array of tables inside this one; empty if it is not there.
    pub fn tables(&self, key: &'static str) -> Vec<Section<'a>> {
        let Some(found) = self.value(key) else { return Vec::new() };
        let Some(items) = found.value.as_array() else {
            let help = Some(format!("write [[{}]]", self.path(key)));
            let is = with_article(found.value.type_str());
            self.error(&found.place, key, format!("is {is}, not an array of tables"), help);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in items.iter() {
            let place = Place { source: Rc::clone(&found.place.source), span: item.span() };
            match item.get_ref().as_table() {
                Some(table) => sections.push(self.child(key, table, place)),
                None => {
                    self.wrong_type::<()>(key, &At { value: item.get_ref(), place }, "a table");
                }
            }
        }
        sections
    }

    /// A key that must be there: [`Section::finish`] complains, unless it is there (and was complained about already).
    pub fn require<T>(&self, key: &'static str, value: Option<T>, help: &str) -> Option<T> {
        if value.is_none() && !self.has(key) && !self.is_partial {
            self.missing.borrow_mut().push((key, help.to_owned()));
        }
        value
    }

    /// Complains about every key that nobody asked for, and about those that are missing, unless one of the others is meant to be it.
    pub fn finish(&self) {
        for (key, help) in self.missing.borrow().iter().filter(|(key, _)| !self.has_misspelled(key)) {
            self.error(&self.place, key, "is missing", Some(help.clone()));
        }
        let asked = self.asked.borrow();
        for layer in &self.layers {
            for key in layer.table.keys() {
                let word: &str = key.get_ref();
                if !asked.contains(word) {
                    let place = Place { source: Rc::clone(&layer.source), span: key.span() };
                    let help = hint(word, asked.iter().copied());
                    self.error(&place, word, "unknown key", help);
                }
            }
        }
    }

    fn child(&self, key: &str, table: &'a DeTable<'a>, place: Place) -> Section<'a> {
        let layer = Layer { source: Rc::clone(&place.source), table };
        Section::new(self.report, self.path(key), place, vec![layer])
    }

    fn value(&self, key: &'static str) -> Option<At<&'a DeValue<'a>>> {
        self.asked.borrow_mut().insert(key);
        self.layers.iter().find_map(|layer| {
            let found = layer.table.get(key)?;
            let place = Place { source: Rc::clone(&layer.source), span: found.span() };
            Some(At { value: found.get_ref(), place })
        })
    }

    fn wrong_type<T>(&self, key: &str, found: &At<&DeValue<'_>>, wanted: &str) -> Option<T> {
        let is = with_article(found.value.type_str());
        self.error(&found.place, key, format!("must be {wanted}, this is {is}"), None);
        None
    }
}

/// `a table`, `an array`.
fn with_article(kind: &str) -> String {
    format!("{} {kind}", if kind.starts_with(['a', 'i']) { "an" } else { "a" })
}

/// The value of an integer in any notation.
fn integer(value: &DeValue<'_>) -> Option<i128> {
    let integer = value.as_integer()?;
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}
