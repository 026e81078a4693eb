//! Pictures of time: harts by time, a colour for each VM.

use std::fmt::Write;
use std::io;

use perfetto::{Trace, Track};

use super::outcome::{Span, us};

/// Most spans of a picture; later ones are left out.
pub const MAX_SPANS: usize = 200_000;

/// An SVG image of `spans` on so many harts, from `from_us` to `to_us`.
#[must_use]
pub fn svg(spans: &[Span], harts: usize, names: &[String], from_us: u64, to_us: u64) -> String {
    const WIDTH: f64 = 1_200.0;
    let row = if harts > 64 { 4 } else { 16 };
    let span_us = to_us.saturating_sub(from_us).max(1);
    let x = |at: u64| (at.clamp(from_us, to_us) - from_us) as f64 * WIDTH / span_us as f64;
    let height = harts * row + 40;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <title>{harts} harts from {from_us} to {to_us} us</title>\n<rect width=\"1200\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let seen = spans.iter().filter(|span| us(span.to) > from_us && us(span.from) < to_us).take(MAX_SPANS);
    for span in seen {
        let (left, right) = (x(us(span.from)), x(us(span.to)));
        let (top, name) = (usize::from(span.hart) * row, escaped(names, span.vm));
        let colour = colour(span.vm);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<rect x=\"{left:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{}\" fill=\"{colour}\"><title>{name} vCPU {} on hart {}</title></rect>",
            (right - left).max(0.1),
            row - 1,
            span.vcpu,
            span.hart
        );
    }
    let bottom = harts * row + 28;
    for vm in 0..names.len().min(12) as u16 {
        let (left, colour) = (usize::from(vm) * 100, colour(vm));
        let _ = writeln!(
            text,
            "<rect x=\"{left}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"{bottom}\">{}</text>",
            bottom - 10,
            left + 14,
            escaped(names, vm)
        );
    }
    text + "</svg>\n"
}

/// The spans as a trace in the JSON format that Perfetto reads: a process for the machine, a thread for each hart.
///
/// # Errors
/// None: it is written to memory.
pub fn trace(spans: &[Span], names: &[String]) -> io::Result<Vec<u8>> {
    let mut trace = Trace::begin(Vec::new())?;
    for span in spans.iter().take(MAX_SPANS) {
        let name = names.get(usize::from(span.vm)).map_or("?", String::as_str);
        let track = Track { process: 1, thread: u32::from(span.hart) };
        let [at, for_us] = [us(span.from), us(span.to - span.from)].map(|time| time as f64);
        trace.span(track, &format!("{name}/{}", span.vcpu), name, at, for_us)?;
    }
    trace.end()
}

/// Neighbours differ: hues go by the golden angle.
fn colour(vm: u16) -> String {
    format!("hsl({}, 65%, {}%)", u32::from(vm) * 137 % 360, 45 + u32::from(vm) / 8 % 3 * 12)
}

fn escaped(names: &[String], vm: u16) -> String {
    let name = names.get(usize::from(vm)).map_or("?", String::as_str);
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_what_is_in_its_time_and_escapes_names() {
        let span = |hart, vm, from, to| Span { hart, vm, vcpu: 3, from, to };
        let spans = [span(0, 0, 0, 10_000), span(1, 1, 10_000, 20_000), span(1, 1, 90_000, 99_000)];
        let names = ["a<b".to_owned(), "c".to_owned()];
        let svg = svg(&spans, 2, &names, 0, 5_000);
        assert_eq!(svg.matches("vCPU 3 on hart").count(), 2);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        let trace: serde_json::Value = serde_json::from_slice(&trace(&spans, &names).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(
            (events.len(), events[1]["ts"].as_f64(), events[1]["dur"].as_f64()),
            (3, Some(1_000.0), Some(1_000.0))
        );
    }
}
