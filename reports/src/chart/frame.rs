//! A panel's frame: margins, grid, ticks and axis labels around the place for the data.

use super::axis::Scale;
use super::font;
use super::shape::{Anchor, Canvas, Label, Point};
use super::style::{GRID, INK, Stroke};

pub(super) const TITLE: f64 = 14.0;
pub(super) const TEXT: f64 = 12.5;
pub(super) const TICK: f64 = 11.5;

/// Room for a y axis' labels, at least: panels below each other then begin at the same place.
const TICK_ROOM: f64 = 42.0;

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

/// Where a panel's data goes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) inner: Area,
    pub(super) x: Scale,
    pub(super) y: Scale,
}

/// What a frame says around its data.
pub(super) struct Texts<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

impl Area {
    pub(super) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(super) fn height(&self) -> f64 {
        self.bottom - self.top
    }
}

impl Frame {
    /// Lays out the frame inside `outer`; `tick_lines` lines of text stand below the x axis.
    pub(super) fn new(outer: Area, texts: &Texts<'_>, x: Scale, y: Scale, tick_lines: usize) -> Self {
        let widest = y.ticks.iter().map(|(_, label)| font::width(label, TICK)).fold(TICK_ROOM, f64::max);
        let overhang = x.ticks.last().map_or(0.0, |(_, label)| font::width(label, TICK) / 2.0);
        let inner = Area {
            left: outer.left + if texts.y.is_empty() { 0.0 } else { TEXT + 10.0 } + widest + 8.0,
            top: outer.top + if texts.title.is_empty() { 8.0 } else { TITLE + 14.0 },
            right: outer.right - overhang.max(6.0),
            bottom: outer.bottom
                - 6.0
                - tick_lines as f64 * line_height()
                - if texts.x.is_empty() { 2.0 } else { TEXT + 8.0 },
        };
        Self { inner, x, y }
    }

    /// The pixel of a value.
    pub(super) fn at(&self, (x, y): (f64, f64)) -> Point {
        let Area { left, top, right, bottom } = self.inner;
        (left + (right - left) * self.x.position(x), bottom - (bottom - top) * self.y.position(y))
    }

    /// The height of a value.
    pub(super) fn y_of(&self, value: f64) -> f64 {
        self.at((self.x.low, value)).1
    }

    /// Draws everything but the data.
    pub(super) fn draw(&self, outer: Area, texts: &Texts<'_>, canvas: &mut Canvas) {
        let Area { left, top, right, bottom } = self.inner;
        for (value, label) in &self.y.ticks {
            let y = self.y_of(*value);
            canvas.line([(left, y), (right, y)], Stroke::solid(GRID, 1.0));
            canvas.text(Label::new(label, (left - 7.0, y + 0.36 * TICK), TICK, INK, Anchor::End));
        }
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &self.x.ticks {
            let x = self.at((*value, self.y.low)).0;
            canvas.line([(x, top), (x, bottom)], Stroke::solid(GRID, 1.0));
            canvas.line([(x, bottom), (x, bottom + 4.0)], Stroke::solid(INK, 1.0));
            let half = font::width(label, TICK) / 2.0;
            // A label that would touch its neighbour is left out; its tick stays.
            if x - half >= free_from {
                canvas.text(Label::new(label, (x, bottom + 6.0 + TICK), TICK, INK, Anchor::Middle));
                free_from = x + half + 6.0;
            }
        }
        canvas.line([(left, top), (left, bottom), (right, bottom)], Stroke::solid(INK, 1.0));
        let title = font::fitted(texts.title, TITLE, right - outer.left);
        canvas.text(Label::new(title, (outer.left, outer.top + TITLE), TITLE, INK, Anchor::Start));
        let x_label = font::fitted(texts.x, TEXT, right - left);
        canvas.text(Label::new(x_label, ((left + right) / 2.0, outer.bottom - 4.0), TEXT, INK, Anchor::Middle));
        let y_label = font::fitted(texts.y, TEXT, bottom - top);
        let at = (outer.left + TEXT, (top + bottom) / 2.0);
        canvas.text(Label { turned: true, ..Label::new(y_label, at, TEXT, INK, Anchor::Middle) });
    }
}

/// Ticks that fit on an x axis.
pub(super) fn x_ticks(outer: Area) -> f64 {
    (outer.width() / 85.0).clamp(3.0, 12.0)
}

/// Ticks that fit on a y axis.
pub(super) fn y_ticks(outer: Area) -> f64 {
    ((outer.height() - 60.0) / 42.0).clamp(3.0, 8.0)
}

/// From one baseline of tick labels to the next.
pub(super) fn line_height() -> f64 {
    1.3 * TICK
}
