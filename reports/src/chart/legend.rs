//! The legend of a figure: a strip above its panels.

use super::font;
use super::frame::TEXT;
use super::shape::{Anchor, Canvas, Label};
use super::style::{INK, Stroke, color, marker};
use super::{Content, Panel};

/// How an entry's key looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Line(usize),
    Points(usize),
    Bar(usize),
    Mark(usize),
    Reference,
}

const LINE_KEY: f64 = 34.0;
const BOX_KEY: f64 = 14.0;
const KEY_GAP: f64 = 7.0;
const ENTRY_GAP: f64 = 22.0;
pub(super) const ROW: f64 = 20.0;

/// A legend laid out in rows.
pub(super) struct Legend {
    rows: Vec<Vec<(Key, String, f64)>>,
}

impl Legend {
    /// What the panels show, each name once; a single series needs no legend.
    pub(super) fn new(panels: &[Panel], width: f64) -> Self {
        let mut entries: Vec<(Key, String)> = Vec::new();
        for entry in panels.iter().flat_map(entries_of) {
            if !entry.1.is_empty() && !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        let mut rows: Vec<Vec<(Key, String, f64)>> = Vec::new();
        let mut used = f64::INFINITY;
        for (key, name) in entries {
            let name = font::fitted(&name, TEXT, width - LINE_KEY - KEY_GAP);
            let entry_width = key.width() + KEY_GAP + font::width(&name, TEXT);
            if used + ENTRY_GAP + entry_width > width {
                rows.push(Vec::new());
                used = -ENTRY_GAP;
            }
            if let Some(row) = rows.last_mut() {
                row.push((key, name, used + ENTRY_GAP));
            }
            used += ENTRY_GAP + entry_width;
        }
        Self { rows }
    }

    pub(super) fn height(&self) -> f64 {
        if self.rows.is_empty() { 0.0 } else { ROW * self.rows.len() as f64 + 10.0 }
    }

    pub(super) fn draw(&self, left: f64, top: f64, canvas: &mut Canvas) {
        for (index, row) in self.rows.iter().enumerate() {
            let y = top + ROW * (index as f64 + 0.5);
            for (key, name, offset) in row {
                let x = left + offset;
                draw_key(*key, x, y, canvas);
                let at = (x + key.width() + KEY_GAP, y + 0.36 * TEXT);
                canvas.text(Label::new(name, at, TEXT, INK, Anchor::Start));
            }
        }
    }
}

fn entries_of(panel: &Panel) -> Vec<(Key, String)> {
    let mut entries: Vec<(Key, String)> = match &panel.content {
        Content::Lines(series) => series.iter().map(|series| (Key::Line(series.style), series.name.clone())).collect(),
        Content::Points(series) => {
            series.iter().map(|series| (Key::Points(series.style), series.name.clone())).collect()
        }
        Content::Bars(bars) => {
            let groups = bars.groups.iter().map(|group| (Key::Bar(group.style), group.name.clone()));
            groups.chain(bars.marks.iter().map(|mark| (Key::Mark(mark.style), mark.name.clone()))).collect()
        }
    };
    entries.extend(panel.references.iter().map(|reference| (Key::Reference, reference.name().to_owned())));
    entries
}

impl Key {
    fn width(self) -> f64 {
        match self {
            Self::Line(_) | Self::Mark(_) | Self::Reference => LINE_KEY,
            Self::Points(_) | Self::Bar(_) => BOX_KEY,
        }
    }
}

fn draw_key(key: Key, x: f64, y: f64, canvas: &mut Canvas) {
    let ends = [(x, y), (x + key.width(), y)];
    let middle = (x + key.width() / 2.0, y);
    match key {
        Key::Line(style) => {
            canvas.line(ends, Stroke::series(style));
            canvas.marker(marker(style), middle, color(style));
        }
        Key::Points(style) => canvas.marker(marker(style), middle, color(style)),
        Key::Bar(style) => canvas.rect((x, y - 6.0), (x + BOX_KEY, y + 6.0), color(style)),
        Key::Mark(style) => canvas.line(ends, Stroke { width: 2.2, ..Stroke::series(style) }),
        Key::Reference => canvas.line(ends, Stroke::reference()),
    }
}
