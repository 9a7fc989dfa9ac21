//! Charts: lines, points and bars on labelled axes, alone or as panels of a figure, as SVG and PNG.
//!
//! A chart is laid out once, as a list of shapes in logical pixels; the backends only paint it. The legend stands above the
//! panels, so it never covers data. Colours are Okabe and Ito's, with a dash and a marker for each, so that a print without
//! colours can be read too.

mod axis;
mod bars;
mod curves;
mod figure;
mod font;
mod frame;
mod legend;
mod paint;
mod shape;
mod style;

pub use axis::Axis;
pub use bars::{BarGroup, Bars, Mark};
pub use figure::Figure;

/// One plot: axes and what is drawn on them.
#[derive(Clone, Debug)]
pub struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    content: Content,
    references: Vec<Reference>,
}

#[derive(Clone, Debug)]
enum Content {
    Lines(Vec<Series>),
    Points(Vec<Series>),
    Bars(Bars),
}

/// A curve or a cloud of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Colour, dash and marker: give the same thing the same number in every chart.
    pub style: usize,
    /// (x, y) in the axes' units. What is not finite, or not positive on a logarithmic axis, is left out.
    pub points: Vec<(f64, f64)>,
}

/// A grey line to compare with; its name stands in the legend.
#[derive(Clone, Debug)]
pub enum Reference {
    /// At a y.
    Horizontal(f64, String),
    /// At an x.
    Vertical(f64, String),
    /// y = x.
    Diagonal(String),
}

/// Curves.
pub fn lines(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
    Panel { title: title.into(), x, y, content: Content::Lines(series), references: Vec::new() }
}

/// Clouds of points.
pub fn scatter(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
    Panel { title: title.into(), x, y, content: Content::Points(series), references: Vec::new() }
}

/// Bars over categories, from zero; `categories` names what they are.
pub fn bars(title: impl Into<String>, categories: impl Into<String>, y: Axis, bars: Bars) -> Panel {
    let x = Axis::linear(categories);
    Panel { title: title.into(), x, y: y.from_zero(), content: Content::Bars(bars), references: Vec::new() }
}

impl Panel {
    /// Adds a line to compare with.
    pub fn with_reference(mut self, reference: Reference) -> Self {
        self.references.push(reference);
        self
    }

    /// Nothing can be drawn: no series has a point, no group a bar.
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Lines(series) | Content::Points(series) => series.iter().all(|series| series.points.is_empty()),
            Content::Bars(bars) => bars.categories.is_empty(),
        }
    }
}

impl Series {
    /// A series; see the fields.
    pub fn new(name: impl Into<String>, style: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), style, points }
    }
}
