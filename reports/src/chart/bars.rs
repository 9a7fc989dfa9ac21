//! Bars over categories, with marks to compare them with.

use super::Panel;
use super::axis::Scale;
use super::curves::draw_references;
use super::font;
use super::frame::{Area, Frame, TICK, Texts, line_height, y_ticks};
use super::shape::{Anchor, Canvas, Label};
use super::style::{INK, Stroke, color};

/// What a bar chart shows.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Names below the bars.
    pub categories: Vec<String>,
    /// One bar each in every category.
    pub groups: Vec<BarGroup>,
    /// Short lines across each category's bars.
    pub marks: Vec<Mark>,
    /// How values are written at bars and marks, where there is room.
    pub format: fn(f64) -> String,
}

/// Bars of one kind.
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// Name in the legend.
    pub name: String,
    /// Colour, as for a series.
    pub style: usize,
    /// One value per category.
    pub values: Vec<Option<f64>>,
}

/// Lines of one kind.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Name in the legend, and before its value.
    pub name: String,
    /// Colour and dash, as for a series.
    pub style: usize,
    /// One value per category.
    pub values: Vec<Option<f64>>,
}

/// Share of a category's slot that its bars fill; with marks, their labels need the rest.
const FILLED: f64 = 0.76;
const FILLED_WITH_MARKS: f64 = 0.48;
const MAX_BAR_WIDTH: f64 = 90.0;
/// How far marks reach beyond the bars, and where their labels begin.
const MARK_OVERHANG: f64 = 5.0;
const LABEL_GAP: f64 = 9.0;

pub(super) fn draw(panel: &Panel, bars: &Bars, outer: Area, canvas: &mut Canvas) {
    let texts = Texts { title: &panel.title, x: &panel.x.label, y: &panel.y.label };
    let groups = bars.groups.iter().flat_map(|group| &group.values);
    let marks = bars.marks.iter().flat_map(|mark| &mark.values);
    let references = panel.references.iter().filter_map(super::Reference::y);
    let values: Vec<f64> = groups.chain(marks).flatten().copied().chain(references).collect();
    // Room above the highest bar for its value.
    let highest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let y = panel.y.scale(values.into_iter().chain([1.06 * highest]), y_ticks(outer));
    let x = Scale::slots(bars.categories.len());
    // The slots' width decides how names break; the frame's width does not depend on how many lines that gives.
    let slot = Frame::new(outer, &texts, x.clone(), y.clone(), 1).inner.width() / bars.categories.len().max(1) as f64;
    let categories: Vec<Category> = (0..bars.categories.len()).map(|index| Category::new(bars, index, slot)).collect();
    let lines = categories.iter().map(|category| category.name.len()).max().unwrap_or(1).max(1);
    let frame = Frame::new(outer, &texts, x, y, lines);
    frame.draw(outer, &texts, canvas);
    for (index, category) in categories.iter().enumerate() {
        category.draw(bars.format, frame.inner.left + slot * index as f64, &frame, canvas);
    }
    draw_references(&panel.references, &frame, canvas);
}

/// One category's bars and marks, those that have a value, and where they stand in its slot.
struct Category {
    name: Vec<String>,
    bars: Vec<(f64, usize)>,
    marks: Vec<(f64, usize, String)>,
    bar_width: f64,
    /// From the slot's left end to the first bar.
    offset: f64,
    /// Labels that do not fit are left out; the legend still tells which mark is which.
    labelled: bool,
}

