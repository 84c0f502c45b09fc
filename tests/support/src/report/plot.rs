//! Plots as SVG: lines over an axis, and bars. They contain no scripts and no embedded fonts. The colours are readable
//! on a light and on a dark page. Pure.

use std::fmt::Write;

use super::table::number;

/// Width of the picture in its own units, which a page scales.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 66.0;
/// Height of the area of lines.
const HEIGHT: f64 = 280.0;
const BELOW: f64 = 52.0;
/// Height of a bar, and the space around a group of bars.
const BAR: f64 = 16.0;
const GAP: f64 = 12.0;
/// Approximate width of a letter, as a part of its height.
const LETTER: f64 = 0.56;
const SIZE: f64 = 13.0;
/// Colour of text and guide lines: a grey with the same contrast to white and to black.
const INK: &str = "#7a828e";
const LIMIT: &str = "#e5534b";

/// One line, or one colour of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name in the legend. `ours`, `peer`, `tuned peer` and `floor` have colours of their own.
    pub name: String,
    /// Index of another colour, for lines that do not belong to a subject.
    pub hue: Option<usize>,
    /// Whether the line is dashed.
    pub is_dashed: bool,
    /// Points in the order in which they are joined.
    pub points: Vec<[f64; 2]>,
}

/// Several lines over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Title above the plot.
    pub title: String,
    /// Labels of the horizontal and the vertical axis, with units.
    pub axes: [String; 2],
    /// Lines in the order of the legend.
    pub lines: Vec<Line>,
    /// Limit on the first axis, drawn as a vertical line.
    pub limit: Option<f64>,
}

/// One bar, from zero to a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Subject, as in [`Line::name`].
    pub of: String,
    /// Length, or a text if there is none.
    pub value: Result<f64, String>,
    /// Minimum and maximum, if there are several samples.
    pub spread: Option<[f64; 2]>,
}

/// Horizontal bars in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title above the plot.
    pub title: String,
    /// Measured quantity with its unit.
    pub axis: String,
    /// Name of each group, its bars, and its limit.
    pub groups: Vec<(String, Vec<Bar>, Option<f64>)>,
}

impl Lines {
    /// Returns the picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let most = |axis: usize| {
            let all = self.lines.iter().flat_map(|line| &line.points).filter_map(|point| point.get(axis).copied());
            all.filter(|value| value.is_finite()).fold(0.0, f64::max)
        };
        let across = scale(most(0).max(self.limit.unwrap_or(0.0)));
        let up = scale(most(1));
        let width = WIDTH - LEFT - RIGHT;
        let x = |value: f64| LEFT + width * value / across.1;
        let y = |value: f64| TOP + HEIGHT * (1.0 - value / up.1);
        let mut svg = Svg::new(&self.title, TOP + HEIGHT + BELOW);
        let names = self.lines.iter().map(|line| (line.name.as_str(), line.colour(), line.is_dashed));
        svg.legend(&names.collect::<Vec<_>>(), self.limit.is_some());
        for value in steps(up) {
            svg.rule([LEFT, y(value), WIDTH - RIGHT, y(value)]);
            svg.text([LEFT - 8.0, y(value) + 4.0], "end", &tick(value, up.0));
        }
        for value in steps(across) {
            svg.rule([x(value), TOP + HEIGHT, x(value), TOP + HEIGHT + 5.0]);
            svg.text([x(value), TOP + HEIGHT + 20.0], "middle", &tick(value, across.0));
        }
        let [right, upward] = &self.axes;
        svg.text([LEFT + width / 2.0, TOP + HEIGHT + 42.0], "middle", right);
        svg.upright([16.0, TOP + HEIGHT / 2.0], upward);
        if let Some(limit) = self.limit {
            svg.limit([x(limit), TOP, x(limit), TOP + HEIGHT]);
        }
        for line in &self.lines {
            let points = line.points.iter().filter(|point| point.iter().all(|value| value.is_finite()));
            let points = points.map(|[right, upward]| format!("{:.1},{:.1}", x(*right), y(*upward)));
            svg.line(&points.collect::<Vec<_>>(), line.colour(), line.is_dashed);
        }
        svg.end()
    }
}

