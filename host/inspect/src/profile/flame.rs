//! A flame graph as an SVG image. (The crate that others use for it, `inferno`, has a licence that does not go with ours.)

use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: f64 = 1_200.0;
const ROW: usize = 18;
/// Narrower frames are left out: nobody could see them.
const NARROWEST: f64 = 0.4;
/// Width of a letter, about.
const LETTER: f64 = 7.0;

/// A frame with what it calls.
#[derive(Default)]
struct Node {
    count: u64,
    callees: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, frames: &[String], count: u64) {
        self.count += count;
        if let [first, rest @ ..] = frames {
            self.callees.entry(first.clone()).or_default().add(rest, count);
        }
    }

    fn depth(&self) -> usize {
        1 + self.callees.values().map(Self::depth).max().unwrap_or(0)
    }
}

/// The picture of stacks, the outermost frame first, with how often each was. Callers are below what they call.
#[must_use]
pub fn svg(title: &str, stacks: &BTreeMap<Vec<String>, u64>) -> String {
    let mut root = Node::default();
    stacks.iter().for_each(|(frames, count)| root.add(frames, *count));
    let (rows, total) = (root.depth(), root.count.max(1));
    let height = rows * ROW + 40;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"20\" text-anchor=\"middle\" font-size=\"15\">{}, {} samples</text>\n",
        WIDTH / 2.0,
        escaped(title),
        root.count
    );
    let mut picture = Picture { text: &mut text, bottom: height - 10, total };
    picture.draw("all", &root, 0, 0.0);
    text + "</svg>\n"
}

struct Picture<'a> {
    text: &'a mut String,
    bottom: usize,
    total: u64,
}

impl Picture<'_> {
    fn draw(&mut self, name: &str, node: &Node, row: usize, left: f64) {
        let width = node.count as f64 * WIDTH / self.total as f64;
        if width < NARROWEST {
            return;
        }
        let top = self.bottom.saturating_sub((row + 1) * ROW);
        let share = node.count as f64 * 100.0 / self.total as f64;
        let shown = shortened(name, (width / LETTER) as usize);
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "<g><title>{} ({} samples, {share:.1} %)</title><rect x=\"{left:.2}\" y=\"{top}\" width=\"{:.2}\" \
             height=\"{}\" fill=\"{}\" rx=\"2\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            escaped(name),
            node.count,
            (width - 0.5).max(0.1),
            ROW - 1,
            colour(name),
            left + 3.0,
            top + 13,
            escaped(&shown)
        );
        let mut left = left;
        for (name, callee) in &node.callees {
            self.draw(name, callee, row + 1, left);
            left += callee.count as f64 * WIDTH / self.total as f64;
        }
    }
}

fn shortened(name: &str, letters: usize) -> String {
    match name.chars().count() {
        all if all <= letters => name.to_owned(),
        _ if letters < 3 => String::new(),
        _ => name.chars().take(letters - 2).collect::<String>() + "..",
    }
}

/// Warm colours; the same name has the same.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    format!("hsl({}, 80%, {}%)", hash % 50, 60 + hash / 50 % 15)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_wide_as_they_are_frequent() {
        let stack = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>();
        let stacks = BTreeMap::from([(stack(&["kernel", "a<b"]), 3), (stack(&["kernel", "c"]), 1)]);
        let svg = svg("web & co", &stacks);
        assert!(svg.contains("web &amp; co, 4 samples"));
        assert!(svg.contains("a&lt;b (3 samples, 75.0 %)") && !svg.contains("a<b"));
        assert!(svg.contains("width=\"899.50\"") && svg.contains("width=\"299.50\""));
        assert!(super::svg("nothing", &BTreeMap::new()).ends_with("</svg>\n"));
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("schedule", 8), "schedule");
        assert_eq!(shortened("schedule", 5), "sch..");
        assert_eq!(shortened("schedule", 2), "");
    }
}
