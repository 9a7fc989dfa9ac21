//! Lines and points on a frame.

use super::frame::{Area, Frame, Texts, x_ticks, y_ticks};
use super::shape::{Canvas, Point};
use super::style::{Stroke, color, marker};
use super::{Panel, Reference, Series};

/// A series with at most this many points shows each of them.
const FEW_POINTS: usize = 25;
/// Markers on a longer line, to tell it from others.
const MARKERS_PER_LINE: usize = 7;

/// Draws a panel of lines or, with `joined` false, of points.
pub(super) fn draw(panel: &Panel, series: &[Series], joined: bool, outer: Area, canvas: &mut Canvas) {
    let texts = Texts { title: &panel.title, x: &panel.x.label, y: &panel.y.label };
    let shown = |point: &&(f64, f64)| panel.x.takes(point.0) && panel.y.takes(point.1);
    let points = || series.iter().flat_map(|series| &series.points).filter(shown);
    let references = |pick: fn(&Reference) -> Option<f64>| panel.references.iter().filter_map(pick);
    let xs = points().map(|point| point.0).chain(references(Reference::x));
    let ys = points().map(|point| point.1).chain(references(Reference::y));
    let (x, y) = (panel.x.scale(xs, x_ticks(outer)), panel.y.scale(ys, y_ticks(outer)));
    let frame = Frame::new(outer, &texts, x, y, 1);
    frame.draw(outer, &texts, canvas);
    draw_references(&panel.references, &frame, canvas);
    for series in series {
        let points = series.points.iter().filter(shown).filter(|point| frame.x.shows(point.0));
        let path = thinned(points.map(|&point| frame.at(point)), joined);
        let color = color(series.style);
        if joined && path.len() > 1 {
            canvas.line(path.clone(), stroke(&path, series.style, frame.inner.width()));
        }
        let every = joined && path.len() > FEW_POINTS;
        for point in if every { spread(&path, series.style) } else { path } {
            canvas.marker(marker(series.style), point, color);
        }
    }
}

/// A line that winds through the panel many times over is drawn without dashes: nobody could follow them, and each is an
/// element of the SVG.
fn stroke(path: &[Point], style: usize, panel_width: f64) -> Stroke {
    let length: f64 = path.windows(2).map(|pair| (pair[1].0 - pair[0].0).hypot(pair[1].1 - pair[0].1)).sum();
    let stroke = Stroke::series(style);
    if length > 15.0 * panel_width { Stroke::solid(stroke.color, 1.2) } else { stroke }
}

pub(super) fn draw_references(references: &[Reference], frame: &Frame, canvas: &mut Canvas) {
    let (x, y) = (&frame.x, &frame.y);
    for reference in references {
        let ends = match *reference {
            Reference::Horizontal(at, _) if y.shows(at) => [(x.low, at), (x.high, at)],
            Reference::Vertical(at, _) if x.shows(at) => [(at, y.low), (at, y.high)],
            Reference::Diagonal(_) if x.low.max(y.low) < x.high.min(y.high) => {
                let (low, high) = (x.low.max(y.low), x.high.min(y.high));
                [(low, low), (high, high)]
            }
            _ => continue,
        };
        canvas.line(ends.map(|end| frame.at(end)), Stroke::reference());
    }
}

impl Reference {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Horizontal(_, name) | Self::Vertical(_, name) | Self::Diagonal(name) => name,
        }
    }

    fn x(&self) -> Option<f64> {
        if let Self::Vertical(at, _) = self { Some(*at) } else { None }
    }

    pub(super) fn y(&self) -> Option<f64> {
        if let Self::Horizontal(at, _) = self { Some(*at) } else { None }
    }
}

/// Drops points that no reader could see: of the joined points in one half-pixel column, the first, the lowest, the highest
/// and the last are enough.
fn thinned(points: impl Iterator<Item = Point>, joined: bool) -> Vec<Point> {
    if !joined {
        return points.collect();
    }
    let mut path: Vec<Point> = Vec::new();
    let mut column: Vec<Point> = Vec::new();
    let column_of = |point: &Point| (2.0 * point.0).round();
    let flush = |column: &mut Vec<Point>, path: &mut Vec<Point>| {
        let by_height = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
        if let (Some(&low), Some(&high)) = (column.iter().min_by(by_height), column.iter().max_by(by_height)) {
            let (first, last) = (column[0], column[column.len() - 1]);
            path.extend([first, low, high, last]);
        }
        column.clear();
    };
    for point in points {
        if column.last().is_some_and(|last| column_of(last) != column_of(&point)) {
            flush(&mut column, &mut path);
        }
        column.push(point);
    }
    flush(&mut column, &mut path);
    path.dedup();
    path
}

/// Places for markers on a long line, shifted by style, so that two lines that coincide show both.
fn spread(path: &[Point], style: usize) -> Vec<Point> {
    let lengths = path.windows(2).map(|pair| (pair[1].0 - pair[0].0).hypot(pair[1].1 - pair[0].1));
    let total: f64 = lengths.clone().sum();
    let gap = total / MARKERS_PER_LINE as f64;
    let mut next = gap * (0.25 + 0.5 * ((style * 3 % 7) as f64 / 7.0));
    let mut places = Vec::new();
    for (pair, length) in path.windows(2).zip(lengths) {
        while next <= length {
            let share = next / length;
            places.push((pair[0].0 + share * (pair[1].0 - pair[0].0), pair[0].1 + share * (pair[1].1 - pair[0].1)));
            next += gap;
        }
        next -= length;
    }
    places
}