impl Bars {
    /// Returns the picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars, _)| bars);
        let values = bars().flat_map(|bar| bar.spread.map(|[_, most]| most).into_iter().chain(bar.value.clone().ok()));
        let limits = self.groups.iter().filter_map(|(_, _, limit)| *limit);
        let across = scale(values.chain(limits.clone()).filter(|value| value.is_finite()).fold(0.0, f64::max));
        let longest = self.groups.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let left = (longest as f64).mul_add(SIZE * LETTER, 24.0).min(WIDTH * 0.5);
        // 80 units for the number after the longest bar.
        let width = WIDTH - left - RIGHT - 80.0;
        let x = |value: f64| left + width * value / across.1;
        let height: f64 = self.groups.iter().map(|(_, bars, _)| BAR.mul_add(bars.len() as f64, GAP)).sum();
        let mut svg = Svg::new(&self.title, TOP + height + BELOW);
        let names = super::unique(bars().map(|bar| bar.of.as_str()));
        let legend: Vec<_> = names.iter().map(|name| (*name, colour(name), false)).collect();
        svg.legend(&legend, limits.count() > 0);
        for value in steps(across) {
            svg.rule([x(value), TOP, x(value), TOP + height + 5.0]);
            svg.text([x(value), TOP + height + 20.0], "middle", &tick(value, across.0));
        }
        svg.text([left + width / 2.0, TOP + height + 42.0], "middle", &self.axis);
        let mut top = TOP + GAP / 2.0;
        for (name, bars, limit) in &self.groups {
            let tall = BAR * bars.len() as f64;
            svg.text([left - 8.0, top + tall / 2.0 + 4.5], "end", name);
            for (index, bar) in bars.iter().enumerate() {
                let (middle, most) =
                    (BAR.mul_add(index as f64, top) + BAR / 2.0, bar.spread.map_or(0.0, |[_, most]| most));
                let said = match &bar.value {
                    Ok(value) => {
                        let across = [left, middle - BAR / 2.0 + 1.5, x(*value) - left, BAR - 3.0];
                        svg.bar(across, colour(&bar.of));
                        number(*value)
                    }
                    Err(why) => why.clone(),
                };
                if let Some([least, most]) = bar.spread {
                    svg.whisker([x(least), x(most)], middle);
                }
                let end = x(bar.value.clone().unwrap_or(0.0).max(most));
                svg.text([end + 6.0, middle + 4.5], "start", &said);
            }
            if let Some(limit) = limit {
                svg.limit([x(*limit), top - 2.0, x(*limit), top + tall + 2.0]);
            }
            top += tall + GAP;
        }
        svg.end()
    }
}

/// Returns the step and the end of an axis: four to eight steps of one, two or five times a power of ten.
fn scale(most: f64) -> (f64, f64) {
    if most.is_nan() || most <= 0.0 {
        return (0.2, 1.0);
    }
    let power = 10f64.powf((most / 8.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| most / step <= 8.0);
    let step = step.unwrap_or(most);
    (step, (most / step).ceil() * step)
}

fn steps((step, end): (f64, f64)) -> impl Iterator<Item = f64> {
    let count = (end / step).round() as u32;
    (0..=count).map(move |number| f64::from(number) * step)
}

/// Formats a tick with the digits that the step needs.
fn tick(value: f64, step: f64) -> String {
    if step >= 1.0 {
        return number(value.round());
    }
    let digits = -step.log10().floor() as usize;
    format!("{value:.digits$}")
}

/// Colours of lines that do not belong to a subject.
const HUES: [&str; 4] = ["#2f81f7", "#3fa266", "#a371f7", "#d6659c"];

fn colour(name: &str) -> &'static str {
    match name {
        "ours" => "#2f81f7",
        "peer" => "#d98324",
        "tuned peer" => "#a371f7",
        _ => INK,
    }
}

impl Line {
    fn colour(&self) -> &'static str {
        self.hue.and_then(|hue| HUES.get(hue % HUES.len()).copied()).unwrap_or_else(|| colour(&self.name))
    }
}

fn dashes(is_dashed: bool) -> &'static str {
    if is_dashed { " stroke-dasharray=\"6 4\"" } else { "" }
}

struct Svg(String);

