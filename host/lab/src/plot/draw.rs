//! Drawing on any of the plotting library's backends.

use std::sync::Once;

use plotters::chart::{ChartContext, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    BLACK, Cartesian2d, ChartBuilder, Circle, Color, DrawingArea, DrawingBackend, FontStyle, FontTransform, IntoFont,
    LineSeries, RGBColor, Rectangle, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Chart, Drawing, Series};

/// The only font: it comes with the program, so charts look the same everywhere.
const FONT: &str = "sans-serif";
/// Colours that also differ in brightness.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 90, 160),
    RGBColor(240, 150, 30),
    RGBColor(40, 150, 90),
    RGBColor(190, 60, 50),
    RGBColor(130, 100, 190),
    RGBColor(110, 110, 110),
    RGBColor(90, 190, 220),
    RGBColor(220, 130, 180),
];
/// Below this many bars their names fit side by side.
const UPRIGHT: usize = 7;

type Axes<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws a chart. The error is for people.
pub fn draw<B: DrawingBackend>(chart: &Chart, area: &DrawingArea<B, Shift>) -> Result<(), String> {
    load_font();
    let drawn = || {
        area.fill(&WHITE)?;
        match &chart.drawing {
            Drawing::Groups { y, logarithmic, groups, series } => {
                group_bars(area, &chart.title, y, Scale { logarithmic: *logarithmic }, groups, series)?;
            }
            Drawing::Stacks { y, bars, parts } => stack_bars(area, &chart.title, y, bars, parts)?,
            Drawing::Lines { x, y, logarithmic, series } => {
                lines(area, &chart.title, (x, y), Scale { logarithmic: *logarithmic }, series)?;
            }
        }
        area.present()
    };
    drawn().map_err(|error| error.to_string())
}

type Drawn<B> = Result<(), plotters::drawing::DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn load_font() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        // It can only fail for a file that is no font.
        let _ = plotters::style::register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
}

/// How a number becomes a height.
#[derive(Clone, Copy)]
struct Scale {
    logarithmic: bool,
}

impl Scale {
    /// Nothing and less than nothing have no logarithm: they lie on the ground, which is 1.
    fn height(self, value: f64) -> f64 {
        match value {
            value if !value.is_finite() => 0.0,
            value if self.logarithmic => value.max(1.0).log10(),
            value => value,
        }
    }

    fn text(self, height: f64) -> String {
        let value = if self.logarithmic { 10f64.powf(height) } else { height };
        match value.abs() {
            size if size >= 1e6 => format!("{:.4} M", value / 1e6).replace(".0000", ""),
            size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
            size if size >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        }
    }

    /// How many labels: one for each power of ten, or some.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a range has few powers of ten")]
    fn labels(self, range: &std::ops::Range<f64>) -> usize {
        if self.logarithmic { (range.end - range.start) as usize + 1 } else { 8 }
    }

    /// From the ground to a little above the highest.
    fn range(self, heights: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
        let (low, high) = heights.fold((0.0_f64, 0.0_f64), |(low, high), height| (low.min(height), high.max(height)));
        let high = if self.logarithmic { high.ceil() } else { high * 1.15 };
        low..if high > low { high } else { low + 1.0 }
    }
}

fn text_style<'a>(size: f64) -> TextStyle<'a> {
    (FONT, size).into_font().color(&BLACK)
}

#[expect(clippy::cast_precision_loss, reason = "a chart has few bars")]
const fn place(index: usize) -> f64 {
    index as f64
}

fn axes<'a, B: DrawingBackend>(
    area: &'a DrawingArea<B, Shift>,
    title: &str,
    x: std::ops::Range<f64>,
    y: std::ops::Range<f64>,
    below: u32,
) -> Result<Axes<'a, B>, plotters::drawing::DrawingAreaErrorKind<B::ErrorType>> {
    ChartBuilder::on(area)
        .caption(title, text_style(24.0))
        .margin(14)
        .x_label_area_size(below)
        .y_label_area_size(80)
        .build_cartesian_2d(x, y)
}

fn legend<'a, B: DrawingBackend + 'a>(chart: &mut Axes<'a, B>) -> Drawn<B> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(text_style(16.0))
        .draw()
}

