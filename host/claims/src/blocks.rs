//! Marked blocks of pages, and the figures in sentences.

const BEGIN: &str = "<!-- begin: results/";
const END: &str = "<!-- end: results/";
const CLOSE: &str = " -->";

/// The page with its marked blocks filled.
pub fn fill(page: &str, mut content: impl FnMut(&str) -> Result<String, String>) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), page);
    while let Some(begin) = rest.find(BEGIN) {
        let after = &rest[begin + BEGIN.len()..];
        let name = after.find(CLOSE).map(|end| &after[..end]).ok_or("a block's first mark is not closed")?;
        if name.contains(['/', '\n']) {
            return Err(format!("{name:?} is no file of docs/results"));
        }
        let head = begin + BEGIN.len() + name.len() + CLOSE.len();
        let mark = format!("{END}{name}{CLOSE}");
        let length = rest[head..].find(&mark).ok_or_else(|| format!("the block {name} has no end"))?;
        if rest[head..head + length].contains(BEGIN) {
            return Err(format!("the block {name} has another one in it"));
        }
        filled.push_str(&rest[..head]);
        filled.push_str(&format!("\n{}\n{mark}", content(name)?));
        rest = &rest[head + length + mark.len()..];
    }
    if rest.contains(END) {
        return Err("a block ends that has not begun".to_owned());
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The text with figures in place of their names in braces.
pub fn substitute(text: &str, number: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}').ok_or("a brace is not closed")?;
        filled.push_str(before);
        filled.push_str(&number(name).ok_or_else(|| format!("no record has {name:?}"))?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}
