//! The cumulative distribution of lengths as an SVG, written by hand: the chart library measures text with a font that
//! another crate ships.

use std::fmt::Write as _;

use traces::statistics::{Sorted, Statistics};

use crate::output::grouped;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 46.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 66.0;

/// Width of a legend's entry.
const LEGEND: f64 = 240.0;

/// Steps of a curve: finer than a pixel.
const POINTS: u32 = 1000;

/// Okabe and Ito's blue, vermilion and green, and dashes for those who see no colours.
const STYLES: [(&str, &str); 3] = [("#0072b2", ""), ("#d55e00", "9 4"), ("#009e73", "3 3")];

/// The share of requests with at most so many tokens, over a logarithmic axis of tokens.
pub(crate) fn svg(title: &str, statistics: &Statistics) -> String {
    let curves =
        [("prompt", &statistics.prompt), ("output", &statistics.output), ("prompt + output", &statistics.total)];
    let low = curves.iter().map(|(_, numbers)| numbers.quantile(0.0)).min().unwrap_or(1);
    let high = curves.iter().map(|(_, numbers)| numbers.quantile(1.0)).max().unwrap_or(10);
    let axis = Decades::over(low, high);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"14\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let count = grouped(statistics.prompt.count() as u64);
    let centre = (LEFT + WIDTH - RIGHT) / 2.0;
    text(&mut svg, centre, 28.0, "middle", &format!("{title}: lengths of {count} requests"));
    grid(&mut svg, &axis);
    text(&mut svg, centre, HEIGHT - 18.0, "middle", "tokens (logarithmic)");
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        svg,
        "<text transform=\"translate(24 {middle}) rotate(-90)\" text-anchor=\"middle\">share of requests with at most so many</text>"
    );
    for (index, ((name, numbers), (color, dash))) in curves.iter().zip(STYLES).enumerate() {
        let stroke = format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"");
        let _ = writeln!(svg, "<path d=\"{}\" {stroke}/>", path(numbers, &axis));
        // Above the plot, where no curve can hide it.
        let x = LEFT + LEGEND * index as f64;
        let _ = writeln!(svg, "<path d=\"M{x} {}h36\" {stroke}/>", TOP - 21.0);
        text(&mut svg, x + 44.0, TOP - 16.0, "start", &format!("{name}, mean {:.1}", numbers.mean()));
    }
    svg + "</svg>\n"
}

/// A logarithmic axis over whole decades.
struct Decades {
    first: i32,
    last: i32,
}

impl Decades {
    fn over(low: u32, high: u32) -> Self {
        let first = low.max(1).ilog10() as i32;
        let last = f64::from(high.max(1)).log10().ceil() as i32;
        Self { first, last: last.max(first + 1) }
    }

    fn x(&self, tokens: f64) -> f64 {
        let share = (tokens.max(1.0).log10() - f64::from(self.first)) / f64::from(self.last - self.first);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }
}

fn y(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

/// A staircase: level up to each number, then up.
fn path(numbers: &Sorted, axis: &Decades) -> String {
    let mut path = format!("M{:.1} {:.1}", axis.x(f64::from(numbers.quantile(0.0))), y(0.0));
    for point in 1..=POINTS {
        let q = f64::from(point) / f64::from(POINTS);
        let _ = write!(path, "H{:.1}V{:.1}", axis.x(f64::from(numbers.quantile(q))), y(q));
    }
    path
}

fn grid(svg: &mut String, axis: &Decades) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tenth in 0..=5 {
        let share = f64::from(tenth) / 5.0;
        let _ = writeln!(svg, "<path d=\"M{LEFT} {:.1}H{right}\" stroke=\"#ddd\"/>", y(share));
        text(svg, LEFT - 8.0, y(share) + 5.0, "end", &format!("{share:.1}"));
    }
    for decade in axis.first..=axis.last {
        let tokens = 10f64.powi(decade);
        let _ = writeln!(svg, "<path d=\"M{:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>", axis.x(tokens));
        text(svg, axis.x(tokens), bottom + 20.0, "middle", &grouped(tokens as u64));
        // Minor ticks at 2 to 9 times the decade show that the axis is logarithmic.
        for multiple in (2..10).filter(|_| decade < axis.last) {
            let _ =
                writeln!(svg, "<path d=\"M{:.1} {bottom}v4\" stroke=\"#222\"/>", axis.x(tokens * f64::from(multiple)));
        }
    }
    let _ = writeln!(svg, "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>");
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}