impl Category {
    fn new(chart: &Bars, index: usize, slot: f64) -> Self {
        let value = |values: &[Option<f64>]| values.get(index).copied().flatten().filter(|value| value.is_finite());
        let mark = |mark: &Mark| {
            let value = value(&mark.values)?;
            Some((value, mark.style, format!("{} {}", mark.name, (chart.format)(value))))
        };
        let filled = if chart.marks.is_empty() { FILLED } else { FILLED_WITH_MARKS };
        let bar_width = (slot * filled / chart.groups.len().max(1) as f64).min(MAX_BAR_WIDTH);
        let bars: Vec<_> = chart.groups.iter().filter_map(|group| Some((value(&group.values)?, group.style))).collect();
        let marks: Vec<_> = chart.marks.iter().filter_map(mark).collect();
        let width = bar_width * bars.len() as f64;
        let labels = marks.iter().map(|(_, _, label)| LABEL_GAP + font::width(label, TICK)).fold(0.0, f64::max);
        let labelled = width + labels <= slot - 4.0;
        let offset = (slot - width - if labelled { labels } else { 0.0 }) / 2.0;
        // The name stands below the middle of the bars, which may be left of the slot's.
        let name = font::wrapped(&chart.categories[index], TICK, 2.0 * (offset + width / 2.0) - 6.0);
        Self { name, bars, marks, bar_width, offset, labelled }
    }

    fn width(&self) -> f64 {
        self.bar_width * self.bars.len() as f64
    }

    fn draw(&self, format: fn(f64) -> String, slot_left: f64, frame: &Frame, canvas: &mut Canvas) {
        let left = slot_left + self.offset;
        for (line, text) in self.name.iter().enumerate() {
            let baseline = frame.inner.bottom + 6.0 + TICK + line as f64 * line_height();
            canvas.text(Label::new(text, (left + self.width() / 2.0, baseline), TICK, INK, Anchor::Middle));
        }
        for (at, &(value, style)) in self.bars.iter().enumerate() {
            let (x0, x1) = (left + self.bar_width * at as f64 + 1.0, left + self.bar_width * (at + 1) as f64 - 1.0);
            let (top, fill) = (frame.y_of(value), color(style));
            canvas.rect((x0, top), (x1, frame.inner.bottom), fill);
            let text = format(value);
            if font::width(&text, TICK) > self.bar_width + 2.0 {
                continue;
            }
            // Marks keep the space above a bar, so its value goes inside.
            let inside = !self.marks.is_empty() && frame.inner.bottom - top > 2.0 * TICK;
            let (baseline, ink) = if inside { (top + 1.5 * TICK, fill.contrast()) } else { (top - 4.0, INK) };
            canvas.text(Label::new(text, ((x0 + x1) / 2.0, baseline), TICK, ink, Anchor::Middle));
        }
        self.draw_marks(left, frame, canvas);
    }

    fn draw_marks(&self, left: f64, frame: &Frame, canvas: &mut Canvas) {
        let right = left + self.width();
        for &(value, style, _) in &self.marks {
            let y = frame.y_of(value);
            let stroke = Stroke { width: 2.2, ..Stroke::series(style) };
            canvas.line([(left - MARK_OVERHANG, y), (right + MARK_OVERHANG, y)], stroke);
        }
        if self.labelled {
            let labels = self.marks.iter().map(|(value, _, label)| (frame.y_of(*value), label.clone())).collect();
            for (y, text) in apart(labels, 1.15 * TICK, frame.inner.top) {
                let at = (right + LABEL_GAP, y + 0.36 * TICK);
                canvas.text(Label::new(text, at, TICK, INK, Anchor::Start));
            }
        }
    }
}

/// Moves labels up and down until they are `gap` apart, keeping their order, their mean, and all below `top`.
fn apart(mut labels: Vec<(f64, String)>, gap: f64, top: f64) -> Vec<(f64, String)> {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean = |labels: &[(f64, String)]| labels.iter().map(|label| label.0).sum::<f64>() / labels.len().max(1) as f64;
    let before = mean(&labels);
    for at in 1..labels.len() {
        labels[at].0 = labels[at].0.max(labels[at - 1].0 + gap);
    }
    let first = labels.first().map_or(0.0, |label| label.0);
    let shift = (before - mean(&labels)).max(top + gap / 2.0 - first);
    labels.iter_mut().for_each(|label| label.0 += shift);
    labels
}
