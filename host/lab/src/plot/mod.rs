//! Charts: declared by experiments as [`ChartPlan`]s, filled from results, drawn as SVG and PNG.

mod draw;
mod plan;

use plotters::prelude::{BitMapBackend, IntoDrawingArea, SVGBackend};

pub use plan::{Bar, ChartPlan, Content, Line};

use crate::LabError;

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (960, 540);

/// A chart with its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its name in file names.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How.
    pub drawing: Drawing,
}

/// How data is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawing {
    /// Groups of bars side by side.
    Groups {
        /// What the bars' height is.
        y: String,
        /// Whether each step up is ten times as much.
        logarithmic: bool,
        /// The groups' names.
        groups: Vec<String>,
        /// The bars of each group: name, and the height in each group.
        series: Vec<(String, Vec<Option<f64>>)>,
    },
    /// Bars made of parts.
    Stacks {
        /// What the bars' height is.
        y: String,
        /// The bars' names.
        bars: Vec<String>,
        /// The parts from below: name, and the height in each bar.
        parts: Vec<(String, Vec<f64>)>,
    },
    /// Lines through points.
    Lines {
        /// What is varied.
        x: String,
        /// What is measured.
        y: String,
        /// Whether each step up is ten times as much.
        logarithmic: bool,
        /// The lines.
        series: Vec<Series>,
    },
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// Whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.drawing {
            Drawing::Groups { series, .. } => series.iter().flat_map(|(_, values)| values).all(Option::is_none),
            Drawing::Stacks { bars, parts, .. } => bars.is_empty() || parts.is_empty(),
            Drawing::Lines { series, .. } => series.iter().all(|line| line.points.is_empty()),
        }
    }

    /// As SVG.
    ///
    /// # Errors
    /// [`LabError::Plot`].
    pub fn svg(&self) -> Result<String, LabError> {
        let mut text = String::new();
        draw::draw(self, &SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
            .map_err(|why| self.failed(why))?;
        Ok(text)
    }

    /// As PNG.
    ///
    /// # Errors
    /// [`LabError::Plot`].
    pub fn png(&self) -> Result<Vec<u8>, LabError> {
        let (width, height) = SIZE;
        let mut pixels = vec![0; width as usize * height as usize * 3];
        draw::draw(self, &BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())
            .map_err(|why| self.failed(why))?;
        let mut content = Vec::new();
        let mut encoder = png::Encoder::new(&mut content, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
        written.map_err(|error| self.failed(error.to_string()))?;
        Ok(content)
    }

    fn failed(&self, why: String) -> LabError {
        LabError::Plot { chart: self.id.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(values: &[f64]) -> Vec<Chart> {
        let names: Vec<_> = values.iter().map(|value| format!("bar {value}")).collect();
        let drawings = [
            Drawing::Groups {
                y: "instructions".into(),
                logarithmic: true,
                groups: names.clone(),
                series: vec![("ours".into(), values.iter().map(|value| Some(*value)).collect())],
            },
            Drawing::Stacks { y: "%".into(), bars: names, parts: vec![("user".into(), values.to_vec())] },
            Drawing::Lines {
                x: "harts".into(),
                y: "ms".into(),
                logarithmic: false,
                series: vec![Series { name: "ours".into(), points: values.iter().map(|v| (*v, *v)).collect() }],
            },
        ];
        drawings.into_iter().map(|drawing| Chart { id: "c".into(), title: "<T>".into(), drawing }).collect()
    }

    #[test]
    fn charts_are_drawn_with_their_names() {
        for chart in all(&[3.0, 4_000.0]) {
            assert!(!chart.is_empty());
            let svg = chart.svg().expect("it can be drawn");
            assert!(svg.contains("&lt;T&gt;"), "{svg}");
            let png = chart.png().expect("it can be drawn");
            assert!(png.starts_with(b"\x89PNG"));
            // Something else than one colour.
            let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("it is a PNG");
            let mut pixels = vec![0; reader.output_buffer_size().expect("it is small")];
            reader.next_frame(&mut pixels).expect("it is whole");
            assert!(pixels.chunks(3).any(|pixel| pixel != [255, 255, 255]));
        }
    }

    #[test]
    fn no_data_and_odd_data_do_no_harm() {
        for values in [vec![], vec![0.0], vec![f64::NAN, 1.0], vec![f64::INFINITY], vec![-1.0, 2.0], vec![5.0, 5.0]] {
            for chart in all(&values) {
                assert_eq!(chart.is_empty(), values.is_empty());
                chart.svg().expect("it can be drawn");
                chart.png().expect("it can be drawn");
            }
        }
    }
}
