//! What a figure is made of, in logical pixels from the top left.

use super::style::{Color, Marker, Stroke};

/// A place.
pub(super) type Point = (f64, f64);

/// Something to paint.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// A line through points.
    Line(Vec<Point>, Stroke),
    /// A filled polygon.
    Area(Vec<Point>, Color),
    /// A filled circle.
    Disc(Point, f64, Color),
    /// Text.
    Text(Label),
}

/// A line of text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    pub(super) text: String,
    /// On the baseline, at the anchor.
    pub(super) at: Point,
    /// Em size.
    pub(super) size: f64,
    pub(super) color: Color,
    pub(super) anchor: Anchor,
    /// Reads upwards.
    pub(super) turned: bool,
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Label {
    pub(super) fn new(text: impl Into<String>, at: Point, size: f64, color: Color, anchor: Anchor) -> Self {
        Self { text: text.into(), at, size, color, anchor, turned: false }
    }

    /// The box that the text fills, as left, top, right, bottom.
    #[cfg(test)]
    pub(super) fn bounds(&self) -> [f64; 4] {
        let width = super::font::width(&self.text, self.size);
        let start = match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        };
        let (x, y) = self.at;
        let (above, below) = (0.73 * self.size, 0.2 * self.size);
        if self.turned {
            [x - above, y - start - width, x + below, y - start]
        } else {
            [x + start, y - above, x + start + width, y + below]
        }
    }
}

/// Shapes in painting order.
#[derive(Clone, Debug, Default)]
pub(super) struct Canvas {
    pub(super) shapes: Vec<Shape>,
}

impl Canvas {
    pub(super) fn line(&mut self, points: impl Into<Vec<Point>>, stroke: Stroke) {
        self.shapes.push(Shape::Line(points.into(), stroke));
    }

    pub(super) fn area(&mut self, points: impl Into<Vec<Point>>, color: Color) {
        self.shapes.push(Shape::Area(points.into(), color));
    }

    /// A filled rectangle between two corners.
    pub(super) fn rect(&mut self, (x0, y0): Point, (x1, y1): Point, color: Color) {
        self.area([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], color);
    }

    pub(super) fn text(&mut self, label: Label) {
        if !label.text.is_empty() {
            self.shapes.push(Shape::Text(label));
        }
    }

    pub(super) fn marker(&mut self, marker: Marker, (x, y): Point, color: Color) {
        let r = 3.6;
        match marker {
            Marker::Disc => self.shapes.push(Shape::Disc((x, y), r, color)),
            Marker::Square => self.rect((x - 3.1, y - 3.1), (x + 3.1, y + 3.1), color),
            Marker::Triangle => self.area([(x, y - 4.4), (x + 4.1, y + 3.0), (x - 4.1, y + 3.0)], color),
            Marker::Wedge => self.area([(x, y + 4.4), (x - 4.1, y - 3.0), (x + 4.1, y - 3.0)], color),
            Marker::Diamond => self.area([(x, y - 4.6), (x + 4.2, y), (x, y + 4.6), (x - 4.2, y)], color),
            Marker::Plus => {
                self.rect((x - 4.4, y - 1.2), (x + 4.4, y + 1.2), color);
                self.rect((x - 1.2, y - 4.4), (x + 1.2, y + 4.4), color);
            }
        }
    }
}