impl Svg {
    fn new(title: &str, height: f64) -> Self {
        let title = escaped(title);
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif\" font-size=\"{SIZE}\" fill=\"{INK}\">\n\
             <title>{title}</title>\n"
        ));
        svg.add(format_args!("<text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"600\">{title}</text>"));
        svg
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{element}");
    }

    fn legend(&mut self, lines: &[(&str, &str, bool)], has_limit: bool) {
        let mut x = 16.0;
        let limit = has_limit.then_some(("limit", LIMIT, false));
        for (name, colour, is_dashed) in lines.iter().copied().chain(limit) {
            let (end, dashes) = (x + 22.0, dashes(is_dashed));
            self.add(format_args!("<path d=\"M{x:.1} 44H{end:.1}\" stroke=\"{colour}\" stroke-width=\"4\"{dashes}/>"));
            self.text([end + 6.0, 48.5], "start", name);
            x = (name.chars().count() as f64).mul_add(SIZE * LETTER, end + 28.0);
        }
    }

    fn text(&mut self, [x, y]: [f64; 2], anchor: &str, text: &str) {
        let text = escaped(text);
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    fn upright(&mut self, [x, y]: [f64; 2], text: &str) {
        let text = escaped(text);
        self.add(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\">{text}</text>"
        ));
    }

    fn rule(&mut self, ends: [f64; 4]) {
        self.stroke(ends, INK, 1.0, 0.3);
    }

    fn limit(&mut self, ends: [f64; 4]) {
        self.stroke(ends, LIMIT, 2.5, 1.0);
    }

    fn stroke(&mut self, [x1, y1, x2, y2]: [f64; 4], colour: &str, width: f64, opacity: f64) {
        self.add(format_args!(
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-opacity=\"{opacity}\"/>"
        ));
    }

    fn line(&mut self, points: &[String], colour: &str, is_dashed: bool) {
        let (points, dashes) = (points.join(" "), dashes(is_dashed));
        self.add(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" stroke-linejoin=\"round\"{dashes}/>"
        ));
    }

    fn bar(&mut self, [x, y, width, height]: [f64; 4], colour: &str) {
        let width = width.max(1.0);
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" fill=\"{colour}\"/>"
        ));
    }

    fn whisker(&mut self, [least, most]: [f64; 2], y: f64) {
        let (top, end) = (y - 4.0, y + 4.0);
        self.add(format_args!(
            "<path d=\"M{least:.1} {y:.1}H{most:.1}M{least:.1} {top:.1}V{end:.1}M{most:.1} {top:.1}V{end:.1}\" stroke=\"{INK}\" stroke-width=\"1.5\"/>"
        ));
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Lines {
        let ours = Line {
            name: "ours".into(),
            hue: None,
            is_dashed: false,
            points: vec![[0.0, 0.0], [5.0, 50.0], [7.0, 100.0]],
        };
        let floor = Line {
            name: "floor".into(),
            hue: None,
            is_dashed: true,
            points: vec![[0.0, 0.0], [f64::NAN, 1.0], [3.0, 100.0]],
        };
        let axes = ["time (s)".to_owned(), "nodes (%)".to_owned()];
        Lines { title: "Joins & <more>".into(), axes, lines: vec![floor, ours], limit: Some(8.0) }
    }

    #[test]
    fn lines_reach_from_corner_to_corner() {
        let svg = lines().svg();
        // The point at seven of eight seconds, at the top. 66 is the left edge of the area. NaN is left out.
        let right = 66.0 + 674.0 * 7.0 / 8.0;
        assert!(svg.contains(&format!("66.0,346.0 487.2,206.0 {right:.1},66.0\" fill")), "{svg}");
        assert!(svg.contains("points=\"66.0,346.0 318.8,66.0\""), "{svg}");
        assert!(svg.contains("<title>Joins &amp; &lt;more&gt;</title>") && !svg.contains("<more>"));
        for label in ["time (s)", "nodes (%)", ">ours<", ">floor<", ">limit<", ">8<", ">100<"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("script"));
    }

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let bar = |of: &str, value, spread| Bar { of: of.into(), value, spread };
        let groups = vec![
            (
                "calm".to_owned(),
                vec![bar("ours", Ok(5.0), Some([2.5, 10.0])), bar("peer", Err("not measured".into()), None)],
                Some(10.0),
            ),
            ("busy".to_owned(), vec![bar("ours", Ok(10.0), None)], None),
        ];
        let svg = Bars { title: "CPU".into(), axis: "CPU (%)".into(), groups }.svg();
        let left = 4.0f64.mul_add(SIZE * LETTER, 24.0);
        let width = WIDTH - left - RIGHT - 80.0;
        for (length, what) in [(width / 2.0, "half"), (width, "whole")] {
            assert!(
                svg.contains(&format!("width=\"{length:.1}\" height=\"13.0\" rx=\"2\" fill=\"#2f81f7\"")),
                "{what}: {svg}"
            );
        }
        let [least, most] = [0.25, 1.0].map(|share| width.mul_add(share, left));
        assert!(svg.contains(&format!("M{least:.1} 80.0H{most:.1}")), "{svg}");
        assert!(svg.contains("not measured") && svg.contains(">calm<") && svg.contains(LIMIT));
    }

    #[test]
    fn axes_have_steps_that_people_count_in() {
        let cases = [
            (8.0, (1.0, 8.0)),
            (8.1, (2.0, 10.0)),
            (100.0, (20.0, 100.0)),
            (0.3, (0.05, 0.3)),
            (34.5, (5.0, 35.0)),
            (0.0, (0.2, 1.0)),
            (f64::NAN, (0.2, 1.0)),
        ];
        for (most, (step, end)) in cases {
            let (got_step, got_end) = scale(most);
            assert!((got_step - step).abs() < 1e-9 && (got_end - end).abs() < 1e-9, "{most}: {got_step} to {got_end}");
        }
        assert_eq!((tick(0.15, 0.05), tick(2_000.0, 500.0)), ("0.15".to_owned(), "2,000".to_owned()));
    }

    #[test]
    fn nothing_is_an_empty_plot() {
        let svg = Lines { lines: Vec::new(), limit: None, ..lines() }.svg();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("polyline") && !svg.contains("NaN"));
    }
}
