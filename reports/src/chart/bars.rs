//! Bars over categories, with marks to compare them with.

use super::Panel;
use super::axis::Scale;
use super::curves::draw_references;
use super::font;
use super::frame::{Area, Frame, TICK, Texts, line_height};
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

/// Shares of a category's slot.
const BARS_SHARE: f64 = 0.76;
const BARS_SHARE_WITH_MARKS: f64 = 0.5;
const MAX_BAR_WIDTH: f64 = 90.0;
const SLOT_PADDING: f64 = 8.0;

pub(super) fn draw(panel: &Panel, bars: &Bars, outer: Area, canvas: &mut Canvas) {
    let texts = Texts { title: &panel.title, x: &panel.x.label, y: &panel.y.label };
    let groups = bars.groups.iter().flat_map(|group| &group.values);
    let marks = bars.marks.iter().flat_map(|mark| &mark.values);
    let references = panel.references.iter().filter_map(super::Reference::y);
    let values: Vec<f64> = groups.chain(marks).flatten().copied().chain(references).collect();
    // Room above the highest bar for its value.
    let highest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let y = panel.y.scale(values.into_iter().chain([1.06 * highest]), outer.height() - 60.0);
    let x = Scale::slots(bars.categories.len());
    // The slots' width decides how names break, and the frame's width hardly depends on that.
    let estimate =
        Frame::new(outer, &texts, x.clone(), y.clone(), 1).inner.width() / bars.categories.len().max(1) as f64;
    let names: Vec<Vec<String>> =
        bars.categories.iter().map(|name| font::wrapped(name, TICK, estimate - SLOT_PADDING)).collect();
    let lines = names.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let frame = Frame::new(outer, &texts, x, y, lines);
    frame.draw(outer, &texts, canvas);
    for (index, name) in names.iter().enumerate() {
        for (line, text) in name.iter().enumerate() {
            let (x, bottom) = frame.at((index as f64 + 0.5, frame.y.low));
            let baseline = bottom + 6.0 + TICK + line as f64 * line_height();
            canvas.text(Label::new(text, (x, baseline), TICK, INK, Anchor::Middle));
        }
        draw_category(bars, index, &frame, canvas);
    }
    draw_references(&panel.references, &frame, canvas);
}

fn draw_category(bars: &Bars, index: usize, frame: &Frame, canvas: &mut Canvas) {
    let slot = frame.inner.width() / bars.categories.len() as f64;
    let marked = bars.marks.iter().any(|mark| value(&mark.values, index).is_some());
    let share = if bars.marks.is_empty() { BARS_SHARE } else { BARS_SHARE_WITH_MARKS };
    let bar = (slot * share / bars.groups.len().max(1) as f64).min(MAX_BAR_WIDTH);
    let width = bar * bars.groups.len() as f64;
    let left = frame.inner.left + slot * (index as f64 + 0.5) - width / 2.0;
    let y_of = |value: f64| frame.at((frame.x.low, value)).1;
    for (at, group) in bars.groups.iter().enumerate() {
        let Some(value) = value(&group.values, index) else { continue };
        let (x0, x1) = (left + bar * at as f64 + 1.0, left + bar * (at + 1) as f64 - 1.0);
        let fill = color(group.style);
        canvas.rect((x0, y_of(value)), (x1, frame.inner.bottom), fill);
        let text = (bars.format)(value);
        if font::width(&text, TICK) > bar + 2.0 {
            continue;
        }
        // Marks keep the space above a bar, so its value goes inside.
        let inside = marked && frame.inner.bottom - y_of(value) > 2.0 * TICK;
        let (baseline, ink) =
            if inside { (y_of(value) + 1.5 * TICK, fill.contrast()) } else { (y_of(value) - 4.0, INK) };
        canvas.text(Label::new(text, ((x0 + x1) / 2.0, baseline), TICK, ink, Anchor::Middle));
    }
    let mut labels: Vec<(f64, String)> = Vec::new();
    for mark in &bars.marks {
        let Some(value) = value(&mark.values, index) else { continue };
        let y = y_of(value);
        canvas.line([(left - 5.0, y), (left + width + 5.0, y)], Stroke { width: 2.2, ..Stroke::series(mark.style) });
        labels.push((y, format!("{} {}", mark.name, (bars.format)(value))));
    }
    let x = left + width + 8.0;
    let room = frame.inner.left + slot * (index as f64 + 1.0) - x + slot * (1.0 - share) / 2.0 - 8.0;
    for (y, text) in apart(labels, 1.15 * TICK, frame.inner) {
        if font::width(&text, TICK) <= room {
            canvas.text(Label::new(text, (x, y + 0.36 * TICK), TICK, INK, Anchor::Start));
        }
    }
}

fn value(values: &[Option<f64>], index: usize) -> Option<f64> {
    values.get(index).copied().flatten().filter(|value| value.is_finite())
}

/// Moves labels up and down until they are `gap` apart, keeping their order and their mean.
fn apart(mut labels: Vec<(f64, String)>, gap: f64, area: Area) -> Vec<(f64, String)> {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean = |labels: &[(f64, String)]| labels.iter().map(|label| label.0).sum::<f64>() / labels.len().max(1) as f64;
    let before = mean(&labels);
    for at in 1..labels.len() {
        labels[at].0 = labels[at].0.max(labels[at - 1].0 + gap);
    }
    let first = labels.first().map_or(0.0, |label| label.0);
    let shift = (before - mean(&labels)).max(area.top + gap / 2.0 - first);
    labels.iter_mut().for_each(|label| label.0 += shift);
    labels
}