/// The mesh of a chart whose horizontal axis has names, and the names: upright where they fit, else slanted by a quarter.
fn named_mesh<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    chart: &mut Axes<'_, B>,
    y: &str,
    scale: Scale,
    names: &[String],
) -> Drawn<B> {
    let chart_range = chart.as_coord_spec().get_y_range();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc(y)
        .label_style(text_style(15.0))
        .axis_desc_style(text_style(17.0))
        .max_light_lines(0)
        .y_labels(scale.labels(&chart_range))
        .y_label_formatter(&|height| scale.text(*height))
        .draw()?;
    let ground = chart_range.start;
    for (index, name) in names.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(place(index) + 0.5, ground));
        let style = if names.len() < UPRIGHT {
            text_style(16.0).pos(Pos::new(HPos::Center, VPos::Top))
        } else {
            (FONT, 15.0)
                .into_font()
                .transform(FontTransform::Rotate270)
                .color(&BLACK)
                .pos(Pos::new(HPos::Right, VPos::Center))
        };
        area.draw_text(name, &style, (x, y + 8))?;
    }
    Ok(())
}

/// Pixels that the names below a chart need.
fn room_below(names: &[String]) -> u32 {
    if names.len() < UPRIGHT {
        return 44;
    }
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    u32::try_from(longest).unwrap_or(20).clamp(5, 22) * 8 + 16
}

fn group_bars<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    y: &str,
    scale: Scale,
    groups: &[String],
    series: &[(String, Vec<Option<f64>>)],
) -> Drawn<B> {
    let heights = series.iter().flat_map(|(_, values)| values).flatten().map(|value| scale.height(*value));
    let range = scale.range(heights);
    // The legend stands right of the last group.
    let mut chart = axes(area, title, 0.0..place(groups.len().max(1)) * 1.2, range, room_below(groups))?;
    named_mesh(area, &mut chart, y, scale, groups)?;
    // A tenth of each group stays free on both sides.
    let width = 0.8 / place(series.len().max(1));
    for (index, (name, values)) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let bars = values.iter().enumerate().filter_map(|(group, value)| {
            let left = width.mul_add(place(index), place(group) + 0.1);
            Some(Rectangle::new([(left, 0.0), (left + width * 0.94, scale.height((*value)?))], colour.filled()))
        });
        chart
            .draw_series(bars)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 14, y + 6)], colour.filled()));
    }
    legend(&mut chart)
}

fn stack_bars<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    y: &str,
    bars: &[String],
    parts: &[(String, Vec<f64>)],
) -> Drawn<B> {
    let scale = Scale { logarithmic: false };
    let part =
        |part: &(String, Vec<f64>), bar: usize| part.1.get(bar).map_or(0.0, |value| scale.height(*value).max(0.0));
    let total = |bar| parts.iter().map(|of| part(of, bar)).sum::<f64>();
    let range = scale.range((0..bars.len()).map(total));
    // The legend stands right of the last bar.
    let width = place(bars.len().max(1)) * 1.25;
    let mut chart = axes(area, title, 0.0..width, range, room_below(bars))?;
    named_mesh(area, &mut chart, y, scale, bars)?;
    let mut ground = vec![0.0; bars.len()];
    for (index, of) in parts.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let rectangles: Vec<_> = ground
            .iter_mut()
            .enumerate()
            .map(|(bar, ground)| {
                let low = *ground;
                *ground += part(of, bar);
                Rectangle::new([(place(bar) + 0.2, low), (place(bar) + 0.8, *ground)], colour.filled())
            })
            .collect();
        chart
            .draw_series(rectangles)?
            .label(&of.0)
            .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 14, y + 6)], colour.filled()));
    }
    for bar in 0..bars.len() {
        let (x, y) = chart.backend_coord(&(place(bar) + 0.5, total(bar)));
        let style = text_style(15.0).pos(Pos::new(HPos::Center, VPos::Bottom));
        area.draw_text(&format!("{:.1}", total(bar)), &style, (x, y - 3))?;
    }
    legend(&mut chart)
}

fn lines<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    (x, y): (&str, &str),
    scale: Scale,
    series: &[Series],
) -> Drawn<B> {
    let points = || series.iter().flat_map(|line| &line.points);
    let most_x = points().map(|point| point.0).filter(|x| x.is_finite()).fold(1.0_f64, f64::max);
    let range = scale.range(points().map(|point| scale.height(point.1)));
    let labels = scale.labels(&range);
    let mut chart = axes(area, title, 0.0..most_x * 1.02, range, 50)?;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .label_style(text_style(15.0))
        .axis_desc_style(text_style(17.0))
        .max_light_lines(0)
        .y_labels(labels)
        .x_label_formatter(&|x| Scale { logarithmic: false }.text(*x))
        .y_label_formatter(&|height| scale.text(*height))
        .draw()?;
    for (index, line) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<_> =
            line.points.iter().filter(|(x, _)| x.is_finite()).map(|(x, y)| (*x, scale.height(*y))).collect();
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 2), (x + 14, y + 2)], colour.filled()));
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 4, colour.filled())))?;
    }
    legend(&mut chart)
}
